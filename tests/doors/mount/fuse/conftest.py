"""Real mounts of a file system in memory, each surely unmounted."""

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import pytest
from doors.mount.fuse.toy import Toy

from holdfast.doors.mount.fuse.adapter import serve

SECONDS = 60
FORCE = 1
"""MNT_FORCE: to end a FUSE connection, even while it is waited for."""


class Mounted(NamedTuple):
    """A toy that is mounted, and the store in it."""

    toy: Toy
    directory: Path
    stop: threading.Event
    thread: threading.Thread

    @property
    def store(self) -> Path:
        """The one store: tests work in it."""
        return self.directory / "s"

    def ended(self) -> bool:
        """Return whether the mount ended in time."""
        self.thread.join(SECONDS)
        return not self.thread.is_alive()


def eventually(holds: Callable[[], object]) -> None:
    """Wait until *holds*, for as long as a slow machine may need."""
    until = monotonic() + SECONDS
    while not holds():
        assert monotonic() < until, "it never came"
        sleep(0.002)


def mounted_at(directory: Path) -> str | None:
    """Return the type of what is mounted at *directory*, or None."""
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, at, kind, *_ = line.split()
        if at == str(directory):
            return kind
    return None


def names(directory: Path) -> list[str]:
    """Return what a listing of *directory* shows, in its order."""
    return [each.name for each in directory.iterdir()]


def cut(directory: Path) -> None:
    """Close the connection of the mount at *directory*: whoever waits for it gets an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.umount2(os.fsencode(directory), FORCE)


def threads() -> list[str]:
    """Return the names of the threads of mounts."""
    names = [each.name for each in threading.enumerate()]
    return [name for name in names if name.startswith(("holdfast-mount-", "holdfast-notices-"))]


@contextmanager
def mounting(toy: Toy, directory: Path, *, allow_other: bool = False) -> Generator[Mounted]:
    """Mount *toy*; whatever happens, nothing is left mounted."""
    stop, ready = threading.Event(), threading.Event()
    thread = threading.Thread(
        target=serve,
        args=(toy, directory),
        kwargs={"allow_other": allow_other, "stop": stop, "ready": ready.set},
    )
    thread.start()
    assert ready.wait(SECONDS)
    watchdog = threading.Timer(280, cut, (directory,))
    watchdog.start()
    try:
        yield Mounted(toy, directory, stop, thread)
    finally:
        stop.set()
        thread.join(SECONDS)
        watchdog.cancel()
        watchdog.join()
        while mounted_at(directory):
            cut(directory)
            subprocess.run(["umount", "-l", directory], check=False)


@pytest.fixture
def toy() -> Toy:
    """Give a store with one file."""
    toy = Toy()
    toy.put("/s", None)
    toy.put("/s/a.md", b"hello\n")
    return toy


@pytest.fixture
def mounted(toy: Toy, tmp_path: Path) -> Iterator[Mounted]:
    """Mount `toy` for one test."""
    directory = tmp_path / "m"
    directory.mkdir()
    with mounting(toy, directory) as mounted:
        yield mounted
    eventually(lambda: not threads())
