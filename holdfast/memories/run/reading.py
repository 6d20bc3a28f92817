"""Records of runs read: which there are, what their memories held, and what happened in them."""

from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.memories.run import keys
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
from holdfast.memories.run.records.write import missing, statements

LIST: Final = "runs"
END_OF_TIME: Final = 2**62
"""Later than every instant, in microseconds."""

_told: Final = msgspec.json.Decoder(dict[str, str | None])
_data: Final = msgspec.json.Decoder(dict[str, Any])


class RecordedRunEvent(Struct, frozen=True, kw_only=True):
    """Something that happened in a run, without any value.

    `seq` rises within the run, `at` is in milliseconds since 1970.
    """

    seq: int
    type: str
    at: int
    data: dict[str, JSON]


class KeptEntry(Struct, frozen=True, kw_only=True):
    """An entry of a run that is kept, without its value; times are milliseconds since 1970.

    `written` rises in the order of last writes.
    """

    key: str
    kind: keys.Kind
    written: int
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    value_bytes: int
    failed: bool


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

    def kept(self) -> KeptEntry:
        told = _told.decode(self.told)
        return KeptEntry(
            key=self.key,
            kind=cast("keys.Kind", self.kind),
            written=self.written,
            source=told["source"],
            title=told["title"],
            description=told["description"],
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
        """Return the event that this row tells of."""
        at = self.at // MILLISECOND
        return RecordedRunEvent(seq=self.seq, type=self.type, at=at, data=_data.decode(self.data))


def list_runs(
    caller: RunsContext, *, state: RunState | None, limit: int | None, page: str | None
) -> Page[WatchedRun]:
    """Return the runs of *state*, or all, those that began last first."""
    wanted, rows, now = checked_state(state), checked_limit(limit), caller.now()
    stamp = digest(caller.workspace, wanted)
    before, before_id = (END_OF_TIME, "")
    if page is not None:
        before, before_id = _place_in(read_cursor(LIST, stamp, page)[0])
    alive = now - LOST_AFTER
    seen_from, seen_until = {"running": (alive, END_OF_TIME), "lost": (0, alive)}.get(
        wanted or "", (0, END_OF_TIME)
    )
    found = caller.engine.all(
        RunRow,
        statements(caller).list_runs,
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
        more=lambda page: list_runs(caller, state=state, limit=limit, page=page),
    )


def run_row(caller: RunsContext, run_id: str) -> RunRow:
    """Return the run *run_id* as it is stored; NotFound without it."""
    found = caller.engine.first(RunRow, statements(caller).get_run, run=_text("run", run_id))
    if found is None:
        raise missing(run_id)
    return found


def entries_of(caller: RunsContext, run_id: str) -> list[KeptEntry]:
    """Return every entry of the run *run_id*, in the order of last writes; NotFound without it."""
    run_row(caller, run_id)
    rows = caller.engine.all(_EntryRow, statements(caller).list_entries, run=run_id)
    return [row.kept() for row in rows]


def entry_of(caller: RunsContext, run_id: str, key: str) -> tuple[KeptEntry, Value]:
    """Return the entry under *key*, and its value as it is kept; NotFound without one."""
    checked = keys.checked(key)
    run_row(caller, run_id)
    row = caller.engine.first(_ValueRow, statements(caller).get_entry, run=run_id, key=checked)
    if row is None:
        raise NotFound("entry", key, next="List the entries of the run.")
    value = Value(
        value=row.value,
        value_bytes=row.value_bytes,
        part_of=cast("Any", row.part_of),
        total=row.total,
    )
    return row.kept(), value


def _place_in(key: Key) -> tuple[int, str]:
    match key:
        case [int(started_at), str(run_id)] if "\0" not in run_id:
            return started_at, run_id
        case _:
            raise InvalidInput(
                "page", "is not a cursor of this list", next="Start again without page."
            )


def _text(field: str, given: object) -> str:
    """Return *given* if a database can be asked for it."""
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    return given.encode("utf-8", "replace").decode().replace("\0", "�")
