"""Which other processes have a database file open, and what they do with it; on Linux alone."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

_LOCKS = Path("/proc/locks")
_WRITES, _READS = 120, range(123, 128)
"""Bytes of the log's index that SQLite locks to write, and to hold a moment that is read."""

Doing = Literal["open", "reads", "writes"]


class Holder(Struct, frozen=True, kw_only=True):
    """A process, and the most that it was doing when looked at."""

    pid: int
    name: str
    doing: Doing


def holders(path: str) -> list[Holder]:
    """Return the other processes that have the database at *path* open."""
    doing: dict[int, set[Doing]] = {}
    for pid, did in [*_on(path), *_on(path + "-shm")]:
        doing.setdefault(pid, set()).add(did)
    doing.pop(os.getpid(), None)
    return [Holder(pid=pid, name=_name(pid), doing=_most(did)) for pid, did in doing.items()]


def _most(doing: set[Doing]) -> Doing:
    return "writes" if "writes" in doing else "reads" if "reads" in doing else "open"


def _on(path: str) -> Iterator[tuple[int, Doing]]:
    """Give who holds a lock on the file *path*, and what it is for."""
    try:
        found = os.stat(path)  # noqa: PTH116 - a plain name is all there is
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return
    mine = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    for line in lines:
        fields = line.split()
        if len(fields) == 8 and fields[5] == mine:  # noqa: PLR2004 - one that waits has a field more
            yield int(fields[4]), _doing(path, fields)


def _doing(path: str, fields: list[str]) -> Doing:
    first, last = int(fields[6]), fields[7]
    held = range(first, first + 1 if last == "EOF" else int(last) + 1)
    if not path.endswith("-shm"):
        return "open"
    if _WRITES in held:
        return "writes"
    return "reads" if any(byte in held for byte in _READS) else "open"


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return "?"
