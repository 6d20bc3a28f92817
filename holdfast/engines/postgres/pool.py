"""Pooled PostgreSQL connections, and the lane that orders writes.

It has no thread of its own: who needs a connection makes it, and whoever finds one broken drops
all that are idle, because what broke it (a restart, a failover) broke them too. So service is
back with the first caller after the server is, and a fork leaves nothing running behind.
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
    """A thread in line; its bell rings when it has a connection, or may make one."""

    __slots__ = ("bell", "may_make", "wire")

    def __init__(self) -> None:
        self.bell = threading.Lock()
        self.bell.acquire()
        self.wire: Wire | None = None
        self.may_make = False


class Pool:
    """At most *most* connections, made by *connect* as they are needed.

    Who finds none waits at most *patience* seconds.
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
        """How many connections are in use."""
        return self._made - len(self._idle)

    def __len__(self) -> int:
        return self._made

    @property
    def waiting(self) -> int:
        """How many threads wait for one."""
        return len(self._line)

    def take(self, deadline: float) -> Wire:
        """Return a connection for this thread, to be given back.

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
        """Take *wire* back, for the next."""
        if wire.broken:
            self.drop(wire)
            return
        wire.idle_since = monotonic()
        with self._mutex:
            surplus = self._keep(wire)
        if surplus is not None:
            surplus.close()

    def drop(self, wire: Wire) -> None:
        """Let go of *wire*, which is broken, and of all that are idle."""
        with self._mutex:
            broken, self._idle = [wire, *self._idle], []
            self._made -= len(broken)
            self._lost_since = True
            for _ in broken:
                self._let_make()
        for each in broken:
            each.close()

    def close(self) -> None:
        """Close all; one in use is closed when it comes back."""
        with self._mutex:
            self.closed = True
            idle, self._idle = self._idle, []
            self._made -= len(idle)
            while self._line:
                self._line.popleft().bell.release()
        for wire in idle:
            wire.close()

    def _next(self, until: float, deadline: float) -> Wire | None:
        """Return a connection, or None when the caller may make one."""
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
            rang = mine.bell.acquire(timeout=max(0.0, until - monotonic()))
        except BaseException:
            if not self._leave_line(mine):
                self._pass_on(mine)
            raise
        if not rang and self._leave_line(mine):
            if monotonic() >= deadline:
                raise late()
            raise Unavailable(
                f"All {self._most} connections are in use.", reason="busy", retry_after=1.0
            )
        if mine.wire is None and not mine.may_make:
            raise closed()
        return mine.wire

    def _leave_line(self, mine: _Waiting) -> bool:
        """Stand no longer in line; False when the turn came meanwhile."""
        with self._mutex:
            if mine in self._line:
                self._line.remove(mine)
                return True
        return False

    def _pass_on(self, mine: _Waiting) -> None:
        """Give up a turn that came when it was no longer wanted."""
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
                again, self._lost_since = self._lost_since, False
                if again:
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
            first.bell.release()

    def _keep(self, wire: Wire) -> Wire | None:
        """Hand *wire* to who waits, or put it by; return one that is to be closed, if any."""
        if self.closed:
            self._made -= 1
            return wire
        if self._line:
            first = self._line.popleft()
            first.wire = wire
            first.bell.release()
            return None
        self._idle.append(wire)
        return self._too_old()

    def _too_old(self) -> Wire | None:
        """Take out the connection that was idle longest, if that is too long."""
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
    """Return the error of an engine that is closed."""
    return Unavailable("The engine is closed.", reason="closed", next="Open it again.")


def overloaded() -> Unavailable:
    """Return the error of one call too many."""
    return Unavailable(
        f"{MOST_WAITING:,} writes are waiting already.", reason="overloaded", retry_after=0.1
    )


def late() -> Unavailable:
    """Return the error of a write whose turn did not come in time."""
    return Unavailable("The write's turn did not come in time; it will not run.", reason="timeout")


class _Handed(NamedTuple):
    act: Callable[[], object]
    deadline: float
    future: "Future[Any]"


class Lane:
    """At most *most* threads, each running what was handed in first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._line: deque[_Handed] = deque()
        self._room = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._resting = 0
        self._closed = False

    def __len__(self) -> int:
        return len(self._line)

    def put(self, act: Callable[[], object], deadline: float, future: "Future[Any]") -> None:
        """Run *act* in its turn, before *deadline*; Unavailable at once if that cannot be."""
        with self._room:
            if self._closed:
                raise closed()
            if len(self._line) >= MOST_WAITING:
                raise overloaded()
            self._line.append(_Handed(act, deadline, future))
            if self._resting < len(self._line) and len(self._threads) < self._most:
                thread = threading.Thread(target=self._live, name="holdfast-writer", daemon=True)
                self._threads.append(thread)
                thread.start()
            else:
                self._room.notify()

    def close(self, timeout: float) -> None:
        """Run what waits within *timeout* seconds, and refuse the rest."""
        until = monotonic() + timeout
        with self._room:
            self._closed = True
            self._room.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - monotonic()))
        with self._room:
            left, self._line = list(self._line), deque()
        for handed in left:
            if handed.future.set_running_or_notify_cancel():
                handed.future.set_exception(closed())

    def _live(self) -> None:
        while (handed := self._next()) is not None:
            future = handed.future
            if not future.set_running_or_notify_cancel():
                continue
            if monotonic() >= handed.deadline:
                future.set_exception(late())
                continue
            try:
                value = handed.act()
            except BaseException as error:  # noqa: BLE001 - it is the caller's, not this thread's
                future.set_exception(error)
            else:
                future.set_result(value)

    def _next(self) -> _Handed | None:
        with self._room:
            while not self._line:
                if self._closed:
                    return None
                self._resting += 1
                self._room.wait()
                self._resting -= 1
            return self._line.popleft()
