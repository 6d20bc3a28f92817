"""Synced directories of stores in this process, with real files, and how they are looked at."""

import select
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import NamedTuple, cast

from doors.mount.core.trouble import Troubled
from msgspec.structs import replace

from holdfast.doors.mount.filesystem.store_dir import StoreStatus
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.setup import MountDependencies, assemble, mount_request
from holdfast.doors.mount.storage.spool import Spooled
from holdfast.doors.mount.sync.replica import Pace
from holdfast.doors.mount.sync.sync import FileEvent, SyncedDirectory, SystemWatcher, Watch
from holdfast.ground.events import Event, EventBus
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Version

BOUND = 60.0
"""Seconds within which whatever a test waits for must have come."""

PACE = Pace(rename=0.3, confirm=0.3, pauses=(0.05, 0.1, 0.2), again=0.05)
OFTEN = Pace(rename=0.3, scan=0.15, confirm=0.3, pauses=(0.05, 0.1, 0.2), again=0.05)
"""Looks at everything all the time, for what no event tells of."""

GRACE = 0.4


def eventually(holds: Callable[[], object]) -> None:
    """Wait until *holds*() is true."""
    end, pause = monotonic() + BOUND, select.poll()
    while not (last := holds()):
        assert monotonic() < end, f"after {BOUND} s still {last!r}"
        pause.poll(5)


class Deaf:
    """A watcher that tells of nothing, as if every event were lost."""

    def __init__(self, directory: Path) -> None:
        del directory

    def next(self, stop: Flag) -> list[FileEvent] | None:
        stop.wait(BOUND)
        return []

    def close(self) -> None:
        pass


class Told(NamedTuple):
    """One version: what was done to which path."""

    operation: str
    path: str | None


class Side:
    """One directory, synced with *stores* of *hf* while it runs."""

    def __init__(
        self,
        hf: Holdfast,
        stores: Sequence[str],
        base: Path,
        *,
        session: str | None = None,
        read_only: bool = False,
        grace: float = GRACE,
    ) -> None:
        self.hf, self.stores, self.base = hf, list(stores), base
        self.directory, self.spool = base / "m", base / "spool"
        self.slug = "notes"
        self.events: list[Event] = []
        self._session, self._read_only, self._grace = session, read_only, grace
        self._running: tuple[SyncedDirectory, MountDependencies] | None = None
        events = cast("object", hf.events)
        if isinstance(events, EventBus):
            events.subscribe(self.events.append)

    def start(self, *, pace: Pace = PACE, watch: Watch = SystemWatcher) -> "Side":
        assembled = assemble(
            mount_request(
                self.hf, session=self._session, stores=self.stores, read_only=self._read_only
            ),
            MountOptions(spool=self.spool, grace=self._grace, session_id=self._session),
        )
        self.slug = assembled.sources[0][0]
        self.trouble = Troubled(assembled.sources[0][1])
        (slug, _, access), *others = assembled.sources
        assembled = replace(assembled, sources=((slug, self.trouble, access), *others))
        synced = SyncedDirectory(
            assembled, self.directory, state=self.base / "state", pace=pace, watch=watch
        )
        self._running = (synced, assembled)
        synced.start()
        return self

    def stop(self, seconds: float = 5.0) -> int:
        """End as a signal does; return how much is not saved."""
        if self._running is None:
            return 0
        (synced, assembled), self._running = self._running, None
        unsaved = synced.stop(seconds)
        assembled.close()
        return unsaved

    @property
    def synced(self) -> SyncedDirectory:
        assert self._running is not None
        return self._running[0]

    @property
    def assembled(self) -> MountDependencies:
        assert self._running is not None
        return self._running[1]

    def status(self) -> StoreStatus:
        return self.synced.status().stores[0]

    @property
    def root(self) -> Path:
        """The directory of the first store."""
        return self.directory / self.slug

    def files(self) -> dict[str, str]:
        """Return the content of every file, by path."""
        found: dict[str, str] = {}
        for path in sorted(self.root.rglob("*")):
            # Between one look and the next it may be gone.
            with suppress(FileNotFoundError):
                if path.is_file() and not path.name.startswith(".memory-"):
                    found[f"/{path.relative_to(self.root)}"] = path.read_text(errors="replace")
        return found

    def has(self, path: str, content: str) -> bool:
        """Tell whether the file at *path* has *content*."""
        try:
            return (self.root / path[1:]).read_bytes() == content.encode()
        except OSError:
            return False

    def errors(self) -> str:
        """Return what is written down as wrong."""
        try:
            return (self.root / ".memory-errors").read_text()
        except FileNotFoundError:
            return ""

    def spooled(self) -> list[Spooled]:
        return [each for _, each in self.assembled.context.spool.list(self.stores[0])]

    def told(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.type == f"mount.{kind}"]

    # The store

    def make(self, path: str, content: str) -> Memory:
        return self.hf.memory_stores.memories.create(self.stores[0], path=path, content=content)

    def change(self, path: str, *, content: str | None = None, to: str | None = None) -> Memory:
        """Change the memory at *path* elsewhere: its content, or its path."""
        memory = self.head(path)
        assert memory is not None
        memories = self.hf.memory_stores.memories
        if to is not None:
            return memories.update(memory.id, memory_store_id=self.stores[0], path=to)
        return memories.update(memory.id, memory_store_id=self.stores[0], content=content)

    def delete(self, path: str) -> None:
        memory = self.head(path)
        assert memory is not None
        self.hf.memory_stores.memories.delete(memory.id, memory_store_id=self.stores[0])

    def head(self, path: str) -> Memory | None:
        return self.hf.memory_stores.memories.at(self.stores[0], path)

    def heads(self) -> dict[str, str]:
        """Return the content of every memory, by path."""
        found: dict[str, str] = {}
        page = self.hf.memory_stores.memories.list(self.stores[0], view="full", limit=20)
        for memory in page.all():
            assert isinstance(memory, Memory)
            found[memory.path] = memory.content or ""
        return found

    def keeps(self, path: str, content: str) -> bool:
        """Tell whether the memory at *path* has *content*."""
        memory = self.head(path)
        wanted = sha256(content.encode()).hexdigest()
        return memory is not None and memory.content_sha256 == wanted

    def versions(self, memory_id: str | None = None) -> list[Told]:
        """Return what was done, the oldest first."""
        page = self.hf.memory_stores.memory_versions.list(
            self.stores[0], memory_id=memory_id, limit=100
        )
        every: list[Version] = list(page.all())
        return [Told(each.operation, each.path) for each in reversed(every)]

    def equal(self) -> bool:
        """Tell whether files and memories are the same."""
        return self.files() == self.heads()


def insist(path: Path) -> Path:
    """Return *path*, made writable with all above it in its store, as its owner can."""
    for each in (path, path.parent, path.parent.parent):
        if each.exists():
            each.chmod(0o755 if each.is_dir() else 0o644)
    return path
