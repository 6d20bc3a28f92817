"""Ends a mount from outside, and waits until its process has saved everything and is gone."""

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from errno import EBUSY, errorcode
from pathlib import Path
from typing import Any, cast

from holdfast.doors.mount.errors import PASSING
from holdfast.doors.mount.process import mount_table
from holdfast.doors.mount.process.detaching import detach
from holdfast.doors.mount.process.holding import holding
from holdfast.doors.mount.process.mount_table import Mounted
from holdfast.doors.mount.process.processes import Watched, watched
from holdfast.doors.mount.process.registry import Register, silent, status_of
from holdfast.doors.mount.storage.spool import Spool, Spooled
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import HoldfastError, NotFound, Refused, Unavailable

PAUSE, TRIES = 0.05, 20
"""A directory may be busy for a moment, with a program that is just ending."""


class _Kept:
    """What the spool of a mount held, to tell what its end had to leave there."""

    def __init__(self, spool: Spool, stores: Sequence[str]) -> None:
        self._spool, self._stores = spool, stores
        self._before = set(self._entries())

    @classmethod
    def of(cls, directory: Path, register: Register) -> "_Kept":
        """Return what is kept of the mount on *directory*; of one that is silent, nothing."""
        try:
            status = status_of(directory, register)
        except (HoldfastError, OSError):
            return cls(Spool(directory, clock=SystemClock()), ())
        stores = cast("list[dict[str, Any]]", status["stores"])
        spool = Spool(Path(status["spool"]), clock=SystemClock())
        return cls(spool, [store["id"] for store in stores])

    def check(self, directory: Path) -> None:
        """Raise Unavailable if there is more now, or what was to be saved at the end."""
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
    """End what is mounted on *directory*, an absolute path, and return what was done.

    Waits at most *timeout* seconds for the process, and not at all when *lazy*: then the
    directory is free at once, and the process ends after the last close. Raises NotFound where
    nothing of ours is mounted, Refused naming who holds a file, Unavailable when the time is over.
    """
    mounted = mount_table.at(directory)
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
    kept = _Kept.of(directory, register)
    with watched(mounted.pid) as process:
        _detach(mounted)
        _await(process, directory, mounted.pid, timeout)
    kept.check(directory)
    return f"unmounted {directory}"


def _clean_up(directory: Path, register: Register) -> str:
    while (left := mount_table.at(directory)) is not None and left.ours and left.state() == "dead":
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
    if not process.gone_within(timeout):
        raise Unavailable(
            f"{directory} is unmounted, but process {pid} was still saving after {timeout:g} s.",
            reason="timeout",
            next="It ends by itself, and keeps unsaved data in its spool.",
        )
