"""Write a run from the process that executes it."""

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

from msgspec import Struct

from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput, StaleRun
from holdfast.ground.events import EventBus
from holdfast.ground.json_values import JSON
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_whole
from holdfast.memories.run.history.effects import EffectOwner, own, replace_once, save_once
from holdfast.memories.run.history.versions import SavedVersion, VersionSave
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import (
    LIVE,
    NO_DATA,
    Ending,
    RunEvent,
    notice_of_event,
    of_memory,
)
from holdfast.memories.run.records.lease import release, renew
from holdfast.memories.run.records.mirror import (
    PAUSE,
    Mirror,
    Mirroring,
    OwnerSignals,
    RunRecorder,
)
from holdfast.memories.run.records.record import (
    MILLISECOND,
    Controls,
    HeldRun,
    LeaseGrant,
    ReportReceipt,
    RunAcquisition,
    RunControl,
    RunReport,
    RunsContext,
    TakeOver,
    checked_name_of,
    checked_opening,
    this_process,
)
from holdfast.memories.run.records.run import (
    NO_METADATA,
    RunKind,
    checked_ending,
    checked_metadata,
)
from holdfast.memories.run.records.write import begin, take


class Shown(Struct, frozen=True, kw_only=True):
    """Where a run is recorded: workspace, recorder, clock, event bus or None."""

    workspace: str
    recorder: RunRecorder
    clock: Clock
    bus: EventBus | None = None


class QueueLimits(Struct, frozen=True, kw_only=True):
    """Limits of a queue: of each worker, and over all machines.

    *per_worker* and *concurrency* are runs at once. *rate* is a number of runs and a time in
    seconds in which no more begin. With *partition*, a key of the runs' metadata, *concurrency* and
    *rate* are for the runs of each value of it.
    """

    per_worker: int | None = None
    concurrency: int | None = None
    rate: tuple[int, float] | None = None
    partition: str | None = None

    @property
    def over_machines(self) -> bool:
        """Whether a limit is one over all machines."""
        return self.concurrency is not None or self.rate is not None

    def full(self, working: int) -> bool:
        """Whether a worker that has *working* runs of the queue may have no more."""
        return self.per_worker is not None and working >= self.per_worker


def checked_limits(limits: QueueLimits) -> QueueLimits:
    """Return *limits*; raise `InvalidInput` with the field that is invalid."""
    reason = "must be a whole number from 1, or None"
    for field in ("per_worker", "concurrency"):
        if getattr(limits, field) is not None:
            check_whole(field, getattr(limits, field), reason, least=1)
    if limits.rate is not None:
        _check_rate(limits.rate)
    if limits.partition is not None:
        checked_name("partition", limits.partition)
        if not limits.over_machines:
            raise InvalidInput("partition", "needs a concurrency or a rate")
    return limits


def _check_rate(rate: object) -> None:
    match rate:
        case (int(most), int() | float() as seconds) if most >= 1 and 0 < seconds < math.inf:
            return
        case _:
            reason = "must be a number of runs from 1, and of seconds above 0"
            raise InvalidInput("rate", reason, given=str(rate))


class Attachments:
    """The runs of this process that are attached through one handle and its copies.

    With *strict* their recorder limits the rate of reports.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.controls = Controls()
        self.queues: dict[str, QueueLimits] = {}
        self.mirroring = Mirroring(strict=strict)

    def flush(self) -> None:
        """Report all changes so far, if the recorder can be reached."""
        self.mirroring.flush()

    def close(self) -> None:
        """Report pending changes, and stop."""
        self.mirroring.close()


class InEngine:
    """Recorder in *context*'s own database."""

    pause = PAUSE
    keeps = True

    def __init__(self, context: RunsContext) -> None:
        self._caller, self.scope = context, context.workspace

    def begin(self, opening: RunAcquisition) -> LeaseGrant:
        """Acquire a run and create its record; a repeat does nothing."""
        return begin(self._caller, opening)

    def take(self, run_id: str, report: RunReport) -> ReportReceipt:
        """Apply a report to a run's record; a repeat does nothing."""
        return take(self._caller, run_id, report)

    def keep(self, save: VersionSave) -> SavedVersion:
        """Store a version of a run once; raise StaleRun for a former owner."""
        return save_once(self._caller, save)

    def renew(self, held: Sequence[HeldRun], *, extend: bool = True) -> Mapping[str, str | None]:
        """Extend the leases of *held* in one statement; with *extend* False, only look."""
        return renew(self._caller, held, extend=extend)

    def release(self, held: HeldRun, ending: Ending | None) -> RunEvent | None:
        """End a run as *ending*, or queue it again and return that event."""
        return release(self._caller, held, ending)

    def replace(self, save: VersionSave) -> SavedVersion:
        """Store a version that is all that the run knows; a repeat does nothing."""
        return replace_once(self._caller, save)


class RunOpening(Struct, frozen=True, kw_only=True):
    """What a run is, and when it is taken from another owner.

    It is linked to its `user`. `inputs` are the keys of its inputs. Two writers with one `holder`
    are one owner; without it each is an owner of its own. One that is over begins again, unless it
    `continues`.
    With `claimed` that holder has claimed the queued run.
    """

    kind: RunKind
    name: str
    definition: str | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    user: str | None = None
    metadata: Mapping[str, str] = NO_METADATA
    inputs: tuple[str, ...] = ()
    take_over: TakeOver = "expired"
    holder: str = ""
    continues: bool = False
    claimed: bool = False


class RunWriter:
    """The owner of a run: writes its events, its entries and its end.

    `opened` are the events that acquiring it stored, `run.started` or `run.taken_over` and
    `run.resumed`: tell them first, and number the next one from `seq + 1` on. `fence` is the token
    of the lease, `stale` the error once another owner has the run; then nothing is written.
    """

    def __init__(
        self,
        mirror: Mirror,
        grant: LeaseGrant,
        *,
        finish: Callable[[Mirror], bool],
        publish: Callable[[RunEvent], None],
        close: Callable[[], None],
        now: Callable[[], int],
    ) -> None:
        self._mirror, self._finish, self._publish, self._close = mirror, finish, publish, close
        self._now = now
        self.fence, self.seq, self.opened = grant.fence, grant.seq, grant.opened
        self.run_id = mirror.run_id

    @property
    def stale(self) -> StaleRun | None:
        """The error once another owner has the run."""
        return self._mirror.stale

    @property
    def keeps(self) -> bool:
        """Whether its recorder stores versions."""
        return self._mirror.recorder.keeps

    def emit(self, event: RunEvent) -> None:
        """Store *event* within 500 ms, from another thread; its number is the run's next.

        Deltas are not stored.
        """
        self.seq = max(self.seq, event.seq)
        if event.type in LIVE:
            return
        self._mirror.emit(event)
        self._publish(event)

    def keep(self, save: VersionSave) -> SavedVersion:
        """Store *save* with its events, after those up to its `seq`.

        It waits until that is stored, so call it on a thread.
        """
        found = self._mirror.keep(save)
        self.seq = max(self.seq, *(event.seq for event in found.events), 0)
        return found

    def rest(self, save: VersionSave) -> tuple[RunEvent, ...]:
        """Store *save*, with which the run leaves this process; return its events.

        All events so far are stored before. The lease is given back with it.
        """
        self._close()
        return self._mirror.keep(save, rests=True).events

    def end(
        self,
        status: Ending,
        *,
        reason: str | None = None,
        detail: str | None = None,
        error: dict[str, JSON] | None = None,
        usage: dict[str, Any] | None = None,
        data: Mapping[str, Any] = NO_DATA,
    ) -> RunEvent:
        """Store the end with its event in one transaction; return the event.

        It waits until that is stored, 5 s at most, so call it on a thread. The lease is given back.
        Members of *data* go into the event. A repeat does nothing, and so does a stale owner.
        """
        event = RunEvent(
            type=f"run.{checked_ending(status)}",
            seq=self.seq + 1,
            at=self._now(),
            run_id=self.run_id,
            data={"reason": reason, "detail": detail, "error": error, "usage": usage, **data},
        )
        self._close()
        self._mirror.end(status, event)
        if self._finish(self._mirror):
            self._publish(event)
        return event

    def give_back(self) -> RunEvent | None:
        """Store what is reported so far, and queue the run again; return the event.

        It waits as `end` does. None for a stale owner.
        """
        held, recorder = self._mirror.held, self._mirror.recorder
        if held is None:
            return None
        self._close()
        self._mirror.rest()
        self._finish(self._mirror)
        try:
            return recorder.release(held, None)
        except StaleRun:
            return None


class Attached:
    """A run while it is recorded.

    Call it to end the run, as `completed` or as the given status.
    """

    def __init__(self, ends: Callable[[Ending], None]) -> None:
        self._ends = ends

    def __call__(self, status: Ending = "completed") -> None:
        """Mark the run ended, and store its last snapshot; a repeat does nothing."""
        self._ends(checked_ending(status))


def start_of(memory: RunMemory, opening: RunOpening, clock: Clock) -> RunAcquisition:
    """Return the start of the record of *memory*'s run.

    Raise `InvalidInput` for a wrong argument.
    """
    if not isinstance(memory, RunMemory):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
        raise InvalidInput("memory", "must be a RunMemory", given=type(memory).__name__)
    return checked_opening(
        RunAcquisition(
            run_id=checked_name("run_id", memory.run_id),
            holder=opening.holder or secrets.token_hex(12),
            name=checked_name_of("name", opening.name),
            kind=opening.kind,
            definition=opening.definition,
            agent=opening.agent,
            thread_id=opening.thread_id,
            parent_id=opening.parent_id,
            user=opening.user,
            metadata=checked_metadata(opening.metadata or {}),
            inputs=opening.inputs,
            place=this_process(),
            started_at=to_microseconds(clock.now()) // MILLISECOND,
            take_over=opening.take_over,
            continues=opening.continues,
            claimed=opening.claimed,
        )
    )


def attach(
    attachments: Attachments,
    memory: RunMemory,
    opening: RunOpening,
    shown: Shown,
    control: RunControl | None,
) -> Attached:
    """Report the run of *memory* from now on; register its *control*."""
    start = start_of(memory, opening, shown.clock)
    signals = OwnerSignals(cancel=None if control is None else control.cancel)
    ring = attachments.mirroring.ring
    mirror = Mirror(memory, start, shown.recorder, ring=ring, signals=signals)
    numbers = count(1)

    def hear(event: RunMemoryEvent) -> None:
        mirror.hear(event)
        mirror.emit(of_memory(event, seq=next(numbers)))
        if shown.bus is not None and shown.bus.heard:
            shown.bus.publish(event.notice(shown.workspace))

    release = _hold(attachments, shown, start, control)
    unsubscribe = memory.on_event(hear)
    attachments.mirroring.add(mirror)

    def ends(status: Ending) -> None:
        unsubscribe()
        release()
        mirror.end(status)

    return Attached(ends)


def open_run(
    attachments: Attachments,
    memory: RunMemory,
    opening: RunOpening,
    shown: Shown,
    *,
    control: RunControl | None = None,
    on_stale: Callable[[StaleRun], object] | None = None,
) -> RunWriter:
    """Acquire the run of *memory* and report it from now on; register its *control*.

    Raise `RunTaken` if another owner has it.
    """
    start = start_of(memory, opening, shown.clock)
    grant = shown.recorder.begin(start)
    signals = OwnerSignals(cancel=None if control is None else control.cancel, stale=on_stale)
    ring = attachments.mirroring.ring
    mirror = Mirror(memory, start, shown.recorder, ring=ring, grant=grant, signals=signals)
    release = _hold(attachments, shown, start, control)
    unsubscribe = memory.on_event(mirror.hear)
    attachments.mirroring.add(mirror)

    def publish(event: RunEvent) -> None:
        if shown.bus is not None and shown.bus.heard:
            shown.bus.publish(notice_of_event(shown.workspace, event))

    owner = EffectOwner(
        holder=start.holder,
        fence=grant.fence,
        workspace=shown.workspace,
        bus=shown.bus,
        clock=shown.clock,
    )
    disown = own(start.run_id, owner)

    def close() -> None:
        unsubscribe()
        release()
        disown()

    return RunWriter(
        mirror,
        grant,
        finish=attachments.mirroring.finish,
        publish=publish,
        close=close,
        now=lambda: to_microseconds(shown.clock.now()) // MILLISECOND,
    )


def _hold(
    attachments: Attachments, shown: Shown, start: RunAcquisition, control: RunControl | None
) -> Callable[[], None]:
    """Register *control* of the run; return the function that ends that."""
    if control is None:
        return _nothing
    return attachments.controls.hold(shown.workspace, start.run_id, control, holder=start.holder)


def _nothing() -> None:
    """Do nothing: the run has no control to release."""
