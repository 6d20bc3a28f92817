"""The core with its real parts, under many threads and beside another mount."""

import os
import random
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic

import pytest

import holdfast
from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.filesystem.tree import MountContext
from holdfast.doors.mount.names import MIB, MountOptions
from holdfast.doors.mount.storage.deadline import Deadline, Later
from holdfast.doors.mount.storage.source import Contents, StoreSource
from holdfast.doors.mount.storage.spool import Spool
from holdfast.ground.clock import SystemClock
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store

APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND
WHOLE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
BOUND = 30.0


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(str(tmp_path / "h.db")) as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> Store:
    return hf.memory_stores.create(name="Notes")


@contextmanager
def mounted(tmp_path: Path, store: Store, name: str = "one") -> Generator[StoreFilesystem]:
    """Give a started core over its own handle on the database, as another process has."""
    clock = SystemClock()
    options = MountOptions(spool=tmp_path / f"spool-{name}", grace=0.2)
    with holdfast.open(str(tmp_path / "h.db")) as hf, closing(Deadline(options.deadline)) as limit:
        source = StoreSource(hf, store, deadline=limit, contents=Contents(MIB))
        later = Later()
        core = StoreFilesystem(
            [("notes", source, "read_write")],
            MountContext(
                options=options,
                spool=Spool(options.spool, clock=clock),
                later=later,
                clock=clock,
                ids=Ids(),
                publish=lambda _: None,
            ),
        )
        core.start()
        try:
            yield core
        finally:
            assert core.stop(10) == 0
            later.close()


def write(core: StoreFilesystem, path: str, data: bytes, flags: int = WHOLE) -> None:
    """Write a file as a program does; what one of its steps fails with is the program's."""
    try:
        fh = core.open(path, flags & ~os.O_CREAT)
    except FileNotFoundError:
        fh = core.create(path, flags)
    try:
        core.write(fh, data, 0)
        core.flush(fh)
    finally:
        core.release(fh)


def read(core: StoreFilesystem, path: str) -> bytes:
    fh = core.open(path, os.O_RDONLY)
    try:
        return core.read(fh, MIB, 0)
    finally:
        core.release(fh)


def shown(core: StoreFilesystem, directory: str = "/notes") -> dict[str, bytes]:
    """Return the content of every file below *directory*, by its path in the store."""
    found: dict[str, bytes] = {}
    for entry in core.readdir(directory):
        path = f"{directory}/{entry.name}"
        # Another mount may remove it in this very moment.
        with suppress(FileNotFoundError):
            if entry.attributes.mode & 0o40000:
                found |= shown(core, path)
            else:
                found[path.removeprefix("/notes")] = read(core, path)
    return found


def kept(hf: Holdfast, store: Store) -> dict[str, bytes]:
    listed = hf.memory_stores.memories.list(store.id, view="full", limit=20).all()
    return {each.path: (each.content or "").encode() for each in listed if isinstance(each, Memory)}


def eventually(holds: Callable[[], object]) -> None:
    end, pause = monotonic() + BOUND, Event()
    while not holds():
        assert monotonic() < end
        pause.wait(0.01)


def test_a_file_is_written_read_renamed_and_removed(
    tmp_path: Path, hf: Holdfast, store: Store
) -> None:
    with mounted(tmp_path, store) as core:
        write(core, "/notes/a.md", b"tabs")
        core.mkdir("/notes/d")
        core.rename("/notes/a.md", "/notes/d/b.md")
        assert shown(core) == kept(hf, store) == {"/d/b.md": b"tabs"}

        core.unlink("/notes/d/b.md")
        assert shown(core) == kept(hf, store) == {}


def test_appends_of_many_threads_and_two_mounts_are_all_there_once(
    tmp_path: Path, hf: Holdfast, store: Store
) -> None:
    with (
        mounted(tmp_path, store) as one,
        mounted(tmp_path, store, "two") as two,
        ThreadPoolExecutor(6) as pool,
    ):
        write(one, "/notes/log", b"")
        eventually(lambda: shown(two))

        def append(number: int) -> None:
            for line in range(10):
                write((one, two)[number % 2], "/notes/log", f"{number} {line}\n".encode(), APPEND)

        list(pool.map(append, range(6)))

    lines = kept(hf, store)["/log"].decode().splitlines()
    assert sorted(lines) == sorted(f"{n} {line}" for n in range(6) for line in range(10))
    for number in range(6):
        assert [each for each in lines if each.startswith(f"{number} ")] == [
            f"{number} {line}" for line in range(10)
        ]


def step(core: StoreFilesystem, chance: random.Random, text: bytes) -> None:
    """Do something at random to a handful of names."""
    names = ["a.md", "b.md", "c.tmp", "d/a.md", "d/b.md", "e/a.md", "a.md~", ".s.swp"]
    old, new = (f"/notes/{name}" for name in chance.sample(names, 2))
    match chance.randrange(8):
        case 0 | 1 | 2:
            write(core, old, text)
        case 3:
            write(core, old, text, APPEND)
        case 4 | 5:
            core.rename(old, new)
        case 6:
            core.unlink(old)
        case _:
            core.rename("/notes/d", "/notes/e")


@pytest.mark.parametrize("seed", range(3))
def test_whatever_many_threads_do_at_once_both_mounts_show_what_the_store_has(
    tmp_path: Path, hf: Holdfast, store: Store, seed: int
) -> None:
    with (
        mounted(tmp_path, store) as one,
        mounted(tmp_path, store, "two") as two,
        ThreadPoolExecutor(6) as pool,
    ):
        for core in one, two:
            core.mkdir("/notes/d")

        def play(number: int) -> None:
            chance = random.Random(f"{seed} {number}")
            for turn in range(40):
                with suppress(OSError):
                    step((one, two)[number % 2], chance, f"{number} {turn}\n".encode())

        list(pool.map(play, range(6)))

        def quiet() -> bool:
            told = [each for core in (one, two) for each in core.status().stores]
            return not any(each.unsaved for each in told)

        eventually(quiet)
        for core in one, two:
            for path in [path for path in shown(core) if path.endswith(".swp")]:
                core.unlink(f"/notes{path}")
        eventually(lambda: shown(one) == shown(two) == kept(hf, store))
