"""What there is in a run, page by page and without values: keys, titles, kinds and sizes."""

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Literal, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import milliseconds_text
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import digest, read_cursor, write_cursor
from holdfast.memories.run.entry import EVERYTHING, EntryFilter, filter_of
from holdfast.memories.run.rendering import one_line

PAGE_MOST: Final = 200
DESCRIPTION_SHOWN: Final = 240
"""Characters of a description that a list shows."""

Order = Literal["newest", "oldest"]
ORDERS: Final[tuple[Order, ...]] = ("newest", "oldest")

_LIST: Final = "run.entries"
_encode: Final = msgspec.json.Encoder().encode


class Listed(Protocol):
    """What a list tells of an entry; times are milliseconds since 1970."""

    @property
    def key(self) -> str:
        """Its key."""
        ...

    @property
    def kind(self) -> str:
        """What it is."""
        ...

    @property
    def source(self) -> str | None:
        """Who produced it."""
        ...

    @property
    def title(self) -> str | None:
        """What it is called."""
        ...

    @property
    def description(self) -> str | None:
        """What it is about."""
        ...

    @property
    def value_bytes(self) -> int:
        """How large its value is."""
        ...

    @property
    def created_at(self) -> int:
        """When its key was first written."""
        ...

    @property
    def updated_at(self) -> int:
        """When its key was last written."""
        ...

    @property
    def version(self) -> int:
        """How often its key was written."""
        ...

    @property
    def failed(self) -> bool:
        """Whether it is of something that failed."""
        ...


L = TypeVar("L", bound=Listed)


class EntryPageRequest(Struct, frozen=True, kw_only=True):
    """Which page is asked for; what is None is as the cursor says, or else as usual."""

    among: EntryFilter | None = None
    order: Order | None = None
    limit: int = PAGE_MOST
    page: str | None = None


class _Position(Struct, frozen=True, kw_only=True):
    """Where a page begins: after *last*, a time and a number of write, or at the beginning."""

    among: EntryFilter
    order: Order
    last: tuple[int, int] | None = None


def list_page(
    entries: Sequence[L],
    numbers: Mapping[str, int],
    asked: EntryPageRequest,
    *,
    run_id: str,
    budget: int | None = None,
) -> dict[str, JSON]:
    """Return a page of *entries*, as the list tool answers it.

    They are in the order of their last write, by time and then by *numbers*, the number of each
    key's last write. With *budget* the page ends before the entry that would make its compact JSON
    longer, though never before the first.
    """
    start = _position(asked, run_id)
    matches = start.among.chosen(entries) if start.among != EVERYTHING else entries
    page = _after(matches, numbers, start, asked.limit)
    told = [described(each) for each in page]

    def answer(count: int) -> dict[str, JSON]:
        cursor = None
        if count and _more(matches, numbers, page[count - 1], start.order):
            cursor = _cursor(start, page[count - 1], numbers, run_id)
        return {
            "total": len(matches),
            "returned": count,
            "truncated": cursor is not None,
            "next_page": cursor,
            "entries": cast("list[JSON]", told[:count]),
        }

    if budget is None:
        return answer(len(told))
    count = _count_within(told, budget)
    while count > 1 and len(_encode(answer(count)).decode()) > budget:
        count -= 1
    return answer(count)


def described(entry: Listed) -> dict[str, JSON]:
    """Return what a list tells of *entry*; what is None is left out."""
    told: dict[str, JSON] = {"key": entry.key, "kind": entry.kind}
    if entry.title is not None:
        told["title"] = one_line(entry.title)
    if entry.description is not None:
        told["description"] = _cut(entry.description)
    if entry.source is not None:
        told["source"] = entry.source
    told["valueBytes"] = entry.value_bytes
    told["createdAt"] = milliseconds_text(entry.created_at)
    told["updatedAt"] = milliseconds_text(entry.updated_at)
    told["version"] = entry.version
    if entry.failed:
        told["failed"] = True
    return told


def checked_order(given: object) -> Order:
    """Return *given* if it is an order of lists; else InvalidInput."""
    if given not in ORDERS:
        raise InvalidInput(
            "order",
            f"must be {' or '.join(ORDERS)}",
            given=given,
            next="Use one of these, or leave order out.",
        )
    return given


def _cut(text: str) -> str:
    return text if len(text) <= DESCRIPTION_SHOWN else f"{text[:DESCRIPTION_SHOWN]}…"


def _after(
    matches: Sequence[L], numbers: Mapping[str, int], start: _Position, limit: int
) -> list[L]:
    """Return the first *limit* of *matches* after where *start* is, in its order."""

    def place(entry: L) -> tuple[int, int]:
        return entry.updated_at, numbers[entry.key]

    if start.order == "oldest":
        first = 0 if start.last is None else bisect_right(matches, start.last, key=place)
        return list(matches[first : first + limit])
    end = len(matches) if start.last is None else bisect_left(matches, start.last, key=place)
    return list(reversed(matches[max(0, end - limit) : end]))


def _more(matches: Sequence[L], numbers: Mapping[str, int], last: L, order: Order) -> bool:
    """Tell whether there are any after *last*."""
    end = matches[0] if order == "newest" else matches[-1]
    return numbers[end.key] != numbers[last.key]


def _count_within(told: Sequence[JSON], budget: int) -> int:
    """Return how many of *told* are not by themselves over *budget*, and at least one."""
    left = budget
    for count, each in enumerate(told):
        left -= len(_encode(each).decode()) + 1
        if left < 0:
            return max(1, count)
    return len(told)


def _cursor(start: _Position, last: Listed, numbers: Mapping[str, int], run_id: str) -> str:
    told = _encode(start.among.told()).decode()
    place = [start.order, told, last.updated_at, numbers[last.key]]
    return write_cursor(_LIST, digest(run_id), place)


def _position(asked: EntryPageRequest, run_id: str) -> _Position:
    """Return where the page that is *asked* for begins; InvalidInput for a bad cursor."""
    if asked.page is None:
        return _Position(among=asked.among or EVERYTHING, order=asked.order or "newest")
    key, _ = read_cursor(_LIST, digest(run_id), asked.page)
    try:
        order, told, time, number = key
        among = filter_of(**msgspec.json.decode(cast("str", told)))
    except (ValueError, TypeError):
        raise InvalidInput(
            "page", "is not a cursor of ours", next="Start again without it."
        ) from None
    if asked.among not in (None, among) or asked.order not in (None, order):
        raise InvalidInput(
            "page",
            "belongs to another filter or order",
            next="Send the cursor alone, or start again without it.",
        )
    return _Position(
        among=among, order=cast("Order", order), last=(cast("int", time), cast("int", number))
    )
