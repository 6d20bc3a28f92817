"""Waits for storage only so long: whoever asks gets an answer or Unavailable within a time.

Storage can hang where nothing interrupts it: a frozen server, a lock that another program holds,
a disk that does not answer. So each call runs on a thread of its own. When its time is over the
caller goes on without it; the call goes on alone, and what it comes to is nobody's. The threads
are kept for the next call and are daemons: one that hangs holds up neither others nor the end of
the process.
"""

import logging
from collections import deque
from collections.abc import Callable
from threading import Lock, Thread
from typing import TypeVar, cast

from holdfast.ground.errors import Unavailable

T = TypeVar("T")

THREADS = 32
"""Calls that may be under way or hang at once; more wait their turn, within their own time."""

_log = logging.getLogger(__name__)


class Deadline:
    """Runs calls on threads, and waits at most *seconds* for each.

    What hangs is of one store as a rule (a row that another program locks), so each store gets
    one of its own.
    """

    def __init__(self, seconds: float, *, threads: int = THREADS) -> None:
        self.seconds = seconds
        self._room = threads
        self._lock = Lock()
        self._idle: list[_Worker] = []
        self._waiting: deque[_Job] = deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return len(self._waiting)

    def call(self, work: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return *work*() or raise what it raises, within *seconds*, else the deadline's own.

        Unavailable with the reason "timeout" when that is over; its `written` is False when the
        work had not begun, and never will, and None when it goes on.
        """
        job, seconds = _Job(work), self.seconds if seconds is None else seconds
        if not self._hand_in(job):
            raise _closed()
        if not job.gate.acquire(timeout=max(0.0, seconds)):
            self._give_up(job, seconds)
        return cast("T", job.outcome())

    def start(self, work: Callable[[], None]) -> bool:
        """Let *work* run by itself, if a thread is free for it; tell whether one was.

        What it raises is logged by its class.
        """
        return self._hand_in(_Alone(work), wait=False)

    def close(self) -> None:
        """Begin no more calls and let the idle threads end; those that hang are left alone."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
        for worker in idle:
            worker.run_next(None)
        for job in waiting:
            job.finish(None, _closed())

    def _hand_in(self, job: "_Job", *, wait: bool = True) -> bool:
        with self._lock:
            if self._closed:
                return False
            if self._idle:
                worker = self._idle.pop()
            elif self._room:
                self._room -= 1
                worker = _Worker(self._next)
            elif wait:
                self._waiting.append(job)
                return True
            else:
                return False
        worker.run_next(job)
        return True

    def _next(self, worker: "_Worker") -> None:
        """Give *worker*, which has nothing to do, what waits longest, now or when it comes."""
        with self._lock:
            if self._closed:
                job = None
            elif self._waiting:
                job = self._waiting.popleft()
            else:
                self._idle.append(worker)
                return
        worker.run_next(job)

    def _give_up(self, job: "_Job", seconds: float) -> None:
        """Raise Unavailable, unless *job* was done in this very moment."""
        with self._lock:
            begun = job not in self._waiting
            if not begun:
                self._waiting.remove(job)
        if not job.gate.acquire(blocking=False):
            raise Unavailable(
                f"The storage did not answer within {seconds:g} s.",
                reason="timeout",
                written=None if begun else False,
                next="The call is retried; check that the database or the server can be reached.",
            )


class _Job:
    """One call, and what it came to."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self.gate = Lock()
        self.gate.acquire()
        self._value: object = None
        self._error: BaseException | None = None

    def run(self) -> None:
        """Do the work."""
        try:
            value = self._work()
        except BaseException as error:  # noqa: BLE001 - it is the caller's, and raised there
            self.finish(None, error)
        else:
            self.finish(value, None)

    def finish(self, value: object, error: BaseException | None) -> None:
        """Let the caller have what the work came to."""
        self._value, self._error = value, error
        self.gate.release()

    def outcome(self) -> object:
        """Return what the work returned, or raise what it raised; once."""
        error, self._error = self._error, None
        if error is None:
            return self._value
        try:
            raise error
        finally:
            # The error's traceback holds this frame, which would hold the error.
            del error


class _Alone(_Job):
    """A call that nobody waits for."""

    def finish(self, value: object, error: BaseException | None) -> None:
        """Log what failed: nobody else hears of it."""
        del value
        if error is not None:
            _log.debug("storage failed in the background: %s", type(error).__name__)


class _Worker:
    """A thread that runs one job after another, until it is given None."""

    def __init__(self, done: "Callable[[_Worker], None]") -> None:
        self._done = done
        self._job: _Job | None = None
        self._gate = Lock()
        self._gate.acquire()
        Thread(target=self._work, name="holdfast-storage", daemon=True).start()

    def run_next(self, job: _Job | None) -> None:
        """Run *job* now; for a worker that waits."""
        self._job = job
        self._gate.release()

    def _work(self) -> None:
        self._gate.acquire()
        while job := self._job:
            job.run()
            # While it waits it holds nothing of what it did.
            job = self._job = None
            self._done(self)
            self._gate.acquire()


def _closed() -> Unavailable:
    return Unavailable("The mount is stopping.", reason="closed", next="Mount it again.")
