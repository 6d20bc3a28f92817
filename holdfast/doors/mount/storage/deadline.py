"""Calls with a time limit, and delayed calls.

Storage can hang where nothing interrupts it: a frozen server, a lock that another program holds,
a disk that does not answer. So each call runs on a thread of its own. When its time is over the
caller goes on without it; the call goes on alone, and what it comes to is nobody's. The threads
are kept for the next call and are daemons: one that hangs holds up neither others nor the end of
the process.
"""

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from threading import Condition, Lock, Thread
from time import monotonic
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


# A few threads run what is due, so that a call which waits for storage holds up few others. Calls
# of one key run one at a time, in the order in which they were due.

LATER_THREADS = 4
"""Calls that run at once."""


class Later:
    """Runs each call when its time has come. Threads share it."""

    def __init__(self, *, threads: int = LATER_THREADS) -> None:
        self._room = threads
        self._number = itertools.count()
        self._changed = Condition()
        self._due: list[tuple[float, int, _Call]] = []
        self._following: dict[object, deque[_Call]] = {}
        """What became due while a call of its key ran, by the keys of which one runs."""
        self._idle, self._closed = 0, False

    def after(self, seconds: float, call: Callable[[], None], *, key: object) -> Callable[[], None]:
        """Run *call* in *seconds*, or as soon after that as what was due before it for *key* ended.

        Returns what cancels it: a call that has not begun never will; one that has is not waited
        for. What a call raises is logged. Once closed, this does nothing.
        """
        due = _Call(call, key)
        with self._changed:
            if not self._closed:
                heapq.heappush(self._due, (monotonic() + seconds, next(self._number), due))
                self._hire()
                self._changed.notify()
        return due.cancel

    def close(self, *, run_due: bool = False) -> None:
        """Begin no more calls, and wait for none; again does nothing.

        With *run_due*, those whose time has come and that wait for their turn run here and now.
        """
        with self._changed:
            self._closed = True
            left = [call for calls in self._following.values() for call in calls]
            left += [call for at, _, call in sorted(self._due) if at <= monotonic()]
            self._due.clear()
            for calls in self._following.values():
                calls.clear()
            self._changed.notify_all()
        for call in left if run_due else ():
            call.run()

    def _hire(self) -> None:
        """Let there be a thread that waits for what is due next, if one more may be."""
        if self._idle == 0 and self._room > 0:
            self._room -= 1
            self._idle += 1
            Thread(target=self._work, name="holdfast-later", daemon=True).start()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            self._done(call)

    def _next(self) -> "_Call | None":
        """Wait for the next call that is due, and return it; None when nothing comes any more."""
        with self._changed:
            while not self._closed:
                pause = self._due[0][0] - monotonic() if self._due else None
                if pause is not None and pause <= 0:
                    call = heapq.heappop(self._due)[2]
                    if (running := self._following.get(call.key)) is not None:
                        running.append(call)
                        continue
                    self._following[call.key] = deque()
                    self._idle -= 1
                    if self._due:
                        self._hire()
                    return call
                self._changed.wait(pause)
            return None

    def _done(self, call: "_Call") -> None:
        """Run what became due for its key meanwhile; then the thread is free."""
        while True:
            with self._changed:
                following = self._following[call.key]
                if not following:
                    del self._following[call.key]
                    self._idle += 1
                    return
                call = following.popleft()
            call.run()


class _Call:
    """Something to be done, unless it is cancelled before."""

    def __init__(self, call: Callable[[], None], key: object) -> None:
        self._call: Callable[[], None] | None = call
        self.key = key

    def cancel(self) -> None:
        """Never run, and hold nothing."""
        self._call = None

    def run(self) -> None:
        """Run, once."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the thread is for the next call too
            _log.exception("a deferred task failed")
