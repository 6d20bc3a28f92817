"""Read records of runs: pages, parts of values, following.

Entries are returned as JSON, in process and through a server, and converted to records.
"""

from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import datetime
from threading import Event as Ring
from time import monotonic
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, astuple, replace

from holdfast.engines.base import Engine, Reader
from holdfast.ground import json_values
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import EngineFault, InvalidInput, NotFound
from holdfast.ground.json_values import JSON, decode
from holdfast.ground.pages import Key, Page, digest, place_in, read_cursor, write_cursor
from holdfast.ground.validation import check_limit, check_one_of, check_whole, is_number
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
from holdfast.memories.run.records.answer import settle_seen
from holdfast.memories.run.records.event import GAP, TYPES, RunEvent
from holdfast.memories.run.records.lease import QUEUE, lose_seen, queue_depths
from holdfast.memories.run.records.parts import PartRow, RunPart
from holdfast.memories.run.records.question import STATUSES
from holdfast.memories.run.records.record import MILLISECOND, RunRow, RunsContext, Value
from holdfast.memories.run.records.run import STATUSES as RUN_STATUSES
from holdfast.memories.run.records.run import Run, RunFilter, RunStatus
from holdfast.memories.run.records.write import PACKAGE, missing, statements

LIST: Final = "runs"
MOST_LISTED: Final = 1_000
END_OF_TIME: Final = 2**62
"""Later than every instant in microseconds."""

_texts: Final = msgspec.json.Decoder(dict[str, str | None])
_data: Final = msgspec.json.Decoder(dict[str, Any])


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
    part: str | None
    agent: str | None
    call_id: str | None
    data: str

    def event(self, run: RunRow) -> RunEvent:
        """Convert the row to an event of *run*."""
        return RunEvent(
            type=self.type,
            seq=self.seq,
            at=self.at // MILLISECOND,
            run_id=run.id,
            thread_id=run.thread_id,
            network=run.name if run.kind == "network" else None,
            part=self.part,
            agent=self.agent,
            call_id=self.call_id,
            data=_data.decode(self.data),
        )


def list_runs(
    context: RunsContext, among: RunFilter, limit: int | None, page: str | None
) -> Page[Run]:
    """Return a page of the runs that pass *among*, the latest start first."""
    rows, now = check_limit(limit, most=MOST_LISTED), context.now()
    stamp = digest(context.workspace, *astuple(among))
    before, before_id = (END_OF_TIME, "")
    if page is not None:
        before, before_id = place_in(read_cursor(LIST, stamp, page)[0])
    params = {"now": now, "before": before, "before_id": before_id, "rows": rows + 1}
    found = _found(context, among, params)
    due = among.may_be_queued or any(row.has_due_at(now) for row in found)
    if due and settle_seen(context):
        found = _found(context, among, params)
    lose_seen(context, found)
    shown = found[:rows]
    last: Key | None = [shown[-1].started_at, shown[-1].id] if len(found) > rows else None
    return Page(
        [row.record(now) for row in shown],
        None if last is None else write_cursor(LIST, stamp, last),
        more=lambda page: list_runs(context, among, limit, page),
    )


def _found(context: RunsContext, among: RunFilter, params: Mapping[str, object]) -> list[RunRow]:
    sql, given = statements(context), {**among.params(), **params}
    if among.thread is not None:
        return context.engine.all(RunRow, sql.list_runs_of_thread, thread=among.thread, **given)
    if among.parent is not None:
        return context.engine.all(RunRow, sql.list_runs_of_parent, **given)
    del given["parent"]
    return context.engine.all(RunRow, sql.list_runs, **given)


def retrieve_run(context: RunsContext, run_id: str) -> Run:
    """Return the run *run_id*; raise `NotFound` if there is none."""
    row, now = run_row(context, run_id), context.now()
    if row.has_due_at(now) and settle_seen(context, run_id):
        row = run_row(context, run_id)
    lose_seen(context, [row])
    return row.record(now)


def run_row(context: RunsContext, run_id: str) -> RunRow:
    """Return the row of the run *run_id*; raise `NotFound` if there is none."""
    found = context.engine.first(RunRow, statements(context).get_run, run=_text("run", run_id))
    if found is None:
        raise missing(run_id)
    return found


def parts_of(context: RunsContext, run_id: str) -> list[RunPart]:
    """Return the parts of the run *run_id*, in the order of their first events.

    Raise `NotFound` if there is no such run.
    """
    run_row(context, run_id)
    rows = context.engine.all(PartRow, statements(context).list_parts, run=run_id)
    return [row.part() for row in rows]


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


def _text(field: str, given: object) -> str:
    """Return *given* as valid text for a statement, without U+0000 and surrogates."""
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    return given.encode("utf-8", "replace").decode().replace("\0", "�")


Wire = dict[str, Any]
T = TypeVar("T")


def run_from_wire(wire: Wire) -> Run:
    """Convert *wire* to a run."""
    return _read(lambda: Run.from_dict(wire))


def event_from_wire(data: bytes | str) -> RunEvent:
    """Convert an event of a live route."""
    return _read(lambda: msgspec.convert(json_values.read(data, "event"), RunEvent))


def _read(make: Callable[[], T]) -> T:
    try:
        return make()
    except (msgspec.DecodeError, InvalidInput, KeyError, ValueError) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


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


ENDED = "ended"
"""Type of the last event of a live route, with the run's status."""

AT_ONCE = 1_000
"""Largest number of events of one read."""

LOOKS_EVERY = 0.25
"""Seconds between two reads for reports of other processes."""

WAIT_MOST = 300.0
"""Seconds to wait for a run that is not there yet, at most."""


class FollowOptions(Struct, frozen=True, kw_only=True):
    """What to follow: the events after a number, of some types or all, and until when.

    *wait* is how many seconds to wait for the run. With *rest* the end is also that it waits or is
    lost.
    """

    after: int = 0
    wait: float = 0.0
    types: frozenset[str] = frozenset()
    rest: bool = False


class RunProgress(Struct, frozen=True, kw_only=True):
    """The result of one read: events, the number to continue from, the run's status.

    `over` is true if nothing follows: the run has ended or rests, and all its events were returned.
    """

    events: list[RunEvent]
    after: int
    status: RunStatus
    over: bool


def look(context: RunsContext, run_id: str, options: FollowOptions) -> RunProgress:
    """Return the events after a number; raise `NotFound` without the run.

    A `gap` stands in place of events that are no longer stored, with their number as `missed`.
    """
    now, after = context.now(), options.after

    def work(reader: Reader) -> tuple[RunRow, list[RunEvent]]:
        sql = statements(context)
        run = reader.first(RunRow, sql.get_run, run=run_id)
        if run is None:
            raise missing(run_id)
        rows = reader.all(EventRow, sql.events_after, run=run_id, after=after, rows=AT_ONCE)
        return run, [row.event(run) for row in rows]

    run, events = context.engine.read(work)
    if run.lapsed_at(now):
        lose_seen(context, [run])
    if run.has_due_at(now):
        settle_seen(context, run_id)
    # A full read may have more after it.
    last = max(after, run.seq if len(events) < AT_ONCE else events[-1].seq)
    whole = list(_with_gaps(events, after, last, run))
    rests = options.rest and run.status in {"waiting", "lost"} and run.rests_at(now)
    return RunProgress(
        events=[each for each in whole if _is_wanted(each, options.types)],
        after=last,
        status=run.status_at(now),
        over=(run.ended or rests) and last >= run.seq,
    )


def _is_wanted(event: RunEvent, types: frozenset[str]) -> bool:
    return not types or event.type in types or event.type == GAP


def follow(context: RunsContext, run_id: str, options: FollowOptions) -> Generator[RunEvent]:
    """Yield each event after a number as it happens, until the run is over."""
    rest = Ring()
    while True:
        seen = look(context, run_id, options)
        yield from seen.events
        options = replace(options, after=seen.after)
        if seen.over:
            return
        rest.wait(LOOKS_EVERY)


def await_run(context: RunsContext, run_id: str, seconds: float) -> None:
    """Wait for the run *run_id*; raise `NotFound` after *seconds* without it."""
    rest, deadline = Ring(), monotonic() + seconds
    while True:
        try:
            run_row(context, run_id)
        except NotFound:
            left = deadline - monotonic()
            if left <= 0:
                raise
            rest.wait(min(left, LOOKS_EVERY))
        else:
            return


def checked_follow(
    after: object, wait: object = 0, types: object = None, *, rest: bool = False
) -> FollowOptions:
    """Return what to follow; raise `InvalidInput` for a wrong number or type."""
    if not is_number(wait) or not 0 <= wait <= WAIT_MOST:
        raise InvalidInput("wait", "must be 0 to 300 seconds", limit=int(WAIT_MOST), given=wait)
    return FollowOptions(
        after=checked_after(after), wait=float(wait), types=checked_types(types), rest=rest
    )


def checked_types(given: object) -> frozenset[str]:
    """Validate types of events, one or several; InvalidInput for an unknown one."""
    if given is None:
        return frozenset()
    several = [given] if isinstance(given, str) else list(cast("Iterable[object]", given))
    return frozenset(
        str(check_one_of("types", each, TYPES, "must be types of events")) for each in several
    )


def checked_after(given: object) -> int:
    """Return *given* if it can be the number of an event; else InvalidInput."""
    reason = "must be the number of an event, from 0"
    return check_whole("after", given, reason, most=2**62 - 1)


def _with_gaps(events: list[RunEvent], after: int, last: int, run: RunRow) -> Generator[RunEvent]:
    for event in events:
        if event.seq > after + 1:
            yield _gap(after, event.seq - 1, event.at, run)
        yield event
        after = event.seq
    if last > after:
        yield _gap(after, last, run.seen_at // MILLISECOND, run)


def _gap(after: int, last: int, at: int, run: RunRow) -> RunEvent:
    data = {"missed": last - after}
    return RunEvent(type=GAP, seq=last, at=at, run_id=run.id, thread_id=run.thread_id, data=data)


class _RunsSize(Struct, frozen=True, kw_only=True):
    entries: int
    bytes: int
    live: int


class _StatusCount(Struct, frozen=True, kw_only=True):
    status: str
    number: int


def gauges(engine: Engine, now: int) -> dict[str, float]:
    """Return entries, bytes, live and queued runs and questions in *engine*'s scope.

    *now* is in microseconds since 1970.
    """
    sql = engine.queries(PACKAGE)
    counts = {
        f'{name}{{status="{status}"}}': 0
        for name, known in (("questions", STATUSES), ("status", RUN_STATUSES))
        for status in known
    }
    for name, found in (
        ("questions", engine.all(_StatusCount, sql.question_counts)),
        ("status", engine.all(_StatusCount, sql.status_counts, now=now)),
    ):
        counts |= {f'{name}{{status="{each.status}"}}': each.number for each in found}
    queued = {QUEUE: 0} | {each.queue: each.runs for each in queue_depths(engine, now)}
    depths = {f'queue_depth{{queue="{name}"}}': number for name, number in queued.items()}
    return {**asdict(engine.one(_RunsSize, sql.held, now=now)), **counts, **depths}
