"""Mirror a RunMemory to an engine.

A report has the entries at the time it is made, not each write: overwritten values are left out,
and a failed report is sent again.
"""

import atexit
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Refused,
)
from holdfast.ground.events import EventBus
from holdfast.ground.scope import checked_name
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending
from holdfast.memories.run.records.record import (
    EVENTS_MOST,
    MILLISECOND,
    Controls,
    ReportedEntry,
    ReportedEvent,
    RunControl,
    RunReport,
    RunsContext,
    RunStart,
    checked_ending,
    checked_metadata,
    checked_name_of,
    kept_value,
    this_process,
)
from holdfast.memories.run.records.write import begin, take

WAITING_MOST: Final = 10_000
"""Events that wait to be reported; beyond, the oldest are dropped and counted as missed."""

REPORT_BYTES: Final = 900_000
"""Bytes of a report's content, so that the whole report stays below 1 MiB."""

PAUSE, PAUSE_MOST = 0.2, 5.0
"""Seconds before the retry of a failed report, at first and at most."""

_REFUSALS: Final = (Conflict, InvalidInput, NotAuthenticated, NotFound, NotPermitted, Refused)
"""Errors that a retry does not change."""

_encode: Final = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class RunRecorder(Protocol):
    """Storage for records of runs.

    `pause` is the least time between reports, in seconds.
    """

    pause: float

    def begin(self, opening: RunStart) -> None:
        """Create the record of a run; a repeat does nothing."""
        ...

    def take(self, run_id: str, report: RunReport) -> None:
        """Apply a report to a run's record; a repeat does nothing."""
        ...


class Mirror:
    """Collects changes of *memory*, and sends reports to the recorder *recorder*.

    `hear` and `end` may be called from any thread; `step` from one at a time. *ring* is called
    when there is something to report.
    """

    def __init__(
        self,
        memory: RunMemory,
        opening: RunStart,
        recorder: RunRecorder,
        *,
        ring: Callable[[], None],
    ) -> None:
        self._memory, self._opening, self._recorder, self._ring = memory, opening, recorder, ring
        self._lock = Lock()
        self._changed: dict[str, None] = {}
        self._whole, self._begun = True, False
        self._events: deque[ReportedEvent] = deque()
        self._missed, self._number = 0, 0
        self._shown: dict[str, RunEntry] = {}
        self._final: Mapping[str, RunEntry] | None = None
        self._sending: RunReport | None = None
        self._telling: dict[str, RunEntry] = {}
        self._ending: Ending | None = None
        self.over, self.pause, self.failures = False, recorder.pause, 0

    def hear(self, event: ReportedEvent) -> None:
        """Queue *event* and its entry for the next report."""
        with self._lock:
            if len(self._events) == WAITING_MOST:
                self._events.popleft()
                self._missed += 1
            self._events.append(event)
            key = event.data.get("key")
            if event.type in {"run.entries_cleared", "run.restored"}:
                self._whole = True
            elif isinstance(key, str) and event.type in {"run.entry_written", "run.entry_deleted"}:
                # Moved to the end, because entries are reported in the order of their last writes.
                self._changed.pop(key, None)
                self._changed[key] = None
        self._ring()

    def end(self, state: Ending) -> None:
        """Report that the run is over, after all pending changes; the first *state* stays.

        Later writes are not reported.
        """
        held = self._all()
        with self._lock:
            if self._ending is None:
                self._ending, self._final, self._whole = state, held, True
        self._ring()

    @property
    def waits(self) -> bool:
        """Whether there is something to report."""
        return not self.over and bool(
            not self._begun
            or self._sending
            or self._changed
            or self._whole
            or self._events
            or self._ending
        )

    def step(self) -> None:
        """Send one report, or a heartbeat. Raise none of our errors.

        If the recorder refuses the report, reporting ends; after another error it is retried later.
        """
        try:
            self._step()
        except _REFUSALS as error:
            self.over = True
            _log.warning(
                "the run %s is no longer reported: %s", self._opening.run_id, type(error).__name__
            )
        except HoldfastError as error:
            self.pause = min(2 * max(self.pause, PAUSE / 2), PAUSE_MOST)
            self.failures += 1
            _log.debug(
                "the run %s waits to be reported: %s", self._opening.run_id, type(error).__name__
            )
        else:
            self.pause, self.failures = self._recorder.pause, 0

    def _step(self) -> None:
        run_id = self._opening.run_id
        if not self._begun:
            self._recorder.begin(self._opening)
            self._begun = True
            return
        report = self._sending = self._sending or self._collected()
        self._recorder.take(run_id, report)
        self._sending, self._number = None, report.number
        self._shown = {
            key: held for key, held in self._shown.items() if key not in report.deleted
        } | self._telling
        self.over = report.ended is not None

    def _collected(self) -> RunReport:
        """Return the next report, with as much as fits."""
        room = _Room(REPORT_BYTES)
        with self._lock:
            changed, self._changed = self._changed, {}
            whole, self._whole = self._whole, False
            events = self._taken_events(room)
            missed, self._missed = self._missed, 0
        held = self._all() if whole else self._final
        keys = self._differing(held, changed) if whole and held is not None else list(changed)
        get = self._memory.get if held is None else held.get
        there = [(key, get(key)) for key in keys]
        entries = self._taken_entries([entry for _, entry in there if entry is not None], room)
        left = [key for key, entry in there if entry is not None and key not in self._telling]
        return RunReport(
            holder=self._opening.holder,
            number=self._number + 1,
            events=events,
            entries=entries,
            deleted=tuple(key for key, entry in there if entry is None and key in self._shown),
            missed=missed,
            ended=self._ended(left),
        )

    def _all(self) -> Mapping[str, RunEntry]:
        """Return every entry in the order of last writes; after `end`, those at the end."""
        if self._final is not None:
            return self._final
        return {entry.key: entry for entry in self._memory.by_last_write()[0]}

    def _differing(self, held: Mapping[str, RunEntry], changed: Mapping[str, None]) -> list[str]:
        """Return the keys that were reported otherwise than in *held*, in write order.

        That is the order of last writes.
        """
        gone = dict.fromkeys(key for key in (*self._shown, *changed) if key not in held)
        shown = self._shown.get
        new = (key for key, entry in held.items() if key in changed or shown(key) is not entry)
        return [*gone, *new]

    def _taken_entries(
        self, entries: Iterable[RunEntry], room: "_Room"
    ) -> tuple[ReportedEntry, ...]:
        """Return as many of *entries* as fit, and record which are being reported."""
        taken: list[ReportedEntry] = []
        self._telling = {}
        for entry in entries:
            report = reported(entry)
            if not room.takes(report, first=not taken):
                break
            taken.append(report)
            self._telling[entry.key] = entry
        return tuple(taken)

    def _taken_events(self, room: "_Room") -> tuple[ReportedEvent, ...]:
        taken: list[ReportedEvent] = []
        while self._events and len(taken) < EVENTS_MOST:
            if not room.takes(self._events[0], first=not taken):
                break
            taken.append(self._events.popleft())
        return tuple(taken)

    def _ended(self, left: Iterable[str]) -> Ending | None:
        """Queue *left* before later changes; return the ending if nothing remains."""
        with self._lock:
            self._changed = dict.fromkeys([*left, *self._changed])
            more = self._changed or self._events or self._whole
            return None if more else self._ending


class _Room:
    """Remaining bytes of a report."""

    def __init__(self, size: int) -> None:
        self._left = size

    def takes(self, thing: ReportedEntry | ReportedEvent, *, first: bool) -> bool:
        """Check whether *thing* fits; the *first* of its kind always does."""
        self._left -= len(_encode(thing))
        return first or self._left >= 0


def reported(held: RunEntry) -> ReportedEntry:
    """Convert *held* to an entry of a report."""
    facts = asdict(held)
    return ReportedEntry(**asdict(kept_value(facts.pop("value_json"))), **facts)


BEAT: Final = 15.0
"""Seconds without a report after which a heartbeat is sent."""

LAST_WORDS: Final = 5.0
"""Seconds that closing waits for pending reports."""


LOOKS_EVERY: Final = 0.2
"""Seconds between checks for other runs while one waits for its next report."""


class _Turn:
    """A mirror, and the time of its last step."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.last_step = mirror, -BEAT

    def due(self, *, hurried: bool) -> float:
        """Return the time of its next step, on the monotonic clock."""
        if not self.mirror.waits:
            return self.last_step + BEAT
        return self.last_step + (0.0 if hurried and not self.mirror.failures else self.mirror.pause)


class Mirroring:
    """Runs each mirror's reports at its times.

    The thread exists while a run is attached.

    With *strict*, `flush` does not shorten the mirrors' pauses: a server limits the rate.
    """

    def __init__(self, *, strict: bool, now: Callable[[], float] = time.monotonic) -> None:
        self._strict, self._now = strict, now
        self._turns: list[_Turn] = []
        self._changed = threading.Condition()
        self._rung, self._urgent = threading.Event(), threading.Event()
        self._hurried = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def ring(self) -> None:
        """Notify that there is something to report.

        Each write calls this, so it must cost nothing.
        """
        if not self._rung.is_set():
            self._rung.set()

    def add(self, mirror: Mirror) -> None:
        """Report *mirror* from now on, until it is over."""
        with self._changed:
            self._turns.append(_Turn(mirror))
            if self._thread is None and not self._closed:
                atexit.register(self.close)
                self._thread = threading.Thread(
                    target=self._work, name="holdfast-runs", daemon=True
                )
                self._thread.start()
        self.ring()

    def flush(self, timeout: float = LAST_WORDS) -> bool:
        """Wait until all changes so far are reported; return whether they are.

        False after *timeout* seconds, and at once if the recorder cannot be reached.
        """
        if threading.current_thread() is self._thread:
            return False
        with self._changed:
            if self._idle():
                return True
            self._hurried += 1
            self._wake()
            try:
                self._changed.wait_for(self._stuck, timeout)
            finally:
                self._hurried -= 1
            return self._idle()

    def close(self, timeout: float = LAST_WORDS) -> None:
        """Report pending changes within *timeout* seconds and stop; a repeat does nothing."""
        self.flush(timeout)
        with self._changed:
            self._closed, thread = True, self._thread
        self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _idle(self) -> bool:
        return not any(turn.mirror.waits for turn in self._turns)

    def _stuck(self) -> bool:
        """Check whether all pending reports wait for a recorder that cannot be reached."""
        waiting = [turn.mirror for turn in self._turns if turn.mirror.waits]
        return self._thread is None or all(mirror.failures for mirror in waiting)

    def _wake(self) -> None:
        self._urgent.set()
        self._rung.set()

    def _work(self) -> None:
        try:
            self._ask()
        finally:
            with self._changed:
                self._leave()

    def _ask(self) -> None:
        while True:
            self._urgent.clear()
            self._rung.clear()
            with self._changed:
                self._turns = [turn for turn in self._turns if not turn.mirror.over]
                if self._closed or not self._turns:
                    self._leave()
                    return
                turns, hurried = list(self._turns), bool(self._hurried) and not self._strict
            for turn in turns:
                if turn.due(hurried=hurried) <= self._now():
                    turn.mirror.step()
                    turn.last_step = self._now()
            with self._changed:
                self._changed.notify_all()
            if not any(turn.mirror.over for turn in turns):
                self._rest(min(turn.due(hurried=hurried) for turn in turns) - self._now())

    def _leave(self) -> None:
        """Unregister this thread: the next attached run starts another."""
        if self._thread is threading.current_thread():
            self._thread = None
            atexit.unregister(self.close)
            self._changed.notify_all()

    def _rest(self, seconds: float) -> None:
        """Wait until a mirror is due.

        While something is pending already, `ring` has no effect on the wait.
        """
        if seconds <= 0:
            return
        if self._idle():
            self._rung.wait(seconds)
        else:
            self._urgent.wait(min(seconds, LOOKS_EVERY))


class Shown(Struct, frozen=True, kw_only=True):
    """Where a run is recorded: workspace, recorder, and an event bus if there is one."""

    workspace: str
    recorder: RunRecorder
    bus: EventBus | None = None


class Attachments:
    """The runs of this process that are attached through one handle and its copies.

    With *strict* their recorder limits the rate of reports.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.controls = Controls()
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

    def __init__(self, context: RunsContext) -> None:
        self._caller = context

    def begin(self, opening: RunStart) -> None:
        """Create the record of a run; a repeat does nothing."""
        begin(self._caller, opening)

    def take(self, run_id: str, report: RunReport) -> None:
        """Apply a report to a run's record; a repeat does nothing."""
        take(self._caller, run_id, report)


class Attached:
    """A run while it is recorded.

    Call it to end the run, as `completed` or as the given state.
    """

    def __init__(self, ends: Callable[[Ending], None]) -> None:
        self._ends = ends

    def __call__(self, state: Ending = "completed") -> None:
        """Mark the run ended, and store its last snapshot; a repeat does nothing."""
        self._ends(checked_ending(state))


def opening_of(
    memory: RunMemory, *, name: str, agent: str | None, metadata: object, clock: Clock
) -> RunStart:
    """Return the start of the record of *memory*'s run.

    Raise `InvalidInput` for a wrong argument.
    """
    if not isinstance(memory, RunMemory):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
        raise InvalidInput("memory", "must be a RunMemory", given=type(memory).__name__)
    return RunStart(
        run_id=checked_name("run_id", memory.run_id),
        holder=secrets.token_hex(12),
        name=checked_name_of("name", name),
        agent=None if agent is None else checked_name_of("agent", agent),
        metadata=checked_metadata(metadata or {}),
        place=this_process(),
        started_at=to_microseconds(clock.now()) // MILLISECOND,
    )


def attach(
    attachments: Attachments,
    memory: RunMemory,
    opening: RunStart,
    shown: Shown,
    control: RunControl | None,
) -> Attached:
    """Report the run of *memory* from now on; register its *control*."""
    mirror = Mirror(memory, opening, shown.recorder, ring=attachments.mirroring.ring)
    bus = shown.bus

    def hear(event: RunMemoryEvent) -> None:
        mirror.hear(ReportedEvent(type=event.type, at=event.at, data=event.data))
        if bus is not None and bus.heard:
            bus.publish(event.notice(shown.workspace))

    release = _nothing
    if control is not None:
        release = attachments.controls.hold(
            shown.workspace, opening.run_id, control, holder=opening.holder
        )
    unsubscribe = memory.on_event(hear)
    attachments.mirroring.add(mirror)

    def ends(state: Ending) -> None:
        unsubscribe()
        release()
        mirror.end(state)

    return Attached(ends)


def _nothing() -> None:
    """Do nothing: the run has no control to release."""
