"""Which file systems are mounted where, by the kernel's own list; on Linux alone.

A mount of ours tells its process in the list itself, so that a mount which does not answer, or
whose process is dead, is known without asking it.
"""

import os
import re
from collections.abc import Callable
from errno import ENOTCONN
from pathlib import Path
from threading import Thread
from typing import Literal, TypeVar

from msgspec import Struct

T = TypeVar("T")
State = Literal["live", "dead", "silent"]

TYPE = "fuse.holdfast"
SOURCE = "holdfast"
TABLE = Path("/proc/self/mountinfo")

PATIENCE = 2.0
"""Seconds that a mount has to say that it is there; a stopped process says nothing."""

_OCTAL = re.compile(r"\\([0-7]{3})")


class Mounted(Struct, frozen=True, kw_only=True):
    """One file system at one place."""

    directory: Path
    kind: str
    source: str

    @property
    def ours(self) -> bool:
        """Whether it is a mount of memory stores."""
        return self.kind == TYPE

    @property
    def pid(self) -> int | None:
        """The process that serves it, if it is ours."""
        name, _, number = self.source.partition(":")
        return int(number) if self.ours and name == SOURCE and number.isdecimal() else None

    def state(self) -> State:
        """Tell whether its process is there and answers."""
        return answered(lambda: _state(self.directory), "silent")


def answered(look: Callable[[], T], silent: T) -> T:
    """Return what *look*() returns, or *silent* when a mount it meets does not answer in time."""
    seen: list[T] = []
    looking = Thread(target=lambda: seen.append(look()), daemon=True)
    looking.start()
    looking.join(PATIENCE)
    return seen[0] if seen else silent


def source_of(pid: int) -> str:
    """Return the source to mount with, from which `Mounted.pid` reads *pid*."""
    return f"{SOURCE}:{pid}"


def at(directory: Path, *, table: Path = TABLE) -> Mounted | None:
    """Return what is mounted at *directory*, an absolute path, the uppermost; else None."""
    found = None
    for each in mounts(table=table):
        if each.directory == directory:
            found = each
    return found


def mounts(*, table: Path = TABLE) -> list[Mounted]:
    """Return every file system that is mounted, in the order in which they were."""
    try:
        lines = table.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return []
    return [_mounted(line) for line in lines]


def _mounted(line: str) -> Mounted:
    before, _, after = line.partition(" - ")
    kind, source, *_ = after.split(" ")
    place = _OCTAL.sub(lambda found: chr(int(found[1], 8)), before.split(" ")[4])
    return Mounted(directory=Path(place), kind=kind, source=source)


def _state(directory: Path) -> State:
    try:
        os.statvfs(directory)  # the kernel knows `stat` by heart, and answers for the dead
    except OSError as error:
        return "dead" if error.errno == ENOTCONN else "live"
    return "live"
