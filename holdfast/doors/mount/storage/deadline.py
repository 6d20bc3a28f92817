"""Calls with a time limit, and delayed calls.

Storage can hang without an interrupt: a snapshot server, a lock that another program holds, a disk
that does not answer. So each call runs on a separate thread. After its time limit the caller
continues without it; the call continues, and its result is discarded. The threads are reused and
are daemons: one that hangs blocks neither others nor the end of the process.
"""

import heapq
import itertools
import logging
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue
from threading import Condition, Lock, Thread
from time import monotonic
from typing import TypeVar, cast

from msgspec import Struct, field

from holdfast.ground.errors import Unavailable

T = TypeVar("T")

THREADS = 32
"""Calls that may run or hang at once; more are queued, within their own time limits."""

_log = logging.getLogger(__name__)


class Deadline:
    """Run calls on threads, and wait at most *seconds* for each.

    A hang usually concerns one store (a row that another program locks), so each store has its
    own instance.
    """

    def __init__(self, seconds: float, *, threads: int = THREADS) -> None:
        self.seconds = seconds
        self._unstarted = threads
        self._lock = Lock()
        self._idle: list[_Thread] = []
        self._waiting: deque[_Job] = deque()
        self._closed = False

    @property
    def waiting(self) -> int:
        """How many calls wait for a thread."""
        return len(self._waiting)

    def call(self, work: Callable[[], T], *, seconds: float | None = None) -> T:
        """Return *work*(), or raise its error, within *seconds*.

        *seconds* defaults to the deadline's. After that raise Unavailable with the reason
        "timeout": its `written` is False if the work had not begun and never will, None if it
        still runs.
        """
        job, seconds = _Job(work=work), self.seconds if seconds is None else seconds
        if not self._start(job, wait=True):
            raise _closed()
        try:
            value, error = job.outcome.get(timeout=max(0.0, seconds))
        except Empty:
            value, error = self._given_up(job, seconds)
        if error is None:
            return cast("T", value)
        try:
            raise error
        finally:
            # The error's traceback holds this frame, which would hold the error.
            del error

    def start(self, work: Callable[[], None]) -> bool:
        """Run *work* in the background; return False if no thread is free.

        If it raises, the error's class is logged.
        """
        return self._start(_Job(work=work, alone=True), wait=False)

    def close(self) -> None:
        """Start no more calls and end idle threads; calls that hang are abandoned."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            waiting, self._waiting = self._waiting, deque()
        for thread in idle:
            thread.put(None)
        for job in waiting:
            job.outcome.put((None, _closed()))

    def _start(self, job: "_Job", *, wait: bool) -> bool:
        """Run *job* on a free thread; if there is none and *wait*, queue it."""
        with self._lock:
            if self._closed:
                return False
            if self._idle:
                thread = self._idle.pop()
            elif self._unstarted:
                self._unstarted -= 1
                thread = _Thread()
                name = "holdfast-storage"
                Thread(target=self._work, args=(thread,), name=name, daemon=True).start()
            elif wait:
                self._waiting.append(job)
                return True
            else:
                return False
        thread.put(job)
        return True

    def _work(self, thread: "_Thread") -> None:
        """Run the jobs of *thread* one by one, until it gets None."""
        while job := thread.get():
            try:
                job.outcome.put((job.work(), None))
            except BaseException as error:  # noqa: BLE001 - it is raised in the caller's thread
                if job.alone:
                    _log.debug("storage failed in the background: %s", type(error).__name__)
                job.outcome.put((None, error))
            # An idle thread must not keep references to its last job.
            job = None
            with self._lock:
                if self._closed:
                    return
                if self._waiting:
                    thread.put(self._waiting.popleft())
                else:
                    self._idle.append(thread)

    def _given_up(self, job: "_Job", seconds: float) -> "_Outcome":
        """Raise Unavailable, or return the outcome if *job* was just finished."""
        with self._lock:
            begun = job not in self._waiting
            if not begun:
                self._waiting.remove(job)
        try:
            return job.outcome.get_nowait()
        except Empty:
            raise Unavailable(
                f"The storage did not answer within {seconds:g} s.",
                reason="timeout",
                written=None if begun else False,
                next="The call is retried; check that the database or the server can be reached.",
            ) from None


_Outcome = tuple[object, BaseException | None]
"""The result of a call, or its error."""


class _Job(Struct, frozen=True, eq=False, kw_only=True):
    """One call, and where its outcome goes; *alone*: no caller waits for it."""

    work: Callable[[], object]
    alone: bool = False
    outcome: SimpleQueue[_Outcome] = field(default_factory=SimpleQueue[_Outcome])


_Thread = SimpleQueue[_Job | None]
"""The next job of a thread."""


def _closed() -> Unavailable:
    return Unavailable("The mount is stopping.", reason="closed", next="Mount it again.")


# A few threads run delayed calls, so that a call that waits for storage delays few others. Calls
# of one key run one at a time, in the order of their due times.

LATER_THREADS = 4
"""Calls that run at once."""


class Later:
    """Scheduler of delayed calls. Thread-safe."""

    def __init__(self, *, threads: int = LATER_THREADS) -> None:
        self._room = threads
        self._number = itertools.count()
        self._changed = Condition()
        self._due: list[tuple[float, int, _Call]] = []
        self._following: dict[object, deque[_Call]] = {}
        """Calls that became due while one of their key ran, by the keys that run."""
        self._idle, self._closed = 0, False

    def after(self, seconds: float, call: Callable[[], None], *, key: object) -> Callable[[], None]:
        """Run *call* after *seconds*, and after earlier calls of the same *key*.

        Return a function that cancels it: a call that has not begun never will; a running one is
        not waited for. An error of the call is logged. Once closed, this does nothing.
        """
        due = _Call(call, key)
        with self._changed:
            if not self._closed:
                heapq.heappush(self._due, (monotonic() + seconds, next(self._number), due))
                self._hire()
                self._changed.notify()
        return due.cancel

    def close(self, *, run_due: bool = False) -> None:
        """Start no more calls, and wait for none; a second call does nothing.

        With *run_due*, queued calls that are due run now, on this thread.
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
        """Start a thread if none is idle and the limit allows it."""
        if self._idle == 0 and self._room > 0:
            self._room -= 1
            self._idle += 1
            Thread(target=self._work, name="holdfast-later", daemon=True).start()

    def _work(self) -> None:
        while (call := self._next()) is not None:
            call.run()
            self._done(call)

    def _next(self) -> "_Call | None":
        """Wait for the next due call and return it; None once closed."""
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
        """Run the calls of its key that became due meanwhile."""
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
    """A delayed call that can be cancelled."""

    def __init__(self, call: Callable[[], None], key: object) -> None:
        self._call: Callable[[], None] | None = call
        self.key = key

    def cancel(self) -> None:
        """Cancel the call and drop its references."""
        self._call = None

    def run(self) -> None:
        """Run the call, unless it ran before or was cancelled."""
        call, self._call = self._call, None
        if call is None:
            return
        try:
            call()
        except Exception:  # noqa: BLE001 - the thread must survive for the next call
            _log.exception("a deferred task failed")
