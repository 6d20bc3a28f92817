"""Fork a run at one of its versions, with changed values.

A fork is a new run with the history of the original up to a version. What it changes is its next
version, and the parts that depend on a change are pending again. The original stays as it is.
"""

from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON, decode, encode, hashed
from holdfast.ground.validation import check_whole
from holdfast.memories.run import keys
from holdfast.memories.run.entry import VALUE_DEPTH, RunEntry, RunLimits
from holdfast.memories.run.history.versions import (
    NEWEST,
    State,
    StateRow,
    VersionSave,
    entry_in,
    entry_row,
    saved,
    state_at,
    version_before,
)
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.parts import (
    PartGraph,
    PartKey,
    PartRow,
    Touch,
    call_number,
    fact_key,
    result_of,
)
from holdfast.memories.run.records.record import (
    MILLISECOND,
    ReportedEntry,
    RunRow,
    RunsContext,
    kept_value,
)
from holdfast.memories.run.records.run import Run, checked_run_id, checked_run_name_or_none
from holdfast.memories.run.records.write import (
    add_events,
    link_kind,
    missing,
    published,
    statements,
    stored_entry,
)
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import QUERIES, ThreadTurnRow, turns_until
from holdfast.memories.state.threads import prepared, put_turns

Rerun: TypeAlias = Literal["affected", "none"] | Sequence[str]
"""Which parts of a fork are pending again: the affected ones, none, or these."""

LIMITS: Final = RunLimits()
"""Limits of a value that a fork sets."""

NAMED: Final = 500
"""Keys and parts that the event of a fork names; of more it has the number."""

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
_ids: Final = Ids()
_START: Final[tuple[Literal["start"], str]] = ("start", "parts")
_NUMBER: Final[tuple[Literal["start"], str]] = ("start", "version")
_NOTHING: Final[dict[str, Any]] = {}


class ForkOptions(Struct, frozen=True, kw_only=True):
    """Where a run is forked, and what its fork changes.

    It is forked at `version`, else at the version before the part `before` began, else at its
    newest one. `set` and `delete` name keys of entries, or values of a network. With `start` a
    worker may take the fork up.
    """

    version: int | None = None
    before: str | None = None
    set: Mapping[str, JSON] = _NOTHING
    delete: tuple[str, ...] = ()
    rerun: Literal["affected", "none"] | tuple[str, ...] = "affected"
    run_id: str | None = None
    name: str | None = None
    start: bool = False


def checked_fork(options: ForkOptions) -> ForkOptions:
    """Return *options*, with keys in Normalization Form C; raise `InvalidInput`."""
    if options.version is not None:
        check_whole("version", options.version, "must be the number of a version, from 0")
        if options.before is not None:
            raise InvalidInput("before", "must not be given with a version")
    if options.run_id is not None:
        checked_run_id("run_id", options.run_id)
    checked_run_name_or_none("name", options.name)
    given = {_key("set", key): each for key, each in options.set.items()}
    for key, each in given.items():
        size = len(encode(each, root="$", depth=VALUE_DEPTH, field=f"set.{key}"))
        if size > LIMITS.value_bytes:
            raise LimitExceeded("value_bytes", allowed=LIMITS.value_bytes, actual=size, what=key)
    deleted = tuple(_key("delete", key) for key in options.delete)
    if both := given.keys() & set(deleted):
        raise InvalidInput("delete", "must name no key that is set", given=min(both))
    return replace(options, set=given, delete=deleted)


def checked_rerun(given: object) -> Literal["affected", "none"] | tuple[str, ...]:
    """Return which parts are pending again: affected, none, or a list of parts."""
    match given:
        case "affected":
            return "affected"
        case "none":
            return "none"
        case list() | tuple() if all(isinstance(each, str) for each in cast("Any", given)):
            return tuple(cast("Sequence[str]", given))
        case _:
            raise InvalidInput("rerun", "must be affected, none, or a list of parts", given=given)


def _key(field: str, key: object) -> str:
    if not isinstance(key, str) or not key:
        raise InvalidInput(field, "must name keys", given=key)
    return keys.checked(key) if _is_entry(key) else key


def _is_entry(key: str) -> bool:
    """Return whether *key* is that of an entry; others are values of a network."""
    return key.partition(":")[0] in keys.KINDS and ":" in key


class Changes(Struct, frozen=True, kw_only=True):
    """What a fork changes: facts, parts that are pending again, and keys."""

    rows: tuple[StateRow, ...]
    again: frozenset[PartKey]
    keys: tuple[str, ...]


def changes_of(
    state: State, parts: Sequence[PartRow], touches: Iterable[Touch], options: ForkOptions, at: int
) -> Changes:
    """Return what *options* change in *state*, at *at* ms since 1970.

    Raise `NotFound` for a key or a part that there is not.
    """
    graph = PartGraph(parts, touches)
    rows = [row for key, given in options.set.items() for row in _set(state, key, given, at)]
    rows += [_deleted(state, key) for key in options.delete]
    changed = (*options.set, *options.delete)
    again = _again(graph, changed, options)
    again |= _later_calls(state, parts, again)
    rows += [*_cleared(state, again, changed), *_reopened(state, again)]
    rows += [
        StateRow("part", fact_key(part), b'{"state":"completed"}')
        for key in options.set
        for part in graph.resulting(key)
    ]
    rows += _begun_with(state, options)
    return Changes(rows=tuple(rows), again=frozenset(again), keys=changed)


def _again(graph: PartGraph, changed: Sequence[str], options: ForkOptions) -> set[PartKey]:
    """Return the parts that are pending again."""
    if options.rerun == "none":
        return set()
    if options.rerun != "affected":
        for id in options.rerun:
            if not graph.named(id):
                raise NotFound("part", id, next="List the parts of the run.")
        asked = [part for id in options.rerun for part in graph.named(id)]
        return graph.around(graph.within(asked))
    lost = [key.partition(":")[2] for key in options.delete if _is_result(key)]
    # A result that is given is not asked for again, nor what is within its part.
    given = [part for key in options.set for part in graph.resulting(key)]
    return graph.affected(changed, lost) - graph.within(given)


def _is_result(key: str) -> bool:
    return key.startswith(("step:", "task:"))


def _set(state: State, key: str, given: JSON, at: int) -> list[StateRow]:
    """Return the facts that *key* has the value *given*.

    The result of a node is its outputs, that of a task of a board is with the task as well.
    """
    value = encode(given, root="$", depth=VALUE_DEPTH, field=f"set.{key}")
    namespace, _, id = key.partition(":")
    node, board = state.get(("state", f"node:{id}")), state.get(("board", id))
    if namespace == "step" and node is not None and ("entry", key) not in state:
        if not isinstance(given, dict):
            raise InvalidInput(f"set.{key}", "must be an object, the outputs of the node by name")
        return [StateRow("state", f"node:{id}", value)]
    rows = [_written(state, key, value, at)]
    if namespace == "step" and node is not None:
        rows.append(StateRow("state", f"node:{id}", _encode({"result": Raw(value)})))
    if namespace == "task" and board is not None:
        done = {"status": "done", "result_json": value, "failure_reason": None}
        rows.append(StateRow("board", id, _changed_task(board, done)))
    return rows


def _first_call(state: State, again: Iterable[PartKey]) -> str | None:
    """Return the first call of an agent of a network among *again*, as a part."""
    calls = [part for part in again if call_number(part) >= 0]
    if not calls or not any(kind == "result" for kind, _ in state):
        return None
    return min(calls, key=call_number)[1]


def _later_calls(state: State, parts: Iterable[PartRow], again: Iterable[PartKey]) -> set[PartKey]:
    """Return the calls of agents of a network after the first one of *again*.

    Each of them has seen the results of those before it.
    """
    if (call := _first_call(state, again)) is None:
        return set()
    first = call_number(("agent", call))
    return {part for row in parts if call_number(part := (row.kind, row.id)) >= first}


def _rewound(changes: Changes, state: State, before: State) -> Changes:
    """Return *changes* of what a network knew *before* the call made again."""
    differing = [key for key in {**state, **before} if state.get(key) != before.get(key)]
    rows = [StateRow(*key, before.get(key)) for key in differing if key != _NUMBER]
    return replace(changes, rows=(*rows, *changes.rows))


def _changed_task(body: bytes, changes: dict[str, Any]) -> bytes:
    """Return the task of a board *body* with *changes*, as its next version."""
    fields: dict[str, Any] = msgspec.json.decode(body)
    version = fields.get("version", 0) + 1
    return _encode(fields | {"blocked_reason": None, "version": version} | changes)


def _reopened(state: State, again: Iterable[PartKey]) -> list[StateRow]:
    """Return the tasks of a board among *again*, open for all members of the team."""
    anew = {"status": "open", "claimed_by": None, "result_json": b"null", "failure_reason": None}
    return [
        StateRow("board", id, _changed_task(body, anew))
        for kind, id in sorted(again)
        if kind == "board_task" and (body := state.get(("board", id))) is not None
    ]


def _written(state: State, key: str, value: bytes, at: int) -> StateRow:
    """Return the fact that *key* has *value*, JSON, as a new version of it."""
    if not _is_entry(key):
        body = state.get(("value", key))
        fields: dict[str, Any] = {} if body is None else msgspec.json.decode(body)
        number = fields.get("version", 0) + 1
        return StateRow("value", key, _encode(fields | {"value": Raw(value), "version": number}))
    body = state.get(("entry", key))
    if body is None:
        entry = RunEntry(
            key=key,
            kind=keys.kind_of(key),
            value_json=value,
            source=None,
            title=None,
            description=None,
            created_at=at,
            updated_at=at,
            version=1,
            failed=False,
        )
        return entry_row(entry)
    entry = entry_in(body)
    return entry_row(
        replace(entry, value_json=value, updated_at=at, version=entry.version + 1, failed=False)
    )


def _deleted(state: State, key: str) -> StateRow:
    """Return the fact that *key* is deleted; raise `NotFound` if it is not there."""
    kind: Literal["entry", "value"] = "entry" if _is_entry(key) else "value"
    if (kind, key) not in state:
        raise NotFound("entry", key, next="List the entries of the run at that version.")
    return StateRow(kind, key, None)


def _cleared(state: State, again: Iterable[PartKey], changed: Sequence[str]) -> list[StateRow]:
    """Return the facts without the results and the progress of the parts *again*."""
    gone: list[tuple[Any, str]] = []
    for part in sorted(again):
        id = part[1]
        if (result := result_of(part)) not in changed:
            gone.append(("entry", result))
        gone += [("part", fact_key(part)), ("state", f"node:{id}")]
        gone += [each for each in state if each[0] == "once" and each[1].startswith(f"{id}:")]
    return [StateRow(*each, None) for each in dict.fromkeys(gone) if each in state]


def _begun_with(state: State, options: ForkOptions) -> list[StateRow]:
    """Return the facts of what the fork is begun with: other inputs, another hash."""
    changed = [key for key in (*options.set, *options.delete) if _is_input(key)]
    body = state.get(_START)
    if not changed or body is None:
        return []
    begun: dict[str, str] = msgspec.json.decode(body)["parts"]
    if "inputs" not in begun:
        return []
    inputs: dict[str, JSON] = {
        key.partition(":")[2]: decode(entry_in(each).value_json)
        for (kind, key), each in state.items()
        if kind == "entry" and _is_input(key)
    }
    if hashed(inputs) != begun["inputs"]:
        raise InvalidInput(
            "set",
            "must name no input: those that the run was begun with are not its entries",
            given=changed[0],
            next="Begin another run with other inputs.",
        )
    inputs = _with_changes(inputs, options)
    parts = begun | {"inputs": hashed(inputs)}
    return [StateRow(*_START, _encode({"plan_hash": hashed(parts), "parts": parts}))]


def _with_changes(inputs: dict[str, Any], options: ForkOptions) -> dict[str, Any]:
    """Return *inputs* as *options* change them."""
    given = {key.partition(":")[2]: options.set[key] for key in options.set if _is_input(key)}
    deleted = {key.partition(":")[2] for key in options.delete if _is_input(key)}
    return {name: each for name, each in inputs.items() if name not in deleted} | given


def _is_input(key: str) -> bool:
    return key.startswith("input:")


class _TouchRow(Struct, frozen=True):
    type: str
    part: str | None
    agent: str | None
    data: str

    def touch(self) -> Touch | None:
        """Return the key that was touched, and by which part or agent."""
        data: dict[str, Any] = msgspec.json.decode(self.data)
        by = self.part or self.agent or data.get("reader") or data.get("source")
        key = data.get("key")
        if not isinstance(key, str) or not isinstance(by, str):
            return None
        return Touch(key, by, written=self.type in {"memory.written", "value.changed"})


def _touches(reader: Reader, sql: SimpleNamespace, run_id: str) -> list[Touch]:
    """Return the keys that the parts of the run have read and written."""
    rows = reader.all(_TouchRow, sql.touches, run=run_id)
    found = [row.touch() for row in rows]
    return [each for each in dict.fromkeys(found) if each is not None]


class _Original(Struct, frozen=True):
    """A run as it is forked: what it knew at a version, and its parts."""

    row: RunRow
    version: int
    is_newest: bool
    state: State
    parts: list[PartRow]


def fork(context: RunsContext, run_id: str, options: ForkOptions) -> Run:
    """Fork the run *run_id* as *options* say, and return the new run.

    Raise `NotFound` without the run, the version or a part, `Conflict` if the id is taken.
    """
    now = context.now()
    new_id = options.run_id or _ids.new("run", now)
    thread_id = _ids.new("thread", now)

    def work(tx: Transaction) -> Run:
        sql = statements(context)
        original = _original(tx, sql, run_id, options)
        touches = _touches(tx, sql, run_id)
        at = now // MILLISECOND
        changes = changes_of(original.state, original.parts, touches, options, at)
        if (call := _first_call(original.state, changes.again)) is not None:
            number = version_before(tx, sql, run_id, call)
            changes = _rewound(changes, original.state, state_at(tx, sql, run_id, number))
        copy = _Copy(context, tx, original=original, changes=changes, new_id=new_id)
        copy.begin(options, thread_id, now)
        copy.history()
        copy.entries()
        if original.row.thread_id is not None:
            copy.turns_of_thread(original.row.thread_id, thread_id, now)
        copy.tell(start=options.start, at=at)
        return tx.one(RunRow, sql.get_run, run=new_id).record(now)

    return context.engine.write(work)


def _original(
    tx: Transaction, sql: SimpleNamespace, run_id: str, options: ForkOptions
) -> _Original:
    row = tx.first(RunRow, sql.lock_run, run=run_id)
    if row is None:
        raise missing(run_id)
    newest = tx.first(scalar, sql.last_version, run=run_id) or 0
    version = newest if options.version is None else options.version
    if options.before is not None:
        version = version_before(tx, sql, run_id, options.before)
    if version and tx.first(scalar, sql.version_at, run=run_id, number=version) is None:
        raise NotFound("version", str(version), next="List the versions of the run.")
    return _Original(
        row=row,
        version=version,
        is_newest=version == newest,
        state=state_at(tx, sql, run_id, None if version == newest else version),
        parts=tx.all(PartRow, sql.list_parts, run=run_id),
    )


class _Copy:
    """The copy of *original* with *changes* as the run *new_id*."""

    def __init__(
        self,
        context: RunsContext,
        tx: Transaction,
        *,
        original: _Original,
        changes: Changes,
        new_id: str,
    ) -> None:
        self._context, self._tx, self._sql = context, tx, statements(context)
        self._original, self._changes, self._new_id = original, changes, new_id
        self._state = {**original.state}
        for row in changes.rows:
            if row.body is None:
                self._state.pop((row.kind, row.key), None)
            else:
                self._state[row.kind, row.key] = row.body

    def begin(self, options: ForkOptions, thread_id: str, now: int) -> None:
        """Write the record of the fork; raise `Conflict` if its id is taken."""
        row, start = self._original.row, now - now % MILLISECOND
        thread = None if row.thread_id is None else thread_id
        if thread is not None:
            self._tx.run(self._sql.fork_thread, old=row.thread_id, thread=thread, now=start)
        entries = self._entries()
        made = self._tx.run(
            self._sql.fork_run,
            run=row.id,
            fork=self._new_id,
            version=self._original.version,
            name=options.name,
            thread=thread,
            queued=int(options.start),
            input=self._input(options),
            entries=len(entries),
            bytes=sum(len(each.value_json) for each in entries),
            now=start,
        )
        if not made:
            there = f"There is a run {self._new_id} already."
            raise Conflict(there, reason="taken", next="Choose another run_id, or let one be made.")
        self._link(thread, now)

    def _link(self, thread: str | None, now: int) -> None:
        """Link the fork and its thread to the people of the original."""
        row, new, send = self._original.row, self._new_id, self._tx.send
        send(self._sql.link_run_as, run=new, kind=link_kind(row.kind), other=row.id, now=now)
        send(self._sql.link_thread_as, thread=thread, old=row.thread_id, now=now)

    def _input(self, options: ForkOptions) -> str | None:
        """Return the input of the fork's definition as JSON, with the changed inputs."""
        given = self._tx.first(scalar, self._sql.input_of, run=self._original.row.id)
        found: object = None if given is None else msgspec.json.decode(given)
        if not isinstance(found, dict):
            return given
        inputs = _with_changes(cast("dict[str, Any]", found), options)
        return _encode(inputs).decode()

    def history(self) -> None:
        """Copy versions, messages and parts up to the version."""
        sql, ids = self._sql, {"run": self._original.row.id, "fork": self._new_id}
        version, is_newest = self._original.version, self._original.is_newest
        self._tx.run(sql.fork_versions, **ids, version=version)
        # What unfinished parts have written since the newest version is of the next one.
        self._tx.run(sql.fork_version_rows, **ids, version=version + is_newest)
        self._tx.run(sql.fork_texts, **ids)
        said = self._tx.all(scalar, sql.parts_with_turns, run=ids["run"])
        open_ = set(self._tx.all(scalar, sql.parts_that_ask, run=ids["run"]))
        again = {part[1] for part in self._changes.again}
        kept = [
            part
            for part in said
            if part not in again | open_
            and (self._original.is_newest or ("part", part) in self._state)
        ]
        self._tx.run(sql.fork_turns, **ids, parts=_encode(kept).decode())
        rows = [{"run": self._new_id, **asdict(self._part(row))} for row in self._original.parts]
        self._tx.run_many(sql.set_part, rows)

    def _part(self, row: PartRow) -> PartRow:
        """Return the part as it is in the fork: completed, or pending again."""
        part = (row.kind, row.id)
        if ("part", fact_key(part)) in self._state:
            return replace(row, state="completed", cause=None)
        newest = self._original.is_newest and row.state == "completed"
        if newest and row.kind in {"agent", "board_task"} and part not in self._changes.again:
            return row
        return replace(
            row,
            state="pending",
            attempts=0,
            cause=None,
            usage=None,
            started_at=None,
            ended_at=None,
        )

    def entries(self) -> None:
        """Write the entries of the fork, as its followers see them."""
        rows = [
            {"run": self._new_id, "written": place, **stored_entry(_reported(entry))}
            for place, entry in enumerate(self._entries())
        ]
        self._tx.run_many(self._sql.set_entry, rows)

    def _entries(self) -> list[RunEntry]:
        return [entry_in(body) for (kind, _), body in self._state.items() if kind == "entry"]

    def turns_of_thread(self, thread: str, new_thread: str, now: int) -> None:
        """Copy the turns of the thread up to the version to a thread of the fork's own."""
        sql: SimpleNamespace = self._context.engine.queries(QUERIES)
        rows = self._tx.all(
            ThreadTurnRow, sql.list_turns, thread=thread, after=0, last=NEWEST, kind=""
        )
        ours = self._original.row.id
        turns = turns_until([row.record() for row in rows], ours, self._results())
        ready = [prepared(turn.of_fork(ours, self._new_id)) for turn in turns]
        if ready:
            put_turns(self._tx, sql, new_thread, ready, now=now)

    def _results(self) -> set[str] | None:
        """Return the ids of the results that the fork has; None for all there are."""
        has_results = any(kind == "result" for kind, _ in self._original.state)
        if self._original.is_newest and not has_results:
            return None
        bodies = (body for (kind, _), body in self._state.items() if kind == "result")
        return {msgspec.json.decode(body)["id"] for body in bodies}

    def _own_results(self) -> list[StateRow]:
        """Return the results of a network as results of the fork."""
        found: list[StateRow] = []
        for (kind, key), body in self._state.items():
            fields: dict[str, Any] = msgspec.json.decode(body) if kind == "result" else {}
            if "result" in fields:
                result = InferenceResult.from_dict(fields["result"])
                fields["result"] = replace(result, run_id=self._new_id).export()
                found.append(StateRow("result", key, _encode(fields)))
        return found

    def tell(self, *, start: bool, at: int) -> None:
        """Write the events of the fork, and its changes as its next version."""
        origin = {"run": self._original.row.id, "version": self._original.version}
        changed, again = self._changes.keys, sorted({id for _, id in self._changes.again})
        data = {
            "from": origin,
            "changed": list(changed[:NAMED]),
            "again": again[:NAMED],
            "more": max(len(changed) - NAMED, 0) + max(len(again) - NAMED, 0),
        }
        forked = RunEvent(type="run.forked", seq=1, at=at, run_id=self._new_id, data=data)
        add_events(self._tx, self._sql, self._new_id, (forked,))
        self._tx.after_commit(lambda: published(self._context, (forked,)))
        number = self._original.version + 1
        rows = (*self._changes.rows, *self._own_results())
        if _NUMBER in self._state:
            rows = (*rows, StateRow(*_NUMBER, b"%d" % number))
        is_queued = start and self._original.row.definition is not None
        save = VersionSave(
            run_id=self._new_id,
            fence=0,
            at=at,
            cause="fork",
            rows=rows,
            seq=1,
            status="queued" if is_queued else None,
        )
        saved(self._context, self._tx, save)


def _reported(entry: RunEntry) -> ReportedEntry:
    facts = asdict(entry)
    return ReportedEntry(**asdict(kept_value(facts.pop("value_json"))), **facts)
