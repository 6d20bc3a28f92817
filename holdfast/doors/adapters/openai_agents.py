"""Conversations of the OpenAI Agents SDK in threads, and our tools for its agents."""

import json
from collections.abc import Iterable
from typing import Any

from holdfast.doors.adapters.conversation import HostConversation
from holdfast.doors.adapters.tools import finished, offered, result_of
from holdfast.ground.errors import InvalidInput, MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.tools.base import Tool

try:
    from agents import FunctionTool, RunContextWrapper, TResponseInputItem
    from agents.memory.session_settings import SessionSettings
except ImportError as error:
    raise MissingExtra("openai-agents", command="pip install openai-agents") from error

SOURCE = "openai-agents"


class HoldfastSession:
    """The SDK's session *session_id* on a thread of *hf*.

    Items come back equal to what was given. With *user* it is that user's, and forgotten with the
    user. A write that has begun is done also if its caller is cancelled.
    """

    def __init__(
        self,
        session_id: str,
        hf: "Holdfast | AsyncHoldfast",
        *,
        user: str | None = None,
        session_settings: SessionSettings | None = None,
    ) -> None:
        self._conversation = HostConversation(hf, SOURCE, session_id, user)
        self.session_id = session_id
        self.session_settings: SessionSettings | None = session_settings or SessionSettings()

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the newest *limit* items in order; None takes the limit of the settings."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit <= 0:
            return []
        return await finished(lambda: self._conversation.values(limit))

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Append *items*, all or none, one after another."""
        await finished(lambda: self._conversation.append(items))

    async def pop_item(self) -> TResponseInputItem | None:
        """Take the last item away for good and return it; None if there is none."""
        return await finished(self._conversation.pop)

    async def clear_session(self) -> None:
        """Delete all items for good; the session may go on."""
        await finished(self._conversation.delete)


def tools_for(*toolsets: Iterable[Tool]) -> list[FunctionTool]:
    """Return tools of ours as the SDK takes them; ToolNameTaken if a name repeats."""
    return [_tool(each) for each in offered(toolsets)]


def _tool(tool: Tool) -> FunctionTool:
    async def invoke(context: RunContextWrapper[Any], arguments: str) -> str:
        del context
        return await finished(lambda: _result(tool, arguments))

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=tool.parameters,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def _result(tool: Tool, arguments: str) -> str:
    """Return the result of a call as text; an exception would end the run."""
    try:
        return result_of(tool, json.loads(arguments or "{}"))
    except ToolRefused as refused:
        return str(refused)
    except (ValueError, RecursionError):
        return str(InvalidInput("arguments", "must be JSON", next="Send an object as JSON."))
