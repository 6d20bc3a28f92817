"""A core driven by hand over real stores, and what the stores say of what it did."""

import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from errno import errorcode
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from doors.mount.core.trouble import (
    BOUND,
    HandLater,
    NotingKernel,
    NotingSpool,
    Troubled,
    spooled_files,
)

from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.storage.deadline import Deadline
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.ground.events import Event
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Access, Memory, Store
from holdfast.testing.fakes import FrozenClock

WRITE, READ = os.O_WRONLY, os.O_RDONLY


class Told(NamedTuple):
    """One version, as the library tells of it."""

    operation: str
    path: str | None
    content: str | None


class LeftEntry(NamedTuple):
    """One entry of the spool: the bytes, and what is told of them."""

    content: bytes
    facts: dict[str, Any]


class Handle:
    """An open file, written from where it stands, as a program does."""

    def __init__(self, core: StoreFilesystem, path: str, flags: int, fh: int) -> None:
        self._core, self.path, self.flags, self.fh = core, path, flags, fh
        self.at = 0

    def write(self, data: bytes, at: int | None = None) -> int:
        """Write *data* where the handle stands, or at *at*; return how much was."""
        at = self.at if at is None else at
        written = self._core.write(self.fh, data, at)
        self.at = at + written
        return written

    def read(self, size: int = 1 << 20, at: int = 0) -> bytes:
        return self._core.read(self.fh, size, at)

    def truncate(self, length: int) -> None:
        self._core.truncate(self.path, length, self.fh)

    def size(self) -> int:
        return self._core.getattr(self.path, self.fh).size

    def flush(self) -> None:
        """Do what the kernel does at each `close` of a duplicate."""
        self._core.flush(self.fh)

    def fsync(self) -> None:
        self._core.fsync(self.fh)

    def release(self) -> None:
        """Let the handle go: the kernel drops what fails."""
        with suppress(OSError):
            self._core.release(self.fh)

    def close(self) -> None:
        """Close the last duplicate: the error of its flush is the program's."""
        try:
            self.flush()
        finally:
            self.release()


Stores = Mapping[str, tuple[Store, Access]]


class Driven:
    """A core over stores by slug, and the trouble, time, spool and kernel it goes with."""

    def __init__(
        self,
        hf: Holdfast,
        clock: FrozenClock,
        spool: Path,
        stores: Stores,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.hf, self.clock, self.root, self.stores = hf, clock, spool, stores
        self.options = MountOptions(spool=spool, **(options or {}))
        self.deadlines = {slug: Deadline(self.options.deadline) for slug in stores}
        contents = Contents(self.options.cache_bytes)
        self.sources = {
            slug: Troubled(StoreSource(hf, store, deadline=self.deadlines[slug], contents=contents))
            for slug, (store, _) in stores.items()
        }
        self.later, self.kernel = HandLater(clock), NotingKernel()
        self.spool = NotingSpool(spool, clock=clock)
        self.events: list[Event] = []
        self.core = StoreFilesystem(
            [(slug, self.sources[slug], access) for slug, (_, access) in stores.items()],
            MountContext(
                options=self.options,
                spool=self.spool,
                later=self.later,
                clock=clock,
                ids=Ids(),
                publish=self.events.append,
                kernel=self.kernel,
            ),
        )
        self._tick = threading.Event()
        self.ended = False
        self.heirs: list[Driven] = []

    def start(self) -> "Driven":
        self.core.start()
        return self

    def stop(self) -> int:
        """Unmount, as a signal does; return how many had to be spooled."""
        self.ended = True
        spooled = self.core.stop(10)
        self._close()
        return spooled

    def crash(self) -> None:
        """End as `kill -9` ends it: nothing more is done, and what is on disk stays."""
        self.ended = True
        for source in self.sources.values():
            source.dead = True
        self.spool.full = True
        self.core.stop(0)
        self.spool.die()
        self._close()

    def _close(self) -> None:
        for deadline in self.deadlines.values():
            deadline.close()

    def again(self, **options: Any) -> "Driven":
        """Return another core over the same stores and the same spool, started."""
        heir = Driven(self.hf, self.clock, self.root, self.stores, options or None)
        self.heirs.append(heir)
        return heir.start()

    def end(self) -> None:
        """Stop what still runs."""
        for heir in self.heirs:
            heir.end()
        if not self.ended:
            self.stop()

    # What programs do

    def open(self, path: str, flags: int = READ) -> Handle:
        """Open *path*, which is made if the flags say so, as the kernel asks for it."""
        made = flags & os.O_CREAT and not self.exists(path)
        fh = self.core.create(path, flags) if made else self.core.open(path, flags & ~os.O_CREAT)
        return Handle(self.core, path, flags, fh)

    def exists(self, path: str) -> bool:
        try:
            self.core.getattr(path)
        except FileNotFoundError:
            return False
        return True

    def put(self, path: str, *pieces: bytes) -> None:
        """Write a whole file, as `>` does."""
        self.program(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, *pieces)

    def append(self, path: str, *pieces: bytes) -> None:
        """Add to a file, as `>>` does."""
        self.program(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, *pieces)

    def edit(self, path: str, at: int, data: bytes) -> None:
        """Write *data* at *at* of a file that is there, and leave the rest."""
        file = self.open(path, os.O_RDWR)
        try:
            file.write(data, at)
        finally:
            file.close()

    def program(self, path: str, flags: int, *pieces: bytes) -> None:
        """Open, write the pieces, close, whatever fails."""
        file = self.open(path, flags)
        try:
            for piece in pieces:
                file.write(piece)
        finally:
            file.close()

    def cat(self, path: str) -> bytes:
        file = self.open(path)
        try:
            return file.read()
        finally:
            file.close()

    def ls(self, path: str) -> list[str]:
        """Return the names in *path*, sorted."""
        return sorted(entry.name for entry in self.core.readdir(path))

    def find(self, path: str = "") -> list[str]:
        """Return every file and, with a slash behind, every directory below *path*."""
        found: list[str] = []
        for entry in self.core.readdir(path or "/"):
            below = f"{path}/{entry.name}"
            if entry.attributes.mode & 0o40000:
                found += [f"{below}/", *self.find(below)]
            else:
                found.append(below)
        return sorted(found)

    def size(self, path: str) -> int:
        return self.core.getattr(path).size

    # What the stores say

    def id(self, slug: str = "notes") -> str:
        return self.stores[slug][0].id

    def given(self, path: str, content: str = "old\n", slug: str = "notes") -> Memory:
        """Return a memory made elsewhere, which the mount knows of."""
        memory = self.hf.memory_stores.memories.create(self.id(slug), path=path, content=content)
        self.settle(slug)
        return memory

    def given_elsewhere(self, path: str, content: str = "x\n") -> Memory:
        """Return a memory made elsewhere, of which the mount may not know yet."""
        return self.hf.memory_stores.memories.create(self.id(), path=path, content=content)

    def changed(
        self, memory: Memory, *, path: str | None = None, content: str | None = None
    ) -> Memory:
        """Return *memory* as it is changed elsewhere, which the mount knows of."""
        after = self.hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, path=path, content=content
        )
        self.settle()
        return after

    def deleted(self, memory: Memory) -> None:
        """Delete *memory* elsewhere, which the mount knows of."""
        self.hf.memory_stores.memories.delete(memory.id, memory_store_id=memory.memory_store_id)
        self.settle()

    def settle(self, slug: str = "notes") -> None:
        """Wait until the mount knows all that was done to the store."""
        self.sources[slug].caught_up(self.seq(slug))

    def seq(self, slug: str = "notes") -> int:
        """Return the store's present number."""
        return self.hf.memory_stores.memories.changes(self.id(slug), 0).seq

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait until *holds*, which takes another thread's work."""
        for _ in range(int(BOUND * 100)):
            if holds():
                return
            self._tick.wait(0.01)
        pytest.fail("it never came to hold")

    def at(self, path: str, slug: str = "notes") -> Memory:
        """Return the memory at *path* of the store, with its content."""
        found = self.hf.memory_stores.memories.at(self.id(slug), path)
        assert found is not None, f"no memory at {path}"
        return found

    def kept(self, slug: str = "notes") -> dict[str, str | None]:
        """Return path and content of every memory of the store."""
        listed = self.hf.memory_stores.memories.list(self.id(slug), view="full", limit=20).all()
        return {each.path: each.content for each in listed if isinstance(each, Memory)}

    def versions(self, slug: str = "notes") -> list[Told]:
        """Return every version of the store, the oldest first."""
        listed = self.hf.memory_stores.memory_versions.list(self.id(slug), view="full", limit=20)
        every = [Told(each.operation, each.path, each.content) for each in listed.all()]
        return every[::-1]

    @contextmanager
    def made(self, *operations: str, slug: str = "notes") -> Generator[None]:
        """Expect that these versions are made within, and no other; their order is the store's."""
        before = len(self.versions(slug))
        yield
        made = [each.operation for each in self.versions(slug)[before:]]
        assert sorted(made) == sorted(operations)

    def spooled(self, slug: str = "notes") -> list[LeftEntry]:
        """Return what is in the spool for the store, as another program reads it."""
        return [
            LeftEntry(content.read_bytes(), msgspec.json.decode(facts.read_bytes()))
            for content, facts in spooled_files(self.root, self.id(slug))
        ]

    def told(self, slug: str = "notes") -> dict[str, Any]:
        """Return what the status says of one store."""
        status = msgspec.json.decode(msgspec.json.encode(self.core.status()))
        return next(each for each in status["stores"] if each["slug"] == slug)

    def state(self) -> str:
        return msgspec.json.decode(msgspec.json.encode(self.core.status()))["state"]

    def event_types(self) -> list[str]:
        return [event.type for event in self.events]


Drive = Callable[..., Driven]


@contextmanager
def refused(*numbers: int) -> Generator[None]:
    """Expect that an operation fails with one of the errnos *numbers*, or with any."""
    got: int | None = None
    try:
        yield
    except OSError as error:
        got = error.errno
    assert got is not None, "it was not refused"
    assert not numbers or got in numbers, f"refused with {errorcode[got]}"
