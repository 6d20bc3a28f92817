"""Where a list by age begins and ends, and where its next page does."""

from datetime import UTC, datetime

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Key, read_cursor

BEGINNING, END = 0, 2**63 - 1
"""Microseconds since 1970 that no instant lies outside of."""

LAST_ID = "~"
"""Sorts after every id."""


def bounds(
    *,
    gt: datetime | None = None,
    gte: datetime | None = None,
    lt: datetime | None = None,
    lte: datetime | None = None,
) -> tuple[int, int]:
    """Return the first and last microsecond since 1970 within all the bounds given.

    An instant without a zone is UTC.
    """
    since = max(
        BEGINNING if gte is None else _microseconds("created_at_gte", gte),
        BEGINNING if gt is None else _microseconds("created_at_gt", gt) + 1,
    )
    until = min(
        END if lte is None else _microseconds("created_at_lte", lte),
        END if lt is None else _microseconds("created_at_lt", lt) - 1,
    )
    return since, until


def age_key(created_at: datetime, id: str) -> Key:
    """Return what the cursor after a thing of this age and id holds."""
    return [to_microseconds(created_at), id]


def after_age(page: str | None, list: str, filters: str, newest: int) -> Key:
    """Return the (age, id) that a page of a list, newest first, comes after."""
    return [newest, LAST_ID] if page is None else checked_age(read_cursor(list, filters, page)[0])


def checked_age(key: Key) -> Key:
    """Return *key*, read from a cursor, if it is an (age, id); InvalidInput if it was made up."""
    match key:
        case [int(at), str(id)] if 0 <= at <= END and id.isascii() and id.isprintable():
            return key
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )


def _microseconds(field: str, instant: object) -> int:
    if not isinstance(instant, datetime):
        raise InvalidInput(field, "must be a datetime", given=instant)
    return to_microseconds(instant if instant.tzinfo else instant.replace(tzinfo=UTC))
