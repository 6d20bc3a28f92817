"""Entries as a model lists and reads them, within a budget.

A large value is read in parts, which joined in order are the value: text is split by characters, an
array by elements, anything else, and an array with too large elements, by characters of its JSON.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import milliseconds_text
from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.json_values import JSON, decode
from holdfast.ground.pages import digest, read_cursor, write_cursor
from holdfast.ground.validation import check_one_of
from holdfast.memories.run.entry import (
    EVERYTHING,
    EntryFilter,
    ListedEntry,
    RunEntry,
    StoredRunEntry,
    filter_of,
)
from holdfast.memories.run.memory import one_line

PAGE_MOST: Final = 200
DESCRIPTION_SHOWN: Final = 240
"""Characters of a description in a list."""

Order = Literal["newest", "oldest"]
ORDERS: Final[tuple[Order, ...]] = ("newest", "oldest")

_LIST: Final = "run.entries"
_encode: Final = msgspec.json.Encoder().encode


L = TypeVar("L", bound=RunEntry | StoredRunEntry)


class EntryPageRequest(Struct, frozen=True, kw_only=True):
    """The parameters of a page; None is as in the cursor, or else the default."""

    among: EntryFilter | None = None
    order: Order | None = None
    limit: int = PAGE_MOST
    page: str | None = None


class _Position(Struct, frozen=True, kw_only=True):
    """The start of a page: after *last*, or at the beginning.

    *last* is a time and a write number.
    """

    among: EntryFilter
    order: Order
    last: tuple[int, int] | None = None


def list_page(
    entries: Sequence[L],
    numbers: Mapping[str, int],
    request: EntryPageRequest,
    *,
    run_id: str,
    budget: int | None = None,
) -> dict[str, JSON]:
    """Return a page of *entries*, in the form of the list tool's result.

    They are in the order of their last write, by time and then by *numbers*, the number of each
    key's last write. With *budget*, the largest length of the page's compact JSON in characters,
    the page ends before the entry that would exceed it, though never before the first.
    """
    start = _position(request, run_id)
    matches = start.among.chosen(entries) if start.among != EVERYTHING else entries
    page = _after(matches, numbers, start, request.limit)
    rows = [described(each) for each in page]

    def answer(count: int) -> dict[str, JSON]:
        cursor = None
        if count and _more(matches, numbers, page[count - 1], start.order):
            last = page[count - 1]
            conditions = _encode(start.among.told()).decode()
            place = [start.order, conditions, last.updated_at, numbers[last.key]]
            cursor = write_cursor(_LIST, digest(run_id), place)
        return {
            "total": len(matches),
            "returned": count,
            "truncated": cursor is not None,
            "next_page": cursor,
            "entries": cast("list[JSON]", rows[:count]),
        }

    if budget is None:
        return answer(len(rows))
    count = _count_within(rows, budget)
    while count > 1 and len(_encode(answer(count)).decode()) > budget:
        count -= 1
    return answer(count)


def described(entry: RunEntry | StoredRunEntry | ListedEntry) -> dict[str, JSON]:
    """Return the members of *entry* in a list, without those that are None."""
    members: dict[str, JSON] = {"key": entry.key, "kind": entry.kind}
    if entry.title is not None:
        members["title"] = one_line(entry.title)
    if entry.description is not None:
        members["description"] = _cut(entry.description)
    if entry.source is not None:
        members["source"] = entry.source
    members["valueBytes"] = entry.value_bytes
    members["createdAt"] = milliseconds_text(entry.created_at)
    members["updatedAt"] = milliseconds_text(entry.updated_at)
    members["version"] = entry.version
    if entry.failed:
        members["failed"] = True
    return members


def checked_order(given: object) -> Order:
    """Return *given* if it is an order of a list; else InvalidInput."""
    reason, next = f"must be {' or '.join(ORDERS)}", "Use one of these, or leave order out."
    return cast("Order", check_one_of("order", given, ORDERS, reason, next=next))


def _cut(text: str) -> str:
    return text if len(text) <= DESCRIPTION_SHOWN else f"{text[:DESCRIPTION_SHOWN]}…"


def _after(
    matches: Sequence[L], numbers: Mapping[str, int], start: _Position, limit: int
) -> list[L]:
    """Return the first *limit* of *matches* after *start*, in its order."""

    def place(entry: L) -> tuple[int, int]:
        return entry.updated_at, numbers[entry.key]

    if start.order == "oldest":
        first = 0 if start.last is None else bisect_right(matches, start.last, key=place)
        return list(matches[first : first + limit])
    end = len(matches) if start.last is None else bisect_left(matches, start.last, key=place)
    return list(reversed(matches[max(0, end - limit) : end]))


def _more(matches: Sequence[L], numbers: Mapping[str, int], last: L, order: Order) -> bool:
    """Check whether there are entries after *last*."""
    end = matches[0] if order == "newest" else matches[-1]
    return numbers[end.key] != numbers[last.key]


def _count_within(rows: Sequence[JSON], budget: int) -> int:
    """Return how many of *rows* fit *budget* by themselves; at least one."""
    left = budget
    for count, each in enumerate(rows):
        left -= len(_encode(each).decode()) + 1
        if left < 0:
            return max(1, count)
    return len(rows)


def _position(request: EntryPageRequest, run_id: str) -> _Position:
    """Return the start of the requested page; raise `InvalidInput` for a bad cursor."""
    if request.page is None:
        return _Position(among=request.among or EVERYTHING, order=request.order or "newest")
    key, _ = read_cursor(_LIST, digest(run_id), request.page)
    try:
        order, conditions, time, number = key
        among = filter_of(**msgspec.json.decode(cast("str", conditions)))
    except (ValueError, TypeError):
        raise InvalidInput(
            "page", "is not a cursor of ours", next="Start again without it."
        ) from None
    if request.among not in (None, among) or request.order not in (None, order):
        raise InvalidInput(
            "page",
            "belongs to another filter or order",
            next="Send the cursor alone, or start again without it.",
        )
    return _Position(
        among=among, order=cast("Order", order), last=(cast("int", time), cast("int", number))
    )


Of = Literal["text", "array", "json"]

_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,17}")


class ValuePart(Struct, frozen=True, kw_only=True):
    """The requested part of a value: the value at *path*, from *offset* on.

    `room` is the limit of the entry, `budget` that of the whole response, both in characters of
    compact JSON; None is no limit.
    """

    path: str | None = None
    offset: int = 0
    room: int | None = None
    budget: int | None = None


class Piece(Struct, frozen=True):
    """An entry in a response, and whether it has only a part of its value."""

    entry: dict[str, JSON]
    part: bool


ALL: Final = ValuePart()


def read_entry(entry: RunEntry, wanted: ValuePart = ALL, *, must: bool = True) -> Piece | None:
    """Return as much of *entry* as fits.

    With *must* that is at least one character or element; else None if not even that fits.
    """
    value: JSON = decode(entry.value_json)
    if wanted.path:
        try:
            value = _pointed(value, wanted.path)
        except LookupError as missing:
            members = _members(entry, None)
            return Piece({**members, "path_error": str(missing)}, False)
    whole = _members(entry, value)
    if not wanted.offset and (wanted.room is None or chars(whole) <= wanted.room):
        return Piece(whole, False)
    return _part(whole, value, wanted, must=must)


def checked_path(given: object) -> str:
    """Return *given* if it is a JSON Pointer (RFC 6901); else InvalidInput."""
    if not isinstance(given, str) or (given and not given.startswith("/")):
        raise _bad_path("must be a JSON Pointer such as /rows/0/name", given)
    if re.search(r"~(?![01])", given):
        raise _bad_path("must spell ~ as ~0 and / within a name as ~1", given)
    return given


def chars(value: object) -> int:
    """Return how many characters *value* has as compact JSON."""
    return len(_encode(value).decode())


def _members(entry: RunEntry, value: JSON) -> dict[str, JSON]:
    members: dict[str, JSON] = {"key": entry.key, "kind": entry.kind, "value": value}
    for name in ("source", "title", "description"):
        if (fact := getattr(entry, name)) is not None:
            members[name] = fact
    members["createdAt"], members["updatedAt"] = entry.created_at, entry.updated_at
    members["version"] = entry.version
    if entry.failed:
        members["failed"] = True
    return members


def _part(whole: dict[str, JSON], value: JSON, wanted: ValuePart, *, must: bool) -> Piece | None:
    of = _paged_by(value, wanted.budget)
    pieces = cast("Sequence[JSON]", value if of != "json" else _encode(value).decode())
    total, offset = len(pieces), wanted.offset
    if offset > total:
        raise InvalidInput(
            "offset",
            f"must be at most {total:,}, where this value ends",
            limit=total,
            given=offset,
            next="Go on with the next_offset of the last part.",
        )
    empty: JSON = [] if of == "array" else ""
    room = wanted.room
    if room is not None:
        room -= chars({**whole, "value": empty, "part": _about(of, offset, total, total)})
    count = total - offset if room is None else _count_fitting(pieces, offset, room)
    if not count and offset < total:
        if not must:
            return None
        count = 1
    piece = cast("JSON", pieces[offset : offset + count])
    return Piece({**whole, "value": piece, "part": _about(of, offset, count, total)}, True)


def _about(of: Of, offset: int, count: int, total: int) -> dict[str, JSON]:
    end = offset + count
    return {
        "of": of,
        "offset": offset,
        "returned": count,
        "total": total,
        "next_offset": end if end < total else None,
    }


def _paged_by(value: JSON, budget: int | None) -> Of:
    """Return the unit by which *value* is split, the same for all of its parts."""
    if isinstance(value, str):
        return "text"
    if not isinstance(value, list):
        return "json"
    # Half of the budget, so that an element fits beside the rest of the response.
    most = None if budget is None else budget // 2
    return "array" if most is None or all(chars(each) <= most for each in value) else "json"


def _count_fitting(pieces: Sequence[JSON], offset: int, room: int) -> int:
    """Return how many of *pieces* from *offset* on fit *room* characters of JSON."""
    if isinstance(pieces, str):
        least, most = 0, max(0, min(len(pieces) - offset, room))
        while least < most:
            middle = (least + most + 1) // 2
            if chars(pieces[offset : offset + middle]) - len('""') <= room:
                least = middle
            else:
                most = middle - 1
        return least
    count = 0
    for each in pieces[offset:]:
        room -= chars(each) + (1 if count else 0)
        if room < 0:
            break
        count += 1
    return count


def _pointed(value: JSON, path: str) -> JSON:
    """Return the value at *path*; `LookupError` names the place where it ends."""
    at = ""
    for step in checked_path(path)[1:].split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            raise LookupError(_nowhere(value, name, at))
        at += f"/{step}"
    return value


def _nowhere(value: JSON, name: str, at: str) -> str:
    what = "element" if isinstance(value, list) else "member"
    message = f"no {what} {shortened(name)!r} at {shortened(at) or 'the top'}"
    if isinstance(value, list):
        return f"{message}, which has {len(value):,}"
    return message if isinstance(value, dict) else f"{message}, which is no object"


def _bad_path(reason: str, given: object) -> InvalidInput:
    return InvalidInput("path", reason, given=given, next="Correct the path, or leave it out.")
