"""Whose turn it is to send edits of a file, and which edits are under way."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Condition, RLock

from holdfast.doors.mount.errors import SLACK, seconds_left
from holdfast.doors.mount.filesystem.nodes import File, tidy, work_of
from holdfast.doors.mount.filesystem.tree import Surroundings
from holdfast.ground.errors import Unavailable


class FileLocks:
    """The turns of one store's files, by the *lock* of the store.

    Who sends edits of a file holds its turn meanwhile, so that its saves are in order.
    """

    def __init__(self, lock: RLock, surroundings: Surroundings) -> None:
        self._lock, self._surroundings = lock, surroundings
        self._freed = Condition(lock)
        self._flights: set[object] = set()
        self._held, self._alone = 0, False

    @contextmanager
    def of(self, *files: File) -> Generator[None]:
        """Have the turn of all *files*, within the operation's time; else Unavailable."""

        def free() -> bool:
            return not self._alone and not any(file.work and file.work.turn for file in files)

        with self._lock:
            self._wait(free)
            self._held += 1
            for file in files:
                work_of(file).turn = True
        try:
            yield
        finally:
            with self._lock:
                self._held -= 1
                for file in files:
                    work_of(file).turn = False
                    tidy(file)
                self._freed.notify_all()

    @contextmanager
    def of_all(self) -> Generator[None]:
        """Have the turn of every file there is; else Unavailable."""
        with self._lock:
            self._wait(lambda: not self._alone and not self._held)
            self._alone = True
        try:
            yield
        finally:
            with self._lock:
                self._alone = False
                self._freed.notify_all()

    @contextmanager
    def flight(self) -> Generator[None]:
        """Let edits be under way: the store may already be what the tree is not yet."""
        flight = object()
        with self._lock:
            self._flights.add(flight)
        try:
            yield
        finally:
            with self._lock:
                self._flights.discard(flight)
                self._freed.notify_all()

    def await_flights(self) -> None:
        """Wait until the edits that are under way now are answered; the lock is held again then."""
        under_way = set(self._flights)
        limit = self._surroundings.options.deadline + 1
        self._freed.wait_for(lambda: not under_way & self._flights, limit)

    def _wait(self, free: Callable[[], bool]) -> None:
        if free():
            return
        deadline = self._surroundings.options.deadline
        left = seconds_left(deadline)
        self._surroundings.kernel.step_aside()
        # What is left then is for what it does when its turn has come, or to keep what it cannot.
        if not self._freed.wait_for(free, deadline if left is None else max(0.0, left - SLACK)):
            raise Unavailable("Another save of the file is under way.", reason="busy")
