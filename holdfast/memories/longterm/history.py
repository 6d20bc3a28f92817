"""What was believed at an earlier moment: items and turns as of then.

An item that never changed has no history; its row is its state since it was created. The first
change writes that state to the history, and each change the state after it. What was forgotten is
gone from the history too.
"""

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import TIME, base62
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.records import Item, Turn
from holdfast.memories.longterm.rows import (
    ItemRow,
    ItemState,
    Moment,
    TurnRow,
    numbers_text,
    was_there,
)
from holdfast.memories.longterm.validation import checked_instant, microseconds


def moment_of(context: CollectionContext, at: object, valid_at: object) -> Moment | None:
    """Validate the times of an answer: aware datetimes or RFC 3339, not in the future.

    None if both are None: the present.
    """
    if at is None and valid_at is None:
        return None
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
