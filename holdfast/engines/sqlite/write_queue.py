"""Pending writes of a SQLite database, with their deadlines."""

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from threading import Lock
from time import monotonic
from typing import Any, Protocol

from holdfast.engines.base import BatchedWork, Kin
from holdfast.engines.sqlite.connection import Connection
from holdfast.engines.sqlite.transaction import Owner, SQLiteTransaction
from holdfast.ground.errors import Reason, Unavailable

TIMEOUT = 30.0
"""Default seconds that a write may wait."""

MOST_WAITING = 4096
MOST_IN_A_GROUP = 256
MOST_OF_A_KIN = 64
"""Writes of a batch: more would take longer than a group may."""

WAITING, RUNNING, DONE, WITHDRAWN = range(4)

_MESSAGES: dict[Reason, str] = {
    "busy": "Another program held the database's lock until the time was up.",
    "timeout": "The write's turn did not come in time; it will not run.",
    "closed": "The engine is closed.",
    "overloaded": f"{MOST_WAITING:,} writes are waiting already.",
}


class EventLoop(Protocol):
    """The part of an event loop that is needed to wake it."""

    def call_soon_threadsafe(self, callback: Callable[..., object], /, *args: Any) -> object:
        """Run *callback* on the loop soon."""
        ...


class Slot:
    """One pending write, and afterwards its result.

    `finish` is called once `value` or `error` is set: on the writer's thread, or on `loop`.
    Without a *timeout* it waits at most `TIMEOUT` seconds.
    `at_the_door` is set while the write waits for the database's lock. `kin` is that of its work,
    None if it runs by itself. `tx` is set on the first slot of a batch that succeeded.
    """

    __slots__ = (
        "at_the_door",
        "came",
        "claimed",
        "deadline",
        "error",
        "finish",
        "kin",
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
        timeout: float | None,
        finish: Callable[[], object],
        *,
        loop: EventLoop | None = None,
        claimed: Callable[[], bool] | None = None,
    ) -> None:
        self.work, self.owner, self.finish, self.loop = work, owner, finish, loop
        self.claimed = claimed
        self.came = monotonic()
        self.deadline = self.came + (TIMEOUT if timeout is None else timeout)
        self.state = WAITING
        self.at_the_door = False
        self.rerun = False
        self.kin: Kin | None = work.kin if isinstance(work, BatchedWork) else None
        self.value: object = None
        self.error: BaseException | None = None
        self.tx: SQLiteTransaction | None = None

    def fail(self, reason: Reason) -> None:
        """Set the error for *reason*: it was not written."""
        self.error = refusal(reason)


class Chore(Slot):
    """Maintenance work for the writer on its connection, between two groups."""

    __slots__ = ()

    work: Callable[[Connection], object]


def refusal(reason: Reason) -> Unavailable:
    """Return the error of a write that did not run, for *reason*."""
    retry = {"busy": 1.0, "overloaded": 0.1}.get(reason)
    return Unavailable(_MESSAGES[reason], reason=reason, retry_after=retry)


class WriteQueue:
    """Queue of slots in order of arrival; many producers, one consumer."""

    def __init__(self) -> None:
        self._mutex = Lock()
        self._waiting: deque[Slot] = deque()
        self._wakeup = Lock()
        self._wakeup.acquire()
        self._asleep = False
        self.closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, slot: Slot) -> None:
        """Queue *slot*; Unavailable at once if the queue is closed or full."""
        with self._mutex:
            if self.closed:
                raise refusal("closed")
            if len(self._waiting) >= MOST_WAITING:
                raise refusal("overloaded")
            self._waiting.append(slot)
            if self._asleep:
                self._asleep = False
                self._wakeup.release()

    def put_back(self, slots: list[Slot]) -> None:
        """Put taken *slots* back at the front of the queue."""
        with self._mutex:
            self._waiting.extendleft(reversed(slots))

    @property
    def idle(self) -> bool:
        """Whether no slot is pending and the consumer, if there is one, does nothing."""
        return not self._waiting and self._asleep

    def wait(self, patience: float) -> bool:
        """Wait until a slot is pending; return False once closed and empty.

        Return after *patience* seconds too, unless it is negative.
        """
        while True:
            with self._mutex:
                if self._waiting:
                    return True
                if self.closed:
                    return False
                self._asleep = True
            if not self._wakeup.acquire(timeout=patience):
                with self._mutex:
                    if self._asleep:
                        self._asleep = False
                        return True
                self._wakeup.acquire()

    def take(self) -> list[Slot]:
        """Return the pending slots: at most one group, or one chore by itself."""
        group: list[Slot] = []
        with self._mutex:
            while self._waiting and len(group) < MOST_IN_A_GROUP:
                alone = isinstance(self._waiting[0], Chore)
                if alone and group:
                    break
                group.append(self._waiting.popleft())
                if alone:
                    break
        return group

    def claim(self, slot: Slot) -> bool:
        """Mark *slot* as running; return False if it was withdrawn before."""
        return bool(self.claim_all([slot]))

    def claim_all(self, slots: list[Slot]) -> list[Slot]:
        """Mark *slots* as running; return those that were not withdrawn before."""
        with self._mutex:
            for slot in slots:
                if slot.state == WAITING:
                    free = slot.claimed is None or slot.claimed()
                    slot.state = RUNNING if free else WITHDRAWN
        return [slot for slot in slots if slot.state == RUNNING]

    def withdraw(self, slot: Slot) -> bool:
        """Prevent *slot* from running; return False if it runs, or ran."""
        with self._mutex:
            if slot.state != WAITING:
                return False
            slot.state = WITHDRAWN
            if slot in self._waiting:
                self._waiting.remove(slot)
        return True

    def expired(self) -> list[Slot]:
        """Remove and return the slots with an expired deadline."""
        now = monotonic()
        with self._mutex:
            late = [slot for slot in self._waiting if slot.deadline <= now]
            for slot in late:
                self._waiting.remove(slot)
        return late

    def close(self) -> None:
        """Refuse further slots."""
        with self._mutex:
            self.closed = True
            if self._asleep:
                self._asleep = False
                self._wakeup.release()

    def drain(self) -> list[Slot]:
        """Remove and return all pending slots."""
        with self._mutex:
            left = list(self._waiting)
            self._waiting.clear()
        return left


def gathered(slots: Iterable[Slot]) -> list[list[Slot]]:
    """Return *slots* as batches, in order; those of equal kin and owner are together.

    A slot without a kin keeps its place, and no slot moves past it. Nor does one move past a slot
    of another kin whose subject is the same, or all of its subject's whole, or a part of it.
    """
    batches: list[list[Slot]] = []
    growing: dict[Hashable, dict[Hashable, list[Slot]]] = {}
    for slot in slots:
        kin = slot.kin
        if kin is None:
            batches.append([slot])
            growing.clear()
            continue
        parts = growing.setdefault(kin.whole, {})
        batch = parts.get(kin.part)
        if batch is not None and _fits(batch, slot):
            batch.append(slot)
            continue
        if kin.part is None:
            parts.clear()
        else:
            parts.pop(None, None)
        parts[kin.part] = batch = [slot]
        batches.append(batch)
    return batches


def _fits(batch: list[Slot], slot: Slot) -> bool:
    first = batch[0]
    return len(batch) < MOST_OF_A_KIN and first.kin == slot.kin and first.owner == slot.owner


def deliver(slots: list[Slot]) -> None:
    """Finish *slots*, waking each event loop once."""
    by_loop: dict[EventLoop, list[Slot]] = {}
    for slot in slots:
        slot.state = DONE
        if slot.loop is None:
            slot.finish()
        else:
            by_loop.setdefault(slot.loop, []).append(slot)
    for loop, theirs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_finish, theirs)
        except RuntimeError:
            # The loop is closed, so no task waits for these slots.
            continue


def _finish(slots: list[Slot]) -> None:
    for slot in slots:
        slot.finish()
