"""Where a page of a list begins whose newest stand first."""

from typing import Final

from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import read_cursor

PER_PAGE: Final = 20
MOST_LISTED: Final = 1_000
NEWEST: Final = 2**63 - 1
"""No instant and no number is above it."""
LAST_ID: Final = "~"
"""Sorts after every id."""


def by_age(list: str, stamp: str, page: str | None) -> tuple[int, str]:
    """Return the instant and the id that *page* of *list* comes after; InvalidInput if none."""
    if page is None:
        return NEWEST, LAST_ID
    match read_cursor(list, stamp, page)[0]:
        case [int(at), str(id)] if -NEWEST <= at <= NEWEST and id.isascii() and id.isprintable():
            return at, id
        case _:
            raise no_cursor()


def no_cursor() -> InvalidInput:
    """Return the error of a cursor that was made up."""
    return InvalidInput("page", "is not a cursor of this list", next="Start again without page.")
