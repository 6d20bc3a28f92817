"""What was believed at an earlier moment: items and turns as of then.

An item that never changed has no history; its row is its state since it was created. The first
change writes that state to the history, and each change the state after it. What was forgotten is
gone from the history too.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import TIME, base62
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Item, Kind, Tier, Turn
from holdfast.memories.longterm.rows import ItemRow, TurnRow, numbers_text
from holdfast.memories.longterm.validation import checked_instant, microseconds

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


def moment_of(context: CollectionContext, at: object, valid_at: object) -> Moment:
    """Validate the times of an answer: aware datetimes or RFC 3339, not in the future."""
    return Moment(
        at=_past(context, "at", checked_instant("at", at)),
        valid_at=_past(context, "valid_at", checked_instant("valid_at", valid_at)),
    )


def _past(context: CollectionContext, field: str, instant: datetime | None) -> int | None:
    if instant is None:
        return None
    found = microseconds(instant, 0)
    if found > context.now():
        raise InvalidInput(field, "is in the future", given=instant)
    return found


def was_there(id: str, at: int) -> bool:
    """Check whether the row *id* was made by the instant *at*."""
    prefix, _, rest = id.partition("_")
    return bool(prefix) and rest[:TIME] <= base62(at, TIME)


def states(
    context: CollectionContext, reader: Reader, collection: int, moment: Moment
) -> list[ItemState]:
    """Return the items as they were, in order of recording."""
    at = context.now() if moment.at is None else moment.at
    found = reader.all(ItemState, context.sql.states_at, collection=collection, at=at)
    return [each for each in found if moment.holds(each.valid_from, each.valid_to)]


def items_of(
    context: CollectionContext,
    reader: Reader,
    collection: int,
    wanted: Iterable[ItemState],
    at: int,
) -> dict[int, Item]:
    """Return the items of the states *wanted* by number, as they were."""
    by_number = {each.number: each for each in wanted}
    if not by_number:
        return {}
    rows = reader.all(
        ItemRow,
        context.sql.items_numbered,
        collection=collection,
        numbers=numbers_text(set(by_number)),
    )
    return {row.number: by_number[row.number].of(row.record(), at) for row in rows}


def turns_of(
    context: CollectionContext, reader: Reader, collection: int, numbers: set[int], at: int
) -> dict[int, Turn]:
    """Return the turns called *numbers* that were recorded by then."""
    if not numbers:
        return {}
    rows = reader.all(
        TurnRow,
        context.sql.turns_numbered,
        collection=collection,
        numbers=numbers_text(numbers),
    )
    return {row.number: _as_of(row.record(), at) for row in rows if row.created_at <= at}


def erased_since(
    context: CollectionContext, reader: Reader, collection: int, kind: str, at: int
) -> int:
    """Count the rows of *kind* that were there at that instant and were forgotten since."""
    rows = reader.rows(
        context.sql.erased_since,
        collection=collection,
        at=at,
        first=f"{kind}_",
        last=f"{kind}_{base62(at + 1, TIME)}",
    )
    return rows[0][0]


def _as_of(turn: Turn, at: int) -> Turn:
    return replace(turn, items=tuple(id for id in turn.items if was_there(id, at)))
