"""System calls that Python does not offer, and the errors of those it does."""

import ctypes
import errno
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

_LIBC = ctypes.CDLL(None, use_errno=True)
_AT_FDCWD = -100
W_OK = 2
NOREPLACE, EXCHANGE, WHITEOUT = 1, 2, 4


@contextmanager
def refused(name: str) -> Generator[None]:
    """Expect an OSError of the errno *name*."""
    with pytest.raises(OSError, match=r"Errno") as caught:
        yield
    assert caught.value.errno == getattr(errno, name)


def access(path: Path, mode: int) -> None:
    """`access(2)`, with its error."""
    _checked(_LIBC.access(os.fsencode(path), mode))


def rename(old: Path, new: Path, flags: int) -> None:
    """`renameat2(2)`."""
    given = os.fsencode(old), _AT_FDCWD, os.fsencode(new), flags
    _checked(_LIBC.renameat2(_AT_FDCWD, *given))


def fallocate(fd: int, length: int) -> None:
    """`fallocate(2)`, without the C library's own way out."""
    _checked(_LIBC.fallocate(fd, 0, ctypes.c_long(0), ctypes.c_long(length)))


def _checked(answer: int) -> None:
    if answer:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(fd: int, data: bytes) -> None:
    """Write all of *data*."""
    while data:
        data = data[os.write(fd, data) :]


@contextmanager
def opened(path: Path, flags: int) -> Generator[int]:
    """Give a descriptor, closed at the end; an error of the close is the block's."""
    fd = os.open(path, flags, 0o644)
    try:
        yield fd
    except BaseException:
        with quiet():
            os.close(fd)
        raise
    os.close(fd)


def listing(directory: Path) -> list[str]:
    """Return the names in *directory*, sorted, by one listing."""
    return sorted(os.listdir(directory))  # noqa: PTH208 - without a stat of each


@contextmanager
def quiet() -> Generator[None]:
    """Let an OSError pass: another is already being told."""
    try:
        yield
    except OSError:
        return
