"""One run memory as it is reported: what happened in it is gathered until a report takes it.

A report tells entries as they are when it is made, not each write: what was written over meanwhile
nobody misses, and a report that failed is simply made again.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Final, Protocol

import msgspec
from msgspec.structs import asdict

from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    Refused,
)
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.record import (
    EVENTS_MOST,
    Ending,
    ReportedEntry,
    ReportedEvent,
    RunReport,
    RunStart,
    kept_value,
)

WAITING_MOST: Final = 10_000
"""Events that wait to be reported; beyond, the oldest are counted as missed."""

REPORT_BYTES: Final = 900_000
"""Bytes of what a report holds, so that with its frame it stays below 1 MiB."""

PAUSE, PAUSE_MOST = 0.2, 5.0
"""Seconds before a report that failed is tried again, at first and at most."""

_REFUSALS: Final = (Conflict, InvalidInput, NotAuthenticated, NotFound, NotPermitted, Refused)
"""What asking again does not change."""

_encode: Final = msgspec.json.Encoder().encode
_log = logging.getLogger(__name__)


class RunRecorder(Protocol):
    """Where records of runs are kept; `pause` is the least time between reports, in seconds."""

    pause: float

    def begin(self, opening: RunStart) -> None:
        """Show a run; again does nothing."""
        ...

    def take(self, run_id: str, report: RunReport) -> None:
        """Bring a run's record up to date; again does nothing."""
        ...


class Mirror:
    """Gathers what happens in *memory*, and hands reports of it to *keeper*.

    `hear` and `end` may be called from any thread; `step` from one at a time. *ring* is called
    when there is something to report.
    """

    def __init__(
        self, memory: RunMemory, opening: RunStart, keeper: RunRecorder, *, ring: Callable[[], None]
    ) -> None:
        self._memory, self._opening, self._keeper, self._ring = memory, opening, keeper, ring
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
        self.over, self.pause, self.failures = False, keeper.pause, 0

    def hear(self, event: ReportedEvent) -> None:
        """Keep *event* for the next report, with the entry that it is about."""
        with self._lock:
            if len(self._events) == WAITING_MOST:
                self._events.popleft()
                self._missed += 1
            self._events.append(event)
            key = event.data.get("key")
            if event.type in {"run.entries_cleared", "run.restored"}:
                self._whole = True
            elif isinstance(key, str) and event.type in {"run.entry_written", "run.entry_deleted"}:
                # Last again, because entries are told in the order of their last writes.
                self._changed.pop(key, None)
                self._changed[key] = None
        self._ring()

    def end(self, state: Ending) -> None:
        """Report that the run is over, once all else is reported; the first *state* stays.

        What is written from now on is not told.
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
        """Hand over one report, or say once more that the run is alive. Fails on no error of ours.

        What the keeper refuses ends it; what fails in another way is tried again later.
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
            self.pause, self.failures = self._keeper.pause, 0

    def _step(self) -> None:
        run_id = self._opening.run_id
        if not self._begun:
            self._keeper.begin(self._opening)
            self._begun = True
            return
        report = self._sending = self._sending or self._collected()
        self._keeper.take(run_id, report)
        self._sending, self._number = None, report.number
        self._shown = {
            key: held for key, held in self._shown.items() if key not in report.deleted
        } | self._telling
        self.over = report.ended is not None

    def _collected(self) -> RunReport:
        """Return what happened, as much as one report may hold."""
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
        """Return every entry in the order of last writes; those of the end once it came."""
        if self._final is not None:
            return self._final
        return {entry.key: entry for entry in self._memory.by_last_write()[0]}

    def _differing(self, held: Mapping[str, RunEntry], changed: Mapping[str, None]) -> list[str]:
        """Return the keys that are shown otherwise than *held*, in the order of last writes."""
        gone = dict.fromkeys(key for key in (*self._shown, *changed) if key not in held)
        shown = self._shown.get
        new = (key for key, entry in held.items() if key in changed or shown(key) is not entry)
        return [*gone, *new]

    def _taken_entries(
        self, entries: Iterable[RunEntry], room: "_Room"
    ) -> tuple[ReportedEntry, ...]:
        """Return as many of *entries* as there is room for, and note that they are being told."""
        taken: list[ReportedEntry] = []
        self._telling = {}
        for entry in entries:
            told = reported(entry)
            if not room.takes(told, first=not taken):
                break
            taken.append(told)
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
        """Put *left* before what changed meanwhile; return the ending when nothing is left."""
        with self._lock:
            self._changed = dict.fromkeys([*left, *self._changed])
            more = self._changed or self._events or self._whole
            return None if more else self._ending


class _Room:
    """How much a report can still hold."""

    def __init__(self, size: int) -> None:
        self._left = size

    def takes(self, thing: ReportedEntry | ReportedEvent, *, first: bool) -> bool:
        """Tell whether *thing* goes in; the *first* of its kind always does."""
        self._left -= len(_encode(thing))
        return first or self._left >= 0


def reported(held: RunEntry) -> ReportedEntry:
    """Return *held* as a report tells it."""
    return ReportedEntry(
        key=held.key,
        kind=held.kind,
        source=held.source,
        title=held.title,
        description=held.description,
        failed=held.failed,
        version=held.version,
        created_at=held.created_at,
        updated_at=held.updated_at,
        **asdict(kept_value(held.value_json)),
    )
