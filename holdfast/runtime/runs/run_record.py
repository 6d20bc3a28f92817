"""Record a run in `hf.runs` while it is executed: lease, events, versions, end.

Executors, networks and agents open the record before anything runs, and end it as their last act.
"""

import asyncio
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast import library
from holdfast.ground.errors import CheckpointUnreadable, StaleRun
from holdfast.ground.json_values import hashed
from holdfast.memories.run.history.versions import (
    KeptState,
    StateKind,
    StateRow,
    VersionRows,
    VersionSave,
    entry_in,
    entry_row,
)
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending, RunEvent, facts_alone
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import NAME_MOST, RunControl
from holdfast.memories.run.records.run import KINDS, RunKind
from holdfast.memories.run.records.writer import RunOpening, RunWriter
from holdfast.runtime.events import EventFacts, MemoryUpdate
from holdfast.runtime.plans.leases import CheckpointLease, EngineLeases, LeaseRequest
from holdfast.runtime.runs.checkpoints import Checkpoint, CheckpointChange
from holdfast.runtime.runs.run_events import RunEvents, RunFinish, audience

Recorded: TypeAlias = Literal["content", "facts"]
"""What is stored of a run's events: all of it, or no texts, inputs and contents."""

_KINDS: Final[dict[str, RunKind]] = {
    "planner": "plan",
    "loop": "step",
    "multi-agent": "team",
}
"""The kinds of runs of executors that are not named like them."""


GIVEN_BACK: Final = "its worker gives it back"
"""The reason for which what runs is cancelled, while the run itself stays queued."""


class RunClaim:
    """The claim of a worker on a queued run, under which what runs here acquires it.

    `begun` is whether it was acquired.
    """

    def __init__(self, run_id: str, holder: str, definition: str) -> None:
        self.run_id, self.holder, self.definition = run_id, holder, definition
        self.begun = False
        self._control: RunControl | None = None
        self._events: RunEvents | None = None
        self._given_back = False

    def acquired(self, control: RunControl, events: RunEvents) -> None:
        """Set that the run was acquired; *control* cancels it, *events* are its own."""
        self.begun, self._control, self._events = True, control, events
        if self._given_back:
            self._stop(control, events)

    def give_back(self) -> None:
        """Stop what runs; the run is queued again."""
        self._given_back = True
        if self._control is not None and self._events is not None:
            self._stop(self._control, self._events)

    def _stop(self, control: RunControl, events: RunEvents) -> None:
        # Its parts go on elsewhere: they are not cancelled, unless the run is already.
        events.leaving = getattr(control, "cancelled", None) is None
        control.cancel(GIVEN_BACK)

    def is_given_back_by(self, finish: RunFinish) -> bool:
        """Return whether *finish* is not the end of the run: it goes on elsewhere."""
        # Only the first reason of a cancellation counts, and another one ends the run.
        return self._given_back and finish.status == "cancelled" and finish.detail == GIVEN_BACK


CLAIM: Final[ContextVar[RunClaim | None]] = ContextVar("CLAIM", default=None)
"""The claim on the run that a worker executes here."""


class OpenRecord:
    """The open record of a run: its *writer* stores what *events* emits, until `end`.

    `opened` are the events that opening it has stored, such as `run.started`, until it emits them.
    """

    def __init__(
        self,
        writer: RunWriter,
        events: RunEvents,
        recorded: Recorded,
        claim: RunClaim | None = None,
    ) -> None:
        self._writer, self._claim = writer, claim
        self._facts = recorded == "facts"
        self.opened = writer.opened
        events.begin_at(writer.seq + 1)

        def store(event: RunEvent) -> None:
            writer.emit(facts_alone(event) if self._facts else event)

        self._untap = events.tap(store)

    @property
    def fence(self) -> int:
        """The token of the lease."""
        return self._writer.fence

    @property
    def stale(self) -> StaleRun | None:
        """The error once another owner has the run."""
        return self._writer.stale

    @property
    def keeps(self) -> bool:
        """Whether versions of the run can be stored with its record."""
        return self._writer.keeps

    def keep(self, save: VersionSave, event: RunEvent | None) -> None:
        """Store *save* after all events before its *event*; call it on a thread.

        Raise StaleRun once another owner has the run.
        """
        if event is None:
            save = replace(save, seq=self._writer.seq)
        else:
            save = replace(save, seq=event.seq - 1, at=event.at)
        self._writer.keep(replace(save, facts=self._facts))

    def rest(self, save: VersionSave) -> tuple[RunEvent, ...]:
        """Store *save*, with which the run leaves this process; return its events.

        Call it on a thread.
        """
        self._untap()
        return self._writer.rest(replace(save, seq=self._writer.seq, facts=self._facts))

    def is_given_back_by(self, finish: RunFinish) -> bool:
        """Return whether *finish* is not the end of the run, which is queued again."""
        return self._claim is not None and self._claim.is_given_back_by(finish)

    async def end(self, finish: RunFinish) -> RunEvent:
        """Store the end with its event, give the lease back, and return the event.

        A run that its worker gives back is queued instead.
        """
        self._untap()
        if self.is_given_back_by(finish):
            queued = await asyncio.to_thread(self._writer.give_back)
            if queued is not None:
                return queued
        return await asyncio.to_thread(
            self._writer.end,
            finish.status,
            reason=finish.reason,
            detail=finish.detail,
            error=finish.error,
            usage=finish.usage,
            data=finish.data,
        )


async def open_record(
    hf: "library.Holdfast",
    memory: RunMemory,
    events: RunEvents,
    opening: RunOpening,
    *,
    control: RunControl,
    recorded: Recorded = "content",
) -> OpenRecord:
    """Acquire the run of *memory* and store what *events* emits from now on.

    *control* cancels it for others, and once another owner has the run. Raise RunTaken, before
    anything runs, if another owner has it; StaleRun if it is claimed here no more.
    """
    claim = CLAIM.get()
    if claim is not None and claim.run_id == memory.run_id and not claim.begun:
        opening = replace(opening, holder=claim.holder, definition=claim.definition, claimed=True)
    else:
        claim = None

    def acquire() -> RunWriter:
        return hf.runs.open_run(
            memory, opening, control=control, on_stale=lambda error: control.cancel(str(error))
        )

    acquiring = asyncio.ensure_future(asyncio.to_thread(acquire))
    try:
        writer = await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        # What the thread acquires is given back.
        acquiring.add_done_callback(_given_back)
        raise
    if claim is not None:
        claim.acquired(control, events)
    return OpenRecord(writer, events, recorded, claim)


def _given_back(acquiring: "asyncio.Future[RunWriter]") -> None:
    if acquiring.cancelled() or acquiring.exception() is not None:
        return
    writer = acquiring.result()
    loop = asyncio.get_running_loop()
    ends = loop.run_in_executor(None, lambda: writer.end("cancelled", reason="cancelled"))
    ends.add_done_callback(lambda end: end.cancelled() or end.exception())


_MEMORY: Final[dict[str, str]] = {
    "run.entry_written": "memory.written",
    "run.entry_deleted": "memory.deleted",
    "run.entries_cleared": "memory.cleared",
    "run.entry_read": "memory.read",
    "run.entry_refused": "memory.refused",
    "run.restored": "memory.restored",
}
"""The type of a run's event for each type of an event of its memory."""


@contextmanager
def memory_events(memory: RunMemory, events: RunEvents) -> Generator[None]:
    """Emit what happens to *memory* as events of its run, without values."""
    to = audience.get()

    def emit(event: RunMemoryEvent) -> None:
        data = event.data
        data.pop("title", None)
        facts = EventFacts(type=_MEMORY[event.type], part=event.working, data=data)
        update = _written(data) if event.type == "run.entry_written" else None
        events.emit_soon(facts, update, to=to)

    off = memory.on_event(emit)
    try:
        yield
    finally:
        off()


def _written(data: dict[str, Any]) -> MemoryUpdate:
    return MemoryUpdate(
        key=data["key"],
        kind=data["kind"],
        source=data["source"],
        version=data["version"],
        value_bytes=data["value_bytes"],
    )


def kind_of(name: str) -> RunKind:
    """Return the kind of the run of an executor called *name*."""
    return cast("RunKind", name) if name in KINDS else _KINDS.get(name, "step")


def record_name(text: str, otherwise: str) -> str:
    """Return *text* made fit for a record's name; *otherwise* if nothing is left.

    A title thus never stops a run.
    """
    plain = text.encode(errors="replace").decode().replace("\0", " ").strip()
    if len(plain) > NAME_MOST:
        plain = f"{plain[: NAME_MOST - 1]}…"
    return plain or otherwise


class EngineCheckpoints:
    """Stores checkpoints in the workspace that *hf* is opened for.

    *hf* is opened on a database, or through a server.
    """

    def __init__(self, hf: "library.Holdfast") -> None:
        self.hf = hf
        self._rows = hf.runs.checkpoints
        self._leases = EngineLeases(hf.runs.shown)

    def acquire(self, request: LeaseRequest) -> CheckpointLease:
        """Take the run in `hf.runs`; raise RunTaken if another owner has it."""
        return self._leases.acquire(request)

    def renew(self, lease: CheckpointLease) -> None:
        """Extend *lease*; raise StaleRun if another owner has the run."""
        self._leases.renew(lease)

    def release(self, lease: CheckpointLease, status: Ending | None) -> None:
        """Give *lease* back, of a run that ended with *status*, or waits for people."""
        if status is not None:
            self._leases.release(lease, status)
            return
        save = waiting_save(lease.run_id, self._leases.now(), ())
        self._rows.append(replace(save, fence=lease.fence))

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the newest version of *run_id*, or None."""
        kept = self.newest(run_id)
        return None if kept is None else self.read(run_id, kept)

    def newest(self, run_id: str) -> KeptState | None:
        """Return the newest version of *run_id* as it is stored, or None."""
        return self._rows.load(run_id)

    def read(self, run_id: str, kept: KeptState) -> Checkpoint:
        """Return *kept* as a checkpoint; raise CheckpointUnreadable for another form."""
        try:
            return _checkpoint_of(run_id, kept)
        except msgspec.DecodeError as error:
            raise CheckpointUnreadable(f"checkpoint of {run_id}", str(error)) from error

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* as a version that has what differs from the newest one."""
        self.begin(checkpoint)

    def begin(self, checkpoint: Checkpoint) -> "EngineLog":
        """Store *checkpoint* as `save` does; return the log of its changes."""
        rows = (_begun_row(checkpoint.plan_hash, checkpoint.parts), *_rows_of(checkpoint))
        saved = self._rows.replace(replace(_save_of(checkpoint, rows), emitted=False))
        return EngineLog(self._rows, saved.number or 0)

    def delete(self, run_id: str) -> None:
        """Delete the versions of *run_id*."""
        self._rows.delete(run_id)


class EngineLog:
    """Stores the changes of a run as versions after the version *number*."""

    def __init__(self, rows: VersionRows, number: int) -> None:
        self._rows, self._number = rows, number

    def append(self, change: CheckpointChange) -> bool:
        """Store *change*; return False if another version was stored meanwhile."""
        saved = self._rows.append(replace(save_of(change), after=self._number, emitted=False))
        self._number = saved.number or self._number
        return saved.stored


BEGUN: Final[tuple[StateKind, str]] = ("start", "parts")
"""The fact of what the run was begun with."""

_TASK: Final = "task:"
"""Before the id of a task, in the key of its fact as a part."""

_COMPLETED: Final = b'{"state":"completed"}'


class _Begun(Struct, frozen=True):
    """What a run was begun with."""

    plan_hash: str = ""
    parts: Mapping[str, str] = {}


def _begun_row(plan_hash: str, parts: Mapping[str, str]) -> StateRow:
    return StateRow(*BEGUN, msgspec.json.encode(_Begun(plan_hash, parts)))


def begun_row(parts: Mapping[str, str]) -> StateRow:
    """Return the fact that a run was begun with *parts*."""
    return _begun_row(hashed(parts), parts)


def _save_of(saved: Checkpoint | CheckpointChange, rows: tuple[StateRow, ...]) -> VersionSave:
    return VersionSave(
        run_id=saved.run_id,
        fence=saved.fence,
        at=saved.saved_at,
        cause=saved.cause,
        part=saved.part,
        agent=saved.agent,
        rows=rows,
        turns=saved.turns,
        questions=saved.questions,
    )


def save_of(change: CheckpointChange) -> VersionSave:
    """Return *change* as it is stored in a database."""
    written = {entry.key for entry in change.entries}
    gone = (StateRow("entry", key, None) for key in change.removed if key not in written)
    return _save_of(change, (*gone, *_rows_of(change)))


def _rows_of(saved: Checkpoint | CheckpointChange) -> tuple[StateRow, ...]:
    """Return the facts in *saved*: entries, what is complete, and the others."""
    over = (*saved.completed_steps, *(_TASK + id for id in saved.completed_tasks))
    return (
        *map(entry_row, saved.entries),
        *saved.rows,
        *(StateRow("part", id, _COMPLETED) for id in over),
    )


def _checkpoint_of(run_id: str, kept: KeptState) -> Checkpoint:
    state = dict(kept.state)
    begun = msgspec.json.decode(state.pop(BEGUN, b"{}"), type=_Begun)
    over = [id for (kind, id), body in state.items() if kind == "part" and body == _COMPLETED]
    facts = [
        StateRow(kind, key, body)
        for (kind, key), body in state.items()
        if kind != "entry" and not (kind == "part" and body == _COMPLETED)
    ]
    return Checkpoint(
        run_id=run_id,
        plan_hash=begun.plan_hash,
        parts=begun.parts,
        completed_tasks=tuple([id[len(_TASK) :] for id in over if id.startswith(_TASK)]),
        completed_steps=tuple([id for id in over if not id.startswith(_TASK)]),
        entries=tuple([entry_in(body) for (kind, _), body in state.items() if kind == "entry"]),
        saved_at=kept.at,
        rows=tuple(facts),
        turns=kept.turns,
        questions=kept.questions,
    )


def waiting_save(run_id: str, now: int, questions: Sequence[Question]) -> VersionSave:
    """Return a version with which the run waits for the answers to *questions*."""
    return VersionSave(
        run_id=run_id,
        fence=0,
        at=now,
        cause="question",
        questions=tuple(questions),
        status="waiting",
    )


class RecordedVersions:
    """The versions of the run of an open *record*, at *place* in its database.

    They are stored under its lease, and its events with them. `number` is that of the newest one.
    """

    def __init__(self, place: EngineCheckpoints, record: OpenRecord) -> None:
        self._place, self._record = place, record
        self.number = 0

    def load(self, run_id: str) -> Checkpoint | None:
        """Return the newest version of *run_id*, or None."""
        kept = self._place.newest(run_id)
        self.number = 0 if kept is None else kept.number
        return None if kept is None else self._place.read(run_id, kept)

    def save(self, checkpoint: Checkpoint) -> None:
        """Store *checkpoint* in place of all versions."""
        self._place.save(checkpoint)

    def delete(self, run_id: str) -> None:
        """Delete the versions of *run_id*."""
        self._place.delete(run_id)
        self.number = 0

    def keep(self, save: VersionSave, event: RunEvent | None) -> None:
        """Store *save* after all events before that which tells it, *event*."""
        self._record.keep(save, event)

    def rest(self, change: CheckpointChange) -> tuple[RunEvent, ...]:
        """Store *change*, with which the run waits; return the events stored with it."""
        return self._record.rest(replace(save_of(change), status="waiting"))
