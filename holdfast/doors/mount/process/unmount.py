"""Unmount, and detach stale mounts."""

import ctypes
import os
import select
import signal
import subprocess
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from errno import EBUSY, EPERM, errorcode
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from holdfast.doors.mount.errors import PASSING
from holdfast.doors.mount.process.registry import Register, silent, status_of
from holdfast.doors.mount.process.system import Mounted, at
from holdfast.doors.mount.storage.spool import Spool, Spooled
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import HoldfastError, NotFound, Refused, Unavailable

_DETACH, _NOFOLLOW = 2, 8
_SECONDS = 20


def detach(directory: Path, *, lazy: bool) -> None:
    """Unmount *directory*; *lazy*: at once, even while programs have its files open.

    Raise OSError: EBUSY for open files without *lazy*, else the system's errno.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(directory), _NOFOLLOW | (_DETACH if lazy else 0)) == 0:
        return
    number = ctypes.get_errno()
    if number != EPERM:
        raise OSError(number, os.strerror(number), str(directory))
    _by_fusermount(directory, lazy=lazy)


def _by_fusermount(directory: Path, *, lazy: bool) -> None:
    command = ["fusermount3", "-u", *(["-z"] if lazy else []), "--", str(directory)]
    try:
        ran = subprocess.run(  # noqa: S603 - the program of libfuse, and a path after `--`
            command,
            env={**os.environ, "LC_ALL": "C"},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise OSError(EPERM, "fusermount3 is not installed", str(directory)) from None
    if ran.returncode == 0:
        return
    if "busy" in ran.stderr.lower():
        raise OSError(EBUSY, os.strerror(EBUSY), str(directory))
    raise OSError(EPERM, ran.stderr.strip() or os.strerror(EPERM), str(directory))


# Links in /proc are read and never followed: a check must not send a request to the mount.

PROCESSES = Path("/proc")


class HoldingProcess(Struct, frozen=True, kw_only=True):
    """A program, and one path below the directory that it holds."""

    pid: int
    program: str
    path: str


def holding(directory: Path, *, besides: int | None = None) -> list[HoldingProcess]:
    """Return the programs that hold a path at or below *directory*, except *besides*.

    Only root sees other users' programs.
    """
    found: list[HoldingProcess] = []
    for process in PROCESSES.iterdir():
        if not process.name.isdecimal() or int(process.name) == besides:
            continue
        held = next((path for path in _links(process) if _below(path, directory)), None)
        if held is not None:
            found.append(HoldingProcess(pid=int(process.name), program=_name(process), path=held))
    return found


def _links(process: Path) -> Iterator[str]:
    """Yield the paths that *process* has open, mapped, or as cwd or root."""
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


class Watched:
    """One process, identified by a file descriptor, so that its pid cannot be reused."""

    def __init__(self, file: int | None) -> None:
        self._file = file

    def exits_within(self, seconds: float) -> bool:
        """Wait at most *seconds* for the process to exit; return whether it has."""
        if self._file is None:
            return True
        return bool(select.select([self._file], [], [], max(0.0, seconds))[0])


@contextmanager
def watched(pid: int | None) -> Generator[Watched]:
    """Watch the process *pid*; None, or one that does not exist, counts as exited."""
    try:
        file = None if pid is None else os.pidfd_open(pid)
    except ProcessLookupError:
        file = None
    try:
        yield Watched(file)
    finally:
        if file is not None:
            os.close(file)


PAUSE, TRIES = 0.05, 20
"""Seconds between tries, and their number: an ending program keeps a directory busy briefly."""


class _SpoolBefore:
    """The spool of a mount before its end, to detect entries that the end adds."""

    def __init__(self, spool: Spool, stores: Sequence[str]) -> None:
        self._spool, self._stores = spool, stores
        self._before = set(self._entries())

    @classmethod
    def of(cls, directory: Path, register: Register) -> "_SpoolBefore":
        """Return the spool of the mount on *directory*; empty if it does not answer."""
        try:
            status = status_of(directory, register)
        except (HoldfastError, OSError):
            return cls(Spool(directory, clock=SystemClock()), ())
        stores = cast("list[dict[str, Any]]", status["stores"])
        spool = Spool(Path(status["spool"]), clock=SystemClock())
        return cls(spool, [store["id"] for store in stores])

    def check(self, directory: Path) -> None:
        """Raise Unavailable for new entries, and old ones that should have been saved."""
        left = [
            path
            for path, spooled in self._entries().items()
            if path not in self._before or spooled.kind == "transient" or _passing(spooled)
        ]
        if left:
            raise Unavailable(
                f"{directory} is unmounted, but {len(left)} could not be saved:"
                f" {', '.join(sorted({str(path.parent) for path in left}))}.",
                reason="io",
                next="The next mount of the store tries again.",
            )

    def _entries(self) -> dict[Path, Spooled]:
        return {
            path: spooled for store in self._stores for path, spooled in self._spool.list(store)
        }


def _passing(spooled: Spooled) -> bool:
    return any(errorcode[number] == spooled.errno for number in PASSING)


def unmount(directory: Path, register: Register, *, lazy: bool, timeout: float) -> str:
    """Unmount *directory*, an absolute path, and return a message about it.

    Wait at most *timeout* seconds for the process, and not at all if *lazy*: then the directory
    is free at once, and the process ends after the last close. Raise NotFound if no memory stores
    are mounted there, Refused with the programs that hold files, Unavailable after the timeout.
    """
    mounted = at(directory)
    if mounted is not None and mounted.ours:
        return _unmount(mounted, register, lazy=lazy, timeout=timeout)
    facts = register.get(directory)
    if facts is None or facts.mode != "sync":
        raise NotFound("mount of memory stores on", str(directory), next="Nothing was touched.")
    if not register.is_held(directory):
        register.remove(directory)
        return f"{directory}: the process that synced it has exited; its files were left"
    with watched(facts.pid) as process:
        with suppress(ProcessLookupError):
            os.kill(facts.pid, signal.SIGTERM)
        if not lazy:
            _await(process, directory, facts.pid, timeout)
    return f"unmounted {directory}"


def _unmount(mounted: Mounted, register: Register, *, lazy: bool, timeout: float) -> str:
    directory = mounted.directory
    state = mounted.state()
    if state == "dead":
        return _clean_up(directory, register)
    if state == "silent" and not lazy:
        raise silent(directory, mounted.pid)
    if lazy:
        detach(directory, lazy=True)
        return f"unmounted {directory}; its process ends after the last close"
    before = _SpoolBefore.of(directory, register)
    with watched(mounted.pid) as process:
        _detach(mounted)
        _await(process, directory, mounted.pid, timeout)
    before.check(directory)
    return f"unmounted {directory}"


def _clean_up(directory: Path, register: Register) -> str:
    while (left := at(directory)) is not None and left.ours and left.state() == "dead":
        detach(directory, lazy=True)
    register.remove(directory)
    return f"{directory}: cleaned up a stale mount, whose process has exited"


def _detach(mounted: Mounted) -> None:
    for tried in range(TRIES):
        try:
            return detach(mounted.directory, lazy=False)
        except OSError as error:
            if error.errno != EBUSY:
                raise
        held = holding(mounted.directory, besides=mounted.pid)
        if held:
            who = ", ".join(
                f"{each.program} (process {each.pid}) holds {each.path}" for each in held
            )
            raise Refused(f"{mounted.directory} is busy: {who}.", next="End that, or use --lazy.")
        if tried + 1 < TRIES:
            time.sleep(PAUSE)
    raise Refused(
        f"{mounted.directory} is busy, and who holds it is not to be seen from here.",
        next="Use --lazy, or unmount as root.",
    )


def _await(process: Watched, directory: Path, pid: int | None, timeout: float) -> None:
    if not process.exits_within(timeout):
        raise Unavailable(
            f"{directory} is unmounted, but process {pid} was still saving after {timeout:g} s.",
            reason="timeout",
            next="It ends by itself, and keeps unsaved data in its spool.",
        )
