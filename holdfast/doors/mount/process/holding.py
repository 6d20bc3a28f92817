"""Which programs hold a file below a directory, so that it cannot be unmounted; on Linux alone.

Links in /proc are read and never followed: a look must not ask the mount that is looked at.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

PROCESSES = Path("/proc")


class Holding(Struct, frozen=True, kw_only=True):
    """A program, and one thing below the directory that it holds."""

    pid: int
    program: str
    path: str


def holding(directory: Path, *, besides: int | None = None) -> list[Holding]:
    """Return the programs that hold something at or below *directory*, but for *besides*.

    Of other users' programs root alone is told.
    """
    found: list[Holding] = []
    for process in PROCESSES.iterdir():
        if not process.name.isdecimal() or int(process.name) == besides:
            continue
        held = next((path for path in _links(process) if _below(path, directory)), None)
        if held is not None:
            found.append(Holding(pid=int(process.name), program=_name(process), path=held))
    return found


def _links(process: Path) -> Iterator[str]:
    """Give what *process* has open, works in and has mapped."""
    for link in (process / "cwd", process / "root", *_within(process / "fd")):
        with suppress(OSError):
            yield os.readlink(link)  # noqa: PTH115 - Path.readlink would make a path of a socket
    for link in _within(process / "map_files"):
        with suppress(OSError):
            yield os.readlink(link)  # noqa: PTH115


def _within(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _below(path: str, directory: Path) -> bool:
    return path == str(directory) or path.startswith(f"{directory}/")


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "?"
