"""What long-term memory keeps, and what its calls answer.

An item is something believed about a user, in one sentence; a turn is what was literally said.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.ground.errors import shortened

Kind = Literal["fact", "preference", "decision", "event"]
Origin = Literal["api", "tool", "extraction", "import"]
Role = Literal["user", "assistant"]
Outcome = Literal[
    "stored", "duplicate", "secret", "blank", "forgotten", "unconfirmed", "over_limit"
]
SkipReason = Literal["role", "blank", "seen", "secret", "forgotten"]
Mode = Literal["lexical", "hybrid", "re-embedding"]
What = Literal["all", "items", "turns"]
Why = Mapping[str, object]


class Item(Struct, frozen=True, kw_only=True):
    """Something believed about a user.

    `turns` are the ids of the turns it came from, oldest first; `origin` is who put it there,
    from which its trust follows. One that was superseded is kept, and not recalled.
    """

    id: str
    text: str
    kind: Kind
    importance: float
    origin: Origin
    source: str
    turns: tuple[str, ...]
    supersedes: tuple[str, ...]
    superseded_by: str | None
    superseded_at: datetime | None
    created_at: datetime
    updated_at: datetime
    last_accessed_at: datetime | None
    access_count: int


class Turn(Struct, frozen=True, kw_only=True):
    """What was said. Role and text are all that is needed to record one.

    `at` is when it was said, now unless given; a `session` is one sitting, the thread unless
    given; a `caption` describes an image, and is found by but no part of the text. `id`,
    `created_at` and `items`, the ids of the items that came from it, are set by us.
    """

    role: Role
    text: str
    speaker: str | None = None
    at: datetime | None = None
    session: str | None = None
    thread_id: str | None = None
    caption: str | None = None
    id: str = ""
    items: tuple[str, ...] = ()
    created_at: datetime | None = None


class Recalled(Struct, frozen=True, kw_only=True):
    """One thing found again, and why. Numbers are 0 to 1.

    Either `item` or `turn` is None; `neighbours` are the turns before and after it in its
    sitting, for a turn.
    """

    item: Item | None
    turn: Turn | None
    score: float
    similarity: float
    relevance: float
    recency: float
    importance: float
    neighbours: tuple[Turn | None, Turn | None] | None
    why: Why

    def __repr__(self) -> str:
        """Show text, score and reason in a line; the attributes have the rest."""
        found = self.item or self.turn
        text = shortened(" ".join(found.text.split())) if found else None
        reason = shortened(self.why.get("text", ""))
        return f"Recalled({text!r}, score={self.score:.2f}, why={reason!r})"

    @property
    def id(self) -> str:
        """The id of what was found."""
        return _found(self).id

    @property
    def text(self) -> str:
        """The text of what was found."""
        return _found(self).text


def _found(recalled: Recalled) -> Item | Turn:
    found = recalled.item or recalled.turn
    if found is None:
        raise ValueError("a Recalled holds an item or a turn")
    return found


class Remembered(Struct, frozen=True, kw_only=True):
    """What became of remembering: the item that now holds it, or None and why.

    `reasons` are the kinds of secret it held, for which it was refused or which were redacted;
    `evicted` the ids of items that made room.
    """

    stored: Item | None
    outcome: Outcome
    reasons: tuple[str, ...] = ()
    evicted: tuple[str, ...] = ()


class Skipped(Struct, frozen=True):
    """A turn of a batch that was not recorded, by its place, and why."""

    index: int
    reason: SkipReason


class Recorded(Struct, frozen=True, kw_only=True):
    """What became of recording: the turns as stored, those passed over, and whether to be mined.

    `evicted` are the ids of turns that made room.
    """

    turns: tuple[Turn, ...]
    skipped: tuple[Skipped, ...] = ()
    queued: bool = False
    evicted: tuple[str, ...] = ()


class Flushed(Struct, frozen=True, kw_only=True):
    """How far work in the background is: whether it is done, and what came of it."""

    done: bool
    results: tuple[Remembered, ...] = ()
    pending: int = 0
    failed: int = 0


class ForgetResult(Struct, frozen=True, kw_only=True):
    """The ids of what was forgotten; false when nothing was there."""

    items: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.items or self.turns)


class Cleared(Struct, frozen=True, kw_only=True):
    """How many items and turns were cleared."""

    items: int = 0
    turns: int = 0


class Imported(Struct, frozen=True, kw_only=True):
    """What became of an import: how many were stored, how many were there already.

    `rejected` says which records could not go in, by their place, and why; `evicted` are the ids
    of what made room.
    """

    items: int = 0
    turns: int = 0
    skipped: int = 0
    rejected: tuple["RejectedRecord", ...] = ()
    evicted: tuple[str, ...] = ()


class RejectedRecord(Struct, frozen=True):
    """A record that was not imported, by its place, and why."""

    index: int
    reason: str


class LongTermStatus(Struct, frozen=True, kw_only=True):
    """How a collection is: how it is recalled from, how much it holds, what waits."""

    mode: Mode
    reason: str | None
    embedding_model: str | None
    vector_provider: str | None
    items: int
    superseded: int
    turns: int
    pending_extraction: int
    pending_embedding: int
    failed: int
    max_items: int
