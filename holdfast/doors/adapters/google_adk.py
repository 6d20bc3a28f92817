"""Long-term memory behind Google ADK's memory service."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.doors.adapters.tools import blocking_handle, finished, required
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import MissingExtra
from holdfast.library.aio import AsyncHoldfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.records import LongTermOptions, Recalled

try:
    from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
    from google.adk.memory.memory_entry import MemoryEntry
    from google.genai import types
except ImportError as error:
    raise MissingExtra("google-adk", command="pip install google-adk") from error

if TYPE_CHECKING:
    from google.adk.events.event import Event
    from google.adk.sessions.session import Session

RECALLED: Final = 10
_KINDS: Final = frozenset({"fact", "preference", "decision", "event"})

_log = logging.getLogger(__name__)


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
        self._hf = blocking_handle(hf)
        self._models = {"embedder": embedder, "extractor": extractor, "options": options}

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
        said = [each for each in map(_message, events) if each is not None]

        def work() -> None:
            memory = self._memory(app_name, user_id)
            if memory is not None and said:
                memory.remember_conversation(said, session_id)

        await finished(work)

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

        def work() -> None:
            memory = self._memory(app_name, user_id)
            for entry in memories if memory is not None else ():
                text = _text(entry.content)
                if memory is None or not text:
                    continue
                done = memory.remember(
                    text, _kind(entry.custom_metadata), _importance(entry.custom_metadata)
                )
                if done.outcome == "secret":
                    _log.warning("a secret was not remembered: %s", ", ".join(done.reasons))

        await finished(work)

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """Return what is remembered for *query*, best first; nothing if nothing fits."""

        def work() -> list[MemoryEntry]:
            memory = self._memory(app_name, user_id)
            found = memory.recall(query, RECALLED) if memory is not None and query.strip() else []
            return [_entry(each) for each in found]

        return SearchMemoryResponse(memories=await finished(work))

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Forget the entry *memory_id* for good; one that is unknown here is no error."""

        def work() -> None:
            memory = self._memory(app_name, user_id)
            if memory is not None and memory_id:
                memory.forget(memory_id)

        await finished(work)

    def _memory(self, app_name: str, user_id: str) -> Any:
        required("app_name", app_name)
        required("user_id", user_id)
        return self._hf.longterm(user_id, namespace=f"adk:{app_name}", enabled=True, **self._models)


def _message(event: "Event") -> dict[str, Any] | None:
    """Return *event* as a message to record; None for one without text of its own."""
    text = _text(event.content)
    if not text or event.partial:
        return None
    by_user = event.author == "user"
    message: dict[str, Any] = {
        "role": "user" if by_user else "assistant",
        "content": text,
        "at": to_rfc3339(datetime.fromtimestamp(event.timestamp, UTC)),
    }
    if not by_user and event.author:
        message["name"] = event.author
    return message


def _text(content: "types.Content | None") -> str:
    parts = content.parts if content is not None else None
    texts = [each.text for each in parts or () if each.text and not each.thought]
    return "\n".join(texts).strip()


def _kind(metadata: Mapping[str, Any]) -> str:
    kind = metadata.get("kind")
    return kind if kind in _KINDS else "fact"


def _importance(metadata: Mapping[str, Any]) -> float:
    given = metadata.get("importance")
    number = isinstance(given, int | float) and not isinstance(given, bool)
    return float(given) if number and 0 <= given <= 1 else 0.5


def _entry(found: Recalled) -> MemoryEntry:
    item, turn = found.item, found.turn
    at = item.created_at if item else turn and (turn.at or turn.created_at)
    return MemoryEntry(
        content=types.Content(role="user", parts=[types.Part(text=found.text)]),
        id=found.id,
        author=(turn.speaker or turn.role) if turn else "user",
        timestamp=to_rfc3339(at) if at else None,
        custom_metadata={
            "kind": item.kind if item else None,
            "score": found.score,
            "why": str(found.why["text"]),
        },
    )
