"""Long-term memory as a block of LlamaIndex's memory."""

from collections.abc import Iterable
from typing import Any

from holdfast.doors.adapters.blocks import BUDGET, User, UserMemories, latest
from holdfast.doors.adapters.tools import finished, offered
from holdfast.ground.errors import HoldfastError, MissingExtra
from holdfast.memories.longterm.block import LEAST_BUDGET
from holdfast.tools.base import JSON, Tool

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole, TextBlock
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory.memory import BaseMemoryBlock
    from llama_index.core.tools import FunctionTool, ToolMetadata
except ImportError as error:
    raise MissingExtra("llama-index", command="pip install llama-index-core") from error

_SPEAKERS = {MessageRole.USER: "user", MessageRole.ASSISTANT: "assistant"}
_TOKEN_BYTES = 4
"""Bytes of text in a token, about."""


class HoldfastMemoryBlock(BaseMemoryBlock[str]):
    """What is remembered about *user*, by the last message of the conversation.

    What short-term memory lets go of is recorded, by session.
    """

    name: str = "holdfast"
    priority: int = 0
    namespace: str = Field(default="chat", exclude=True)
    k: int = Field(default=5, exclude=True)
    budget: int = Field(default=BUDGET, ge=LEAST_BUDGET, exclude=True)
    _memories: UserMemories = PrivateAttr()
    _queried: tuple[str, str] = PrivateAttr(default=("", ""))

    def __init__(self, *, hf: Any, user: User, **options: Any) -> None:
        super().__init__(**options)
        self._memories = UserMemories(
            hf, user=user, namespace=self.namespace, k=self.k, budget=self.budget
        )

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled."""
        return self._memories.longterm(self._memories.user()) is not None

    async def _aget(self, messages: list[ChatMessage] | None = None, **_: Any) -> str:
        user = self._memories.user()
        said = [_text(each) for each in messages or () if each.role == MessageRole.USER]
        return await self._memories.ablock(user, latest(said))

    async def _aput(self, messages: list[ChatMessage]) -> None:
        user = self._memories.user()
        by_session: dict[str | None, list[dict[str, str]]] = {}
        for each in messages:
            if (role := _SPEAKERS.get(each.role)) is not None:
                session = each.additional_kwargs.get("session_id")
                by_session.setdefault(session, []).append({"role": role, "content": _text(each)})

        def work() -> None:
            for session, said in by_session.items():
                self._memories.remember(user, said, session)

        await finished(work)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return *content* with fewer lines, the last ones left out whole; None if none fits."""
        budget = len(content.encode()) - tokens_to_truncate * _TOKEN_BYTES
        lines = content.split("\n")
        opening, closing = lines[:2], lines[-1:]
        shown = lines[2:-1]
        while shown and _size([*opening, *shown, *closing]) > budget:
            shown.pop()
        return "\n".join([*opening, *shown, *closing]) if shown else None


def tools_for(*toolsets: Iterable[Tool]) -> list[FunctionTool]:
    """Return tools of ours as LlamaIndex takes them; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> FunctionTool:
    def call(**arguments: Any) -> JSON:
        try:
            return tool.call(arguments)
        except HoldfastError as error:
            return str(error)

    async def acall(**arguments: Any) -> JSON:
        return await finished(lambda: call(**arguments))

    return FunctionTool(fn=call, async_fn=acall, metadata=_Metadata(tool))


class _Metadata(ToolMetadata):
    """The metadata of a tool of ours, with its schema as it is."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(description=tool.description, name=tool.name, fn_schema=None)
        self._parameters = tool.parameters

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self._parameters


def _text(message: ChatMessage) -> str:
    return "\n".join(each.text for each in message.blocks if isinstance(each, TextBlock))


def _size(lines: list[str]) -> int:
    return len("\n".join(lines).encode())
