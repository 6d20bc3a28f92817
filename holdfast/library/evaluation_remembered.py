"""Record and recall a conversation with long-term memory itself."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.library.evaluation import Conversation, Id
from holdfast.library.evaluation_rows import ALONE
from holdfast.library.open import open
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Recalled, Role, Turn

AT_ONCE = 500
"""Turns recorded in one call."""
_OPTIONS = LongTermOptions(secrets="redact")
"""Turns with a suspected secret are redacted, and still evaluated."""


class FixedClock(Struct, frozen=True):
    """A clock with a fixed time."""

    at: datetime

    def now(self) -> datetime:
        """Return the fixed instant."""
        return self.at


class RecalledConversation:
    """Turns of one conversation, recalled with the library's own call."""

    def __init__(self, memory: LongTermMemory, conversation: Conversation) -> None:
        self._memory = memory
        self._ids: dict[str, Id | None] = {}
        turns = conversation.turns
        for start in range(0, len(turns), AT_ONCE):
            batch = turns[start : start + AT_ONCE]
            recorded = memory.record(
                Turn(
                    role=cast("Role", each.role),
                    speaker=each.speaker,
                    text=each.text,
                    caption=each.caption,
                    session=each.session,
                    at=each.at,
                )
                for each in batch
            )
            left_out = {each.index for each in recorded.skipped}
            recorded_turns = (each for index, each in enumerate(batch) if index not in left_out)
            for stored, each in zip(recorded.turns, recorded_turns, strict=True):
                self._ids[stored.id] = each.id
        self.mode = memory.status().mode

    def ranked(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of the best similarity, however low."""
        return self._among(
            self._memory.recall(
                question, k, what="turns", weights=ALONE, min_relevance=0, touch=False
            )
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns of a recall with default options."""
        return self._among(self._memory.recall(question, k, what="turns", touch=False))

    def _among(self, recalled: list[Recalled]) -> list[Id | None]:
        return [self._ids[each.id] for each in recalled]


@contextmanager
def remembered(conversation: Conversation) -> Generator[RecalledConversation]:
    """Yield *conversation* as one user's long-term memory, in its own engine.

    Raises InvalidInput if an environment variable disables long-term memory.
    """
    with open(":memory:", clock=FixedClock(conversation.ends)) as hf:
        memory = hf.longterm("user", enabled=True, embedder=False, options=_OPTIONS)
        if memory is None:
            next = "Unset it for this command."
            raise InvalidInput("HOLDFAST_LTM_ENABLED", "switches recall off", next=next)
        yield RecalledConversation(memory, conversation)
