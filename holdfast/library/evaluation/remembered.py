"""A conversation in long-term memory itself, recorded and recalled as by any user."""

from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from typing import cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.library.evaluation.locomo import Conversation, Id
from holdfast.library.evaluation.rows import ALONE
from holdfast.library.open import open
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Recalled, Role, Turn

AT_ONCE = 500
"""Turns that are recorded in one call."""
_KEPT = LongTermOptions(secrets="redact")
"""A turn that seems to hold a secret is asked about like any other."""


class FixedClock(Struct, frozen=True):
    """A clock that stands still."""

    at: datetime

    def now(self) -> datetime:
        """Return the instant it stands at."""
        return self.at


class RecalledConversation:
    """The turns of one conversation, recalled by the library's own call."""

    def __init__(self, memory: LongTermMemory, conversation: Conversation) -> None:
        self._memory = memory
        self._ids: dict[str, Id | None] = {}
        turns = conversation.turns
        for start in range(0, len(turns), AT_ONCE):
            said = turns[start : start + AT_ONCE]
            recorded = memory.record(
                Turn(
                    role=cast("Role", each.role),
                    speaker=each.speaker,
                    text=each.text,
                    caption=each.caption,
                    session=each.session,
                    at=each.at,
                )
                for each in said
            )
            left_out = {each.index for each in recorded.skipped}
            kept = (each for index, each in enumerate(said) if index not in left_out)
            for stored, each in zip(recorded.turns, kept, strict=True):
                self._ids[stored.id] = each.id
        self.mode = memory.status().mode

    def ranked(self, question: str, k: int) -> list[Id | None]:
        """Return the turns that answer best, by similarity alone, whatever it is."""
        return self._among(
            self._memory.recall(
                question, k, what="turns", weights=ALONE, min_relevance=0, touch=False
            )
        )

    def as_shipped(self, question: str, k: int) -> list[Id | None]:
        """Return the turns that a recall with nothing but defaults gives."""
        return self._among(self._memory.recall(question, k, what="turns", touch=False))

    def _among(self, recalled: list[Recalled]) -> list[Id | None]:
        return [self._ids[each.id] for each in recalled]


@contextmanager
def remembered(conversation: Conversation) -> Generator[RecalledConversation]:
    """Give *conversation* as one user's long-term memory, in an engine of its own.

    Raises InvalidInput where a variable switches long-term memory off.
    """
    with open(":memory:", clock=FixedClock(conversation.ends)) as hf:
        memory = hf.longterm("user", enabled=True, embedder=False, options=_KEPT)
        if memory is None:
            next = "Unset it for this command."
            raise InvalidInput("HOLDFAST_LTM_ENABLED", "switches recall off", next=next)
        yield RecalledConversation(memory, conversation)
