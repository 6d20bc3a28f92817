"""The directory that is mounted on: made if it is missing, empty, and nobody else's."""

import os
from pathlib import Path

from holdfast.doors.mount.process import mount_table
from holdfast.doors.mount.process.detaching import detach
from holdfast.doors.mount.process.mount_table import answered
from holdfast.doors.mount.process.registry import Register
from holdfast.ground.errors import InvalidInput


def absolute(directory: Path | str) -> Path:
    """Return *directory* from the root, links followed, whether it answers or not."""
    whole = os.path.abspath(directory)  # noqa: PTH100 - without `..`, which Path.absolute keeps
    above, name = os.path.split(whole)
    silent = os.path.join(os.path.realpath(above), name)  # noqa: PTH118
    return Path(answered(lambda: os.path.realpath(whole), silent))


def claim(directory: Path, register: Register, *, may_hold_files: bool = False) -> str | None:
    """Make *directory*, an absolute path, ready to be mounted on; *register* knows of the others.

    Returns what was cleared away: a mount left behind by a process that was killed. Raises
    InvalidInput for a live mount, naming its process, and for what is no empty directory, unless
    it *may_hold_files*.
    """
    said = cleared(directory)
    if register.is_held(directory):
        known = register.get(directory)
        raise taken(directory, known.pid if known else None)
    wanted = "must be a directory" if may_hold_files else "must be an empty directory"
    if directory.exists() and not directory.is_dir():
        raise InvalidInput("DIR", wanted, given=str(directory))
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not may_hold_files and any(directory.iterdir()):
        raise InvalidInput("DIR", wanted, given=str(directory))
    return said


def taken(directory: Path, pid: int | None) -> InvalidInput:
    """Return the error that says *directory* is in use already, by the process *pid*."""
    by = f"process {pid}" if pid else "another process"
    return InvalidInput(
        "DIR",
        f"is mounted already, by {by}",
        given=str(directory),
        next=f"Unmount it first: holdfast unmount {directory}",
    )


def cleared(directory: Path) -> str | None:
    """Detach dead mounts of ours from *directory*, and say so; InvalidInput for a live one."""
    said = None
    while (found := mount_table.at(directory)) is not None and found.ours:
        if found.state() != "dead":
            raise taken(directory, found.pid)
        detach(directory, lazy=True)
        of = f"process {found.pid}" if found.pid else "a process"
        said = f"{directory}: detached a stale mount, left by {of} that has exited"
    return said
