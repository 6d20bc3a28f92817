"""Read records of runs: pages, parts of values, following.

Entries are returned as JSON, in process and through a server, and converted to records.
"""

from collections.abc import Callable, Generator
from datetime import datetime
from threading import Event as Ring
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from holdfast.engines.base import Engine, Reader
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import EngineFault, InvalidInput, NotFound
from holdfast.ground.json_values import JSON, decode
from holdfast.ground.pages import Key, Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.validation import check_limit, check_whole
from holdfast.memories.run import keys
from holdfast.memories.run.entry import (
    EntryFilter,
    ListedEntry,
    RunEntry,
    StoredRunEntry,
    checked_version,
)
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
from holdfast.memories.run.records.record import (
    LOST_AFTER,
    MILLISECOND,
    RunRow,
    RunsContext,
    RunState,
    Value,
    WatchedRun,
    checked_state,
)
from holdfast.memories.run.records.write import PACKAGE, missing, statements

LIST: Final = "runs"
END_OF_TIME: Final = 2**62
"""Later than every instant in microseconds."""

_texts: Final = msgspec.json.Decoder(dict[str, str | None])
_data: Final = msgspec.json.Decoder(dict[str, Any])


class RecordedRunEvent(Struct, frozen=True, kw_only=True):
    """An event in a run, without values.

    `seq` rises within the run, `at` is in milliseconds since 1970.
    """

    seq: int
    type: str
    at: int
    data: dict[str, JSON]


class _EntryRow(Struct, frozen=True, kw_only=True):
    key: str
    kind: str
    told: str
    failed: int
    version: int
    written: int
    created_at: int
    updated_at: int
    value_bytes: int

    def record(self) -> StoredRunEntry:
        texts = _texts.decode(self.told)
        return StoredRunEntry(
            key=self.key,
            kind=cast("keys.Kind", self.kind),
            written=self.written,
            source=texts["source"],
            title=texts["title"],
            description=texts["description"],
            created_at=self.created_at // MILLISECOND,
            updated_at=self.updated_at // MILLISECOND,
            version=self.version,
            value_bytes=self.value_bytes,
            failed=bool(self.failed),
        )


class _ValueRow(_EntryRow, frozen=True, kw_only=True):
    part_of: str | None
    total: int | None
    value: str


class EventRow(Struct, frozen=True, kw_only=True):
    """An event as it is stored."""

    seq: int
    type: str
    at: int
    data: str

    def event(self) -> RecordedRunEvent:
        """Convert the row to an event."""
        at = self.at // MILLISECOND
        return RecordedRunEvent(seq=self.seq, type=self.type, at=at, data=_data.decode(self.data))


def list_runs(
    context: RunsContext, *, state: RunState | None, limit: int | None, page: str | None
) -> Page[WatchedRun]:
    """Return the runs of *state*, or all, the latest start first."""
    wanted, rows, now = checked_state(state), check_limit(limit), context.now()
    stamp = digest(context.workspace, wanted)
    before, before_id = (END_OF_TIME, "")
    if page is not None:
        before, before_id = _place_in(read_cursor(LIST, stamp, page)[0])
    alive = now - LOST_AFTER
    seen_from, seen_until = {"running": (alive, END_OF_TIME), "lost": (0, alive)}.get(
        wanted or "", (0, END_OF_TIME)
    )
    found = context.engine.all(
        RunRow,
        statements(context).list_runs,
        every=int(wanted is None),
        state="running" if wanted == "lost" else wanted or "",
        seen_from=seen_from,
        seen_until=seen_until,
        before=before,
        before_id=before_id,
        rows=rows + 1,
    )
    shown = found[:rows]
    last: Key | None = [shown[-1].started_at, shown[-1].id] if len(found) > rows else None
    return Page(
        [row.record(now) for row in shown],
        None if last is None else write_cursor(LIST, stamp, last),
        more=lambda page: list_runs(context, state=state, limit=limit, page=page),
    )


def run_row(context: RunsContext, run_id: str) -> RunRow:
    """Return the row of the run *run_id*; raise `NotFound` if there is none."""
    found = context.engine.first(RunRow, statements(context).get_run, run=_text("run", run_id))
    if found is None:
        raise missing(run_id)
    return found


def entries_of(context: RunsContext, run_id: str) -> list[StoredRunEntry]:
    """Return every entry of the run *run_id*, in order of last writes.

    Raise `NotFound` if there is no such run.
    """
    run_row(context, run_id)
    rows = context.engine.all(_EntryRow, statements(context).list_entries, run=run_id)
    return [row.record() for row in rows]


def entry_of(context: RunsContext, run_id: str, key: str) -> tuple[StoredRunEntry, Value]:
    """Return the entry under *key* and its stored value; raise `NotFound` for none."""
    checked = keys.checked(key)
    run_row(context, run_id)
    row = context.engine.first(_ValueRow, statements(context).get_entry, run=run_id, key=checked)
    if row is None:
        raise NotFound("entry", key, next="List the entries of the run.")
    value = Value(
        value=row.value,
        value_bytes=row.value_bytes,
        part_of=cast("Any", row.part_of),
        total=row.total,
    )
    return row.record(), value


def _place_in(key: Key) -> tuple[int, str]:
    match key:
        case [int(started_at), str(run_id)] if "\0" not in run_id:
            return started_at, run_id
        case _:
            raise no_cursor()


def _text(field: str, given: object) -> str:
    """Return *given* as valid text for a statement, without U+0000 and surrogates."""
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    return given.encode("utf-8", "replace").decode().replace("\0", "�")


Wire = dict[str, Any]
T = TypeVar("T")


def run_to_wire(record: WatchedRun) -> Wire:
    """Return *record* as the JSON object of the wire."""
    members = {name: getattr(record, name) for name in record.__struct_fields__}
    ended_at = record.ended_at
    return members | {
        "started_at": _instant(record.started_at),
        "ended_at": None if ended_at is None else _instant(ended_at),
    }


def run_from_wire(wire: Wire) -> WatchedRun:
    """Convert *wire* to a run."""
    return _read(lambda: msgspec.convert(wire, WatchedRun))


def event_from_wire(seq: int, type: str, data: str) -> RecordedRunEvent:
    """Convert an event from a live route."""

    def made() -> RecordedRunEvent:
        members = msgspec.json.decode(data, type=dict[str, Any])
        at = to_microseconds(datetime.fromisoformat(members.pop("at"))) // MILLISECOND
        members.pop("run_id", None)
        return RecordedRunEvent(seq=seq, type=type, at=at, data=members)

    return _read(made)


def event_to_wire(run_id: str, event: RecordedRunEvent) -> bytes:
    """Encode the data of *event* for a live route, without its number and type."""
    at = _instant(from_microseconds(event.at * MILLISECOND))
    return msgspec.json.encode({"run_id": run_id, "at": at, **event.data})


def _read(make: Callable[[], T]) -> T:
    try:
        return make()
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, ValueError) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"


Told = dict[str, JSON]
EntryOrder = Order

_NOT_KEPT: Final = "only the first part of the value is kept, which has no paths"


class RecordValuePart(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a value: of its text, its elements or the characters of its JSON.

    `next_offset` is where the next part begins. If only a beginning of the value is stored, `kept`
    is its size.
    """

    of: str
    offset: int
    returned: int
    total: int
    next_offset: int | None
    kept: int | None = None


class ReadEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An entry with its value, or with the requested `part` of it.

    As JSON it has the form of the read tool's result.
    """

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


def asked_for(
    among: EntryFilter, *, order: Order | None, limit: int | None, page: str | None
) -> EntryPageRequest:
    """Validate the parameters of a page of entries."""
    return EntryPageRequest(
        among=among if among.told() else None,
        order=None if order is None else checked_order(order),
        limit=check_limit(limit, most=PAGE_MOST, default=PAGE_MOST),
        page=page,
    )


def entries_told(context: RunsContext, run_id: str, request: EntryPageRequest) -> Told:
    """Return a page of the run's entries, in the form of the list tool's result."""
    rows = sorted(entries_of(context, run_id), key=lambda row: (row.updated_at, row.written))
    return list_page(rows, {row.key: row.written for row in rows}, request, run_id=run_id)


def checked_wish(path: str | None, offset: int) -> ValuePart:
    """Validate the path and offset of a part of a value."""
    return ValuePart(
        path=None if path is None else checked_path(path),
        offset=checked_version("offset", offset),
    )


def entry_told(context: RunsContext, run_id: str, key: str, wanted: ValuePart) -> Told:
    """Return one entry in the form of the read tool; raise `NotFound` for none."""
    row, value = entry_of(context, run_id, key)
    facts = asdict(row)
    del facts["written"], facts["value_bytes"]
    readable = RunEntry(value_json=b"null" if value.part_of else value.value.encode(), **facts)
    if value.part_of:
        whole = read_entry(readable)
        entry = {} if whole is None else whole.entry
        return {**entry, **_kept_part(value, wanted)}
    piece = read_entry(readable, wanted)
    return {} if piece is None else piece.entry


def entries_page(
    ask: Callable[[EntryPageRequest], Told], request: EntryPageRequest
) -> Page[ListedEntry]:
    """Return the page that *ask* returns for *request*; it can load further pages."""
    page = ask(request)
    cursor = page["next_page"]
    return Page(
        [listed_in(each) for each in cast("list[JSON]", page["entries"])],
        cursor if isinstance(cursor, str) else None,
        more=lambda page: entries_page(ask, replace(request, page=page)),
    )


def listed_in(wire: object) -> ListedEntry:
    """Convert an entry of a list."""
    try:
        entry: dict[str, Any] = msgspec.convert(wire, dict[str, Any])
        times = {name: _milliseconds(entry[name]) for name in ("createdAt", "updatedAt")}
        return msgspec.convert({**entry, **times}, ListedEntry)
    except (msgspec.ValidationError, KeyError, ValueError) as error:
        raise EngineFault(f"The response is not an entry: {error}.") from error


def read_in(wire: object) -> ReadEntry:
    """Convert the result of reading an entry."""
    try:
        return msgspec.convert(wire, ReadEntry)
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


GAP = "gap"
"""Type of the event with the number of events that are no longer stored."""

ENDED = "ended"
"""Type of the last event of a live route, with the run's state."""

AT_ONCE = 1_000
"""Largest number of events of one read."""

LOOKS_EVERY = 0.25
"""Seconds between two reads for reports of other processes."""


class RunProgress(Struct, frozen=True, kw_only=True):
    """The result of one read: events, the number to continue from, the run's state.

    `over` is true if nothing follows: the run is not running, and all its events were returned.
    """

    events: list[RecordedRunEvent]
    after: int
    state: RunState
    over: bool


def look(context: RunsContext, run_id: str, after: int) -> RunProgress:
    """Return the events after the number *after*; raise `NotFound` without the run.

    A `gap` stands in place of events that are no longer stored, with their number as `missed`.
    """
    now = context.now()

    def work(reader: Reader) -> RunProgress:
        sql = statements(context)
        run = reader.first(RunRow, sql.get_run, run=run_id)
        if run is None:
            raise missing(run_id)
        rows = reader.all(EventRow, sql.events_after, run=run_id, after=after, rows=AT_ONCE)
        events = [row.event() for row in rows]
        # A full read may have more after it; a run that was started again may have fewer events.
        last = run.seq if len(rows) < AT_ONCE else events[-1].seq
        state = run.state_at(now)
        return RunProgress(
            events=list(_with_gaps(events, after, last, run.seen_at // 1_000)),
            after=max(after, last),
            state=state,
            over=state != "running" and last >= run.seq,
        )

    return context.engine.read(work)


def follow(context: RunsContext, run_id: str, after: int) -> Generator[RecordedRunEvent]:
    """Yield each event after the number *after* as it happens, until the run is over."""
    rest = Ring()
    while True:
        seen = look(context, run_id, after)
        yield from seen.events
        after = seen.after
        if seen.over:
            return
        rest.wait(LOOKS_EVERY)


def checked_after(given: object) -> int:
    """Return *given* if it can be the number of an event; else InvalidInput."""
    reason = "must be the number of an event, from 0"
    return check_whole("after", given, reason, most=2**62 - 1)


def _with_gaps(
    events: list[RecordedRunEvent], after: int, last: int, now: int
) -> Generator[RecordedRunEvent]:
    for event in events:
        if event.seq > after + 1:
            yield _gap(after, event.seq - 1, event.at)
        yield event
        after = event.seq
    if last > after:
        yield _gap(after, last, now)


def _gap(after: int, last: int, at: int) -> RecordedRunEvent:
    return RecordedRunEvent(seq=last, type=GAP, at=at, data={"missed": last - after})


class _RunsSize(Struct, frozen=True, kw_only=True):
    entries: int
    bytes: int
    live: int


def gauges(engine: Engine, now: int) -> dict[str, float]:
    """Return entries, bytes and live runs in *engine*'s scope.

    *now* is in microseconds since 1970.
    """
    sql = engine.queries(PACKAGE)
    return asdict(engine.one(_RunsSize, sql.held, lost_before=now - LOST_AFTER))
