"""Versions of a run: what it knew at a moment, stored as changes."""

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.pages import NEWEST, Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_limit
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.retention import VersionSpan, fold
from holdfast.memories.run.history.turns import (
    KeptTurn,
    messages_in,
    messages_of_call,
    open_turns,
    set_turns,
    turns_of,
    with_results,
)
from holdfast.memories.run.keys import Kind
from holdfast.memories.run.records.event import RunEvent, facts_alone
from holdfast.memories.run.records.question import Question, ask, open_ids, questions_of, waits
from holdfast.memories.run.records.record import EVENT_BYTES, MILLISECOND, RunsContext
from holdfast.memories.run.records.run import (
    RunState,
    RunVersion,
    RunVersionRow,
    VersionChoice,
    detached,
)
from holdfast.memories.run.records.write import add_events, missing, published, refused, statements
from holdfast.memories.state.message import Message

_KEPT: Final = REGISTRY.counter("run_versions_total", "Versions of runs stored.", cause=())
_BYTES: Final = REGISTRY.histogram(
    "run_version_bytes", "Bytes of a stored version.", (256, 1_024, 4_096, 65_536, 1_048_576)
)

CHANGED_MOST: Final = 1_000
"""Keys that a version lists as changed; it may have changed more."""

PER_VERSION: Final = 1_000_000
"""More than the rows of one version, so that places of two versions never overlap."""

_CHANGED_BYTES: Final = EVENT_BYTES // 2
"""Bytes of the keys that the event of a version lists."""

StateKind: TypeAlias = Literal[
    "entry", "value", "part", "board", "message", "result", "start", "once", "state"
]
"""What a changed fact of a run is."""

State: TypeAlias = dict[tuple[StateKind, str], bytes]
"""What a run knew, by kind and key, as JSON, in the order of first writes."""

_NAMED: Final = frozenset(("entry", "value"))
"""The kinds of which a changed key is listed as it is; before others stands the kind."""

_text: Final = msgspec.json.Encoder().encode


class StateRow(Struct, frozen=True):
    """A changed fact of a run: its JSON, or None where it was deleted."""

    kind: StateKind
    key: str
    body: bytes | None


class VersionSave(Struct, frozen=True, kw_only=True):
    """What one transaction stores of a run; `at` is in ms since 1970.

    Without a `cause` there is no new version, and `rows` belong to the next one. With a `status`
    the run leaves this process: its lease is given back. Its events are numbered after the event
    `seq`; the owner stores that of the version itself where it is not `emitted` here. `fence` is
    the token of the lease, 0 without one. With `after` nothing is stored unless that is the number
    of the newest version. With `facts` its events are stored without texts.
    """

    run_id: str
    fence: int
    at: int
    cause: str | None
    part: str | None = None
    agent: str | None = None
    rows: tuple[StateRow, ...] = ()
    turns: tuple[KeptTurn, ...] = ()
    questions: tuple[Question, ...] = ()
    status: Literal["waiting", "queued"] | None = None
    seq: int = 0
    after: int | None = None
    emitted: bool = True
    facts: bool = False

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for what only a version can hold, without a cause."""
        if self.cause is None and (self.questions or self.status):
            raise InvalidInput("cause", "must be given where questions or a status are stored")

    @property
    def changed(self) -> dict[str, None]:
        """The names of the changed keys, without repeats."""
        return {
            (row.key if row.kind in _NAMED else f"{row.kind}:{row.key}"): None for row in self.rows
        }


class SavedVersion(Struct, frozen=True, kw_only=True):
    """The number of a stored version, if there is one, and its stored events.

    Nothing was `stored` where another version is the newest one.
    """

    number: int | None = None
    events: tuple[RunEvent, ...] = ()
    stored: bool = True


class _Held(Struct, frozen=True, kw_only=True):
    """The owner of a run and its numbers, locked for a save."""

    fence: int
    status: str
    lease_until: int | None
    seq: int
    versions: int
    version_bytes: int
    oldest: int | None
    queue: str | None
    thread_id: str | None


def save_version(context: RunsContext, save: VersionSave) -> SavedVersion:
    """Store *save* in one transaction with its events.

    Raise `StaleRun` unless its fence is that of the run's owner, `NotFound` without a run.
    """
    return context.engine.write(lambda tx: saved(context, tx, save))


def saved(context: RunsContext, tx: Transaction, save: VersionSave) -> SavedVersion:
    """Store *save* as `save_version` does, in the transaction *tx*."""
    sql = statements(context)
    held = _owned(tx, sql, save)
    if save.after is not None and held.versions != save.after:
        return SavedVersion(stored=False)
    size = bytes_of(save)
    number = None if save.cause is None else held.versions + 1
    emitted: tuple[RunEvent, ...] = ()
    if number is not None:
        _add_version(tx, sql, save, number, size)
        emitted = (version_event(save, number),) if save.emitted else ()
    # What a part has written before it ends is of the next version, whatever that is stored for.
    _set_rows(tx, sql, save, held.versions + 1)
    stored = sum(map(_size, save.rows)) + set_turns(tx, sql, save.run_id, save.turns)
    new = ask(tx, sql, save.run_id, save.questions)
    emitted += tuple(map(facts_alone, new)) if save.facts else new
    if save.status == "waiting" and not waits(tx, sql, save.run_id):
        # The last answer came while other parts went on, or the last item ended.
        save = replace(save, status="queued")
    if save.status is not None:
        emitted += (_left(tx, sql, save, held),)
    events = _numbered(emitted, max(held.seq, save.seq), held)
    add_events(tx, sql, save.run_id, events)
    kept = len(save.turns) + len(save.rows)
    facts = {"run": save.run_id, "seq": events[-1].seq if events else held.seq, "kept": kept}
    tx.run(sql.keep_version, versions=number or held.versions, size=stored, **facts)
    if save.status is not None:
        tx.run(sql.rest_run, run=save.run_id, status=save.status, now=context.now())
    elif number is not None:
        span = VersionSpan(
            run_id=save.run_id,
            at=save.at,
            oldest=held.oldest or number,
            newest=number,
            bytes=held.version_bytes + stored,
        )
        events += _fold(tx, sql, span, held, events)
    tx.after_commit(lambda: _count(context, save, size, events))
    return SavedVersion(number=number, events=events)


def _fold(
    tx: Transaction,
    sql: SimpleNamespace,
    kept: VersionSpan,
    held: _Held,
    events: tuple[RunEvent, ...],
) -> tuple[RunEvent, ...]:
    """Fold the oldest versions of *kept* if there are too many; return the event."""
    seq = events[-1].seq if events else held.seq
    emitted = _numbered(fold(tx, sql, kept), seq, held)
    if emitted:
        add_events(tx, sql, kept.run_id, emitted)
        facts = {"run": kept.run_id, "versions": kept.newest, "size": 0, "kept": 0}
        tx.run(sql.keep_version, seq=emitted[-1].seq, **facts)
    return emitted


def _owned(tx: Transaction, sql: SimpleNamespace, save: VersionSave) -> _Held:
    """Lock and return the run; raise `StaleRun` for a former owner, or after the end."""
    held = tx.first(_Held, sql.lock_versions, run=save.run_id)
    if held is None:
        raise missing(save.run_id)
    # A claimed run is queued: its claimant raises the token when it begins.
    if save.fence not in (0, held.fence) or (save.fence and held.status == "queued"):
        raise refused("superseded", save.fence, held.fence)
    if save.fence and held.lease_until is None and held.status != "lost":
        raise refused("ended", save.fence, None)
    return held


def bytes_of(save: VersionSave) -> int:
    """Return the bytes of the rows and messages of *save*."""
    return sum(map(_size, save.rows)) + sum(len(turn.body) for turn in save.turns)


def _size(row: StateRow) -> int:
    return len(row.key.encode()) + len(row.body or b"")


def _add_version(
    tx: Transaction, sql: SimpleNamespace, save: VersionSave, number: int, size: int
) -> None:
    names = list(save.changed)[:CHANGED_MOST]
    tx.run(
        sql.add_version,
        run=save.run_id,
        number=number,
        at=save.at * MILLISECOND,
        cause=save.cause,
        part=save.part,
        agent=save.agent,
        fence=save.fence,
        changed=_text(names).decode(),
        bytes=size,
    )


def _set_rows(tx: Transaction, sql: SimpleNamespace, save: VersionSave, number: int) -> None:
    """Write the rows of the version *number*; of two of one key the last one counts."""
    last = {(row.kind, row.key): row for row in save.rows}
    tx.run_many(
        sql.set_version_row,
        [
            {
                "run": save.run_id,
                "kind": row.kind,
                "key": row.key,
                "number": number,
                "place": number * PER_VERSION + place,
                "body": row.body,
                "bytes": _size(row),
            }
            for place, row in enumerate(last.values())
        ],
    )


def version_event(save: VersionSave, number: int) -> RunEvent:
    """Return the event that tells that *save* is stored as the version *number*."""
    return RunEvent(
        type="version.kept",
        seq=0,
        at=save.at,
        run_id=save.run_id,
        part=save.part,
        agent=save.agent,
        data={
            "version": number,
            "cause": save.cause,
            "changed": _fitting(save.changed),
            "bytes": bytes_of(save),
        },
    )


def _left(tx: Transaction, sql: SimpleNamespace, save: VersionSave, held: _Held) -> RunEvent:
    """Return the event that tells that the run left its process."""
    data: dict[str, Any] = {"queue": held.queue}
    if save.status == "waiting":
        data = {"questions": list(open_ids(tx, sql, save.run_id))}
    type = "run.waiting" if save.status == "waiting" else "run.queued"
    return RunEvent(type=type, seq=0, at=save.at, run_id=save.run_id, data=data)


def _numbered(emitted: Iterable[RunEvent], seq: int, held: _Held) -> tuple[RunEvent, ...]:
    """Return *emitted* as the events of the run after the event *seq*."""
    return tuple(
        replace(each, seq=seq + place, thread_id=held.thread_id)
        for place, each in enumerate(emitted, start=1)
    )


def _fitting(names: Mapping[str, None]) -> list[str]:
    """Return the first of *names*, as many as an event takes."""
    room, fitting = _CHANGED_BYTES, list[str]()
    for name in list(names)[:CHANGED_MOST]:
        room -= len(name.encode())
        if room < 0:
            break
        fitting.append(name)
    return fitting


def _count(
    context: RunsContext, save: VersionSave, size: int, events: tuple[RunEvent, ...]
) -> None:
    if save.cause is not None:
        _KEPT.add(save.cause)
        _BYTES.observe(size)
    published(context, events)


def state_at(
    reader: Reader, sql: SimpleNamespace, run_id: str, version: int | None = None
) -> State:
    """Return what the run *run_id* knew at *version*, the newest one by default."""
    rows = reader.rows(sql.state_at, run=run_id, number=NEWEST if version is None else version)
    return {(kind, key): bytes(body) for kind, key, body in rows}


class _EntryBody(Struct, frozen=True, kw_only=True):
    """An entry of run memory with its value as JSON."""

    key: str
    kind: Kind
    value: Raw
    source: str | None
    title: str | None
    description: str | None
    created_at: int
    updated_at: int
    version: int
    failed: bool


_entry: Final = msgspec.json.Decoder(_EntryBody)


def entry_row(entry: RunEntry) -> StateRow:
    """Return *entry* as a fact of its run."""
    facts = asdict(entry)
    body = facts | {"value": Raw(facts.pop("value_json"))}
    return StateRow("entry", entry.key, _text(body))


def entry_in(body: bytes) -> RunEntry:
    """Return the entry of a fact; raise msgspec's DecodeError for another form."""
    facts = asdict(_entry.decode(body))
    return RunEntry(value_json=bytes(facts.pop("value")), **facts)


class KeptState(Struct, frozen=True, kw_only=True):
    """The newest version of a run with all that it builds on, `at` in ms.

    `turns` are the messages of the parts that are not completed, `questions` all of the run.
    """

    number: int
    at: int
    state: State
    turns: tuple[KeptTurn, ...] = ()
    questions: tuple[Question, ...] = ()


class VersionRows:
    """The newest versions of a workspace's runs, for those who go on from them."""

    def __init__(self, context: RunsContext) -> None:
        self._caller = context

    def load(self, run_id: str) -> KeptState | None:
        """Return what the run *run_id* knew last; None if nothing is kept."""
        checked_name("run_id", run_id)
        sql = statements(self._caller)

        def work(reader: Reader) -> KeptState | None:
            newest = reader.first(_Newest, sql.newest_version, run=run_id)
            state = state_at(reader, sql, run_id)
            over = completed(state)
            turns = open_turns(reader, sql, run_id, over)
            results = {key: body for (kind, key), body in state.items() if kind == "result"}
            for key, body in with_results(reader, sql, run_id, results).items():
                state["result", key] = body
            if newest is None and not turns:
                return None
            # The first messages of a run are kept before its first version.
            newest = newest or _Newest(number=0, at=0)
            return KeptState(
                number=newest.number,
                at=newest.at // MILLISECOND,
                state=state,
                turns=tuple(turns),
                questions=tuple(questions_of(reader, sql, run_id)),
            )

        return self._caller.engine.read(work)

    def append(self, save: VersionSave) -> SavedVersion:
        """Store *save* as `save_version` does."""
        return save_version(self._caller, save)

    def replace(self, save: VersionSave) -> SavedVersion:
        """Store *save*, so that its rows and turns are all that the run has.

        Only what differs is stored. Messages of completed parts stay. A run that has no record gets
        one, unless *save* has a fence.
        """
        return self._caller.engine.write(lambda tx: self.replaced(tx, save))

    def replaced(self, tx: Transaction, save: VersionSave) -> SavedVersion:
        """Store *save* as `replace` does, in the transaction *tx*."""
        checked_name("run_id", save.run_id)
        sql = statements(self._caller)
        if not save.fence:
            tx.run(sql.make_run, run=save.run_id, now=self._caller.now())
        tx.first(_Held, sql.lock_versions, run=save.run_id)
        given: State = {(row.kind, row.key): row.body for row in save.rows if row.body is not None}
        before = state_at(tx, sql, save.run_id)
        gone = [StateRow(*each, None) for each in before if each not in given]
        new = [StateRow(*each, body) for each, body in given.items() if before.get(each) != body]
        over = completed(given)
        for part in tx.all(scalar, sql.parts_with_turns, run=save.run_id):
            if part not in over:
                tx.run(sql.clear_turns, run=save.run_id, part=part)
        return saved(self._caller, tx, replace(save, rows=(*gone, *new)))

    def delete(self, run_id: str) -> bool:
        """Delete versions and messages of the run; return whether there were any."""
        checked_name("run_id", run_id)
        sql = statements(self._caller)

        def work(tx: Transaction) -> bool:
            tx.first(_Held, sql.lock_versions, run=run_id)
            kinds = (
                sql.drop_version_rows,
                sql.drop_versions,
                sql.drop_turns,
                sql.drop_texts,
                sql.drop_effects,
            )
            gone = [tx.run(statement, run=run_id) for statement in kinds]
            tx.run(sql.forget_versions, run=run_id)
            return any(gone)

        return self._caller.engine.write(work)


class _Newest(Struct, frozen=True, kw_only=True):
    number: int
    at: int


def completed(state: State) -> set[str]:
    """Return the parts that are completed in *state*."""
    parts = ((key, body) for (kind, key), body in state.items() if kind == "part")
    return {key for key, body in parts if _state.decode(body).state == "completed"}


class _PartState(Struct, frozen=True):
    state: str = "pending"


_state: Final = msgspec.json.Decoder(_PartState)


LIST: Final = "versions"
MOST_LISTED: Final = 1_000


def list_versions(
    context: RunsContext, run_id: str, limit: int | None, page: str | None
) -> Page[RunVersion]:
    """Return a page of the versions of the run *run_id*, the newest first."""
    rows, stamp = check_limit(limit, most=MOST_LISTED), digest(context.workspace, run_id)
    before = NEWEST
    if page is not None:
        match read_cursor(LIST, stamp, page)[0]:
            case [int(before)]:
                pass
            case _:
                raise no_cursor()
    sql = statements(context)
    if context.engine.first(_Held, sql.get_versions, run=run_id) is None:
        raise missing(run_id)
    found = context.engine.all(
        RunVersionRow, sql.list_versions, run=run_id, before=before, rows=rows + 1
    )
    more = len(found) > rows
    return Page(
        [row.record() for row in found[:rows]],
        write_cursor(LIST, stamp, [found[rows - 1].number]) if more else None,
        more=lambda page: list_versions(context, run_id, limit, page),
    )


def run_at(context: RunsContext, run_id: str, choice: VersionChoice) -> RunState:
    """Return what the run *run_id* knew at the version of *choice*."""
    sql = statements(context)

    def work(reader: Reader) -> tuple[int, State]:
        number = version_at(reader, sql, run_id, choice)
        return number, state_at(reader, sql, run_id, number)

    number, state = context.engine.read(work)
    entries = [entry_in(body) for (kind, _), body in state.items() if kind == "entry"]
    return detached(run_id, number, entries, state)


def version_at(reader: Reader, sql: SimpleNamespace, run_id: str, choice: VersionChoice) -> int:
    """Return the number of the version of *choice*, 0 for that before the first one.

    Raise `NotFound` without the run, the version or the part.
    """
    held = reader.first(_Held, sql.get_versions, run=run_id)
    if held is None:
        raise missing(run_id)
    oldest = reader.first(scalar, sql.oldest_version, run=run_id) or 1
    number = held.versions if choice.version is None else choice.version
    if not (number == 0 and oldest == 1) and not oldest <= number <= held.versions:
        raise NotFound("version", str(number), next="List the versions of the run.")
    if choice.part is None:
        return number
    if choice.when == "before":
        return min(version_before(reader, sql, run_id, choice.part), number)
    last = reader.rows(sql.versions_of_part, run=run_id, part=choice.part, number=number)[0][1]
    if last is None:
        raise NotFound("part", choice.part, next="List the versions of the run.")
    return last


def version_before(reader: Reader, sql: SimpleNamespace, run_id: str, part: str) -> int:
    """Return the number of the version before *part* began, 0 for none.

    Where the events of that time are no longer stored, it is the version before its own first one.
    Raise `NotFound` for a part that has not begun.
    """
    began = reader.first(_Began, sql.part_began, run=run_id, part=part)
    if began is not None and began.version is not None:
        return _told.decode(began.version).version
    if began is not None and began.oldest == 1:
        return 0
    first = reader.rows(sql.versions_of_part, run=run_id, part=part, number=NEWEST)[0][0]
    if first is None:
        raise NotFound("part", part, next="Name a part that has begun, or a version.")
    return max(first - 1, 0)


class _Began(Struct, frozen=True, kw_only=True):
    """When a part began: the version emitted last before, and the oldest stored event."""

    seq: int
    version: str | None
    oldest: int


class _VersionTold(Struct, frozen=True):
    """The number of a version in the data of its event."""

    version: int


_told: Final = msgspec.json.Decoder(_VersionTold)


def messages_of(context: RunsContext, run_id: str, part: str) -> list[Message]:
    """Return what *part* of the run *run_id* sent to its model and was answered.

    The result of a call of an agent, once it is completed, has what it was.
    """
    sql = statements(context)

    def work(reader: Reader) -> list[Message]:
        if reader.first(_Held, sql.get_versions, run=run_id) is None:
            raise missing(run_id)
        found = messages_of_call(reader, sql, run_id, part)
        if found is not None:
            return found
        turns = turns_of(reader, sql, run_id, part)
        return messages_in([(turn.agent, turn.body) for turn in turns])

    return context.engine.read(work)
