"""Rows of long-term memory, and the records and postings made from them."""

from typing import Final, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.ids import TIME as TIME_WIDTH
from holdfast.ground.ids import base62
from holdfast.ground.trust import gives_orders
from holdfast.memories.longterm.recall.analyze import flags_of
from holdfast.memories.longterm.recall.form import form_of
from holdfast.memories.longterm.records import (
    HoldReason,
    Item,
    Kind,
    Origin,
    Role,
    Tier,
    Turn,
)

QUESTION, FIRST_PERSON, TIME = 1, 2, 4
ASKS_ONLY, SAYS_NOTHING = 8, 16
"""The bits of a row's flags. The last two are of turns that are no statement."""
NO_STATEMENT = ASKS_ONLY | SAYS_NOTHING
ORDERS = 32
"""The bit of a text that reads as an order to a machine."""

_ids = msgspec.json.Decoder(tuple[str, ...])


class Collection(Struct, frozen=True, kw_only=True):
    """A collection as it is stored."""

    number: int
    id: str
    version: int
    redone: int
    marks: int
    items: int
    superseded: int
    turns: int
    analyzer: int
    indexed: int
    mean_rows: int | None
    mean_length: float | None
    mean_window: float | None
    embedding_model: str | None
    vector_provider: str | None
    extractor: str | None
    mined_at: int | None
    held: int

    @property
    def rows(self) -> int:
        """How many rows may be recalled."""
        return self.items - self.superseded + self.turns


class Locked(Collection, frozen=True, kw_only=True):
    """A collection within a write, with the secret and the number of tombstones."""

    secret: bytes | None
    buried: int


class ItemRow(Struct, frozen=True):
    """An item as it is stored, with the ids of linked rows."""

    number: int
    id: str
    text: str
    kind: str
    importance: float
    origin: str
    source: str
    turns: str
    supersedes: str
    superseded_by: str | None
    superseded_at: int | None
    created_at: int
    updated_at: int
    tier: str
    flags: int
    held: str | None
    said_by: str
    origin_ref: str
    valid_from: int
    valid_to: int | None
    last_accessed_at: int | None
    access_count: int

    def record(self) -> Item:
        """Convert the row to an item."""
        return Item(
            id=self.id,
            text=self.text,
            kind=cast("Kind", self.kind),
            importance=self.importance,
            origin=cast("Origin", self.origin),
            source=self.source,
            turns=_ids.decode(self.turns),
            supersedes=_ids.decode(self.supersedes),
            superseded_by=self.superseded_by,
            superseded_at=from_microseconds_or_none(self.superseded_at),
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.updated_at),
            last_accessed_at=from_microseconds_or_none(self.last_accessed_at),
            access_count=self.access_count,
            tier=cast("Tier", self.tier),
            flags=self.flags,
            held=cast("HoldReason | None", self.held),
            origin_ref=self.origin_ref or None,
            valid_from=from_microseconds(self.valid_from),
            valid_to=from_microseconds_or_none(self.valid_to),
        )


class TurnRow(Struct, frozen=True):
    """A turn as it is stored, with the ids of the items that came from it."""

    number: int
    id: str
    role: str
    text: str
    speaker: str
    at: int
    session: str
    thread_id: str
    caption: str
    created_at: int
    tier: str
    flags: int
    held: str | None
    said_by: str
    origin_ref: str
    items: str

    def record(self) -> Turn:
        """Convert the row to a turn."""
        return Turn(
            id=self.id,
            role=cast("Role", self.role),
            text=self.text,
            speaker=self.speaker or None,
            at=from_microseconds(self.at),
            session=self.session or None,
            thread_id=self.thread_id or None,
            caption=self.caption or None,
            created_at=from_microseconds(self.created_at),
            tier=cast("Tier", self.tier),
            by=self.said_by or None,
            origin_ref=self.origin_ref or None,
            held=cast("HoldReason | None", self.held),
            items=_ids.decode(self.items),
        )


EVER: Final = 2**62
"""An instant after all others, in microseconds since 1970."""


class Moment(Struct, frozen=True, kw_only=True):
    """The two times of an answer, in microseconds since 1970.

    `at` is when it was believed, `valid_at` when it was true; None for now.
    """

    at: int | None = None
    valid_at: int | None = None

    def holds(self, valid_from: int, valid_to: int | None) -> bool:
        """Check whether what was true in that span was true at `valid_at`."""
        instant = self.valid_at
        return instant is None or valid_from <= instant < (EVER if valid_to is None else valid_to)


class ItemState(Struct, frozen=True, kw_only=True):
    """An item as it was at one moment."""

    number: int
    id: str
    created_at: int
    updated_at: int
    text: str
    kind: str
    importance: float
    tier: str
    valid_from: int
    valid_to: int | None
    changed: int
    """1 if its text was another one than today."""

    def of(self, item: Item, at: int) -> Item:
        """Return *item*, which is the item of today, as it was at that instant."""
        return replace(
            item,
            text=self.text,
            kind=cast("Kind", self.kind),
            importance=self.importance,
            tier=cast("Tier", self.tier),
            turns=tuple(id for id in item.turns if was_there(id, at)),
            supersedes=tuple(id for id in item.supersedes if was_there(id, at)),
            superseded_by=None,
            superseded_at=None,
            updated_at=from_microseconds(self.updated_at),
            last_accessed_at=None,
            access_count=0,
            held=None,
            valid_from=from_microseconds(self.valid_from),
            valid_to=from_microseconds_or_none(self.valid_to),
        )


def was_there(id: str, at: int) -> bool:
    """Check whether the row *id* was made by the instant *at*."""
    prefix, _, rest = id.partition("_")
    return bool(prefix) and rest[:TIME_WIDTH] <= base62(at, TIME_WIDTH)


class NumberedRow(Struct, frozen=True):
    """A row, by its number."""

    number: int


def bits_of(text: str, caption: str | None = None) -> int:
    """Return the flags of a text as they are stored."""
    flags = flags_of(text, caption)
    return (
        (QUESTION if flags.question else 0)
        | (FIRST_PERSON if flags.first_person else 0)
        | (TIME if flags.time else 0)
        | (ORDERS if gives_orders(text, caption) else 0)
    )


_FORM_BITS = {"statement": 0, "question": ASKS_ONLY}


def bits_of_turn(text: str, caption: str | None = None) -> int:
    """Return the flags of a turn as they are stored, those of its form among them."""
    return bits_of(text, caption) | _FORM_BITS.get(form_of(text, caption), SAYS_NOTHING)


def numbers_text(numbers: "list[int] | tuple[int, ...] | set[int]") -> str:
    """Encode *numbers* for a statement: a JSON array, ascending."""
    return msgspec.json.encode(sorted(numbers)).decode()


def ids_text(ids: "list[str] | tuple[str, ...]") -> str:
    """Encode *ids* for a statement: a JSON array."""
    return msgspec.json.encode(ids).decode()
