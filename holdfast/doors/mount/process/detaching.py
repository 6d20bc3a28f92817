"""Takes a mount out of the tree: by the system call where permitted, else by fusermount3."""

import ctypes
import os
import subprocess
from errno import EBUSY, EPERM
from pathlib import Path

_DETACH, _NOFOLLOW = 2, 8
_SECONDS = 20


def detach(directory: Path, *, lazy: bool) -> None:
    """Unmount *directory*; *lazy*: now, whoever still has files of it open.

    Raises OSError: EBUSY where somebody has and it is not lazy, else what the system said.
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
