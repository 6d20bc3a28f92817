"""Waiting writes of one kin, done in one transaction by one of their callers.

They would wait for their owner's row anyway, each with a connection. The first write runs alone;
those that come meanwhile wait, and the thread of the first of them does the next batch.
"""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from time import monotonic
from typing import Any

from holdfast.engines.base import BatchedWork, copy_of
from holdfast.engines.postgres.faults import lost
from holdfast.engines.postgres.pool import late
from holdfast.ground.errors import Reason, Unavailable

MOST_OF_A_KIN = 64
"""Writes of a batch."""

_WAITING, _RUNNING, _DONE = range(3)
_OF_ALL: frozenset[Reason] = frozenset(
    {"busy", "closed", "locked", "lost", "overloaded", "read_only"}
)
"""Reasons that refuse each write of a batch alike; after another each is tried by itself."""


class PendingWrite:
    """One write, and afterwards its value or error.

    With a *future* its result goes there too, and the write is withdrawn once that is cancelled.
    """

    __slots__ = (
        "_wakeup",
        "completed",
        "deadline",
        "error",
        "future",
        "key",
        "parked",
        "state",
        "value",
        "work",
    )

    def __init__(
        self,
        key: Hashable,
        work: "BatchedWork[Any, Any]",
        deadline: float,
        future: "Future[Any] | None",
    ) -> None:
        self.key, self.work, self.deadline, self.future = key, work, deadline, future
        self.state, self.parked, self.completed = _WAITING, False, False
        self.value: Any = None
        self.error: BaseException | None = None
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    def complete(self, value: object, error: BaseException | None = None) -> None:
        """Set the result."""
        self.value, self.error, self.completed = value, error, True

    def wait(self, timeout: float) -> bool:
        """Wait until `wake`; return False after *timeout* seconds."""
        return self._wakeup.acquire(timeout=timeout)

    def wake(self) -> bool:
        """Wake the thread that waits, if any; the caller holds the mutex of the batches."""
        if parked := self.parked:
            self.parked = False
            self._wakeup.release()
        return parked

    def deliver(self) -> None:
        """Give the future the result."""
        if self.future is None or self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(self.value)


class _Line:
    """The waiting writes of a kin, and whether a thread does a batch of it."""

    __slots__ = ("led", "waiting")

    def __init__(self) -> None:
        self.led = False
        self.waiting: deque[PendingWrite] = deque()


Write = Callable[[PendingWrite], Any]
"""Does one write by itself, and returns its value."""
WriteAll = Callable[[list[PendingWrite]], list[Any]]
"""Does several in one transaction, and returns a value or an error for each."""


class Batches:
    """The waiting writes of all kins of an engine."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._lines: dict[Hashable, _Line] = {}

    def __len__(self) -> int:
        with self._mutex:
            return sum(len(line.waiting) for line in self._lines.values())

    def join(
        self,
        key: Hashable,
        work: "BatchedWork[Any, Any]",
        deadline: float,
        future: "Future[Any] | None" = None,
    ) -> PendingWrite:
        """Queue *work* with the others of *key*; `finish` must follow."""
        pending = PendingWrite(key, work, deadline, future)
        with self._mutex:
            self._lines.setdefault(key, _Line()).waiting.append(pending)
        return pending

    def finish(self, pending: PendingWrite, write: Write, write_all: WriteAll) -> Any:
        """Return the value of *pending* once this or another thread has done it.

        *write* and *write_all* do a batch, if this thread leads it.
        """
        while True:
            with self._mutex:
                if pending.state == _DONE:
                    break
                line = self._lines.get(pending.key)
                leads = pending.state == _WAITING and line is not None and not line.led
                batch = _taken(line) if line is not None and leads else []
                pending.parked = not leads
            if not leads:
                self._wait(pending)
                continue
            try:
                _do([each for each in batch if not each.completed], write, write_all)
            finally:
                self._end(pending.key, batch)
        if pending.error is not None:
            raise pending.error
        return pending.value

    def withdraw(self, pending: PendingWrite, error: BaseException) -> bool:
        """Give *pending* an error, unless it is under way or done."""
        with self._mutex:
            if pending.state != _WAITING:
                return False
            pending.state = _DONE
            pending.complete(None, error)
            line = self._lines[pending.key]
            line.waiting.remove(pending)
            self._pass_on(pending.key, line)
        pending.deliver()
        return True

    def _wait(self, pending: PendingWrite) -> None:
        """Wait until *pending* is done, or may lead."""
        try:
            if pending.wait(max(0.0, pending.deadline - monotonic())):
                return
        except BaseException as interrupt:
            self.withdraw(pending, interrupt)
            raise
        if not self.withdraw(pending, late()):
            # Whatever the deadline says, the outcome of a running write is waited for.
            pending.wait(-1)

    def _end(self, key: Hashable, batch: list[PendingWrite]) -> None:
        """Wake the callers of *batch*, and one of those that wait."""
        with self._mutex:
            for each in batch:
                if not each.completed:
                    # An interrupt ended the batch.
                    each.complete(None, lost(written=None))
                each.state = _DONE
                each.wake()
            line = self._lines[key]
            line.led = False
            self._pass_on(key, line)
        for each in batch:
            each.deliver()

    def _pass_on(self, key: Hashable, line: _Line) -> None:
        """Wake a thread to lead the next batch; forget an empty line."""
        if line.led:
            return
        if not line.waiting:
            del self._lines[key]
        else:
            any(each.wake() for each in line.waiting)


def _taken(line: _Line) -> list[PendingWrite]:
    """Return the writes to do together next; late ones have their error."""
    line.led, now = True, monotonic()
    batch: list[PendingWrite] = []
    while line.waiting and len(batch) < MOST_OF_A_KIN:
        each = line.waiting.popleft()
        if each.future is not None and not each.future.set_running_or_notify_cancel():
            each.state = _DONE
            continue
        each.state = _RUNNING
        if each.deadline <= now:
            each.complete(None, late())
        batch.append(each)
    return batch


def _do(batch: list[PendingWrite], write: Write, write_all: WriteAll) -> None:
    """Set the value or the error of each of *batch*."""
    if len(batch) > 1 and _done_together(batch, write_all):
        return
    for each in batch:
        try:
            each.complete(write(each))
        except Exception as error:  # noqa: BLE001 - raised to the caller of the write
            each.complete(None, error)


def _done_together(batch: list[PendingWrite], write_all: WriteAll) -> bool:
    """Do *batch* in one transaction; return False if each must be done by itself."""
    try:
        values = write_all(batch)
    except Unavailable as error:
        if error.written is not None and error.reason not in _OF_ALL:
            return False
        for each in batch:
            each.complete(None, copy_of(error))
    except Exception:  # noqa: BLE001 - raised to its own caller, once each is done by itself
        return False
    else:
        for each, value in zip(batch, values, strict=True):
            refused = isinstance(value, Exception)
            each.complete(None if refused else value, value if refused else None)
    return True
