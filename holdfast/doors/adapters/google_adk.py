"""Long-term memory behind Google ADK's memory service; tools for its agents."""

import html
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.doors.adapters.blocks import UserMemories
from holdfast.doors.adapters.conversation import plain_name, thread_id
from holdfast.doors.adapters.tools import finished, offered, required, result_of
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import MissingExtra, ToolRefused
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions, Recalled
from holdfast.tools.base import Tool

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.adk.tools.base_tool import BaseTool
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", command="pip install google-adk") from error

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session
    from google.adk.tools.tool_context import ToolContext

RECALLED: Final = 10


class HoldfastMemoryService(BaseMemoryService):
    """ADK's memory service on the long-term memory of *hf*.

    The user of a session is the user of the memory, and the app a namespace of its own: neither
    reaches another's. Where HOLDFAST_LTM_ENABLED=0 disables long-term memory, nothing is stored
    and searches are empty.
    """

    def __init__(
        self,
        hf: "Holdfast | AsyncHoldfast",
        *,
        embedder: Any = None,
        extractor: Any = None,
        options: LongTermOptions | None = None,
    ) -> None:
        self._memories = UserMemories(
            hf, user=str, k=RECALLED, embedder=embedder, extractor=extractor, options=options
        )

    @property
    def enabled(self) -> bool:
        """Whether long-term memory is enabled, as far as is known."""
        return self._memories.enabled

    async def add_session_to_memory(self, session: "Session") -> None:
        """Record the events of *session* that are not recorded yet."""
        await self.add_events_to_memory(
            app_name=session.app_name,
            user_id=session.user_id,
            events=session.events,
            session_id=session.id,
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: "Sequence[Event]",
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Record *events*; one whose id was recorded in the session is skipped."""
        del custom_metadata
        user, namespace = _scope(app_name, user_id)
        thread = None if session_id is None else plain_name(session_id)
        said = [each for each in map(_message, events) if each is not None]
        await finished(lambda: self._memories.remember(user, said, thread, namespace))

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: "Sequence[MemoryEntry]",
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Remember the text of each entry; a secret is not stored, and logged by its kind."""
        del custom_metadata
        user, namespace = _scope(app_name, user_id)

        def work() -> None:
            for each in memories:
                text = _text(each.content)
                self._memories.remember_text(user, text, each.custom_metadata, namespace)

        await finished(work)

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return what is remembered for *query*, best first; nothing if nothing fits.

        ADK writes the texts into prompts as they are, so each is one line without markup.
        """
        user, namespace = _scope(app_name, user_id)
        found = await finished(lambda: self._memories.recalled(user, query, namespace))
        return SearchMemoryResponse(memories=[_entry(each) for each in found])

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Forget the entry *memory_id* for good; one that is unknown here is no error."""
        user, namespace = _scope(app_name, user_id)

        def work() -> None:
            memory = self._memories.longterm(user, namespace)
            if memory is not None and memory_id:
                memory.forget(memory_id)

        await finished(work)


def tools_for(*toolsets: Iterable[Tool]) -> list[BaseTool]:
    """Return tools of ours as ADK takes them; ToolNameTaken if a name repeats."""
    return [_HoldfastTool(each) for each in offered(toolsets)]


class _HoldfastTool(BaseTool):
    """One tool of ours; a mistake of the model reaches it as `error`."""

    def __init__(self, tool: Tool) -> None:
        super().__init__(name=tool.name, description=tool.description)
        self._tool = tool

    def _get_declaration(self) -> types.FunctionDeclaration:
        return types.FunctionDeclaration(
            name=self.name,
            description=self.description,
            parameters_json_schema=self._tool.parameters,
        )

    async def run_async(
        self, *, args: dict[str, Any], tool_context: "ToolContext"
    ) -> dict[str, str]:
        """Return the `result` of a call, or the `error`."""
        del tool_context
        try:
            return {"result": await finished(lambda: result_of(self._tool, args))}
        except ToolRefused as refused:
            return {"error": str(refused)}


def _scope(app_name: str, user_id: str) -> tuple[str, str]:
    """Return the user and the namespace; InvalidInput if either is not named."""
    app = required("app_name", app_name)
    return required("user_id", user_id), thread_id("adk", app)


def _message(event: "Event") -> dict[str, Any] | None:
    """Return *event* as a message to record; None for one without text of its own."""
    text = _text(event.content)
    if not text or event.partial:
        return None
    by_user = event.author == "user"
    return {
        "role": "user" if by_user else "assistant",
        "content": text,
        "name": None if by_user else event.author,
        "at": datetime.fromtimestamp(event.timestamp, UTC),
        "event_id": plain_name(event.id) if event.id else None,
    }


def _text(content: "types.Content | None") -> str:
    parts = content.parts if content is not None else None
    texts = [each.text for each in parts or () if each.text and not each.thought]
    return "\n".join(texts).strip()


def _line(text: str) -> str:
    """Return *text* on one line and without markup, so that it stays in its block."""
    return html.escape(" ".join(text.split()), quote=False)


_PART: Final = types.Part(text="")
_CONTENT: Final = types.Content(role="user", parts=[])


def _content(text: str) -> types.Content:
    """Return *text* as a content; a copy takes a quarter of the time of a new one."""
    return _CONTENT.model_copy(update={"parts": [_PART.model_copy(update={"text": text})]})


def _entry(found: Recalled) -> MemoryEntry:
    item, turn = found.item, found.turn
    at = item.created_at if item else turn and (turn.at or turn.created_at)
    return MemoryEntry(
        content=_content(_line(found.text)),
        id=found.id,
        author=_line(turn.speaker or turn.role) if turn else "user",
        timestamp=to_rfc3339(at) if at else None,
        custom_metadata={
            "kind": item.kind if item else None,
            "score": found.score,
            "why": str(found.why["text"]),
        },
    )
