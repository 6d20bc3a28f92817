"""Mirror a RunMemory to an engine.

A report has the entries at the time it is made, not each write: overwritten values are left out,
and a failed report is sent again.
"""

import atexit
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock, RLock
from typing import Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Refused,
    StaleRun,
)
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.history.versions import SavedVersion, VersionSave
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending, RunEvent
from holdfast.memories.run.records.record import (
    EVENTS_MOST,
    HeldRun,
    LeaseGrant,
    ReportedEntry,
    ReportReceipt,
    RunAcquisition,
    RunReport,
    kept_value,
    storable,
)
from holdfast.memories.run.records.write import DROPPED

WAITING_MOST: Final = 10_000
"""Events that wait to be reported; beyond, the oldest are dropped, and a reader gets a gap."""

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

    `pause` is the least time between reports, in seconds. Recorders of one `scope` renew together.
    One that `keeps` stores versions.
    """

    pause: float
    keeps: bool
    scope: str

    def begin(self, opening: RunAcquisition) -> LeaseGrant:
        """Acquire a run and create its record; a repeat does nothing."""
        ...

    def take(self, run_id: str, report: RunReport) -> ReportReceipt:
        """Apply a report to a run's record; a repeat does nothing."""
        ...

    def keep(self, save: VersionSave) -> SavedVersion:
        """Store a version of a run; raise StaleRun for a former owner."""
        ...

    def renew(self, held: Sequence[HeldRun], *, extend: bool = True) -> Mapping[str, str | None]:
        """Extend the leases of *held*; with *extend* False, only look.

        Return, by holder, why another process wants the end of the run, or None. A holder that is
        not in it has the run no more.
        """
        ...

    def release(self, held: HeldRun, ending: Ending | None) -> RunEvent | None:
        """End a run as *ending*, or queue it again and return that event.

        Raise StaleRun for a former owner.
        """
        ...

    def replace(self, save: VersionSave) -> SavedVersion:
        """Store a version that is all that the run knows; a repeat does nothing."""
        ...


class OwnerSignals(Struct, frozen=True):
    """What the owner of a run is called with, on another thread.

    `cancel` gets the reason why another process wants its end, `stale` the error once another
    owner has the run.
    """

    cancel: Callable[[str], object] | None = None
    stale: Callable[[StaleRun], object] | None = None


class Mirror:
    """Collects changes of *memory* and events, and reports them to *recorder*.

    With a *grant* the run is acquired already, and its events have their numbers; else they are
    counted from the first on. Its methods may be called from any thread. *ring* is called when
    there is something to report.
    """

    def __init__(
        self,
        memory: RunMemory,
        opening: RunAcquisition,
        recorder: RunRecorder,
        *,
        ring: Callable[[], None],
        grant: LeaseGrant | None = None,
        signals: OwnerSignals = OwnerSignals(),  # noqa: B008 - frozen
    ) -> None:
        self._memory, self._opening, self.recorder, self._ring = memory, opening, recorder, ring
        self._signals, self.run_id = signals, opening.run_id
        self._lock, self._stepping = Lock(), RLock()
        self._changed: dict[str, None] = {}
        self._whole, self._grant, self._base = True, grant, 0
        self._events: deque[RunEvent] = deque()
        self._number = 0
        self._shown: dict[str, RunEntry] = {}
        self._final: Mapping[str, RunEntry] | None = None
        self._sending: RunReport | None = None
        self._telling: dict[str, RunEntry] = {}
        self._ending: Ending | None = None
        self._last: RunEvent | None = None
        self._heeded = self._resting = False
        self.stale: StaleRun | None = None
        self.over, self.pause, self.failures = False, recorder.pause, 0

    def hear(self, event: RunMemoryEvent) -> None:
        """Note the entry that *event* is about for the next report."""
        with self._lock:
            key = event.data.get("key")
            if event.type in {"run.entries_cleared", "run.restored"}:
                self._whole = True
            elif isinstance(key, str) and event.type in {"run.entry_written", "run.entry_deleted"}:
                # Moved to the end, because entries are reported in the order of their last writes.
                self._changed.pop(key, None)
                self._changed[key] = None
        self._ring()

    def emit(self, event: RunEvent) -> None:
        """Queue *event* for the next report; of too many the oldest are dropped."""
        stored = storable(event)
        with self._lock:
            if len(self._events) == WAITING_MOST:
                self._events.popleft()
                DROPPED.add()
            self._events.append(stored)
        self._ring()

    def end(self, status: Ending, event: RunEvent | None = None) -> None:
        """Report that the run is over, after all pending changes.

        *event* tells the end. Later writes are not reported.
        """
        held = self._all()
        with self._lock:
            if self._ending is None:
                self._ending, self._final, self._whole = status, held, True
                self._last = None if event is None else storable(event)
        self._ring()

    def keep(self, save: VersionSave, *, rests: bool = False) -> SavedVersion:
        """Store *save*, after all events up to its `seq`; if it *rests*, as the last.

        Raise what the recorder raises, StaleRun for a former owner.
        """
        with self._stepping:
            try:
                if self._grant is None or self.stale is not None:
                    raise self.stale or StaleRun("superseded", token=save.fence, live_token=None)
                while self.waits if rests else self._has_events(save.seq):
                    self._step(None if rests else save.seq)
                found = self.recorder.keep(replace(save, fence=self._grant.fence))
            except StaleRun as error:
                self.supersede(error)
                raise
            self.over = self.over or rests
            return found

    def _has_events(self, until: int) -> bool:
        """Return whether events up to the number *until* are not reported yet."""
        return bool(self._sending or (self._events and self._events[0].seq <= until))

    def rest(self) -> None:
        """Stop once all pending changes are reported: the run goes on with another owner."""
        self._resting = True
        if not self.waits:
            self.over = True
        self._ring()

    @property
    def held(self) -> HeldRun | None:
        """The run, while its owner has a lease on it."""
        if self.over or self._grant is None:
            return None
        return HeldRun(
            run_id=self._opening.run_id,
            holder=self._opening.holder,
            fence=self._grant.fence,
            number=self._number,
        )

    def heed(self, cancel: str | None) -> None:
        """Pass on that another process wants the end of the run, once."""
        if cancel is not None and not self._heeded and self._signals.cancel is not None:
            self._heeded = True
            self._signals.cancel(cancel)

    def supersede(self, error: StaleRun) -> None:
        """Stop reporting: another owner has the run."""
        if not self.over:
            self.over, self.stale = True, error
            _log.warning("the run %s has another owner", self._opening.run_id)
            if self._signals.stale is not None:
                self._signals.stale(error)

    @property
    def waits(self) -> bool:
        """Whether there is something to report."""
        return not self.over and bool(
            self._grant is None
            or self._sending
            or self._changed
            or self._whole
            or self._events
            or self._ending
        )

    def step(self) -> None:
        """Send one report. Raise none of our errors.

        If the recorder refuses the report, reporting ends; after another error it is retried later.
        """
        try:
            with self._stepping:
                if not self.over:
                    self._step()
        except StaleRun as error:
            self.supersede(error)
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
            self.pause, self.failures = self.recorder.pause, 0

    def _step(self, until: int | None = None) -> None:
        """Send one report, with the events up to the number *until* alone."""
        run_id = self._opening.run_id
        if self._grant is None:
            self._grant = self.recorder.begin(self._opening)
            self._base = self._grant.seq
            return
        report = self._sending = self._sending or self._collected(self._grant.fence, until)
        self.heed(self.recorder.take(run_id, report).cancel)
        self._sending, self._number = None, report.number
        self._shown = {
            key: held for key, held in self._shown.items() if key not in report.deleted
        } | self._telling
        self.over = report.ended is not None or (self._resting and not self.waits)

    def _collected(self, fence: int, until: int | None) -> RunReport:
        """Return the next report, with as much as fits, and events up to *until*."""
        room = _Room(REPORT_BYTES)
        with self._lock:
            changed, self._changed = self._changed, {}
            whole, self._whole = self._whole, False
            events = self._taken_events(room, until)
        held = self._all() if whole else self._final
        keys = self._differing(held, changed) if whole and held is not None else list(changed)
        get = self._memory.get if held is None else held.get
        there = [(key, get(key)) for key in keys]
        entries = self._taken_entries([entry for _, entry in there if entry is not None], room)
        left = [key for key, entry in there if entry is not None and key not in self._telling]
        ended = self._ended(left)
        if ended is not None and self._last is not None:
            # A full report leaves no room for the event of the end.
            full = len(events) == EVENTS_MOST
            ended, events = (None, events) if full else (ended, (*events, self._last))
        return RunReport(
            holder=self._opening.holder,
            number=self._number + 1,
            fence=fence,
            events=events,
            entries=entries,
            deleted=tuple(key for key, entry in there if entry is None and key in self._shown),
            ended=ended,
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

    def _taken_events(self, room: "_Room", until: int | None) -> tuple[RunEvent, ...]:
        taken: list[RunEvent] = []
        while self._events and len(taken) < EVENTS_MOST:
            if until is not None and self._events[0].seq > until:
                break
            if not room.takes(self._events[0], first=not taken):
                break
            event = self._events.popleft()
            taken.append(replace(event, seq=event.seq + self._base) if self._base else event)
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

    def takes(self, thing: ReportedEntry | RunEvent, *, first: bool) -> bool:
        """Check whether *thing* fits; the *first* of its kind always does."""
        self._left -= len(_encode(thing))
        return first or self._left >= 0


def reported(held: RunEntry) -> ReportedEntry:
    """Convert *held* to an entry of a report."""
    facts = asdict(held)
    return ReportedEntry(**asdict(kept_value(facts.pop("value_json"))), **facts)


BEAT: Final = 15.0
"""Seconds between two renewals of the leases of all runs."""

CANCEL_EVERY: Final = 3.0
"""Seconds between two looks for cancellations by other processes, which take 5 s at most."""

LAST_WORDS: Final = 5.0
"""Seconds that closing waits for pending reports."""


LOOKS_EVERY: Final = 0.2
"""Seconds between checks for other runs while one waits for its next report."""


class _Turn:
    """A mirror, and the time of its last step."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror, self.last_step = mirror, -BEAT

    def due(self, *, hurried: bool) -> float:
        """Return the time of its next step, on the monotonic clock; infinite without one."""
        if not self.mirror.waits:
            return math.inf
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
        self._renewed = self._looked = now()
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

    def finish(self, mirror: Mirror, timeout: float = LAST_WORDS) -> bool:
        """Wait until the end of *mirror* is reported; return whether it is.

        False after *timeout* seconds, and at once if the recorder cannot be reached.
        """
        with self._changed:
            self._hurried += 1
            self._wake()
            try:
                self._changed.wait_for(
                    lambda: mirror.over or mirror.failures or self._thread is None, timeout
                )
            finally:
                self._hurried -= 1
        return mirror.over and mirror.stale is None

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
            self._keep([turn.mirror for turn in turns])
            with self._changed:
                self._changed.notify_all()
            if not any(turn.mirror.over for turn in turns):
                due = (turn.due(hurried=hurried) for turn in turns)
                self._rest(min(*due, self._looked + CANCEL_EVERY) - self._now())

    def _keep(self, mirrors: Iterable[Mirror]) -> None:
        """Renew the leases of *mirrors*, or look whether their runs are to be cancelled."""
        now = self._now()
        extend = now >= self._renewed + BEAT
        if not extend and now < self._looked + CANCEL_EVERY:
            return
        self._looked = now
        if extend:
            self._renewed = now
        scopes: dict[str, list[Mirror]] = {}
        for mirror in mirrors:
            if mirror.held is not None:
                scopes.setdefault(mirror.recorder.scope, []).append(mirror)
        for together in scopes.values():
            if not _kept(together, extend=extend) and extend:
                self._renewed = now - BEAT

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


def _kept(mirrors: Sequence[Mirror], *, extend: bool) -> bool:
    """Renew or look at the runs of *mirrors*; return whether that was possible."""
    held = {mirror: run for mirror in mirrors if (run := mirror.held) is not None}
    if not held:
        return True
    try:
        signs = mirrors[0].recorder.renew(list(held.values()), extend=extend)
    except HoldfastError as error:
        _log.debug("the leases of runs are not renewed: %s", type(error).__name__)
        return False
    for mirror, run in held.items():
        if run.holder in signs:
            mirror.heed(signs[run.holder])
        elif not mirror.over:
            mirror.supersede(StaleRun("superseded", token=run.fence, live_token=None))
    return True
