"""Connection pool of the PostgreSQL engine, and its queue of writes.

The pool has no thread of its own: a caller that needs a connection opens it, and a caller that
finds one broken drops all idle ones, because the cause (a restart, a failover) broke them too. So
the first call after the server is back succeeds, and a fork leaves no thread behind.

`psycopg_pool` does not fit: it closes a connection that is returned while its rollback is in
flight, so each `read` opens one (6.7 ms against 0.4 ms), and it retries a failed connect after 1,
2, 4 s, so calls fail for up to 3 s after a server is back.
"""

import random
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from time import monotonic, sleep
from typing import Any, NamedTuple

import psycopg

from holdfast.engines.postgres.faults import chained, refused_at_connect
from holdfast.engines.postgres.protocol import Lost, Wire
from holdfast.ground.errors import Unavailable

PATIENCE = 5.0
"""Seconds to wait for a connection."""

MOST_WAITING = 4096

_CHECKED_AFTER, _CLOSED_AFTER = 30.0, 300.0
_CHECK_PATIENCE = 5.0


class _Waiting:
    """A thread in the pool's queue.

    `wakeup` is released once it has a connection, or may open one.
    """

    __slots__ = ("may_make", "wakeup", "wire")

    def __init__(self) -> None:
        self.wakeup = threading.Lock()
        self.wakeup.acquire()
        self.wire: Wire | None = None
        self.may_make = False


class Pool:
    """Pool of at most *most* connections, opened by *connect* on demand.

    A caller waits at most *patience* seconds for one.
    """

    def __init__(
        self, connect: Callable[[], Wire], *, most: int, target: str, patience: float = PATIENCE
    ) -> None:
        self._connect, self._most, self._target = connect, most, target
        self._patience = patience
        self._mutex = threading.Lock()
        self._idle: list[Wire] = []
        self._line: deque[_Waiting] = deque()
        self._made = 0
        self._lost_since = False
        self.reconnected: Callable[[], None] = lambda: None
        self.closed = False

    @property
    def in_use(self) -> int:
        """Number of connections in use."""
        return self._made - len(self._idle)

    def __len__(self) -> int:
        return self._made

    @property
    def waiting(self) -> int:
        """Number of threads in the queue."""
        return len(self._line)

    def take(self, deadline: float) -> Wire:
        """Return a connection for this thread; pass it back with `give`.

        Waits up to the pool's patience, or to *deadline*. Raises Unavailable: busy, timeout,
        lost, closed.
        """
        until = min(monotonic() + self._patience, deadline)
        while True:
            wire = self._next(until, deadline)
            if wire is None:
                return self._make(until)
            if self._good(wire):
                return wire
            self.drop(wire)

    def give(self, wire: Wire) -> None:
        """Return *wire* to the pool."""
        if wire.broken:
            self.drop(wire)
            return
        wire.idle_since = monotonic()
        with self._mutex:
            surplus = self._keep(wire)
        if surplus is not None:
            surplus.close()

    def drop(self, wire: Wire) -> None:
        """Close *wire*, which is broken, and all idle connections."""
        with self._mutex:
            broken, self._idle = [wire, *self._idle], []
            self._made -= len(broken)
            self._lost_since = True
            for _ in broken:
                self._let_make()
        for each in broken:
            each.close()

    def stop_preparing(self) -> None:
        """Send all statements of idle connections unprepared from now on."""
        with self._mutex:
            for wire in self._idle:
                wire.stop_preparing()

    def close(self) -> None:
        """Close all connections; one in use is closed when it is returned."""
        with self._mutex:
            self.closed = True
            idle, self._idle = self._idle, []
            self._made -= len(idle)
            while self._line:
                self._line.popleft().wakeup.release()
        for wire in idle:
            wire.close()

    def _next(self, until: float, deadline: float) -> Wire | None:
        """Return a connection, or None if the caller may open one."""
        with self._mutex:
            if self.closed:
                raise closed()
            if self._idle and not self._line:
                return self._idle.pop()
            if self._made < self._most and not self._line:
                self._made += 1
                return None
            if len(self._line) >= MOST_WAITING:
                raise overloaded()
            mine = _Waiting()
            self._line.append(mine)
        try:
            woken = mine.wakeup.acquire(timeout=max(0.0, until - monotonic()))
        except BaseException:
            if not self._leave_line(mine):
                self._pass_on(mine)
            raise
        if not woken and self._leave_line(mine):
            if monotonic() >= deadline:
                raise late()
            raise Unavailable(
                f"All {self._most} connections are in use.", reason="busy", retry_after=1.0
            )
        if mine.wire is None and not mine.may_make:
            raise closed()
        return mine.wire

    def _leave_line(self, mine: _Waiting) -> bool:
        """Leave the queue; return False if the turn came meanwhile."""
        with self._mutex:
            if mine in self._line:
                self._line.remove(mine)
                return True
        return False

    def _pass_on(self, mine: _Waiting) -> None:
        """Pass on a turn that came after a timeout or an interrupt."""
        if mine.wire is not None:
            self.give(mine.wire)
        elif mine.may_make:
            self._unmake()

    def _make(self, until: float) -> Wire:
        while True:
            try:
                wire = self._connect()
            except psycopg.Error as error:
                refusal = refused_at_connect(error, self._target)
                if not isinstance(refusal, Unavailable) or monotonic() >= until or self.closed:
                    self._unmake()
                    raise chained(refusal, error) from error
                sleep(random.uniform(0.02, 0.2))  # noqa: S311 - jitter, no secret
            except BaseException:
                self._unmake()
                raise
            else:
                with self._mutex:
                    reconnected, self._lost_since = self._lost_since, False
                if reconnected:
                    self.reconnected()
                return wire

    def _unmake(self) -> None:
        with self._mutex:
            self._made -= 1
            self._let_make()

    def _let_make(self) -> None:
        if self._line and self._made < self._most:
            first = self._line.popleft()
            self._made += 1
            first.may_make = True
            first.wakeup.release()

    def _keep(self, wire: Wire) -> Wire | None:
        """Pass *wire* to the first waiting thread, or make it idle.

        Return a connection to close, if any.
        """
        if self.closed:
            self._made -= 1
            return wire
        if self._line:
            first = self._line.popleft()
            first.wire = wire
            first.wakeup.release()
            return None
        self._idle.append(wire)
        oldest = self._idle[0]
        if oldest.idle_since >= monotonic() - _CLOSED_AFTER:
            return None
        self._made -= 1
        return self._idle.pop(0)

    def _good(self, wire: Wire) -> bool:
        if not wire.answers_still():
            return False
        if monotonic() - wire.idle_since < _CHECKED_AFTER:
            return True
        try:
            wire.exchange((), patience=_CHECK_PATIENCE)
        except Lost:
            return False
        return True


def closed() -> Unavailable:
    """Return the error of a closed engine."""
    return Unavailable("The engine is closed.", reason="closed", next="Open it again.")


def overloaded() -> Unavailable:
    """Return the error of a full queue."""
    return Unavailable(
        f"{MOST_WAITING:,} writes are waiting already.", reason="overloaded", retry_after=0.1
    )


def late() -> Unavailable:
    """Return the error of a write that was still queued at its deadline."""
    return Unavailable("The write's turn did not come in time; it will not run.", reason="timeout")


class _QueuedWork(NamedTuple):
    act: Callable[[], object]
    deadline: float
    future: "Future[Any]"


class Lane:
    """Queue of work for at most *most* threads, first in, first out."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[_QueuedWork] = deque()
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._idle_threads = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._line)

    def put(self, act: Callable[[], object], deadline: float, future: "Future[Any]") -> None:
        """Queue *act*; it runs before *deadline* or fails.

        Raises Unavailable at once if the queue is closed or full.
        """
        with self._changed:
            if self._closed:
                raise closed()
            if len(self._line) >= MOST_WAITING:
                raise overloaded()
            self._line.append(_QueuedWork(act, deadline, future))
            if self._idle_threads < len(self._line) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._changed.notify()

    def close(self, timeout: float) -> None:
        """Finish queued work within *timeout* seconds, and refuse the rest."""
        until = monotonic() + timeout
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))
        with self._changed:
            left, self._line = list(self._line), deque()
        for queued in left:
            if queued.future.set_running_or_notify_cancel():
                queued.future.set_exception(closed())

    def _work(self) -> None:
        while (queued := self._next()) is not None:
            future = queued.future
            if not future.set_running_or_notify_cancel():
                continue
            if monotonic() >= queued.deadline:
                future.set_exception(late())
                continue
            try:
                value = queued.act()
            except BaseException as error:  # noqa: BLE001 - raised to the caller of the write
                future.set_exception(error)
            else:
                future.set_result(value)

    def _next(self) -> _QueuedWork | None:
        with self._changed:
            while not self._line:
                if self._closed:
                    return None
                self._idle_threads += 1
                self._changed.wait()
                self._idle_threads -= 1
            return self._line.popleft()
