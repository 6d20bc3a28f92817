"""The entries of a run that is kept, told as the tools of its own memory tell them.

What they tell is JSON, here and through a server alike, and read back into values.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault, InvalidInput
from holdfast.ground.json_values import JSON, decode
from holdfast.ground.pages import Page, checked_limit
from holdfast.memories.run.entry import EntryFilter, checked_version
from holdfast.memories.run.keys import Kind
from holdfast.memories.run.model_view import (
    PAGE_MOST,
    EntryPageRequest,
    Order,
    ValuePart,
    checked_order,
    checked_path,
    list_page,
    read_entry,
)
from holdfast.memories.run.reading import entries_of, entry_of
from holdfast.memories.run.records.record import MILLISECOND, RunsContext, Value

Told = dict[str, JSON]
EntryOrder = Order

_NOT_KEPT: Final = "only the first part of the value is kept, which has no paths"


class ListedEntry(Struct, frozen=True, kw_only=True):
    """An entry without its value; times are milliseconds since 1970."""

    key: str
    kind: Kind
    title: str | None = None
    description: str | None = None
    source: str | None = None
    value_bytes: int = field(name="valueBytes")
    created_at: int = field(name="createdAt")
    updated_at: int = field(name="updatedAt")
    version: int
    failed: bool = False


class RecordValuePart(Struct, frozen=True, kw_only=True):
    """Which part of a value is told: of its text, its elements or the characters of its JSON.

    `next_offset` is where the next one begins. Where not all of the value is kept, `kept` is how
    much of it is.
    """

    of: str
    offset: int
    returned: int
    total: int
    next_offset: int | None
    kept: int | None = None


class ReadEntry(Struct, frozen=True, kw_only=True):
    """An entry with its value, or the `part` of it that was asked for."""

    key: str
    kind: Kind
    value: Any
    source: str | None = None
    title: str | None = None
    description: str | None = None
    created_at: int = field(name="createdAt")
    updated_at: int = field(name="updatedAt")
    version: int
    failed: bool = False
    part: RecordValuePart | None = None
    path_error: str | None = None


class _Readable(Struct, frozen=True, kw_only=True):
    key: str
    kind: str
    value_json: bytes
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    failed: bool


def asked_for(
    among: EntryFilter, *, order: Order | None, limit: int | None, page: str | None
) -> EntryPageRequest:
    """Return which page is asked for; InvalidInput for what is none."""
    return EntryPageRequest(
        among=among if among.told() else None,
        order=None if order is None else checked_order(order),
        limit=checked_limit(limit, most=PAGE_MOST, default=PAGE_MOST),
        page=page,
    )


def entries_told(caller: RunsContext, run_id: str, asked: EntryPageRequest) -> Told:
    """Return a page of what the run's memory held, as its list tool tells it."""
    rows = sorted(entries_of(caller, run_id), key=lambda row: (row.updated_at, row.written))
    return list_page(rows, {row.key: row.written for row in rows}, asked, run_id=run_id)


def checked_wish(path: str | None, offset: int) -> ValuePart:
    """Return what of a value is wanted; InvalidInput for what is no path or offset."""
    return ValuePart(
        path=None if path is None else checked_path(path),
        offset=checked_version("offset", offset),
    )


def entry_told(caller: RunsContext, run_id: str, key: str, wanted: ValuePart) -> Told:
    """Return one entry as the read tool tells it; NotFound without it."""
    row, value = entry_of(caller, run_id, key)
    readable = _Readable(
        key=row.key,
        kind=row.kind,
        value_json=b"null" if value.part_of else value.value.encode(),
        source=row.source,
        title=row.title,
        description=row.description,
        created_at=row.created_at,
        updated_at=row.updated_at,
        version=row.version,
        failed=row.failed,
    )
    if value.part_of:
        whole = read_entry(readable)
        told = {} if whole is None else whole.told
        return {**told, **_kept_part(value, wanted)}
    piece = read_entry(readable, wanted)
    return {} if piece is None else piece.told


def entries_page(
    ask: Callable[[EntryPageRequest], Told], asked: EntryPageRequest
) -> Page[ListedEntry]:
    """Return the page that *ask* tells for *asked*; it walks on by itself."""
    told = ask(asked)
    cursor = told["next_page"]
    return Page(
        [listed_in(each) for each in cast("list[JSON]", told["entries"])],
        cursor if isinstance(cursor, str) else None,
        more=lambda page: entries_page(ask, replace(asked, page=page)),
    )


def listed_in(told: object) -> ListedEntry:
    """Return the entry that a list tells of."""
    try:
        entry: dict[str, Any] = msgspec.convert(told, dict[str, Any])
        times = {name: _milliseconds(entry[name]) for name in ("createdAt", "updatedAt")}
        return msgspec.convert({**entry, **times}, ListedEntry)
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        raise EngineFault(f"The response is not an entry: {error}.") from error


def read_in(told: object) -> ReadEntry:
    """Return the entry that a reading tells."""
    try:
        return msgspec.convert(told, ReadEntry)
    except msgspec.ValidationError as error:
        raise EngineFault(f"The response is not an entry: {error}.") from error


def _kept_part(value: Value, wanted: ValuePart) -> Told:
    if wanted.path:
        return {"value": None, "path_error": _NOT_KEPT}
    kept = cast("str", decode(value.value.encode()))
    if wanted.offset > len(kept):
        raise InvalidInput(
            "offset",
            f"must be at most {len(kept):,}, the size stored of this value",
            limit=len(kept),
            given=wanted.offset,
            next="Read the rest from the run itself while it lasts.",
        )
    piece = kept[wanted.offset :]
    part: Told = {
        "of": value.part_of,
        "offset": wanted.offset,
        "returned": len(piece),
        "total": value.total,
        "next_offset": None,
        "kept": len(kept),
    }
    return {"value": piece, "part": part}


def _milliseconds(text: str) -> int:
    return to_microseconds(datetime.fromisoformat(text)) // MILLISECOND


def told_of(entry: ReadEntry) -> Told:
    """Return *entry* as the read tool tells it."""
    told: Told = msgspec.to_builtins(entry)
    left_out = {name for name, each in told.items() if each is None and name != "value"}
    if not entry.failed:
        left_out.add("failed")
    return {name: each for name, each in told.items() if name not in left_out}
