"""Pending writes of a SQLite database, with their deadlines."""

from collections import deque
from collections.abc import Callable
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.transaction import Owner, SQLiteTransaction
from holdfast.ground.errors import Reason, Unavailable

MOST_WAITING = 4096
MOST_IN_A_GROUP = 256

WAITING, RUNNING, DONE, WITHDRAWN = range(4)

_SAID: dict[Reason, str] = {
    "busy": "Another program held the database's lock until the time was up.",
    "timeout": "The write's turn did not come in time; it will not run.",
    "closed": "The engine is closed.",
    "overloaded": f"{MOST_WAITING:,} writes are waiting already.",
}


class EventLoop(Protocol):
    """As much of an event loop as is needed to wake it."""

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Run *callback* on the loop soon."""
        ...


class Slot:
    """One write, and afterwards what became of it.

    `finish` is told when `value` or `error` is there: on the writer's thread, or on `loop`.
    """

    __slots__ = (
        "at_the_door",
        "came",
        "claimed",
        "deadline",
        "error",
        "finish",
        "loop",
        "owner",
        "rerun",
        "state",
        "tx",
        "value",
        "work",
    )

    def __init__(
        self,
        work: Callable[[Any], object],
        owner: Owner,
        timeout: float,
        finish: "Callable[[Slot], object]",
        *,
        loop: EventLoop | None = None,
        claimed: Callable[[], bool] | None = None,
    ) -> None:
        self.work, self.owner, self.finish, self.loop = work, owner, finish, loop
        self.claimed = claimed
        self.came = monotonic()
        self.deadline = self.came + timeout
        self.state = WAITING
        self.at_the_door = False
        self.rerun = False
        self.value: object = None
        self.error: BaseException | None = None
        self.tx: SQLiteTransaction | None = None

    def fail(self, reason: Reason) -> None:
        """Give it the error for *reason*: it was not written."""
        self.error = refusal(reason)


class Chore(Slot):
    """Something for the writer to do on its connection between two groups."""

    __slots__ = ()

    work: Callable[[Connection], object]


def refusal(reason: Reason) -> Unavailable:
    """Return the error of a write that was never run, for *reason*."""
    retry = {"busy": 1.0, "overloaded": 0.1}.get(reason)
    return Unavailable(_SAID[reason], reason=reason, retry_after=retry)


class WriteQueue:
    """Slots in the order they came; many threads put, one takes."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._waiting: deque[Slot] = deque()
        self._bell = Lock()
        self._bell.acquire()
        self._asleep = False
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, slot: Slot) -> None:
        """Let *slot* wait; Unavailable at once when closed, or when too many wait already."""
        with self._mutex:
            if self.closed:
                raise refusal("closed")
            if len(self._waiting) >= MOST_WAITING:
                raise refusal("overloaded")
            self._waiting.append(slot)
            self._wake()

    def put_back(self, slots: list[Slot]) -> None:
        """Let *slots*, which were taken, wait again before all others."""
        with self._mutex:
            self._waiting.extendleft(reversed(slots))

    def take(self, patience: float) -> list[Slot] | None:
        """Return what waits, at most a group and a chore by itself; None once closed and empty.

        With nothing there, wait up to *patience* seconds (for ever if negative), then return
        no slots.
        """
        while True:
            with self._mutex:
                if self._waiting:
                    return self._group()
                if self.closed:
                    return None
                self._asleep = True
            if not self._bell.acquire(timeout=patience):
                with self._mutex:
                    if self._asleep:
                        self._asleep = False
                        return []
                self._bell.acquire()

    def claim(self, slot: Slot) -> bool:
        """Take *slot* from those that can be withdrawn; False if it was withdrawn before."""
        with self._mutex:
            if slot.state == WAITING:
                free = slot.claimed is None or slot.claimed()
                slot.state = RUNNING if free else WITHDRAWN
        return slot.state == RUNNING

    def withdraw(self, slot: Slot) -> bool:
        """See to it that *slot* never runs; False if it runs, or ran."""
        with self._mutex:
            if slot.state != WAITING:
                return False
            slot.state = WITHDRAWN
            if slot in self._waiting:
                self._waiting.remove(slot)
        return True

    def expired(self) -> list[Slot]:
        """Take and return the slots whose deadline passed while they waited here."""
        now = monotonic()
        with self._mutex:
            late = [slot for slot in self._waiting if slot.deadline <= now]
            for slot in late:
                self._waiting.remove(slot)
        return late

    def close(self) -> None:
        """Refuse what comes from now on."""
        with self._mutex:
            self.closed = True
            self._wake()

    def drain(self) -> list[Slot]:
        """Take and return all that waits."""
        with self._mutex:
            left = list(self._waiting)
            self._waiting.clear()
        return left

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self._bell.release()

    def _group(self) -> list[Slot]:
        first = self._waiting.popleft()
        group = [first]
        if isinstance(first, Chore):
            return group
        while (
            self._waiting
            and len(group) < MOST_IN_A_GROUP
            and not isinstance(self._waiting[0], Chore)
        ):
            group.append(self._waiting.popleft())
        return group


def deliver(slots: list[Slot]) -> None:
    """Tell whoever waits for *slots* that they are done, waking each event loop once."""
    by_loop: dict[EventLoop, list[Slot]] = {}
    for slot in slots:
        slot.state = DONE
        if slot.loop is None:
            slot.finish(slot)
        else:
            by_loop.setdefault(slot.loop, []).append(slot)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_finish, theirs)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            continue


def _finish(slots: list[Slot]) -> None:
    for slot in slots:
        slot.finish(slot)
