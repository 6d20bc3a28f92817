"""A scripted model for agents of pydantic-ai, and what tests read of memory."""

from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelResponse,
    TextPart,
    ToolCallPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.doors.adapters.pydantic_ai import HoldfastMemory
from holdfast.library.holdfast import Holdfast

OPENING, CLOSING = "<recalled-memories>", "</recalled-memories>"

Reply = str | ToolCallPart | ModelResponse


class Script:
    """Returns the scripted replies in turn, then "Done.", and records each request."""

    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)
        self.requests: list[list[ModelMessage]] = []
        self.infos: list[AgentInfo] = []
        self.model = FunctionModel(self._reply)

    def _reply(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.requests.append(messages)
        self.infos.append(info)
        reply = self._replies.pop(0) if self._replies else "Done."
        if isinstance(reply, ModelResponse):
            return reply
        return ModelResponse([TextPart(reply) if isinstance(reply, str) else reply])

    def shown(self, request: int = -1) -> list[str]:
        """Return the texts of one request."""
        parts = [part for message in self.requests[request] for part in message.parts]
        return [str(getattr(each, "content", "")) for each in parts]

    def blocks(self, request: int = -1) -> list[str]:
        """Return the recalled blocks in one request."""
        return [each for each in self.shown(request) if each.startswith(OPENING)]

    def instructions(self, request: int = -1) -> str:
        """Return the instructions of one request."""
        return self.infos[request].instructions or ""

    def offered(self, request: int = -1) -> list[str]:
        """Return the names of the tools of one request."""
        return [each.name for each in self.infos[request].function_tools]


def called(name: str, **arguments: Any) -> ToolCallPart:
    return ToolCallPart(name, arguments)


def agent_of(script: Script, *memories: HoldfastMemory, **more: Any) -> Agent[Any, str]:
    return Agent(script.model, capabilities=list(memories), deps_type=object, **more)


def texts(hf: Holdfast, user: str) -> list[tuple[str, str, str | None]]:
    """Return the turns that are remembered of *user*, oldest first."""
    found = hf.longterm_data(user).list("turns", limit=100).data
    return [(each.role, each.text, each.thread_id) for each in reversed(found)]


def remembered(hf: Holdfast, text: str, user: str = "ada") -> str:
    """Remember *text*, and return its id."""
    memory = hf.longterm(user, enabled=True)
    assert memory is not None
    stored = memory.remember(text).stored
    assert stored is not None
    return stored.id


def as_json(messages: list[ModelMessage]) -> str:
    return ModelMessagesTypeAdapter.dump_json(messages).decode()


def holding(folder: Path, mark: str) -> list[str]:
    """Return the files in *folder* that hold *mark*."""
    return [each.name for each in folder.iterdir() if mark.encode() in each.read_bytes()]
