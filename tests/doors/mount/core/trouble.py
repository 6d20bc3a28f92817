"""What a test holds in its hands: trouble with storage, time, the kernel, the spool's disk."""

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from errno import ENOSPC
from pathlib import Path

from holdfast.doors.mount.storage.deadline import Later
from holdfast.doors.mount.storage.source import StoreSource
from holdfast.doors.mount.storage.spool import Spool, Spooled, SpoolEntry
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, Snapshot
from holdfast.testing.fakes import FrozenClock

BOUND = 60.0
"""Seconds after which a test no longer waits for what never comes."""

LISTEN = 0.2
"""Seconds for which changes are waited for at once, so that a feed ends soon after its mount."""

Mishap = Callable[[], Exception]


def gone() -> Exception:
    """Return what a source raises when its storage is away."""
    return Unavailable("The storage cannot be reached.", reason="lost")


def unsure() -> Exception:
    """Return what a source raises when an answer never came."""
    return Unavailable("No answer came in time.", reason="timeout", written=None)


class Troubled(StoreSource):
    """A source in front of a real one: fails, loses answers or hangs when told to, and counts."""

    def __init__(self, source: StoreSource) -> None:
        self._real = source
        self.id, self.name = source.id, source.name
        self.workspace, self.actor = source.workspace, source.actor
        self.contents = source.contents
        self.longest_wait = LISTEN
        self.refusing: Mishap | None = None
        self.losing: Mishap | None = None
        self.unread: Mishap | None = None
        self.deaf: Mishap | None = None
        self.dead = False
        self.applies: list[tuple[tuple[Edit, ...], str]] = []
        self.reads = 0
        self.before: Callable[[], None] = lambda: None
        self.after: Callable[[], None] = lambda: None
        self.called: Callable[[str], None] = lambda _: None
        self._heard = threading.Condition()
        self._caught_up = self._told = -1
        self._lull = False

    def snapshot(self) -> Snapshot:
        self._raise(self.deaf)
        return self._real.snapshot()

    def changes(self, after: int, wait: float) -> ChangesPage:
        with self._heard:
            self._caught_up = max(self._caught_up, after)
            self._heard.notify_all()
        self._raise(self.deaf)
        changes = self._real.changes(after, min(wait, LISTEN))
        with self._heard:
            self._heard.wait_for(lambda: not self._lull or self.dead)
            self._told = max(self._told, changes.seq)
            self._heard.notify_all()
        return changes

    def content(self, memory: Memory, seconds: float | None = None) -> Memory:
        self.called("content")
        self.reads += 1
        self._raise(self.unread)
        return self._real.content(memory, seconds)

    def ahead(self, memory: Memory) -> None:
        self._real.ahead(memory)

    def apply(
        self, edits: Sequence[Edit], edit_id: str, seconds: float | None = None
    ) -> list[Applied]:
        self.called("apply")
        self.applies.append((tuple(edits), edit_id))
        self.before()
        self._raise(self.refusing)
        applied = self._real.apply(edits, edit_id, seconds)
        self.after()
        self._raise(self.losing)
        return applied

    def _raise(self, mishap: Mishap | None) -> None:
        if self.dead:
            raise gone()
        if mishap is not None:
            raise mishap()

    def land(self, number: int) -> None:
        """Let what was sent the *number*-th time arrive now, long after nobody waits for it."""
        edits, edit_id = self.applies[number]
        self._real.apply(edits, edit_id)

    @property
    def edit_ids(self) -> list[str]:
        """The ids under which edits were sent, each time they were sent."""
        return [edit_id for _, edit_id in self.applies]

    def away(self) -> None:
        """Let the storage be away: nothing can be read or written; what is heard stays so."""
        self.refusing = self.unread = gone

    def heal(self) -> None:
        """Let everything work again."""
        self.refusing = self.losing = self.unread = self.deaf = None

    def caught_up(self, seq: int) -> None:
        """Wait until whoever follows the changes asks for what comes after *seq*."""
        with self._heard:
            assert self._heard.wait_for(lambda: self._caught_up >= seq, BOUND), "the feed is stuck"

    def told(self, seq: int) -> None:
        """Wait until whoever follows the changes was told of those up to *seq*."""
        with self._heard:
            assert self._heard.wait_for(lambda: self._told >= seq, BOUND), "the feed is stuck"

    @contextmanager
    def lull(self) -> Generator[None]:
        """Let no change from elsewhere be heard meanwhile."""
        with self._heard:
            self._lull = True
        try:
            yield
        finally:
            with self._heard:
                self._lull = False
                self._heard.notify_all()

    @contextmanager
    def hanging(self, *, applied: bool = False) -> Generator[threading.Event]:
        """Let every `apply` hang until the end: before it reached the store, or after it.

        Gives an event that is set once one hangs.
        """
        reached, free = threading.Event(), threading.Event()

        def hang() -> None:
            reached.set()
            assert free.wait(BOUND)

        if applied:
            self.after = hang
        else:
            self.before = hang
        try:
            yield reached
        finally:
            self.before = self.after = lambda: None
            free.set()


class HandLater(Later):
    """Runs what is due when it is told that time has passed, on the thread that tells it."""

    def __init__(self, clock: FrozenClock) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._now = 0.0
        self._number = 0
        self._waiting: dict[int, tuple[float, Callable[[], None]]] = {}
        self.waits: list[float] = []

    def after(self, seconds: float, call: Callable[[], None], *, key: object) -> Callable[[], None]:
        del key
        with self._lock:
            self._number = number = self._number + 1
            self._waiting[number] = (self._now + seconds, call)
            self.waits.append(seconds)

        def cancel() -> None:
            with self._lock:
                self._waiting.pop(number, None)

        return cancel

    def close(self, *, run_due: bool = False) -> None:
        if run_due:
            self.advance(0)
        self._waiting.clear()

    def advance(self, seconds: float) -> None:
        """Let *seconds* pass, and run on the way what falls due, in order."""
        end = self._now + seconds
        while True:
            with self._lock:
                due = min(
                    ((at, number) for number, (at, _) in self._waiting.items() if at <= end),
                    default=None,
                )
                if due is None:
                    break
                at, number = due
                call = self._waiting.pop(number)[1]
                self._pass_until(max(at, self._now))
            call()
        self._pass_until(end)

    def _pass_until(self, at: float) -> None:
        self._clock.tick(at - self._now)
        self._now = at


class NotingSpool(Spool):
    """A spool that lets go of everything, as a killed process does, and whose disk can be full."""

    full = False

    def put(
        self,
        spooled: Spooled,
        content: bytes,
        *,
        instead_of: SpoolEntry | None = None,
        on_disk: bool = True,
    ) -> SpoolEntry:
        if self.full:
            raise OSError(ENOSPC, "No space left on device")
        kept = super().put(spooled, content, instead_of=instead_of, on_disk=on_disk)
        self._noted().append(kept)
        return kept

    def take(self, store_id: str) -> list[tuple[SpoolEntry, Spooled, bytes]]:
        taken = super().take(store_id)
        self._noted().extend(kept for kept, _, _ in taken)
        return taken

    def present(self) -> list[SpoolEntry]:
        """Return the entries that are there, oldest first."""
        return [kept for kept in self._noted() if kept.path.exists()]

    def _noted(self) -> list[SpoolEntry]:
        return self.__dict__.setdefault("noted", [])

    def die(self) -> None:
        """Let go of every lock and leave all that is on disk where it is."""
        for kept in self._noted():
            kept.release()
        self._noted().clear()


class NotingKernel:
    """Writes down what it is told, and which threads have stepped aside."""

    def __init__(self) -> None:
        self.contents: list[str] = []
        self.names: list[tuple[str, str]] = []
        self._threads = threading.local()

    def step_aside(self) -> None:
        self._threads.aside = True

    def forget_content(self, path: str) -> None:
        self.contents.append(path)

    def forget_name(self, directory: str, name: str) -> None:
        self.names.append((directory, name))

    def began(self) -> None:
        """Note that this thread begins an operation."""
        self._threads.aside = False

    def is_aside(self) -> bool:
        """Tell whether this thread stepped aside since it began."""
        return getattr(self._threads, "aside", False)


def spooled_files(root: Path, store_id: str) -> list[tuple[Path, Path]]:
    """Return the entries of a store in the spool: the bytes, and what is told of them."""
    directory = root / store_id
    if not directory.exists():
        return []
    facts = sorted(directory.glob("*.json"))
    return [(each.with_suffix(""), each) for each in facts]
