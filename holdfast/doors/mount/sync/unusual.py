"""System calls without a Python wrapper: exchange names, birth times, sync a disk.

If the kernel, the C library or the file system lacks one, the result shows it, and the caller uses
a fallback: a short race, or a comparison of content.
"""

import ctypes
import errno
import os
import sys

_NO_REPLACE, _EXCHANGE = 1, 2
_EMPTY_PATH, _BIRTH = 0x1000, 0x800
_STATX_BYTES, _BIRTH_AT = 256, 80
_CANNOT = frozenset({errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EPERM})

_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_renameat2 = getattr(_libc, "renameat2", None)
_statx = getattr(_libc, "statx", None)
_syncfs = getattr(_libc, "syncfs", None)


def exchange(directory: int, one: str, other: str) -> bool:
    """Exchange the names of two files in *directory*; return False if unsupported."""
    return _rename(directory, one, directory, other, _EXCHANGE)


def rename_new(old_directory: int, old: str, directory: int, new: str) -> None:
    """Rename *old* to *new*; FileExistsError if *new* exists."""
    if _rename(old_directory, old, directory, new, _NO_REPLACE):
        return
    try:
        os.link(old, new, src_dir_fd=old_directory, dst_dir_fd=directory, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        _refuse_taken(directory, new)
        os.rename(old, new, src_dir_fd=old_directory, dst_dir_fd=directory)
    else:
        os.unlink(old, dir_fd=old_directory)


def born_at(file: int, found: os.stat_result) -> int | None:
    """Return the birth time of the open *file* in ns since 1970; None if unknown.

    *found* is the result of `fstat`.
    """
    birthtime = getattr(found, "st_birthtime", None)
    if birthtime is not None:
        return int(birthtime * 1e9)
    if _statx is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _statx(file, b"", _EMPTY_PATH, _BIRTH, answer) != 0:
        return None
    if not int.from_bytes(answer[:4], sys.byteorder) & _BIRTH:
        return None
    seconds = int.from_bytes(answer[_BIRTH_AT : _BIRTH_AT + 8], sys.byteorder, signed=True)
    rest = int.from_bytes(answer[_BIRTH_AT + 8 : _BIRTH_AT + 12], sys.byteorder)
    return seconds * 1_000_000_000 + rest


def sync_all(file: int) -> None:
    """Sync the file system of the open *file* to disk."""
    if _syncfs is None or _syncfs(file) != 0:
        os.sync()


def _rename(old_directory: int, old: str, directory: int, new: str, flags: int) -> bool:
    """Rename with *flags* of renameat2; return False if it is unsupported."""
    if _renameat2 is None:
        return False
    names = os.fsencode(old), os.fsencode(new)
    if _renameat2(old_directory, names[0], directory, names[1], flags) == 0:
        return True
    number = ctypes.get_errno()
    if number in _CANNOT:
        return False
    raise OSError(number, os.strerror(number), old, None, new)


def _refuse_taken(directory: int, name: str) -> None:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
