"""libfuse 3 as it is installed: found, loaded, described by mfusepy, and mounted."""

import ctypes
import errno
import importlib
import logging
import os
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Any

logger = logging.getLogger(__name__)

NAMES = ("libfuse3.so.3", "libfuse3.so.4")
MISSING = (
    "libfuse3 is not installed. Debian, Ubuntu: apt install libfuse3-3 fuse3. Or use --mode sync."
)
CHOICE = "FUSE_LIBRARY_PATH"
TIME_BYTES = 16
LAZY = 2
"""MNT_DETACH: gone from the tree at once, and closed after the last handle."""


class MountFailed(Exception):
    """There is no mount; its sentence says why and what to do."""


def find_libfuse(load: Callable[[str], object] = ctypes.CDLL) -> str:
    """Return the name under which libfuse 3 loads; raises `MountFailed`."""
    chosen = os.environ.get(CHOICE)
    for name in (chosen,) if chosen else NAMES:
        try:
            load(name)
        except OSError:
            continue
        return name
    raise MountFailed(MISSING)


@cache
def bindings() -> Any:
    """Return the module mfusepy, made for libfuse 3; raises `MountFailed`.

    Left to itself it takes libfuse 2 where both are installed.
    """
    before = os.environ.get(CHOICE)
    os.environ[CHOICE] = find_libfuse()
    try:
        module = importlib.import_module("mfusepy")
    finally:
        if before is None:
            del os.environ[CHOICE]
        else:
            os.environ[CHOICE] = before
    if module.fuse_version_major != 3:
        raise MountFailed(MISSING)
    return module


def binding() -> str:
    """Return what a mount runs on, as its status says it: `mfusepy 3.1.1, libfuse 3.14`."""
    module = bindings()
    major, minor = module.fuse_version_major, module.fuse_version_minor
    return f"mfusepy {version('mfusepy')}, libfuse {major}.{minor}"


def packing(structure: Any, *names: str) -> Callable[..., bytes]:
    """Return a function that gives *structure* as bytes from the values of *names*, else zero.

    A name of sixteen bytes, a time, takes two values. Writing the fields of a ctypes structure
    one by one takes twice as long.
    """
    places: list[tuple[int, str]] = []
    for name in names:
        field = getattr(structure, name)
        if field.size == TIME_BYTES:
            places += [(field.offset, "Q"), (field.offset + 8, "Q")]
        else:
            places.append((field.offset, {4: "I", 8: "Q"}[field.size]))
    order = sorted(range(len(places)), key=places.__getitem__)
    form, end = "=", 0
    for offset, letter in (places[each] for each in order):
        form += f"{offset - end}x{letter}"
        end = offset + {"I": 4, "Q": 8}[letter]
    pack = Struct(f"{form}{ctypes.sizeof(structure) - end}x").pack
    choose = itemgetter(*order)
    return lambda *values: pack(*choose(values))


class Arguments(ctypes.Structure):
    """`struct fuse_args`: how libfuse takes its options."""

    _fields_ = (
        ("argc", ctypes.c_int),
        ("argv", ctypes.POINTER(ctypes.c_char_p)),
        ("allocated", ctypes.c_int),
    )


class Session:
    """A file system mounted at *directory*: from the moment it is made the kernel asks."""

    def __init__(self, operations: Any, directory: Path, options: Sequence[str]) -> None:
        module = bindings()
        self._library = library = ctypes.CDLL(module._libfuse._name)
        self._operations = operations
        self._buf = module.fuse_buf
        argv = [b"holdfast", *(b"-o" + option.encode() for option in options)]
        words = (ctypes.c_char_p * len(argv))(*argv)
        arguments = Arguments(len(argv), words, 0)
        library.fuse_new.restype = ctypes.c_void_p
        self._fuse = ctypes.c_void_p(
            library.fuse_new(
                ctypes.byref(arguments),
                ctypes.byref(operations),
                ctypes.c_size_t(ctypes.sizeof(operations)),
                None,
            )
        )
        if not self._fuse:
            raise MountFailed(f"libfuse refuses the options {', '.join(options)}")
        if library.fuse_mount(self._fuse, os.fsencode(directory)) != 0:
            library.fuse_destroy(self._fuse)
            raise MountFailed(f"cannot mount at {directory}")
        library.fuse_get_session.restype = ctypes.c_void_p
        self._session = ctypes.c_void_p(library.fuse_get_session(self._fuse))
        self.fd: int = library.fuse_session_fd(self._session)
        os.set_inheritable(self.fd, False)

    def process_at(self, address: int) -> Callable[[int], object]:
        """Return what answers a request of so many bytes at *address*."""
        buf = self._buf()
        buf.mem = address
        session, reference = self._session, ctypes.byref(buf)
        function = self._library.fuse_session_process_buf
        function.restype = None

        def process(size: int) -> None:
            """Answer the request that is there."""
            buf.size = size
            function(session, reference)

        return process

    def drop_content(self, path: bytes) -> bool:
        """Drop the data and attributes of *path*; return False if libfuse does not know it."""
        return self._library.fuse_invalidate_path(self._fuse, path) == 0

    def drop_name(self, node: int, name: bytes) -> int:
        """Drop *name* in the directory *node*; return 0 or a negative errno."""
        return self._library.fuse_lowlevel_notify_inval_entry(
            self._session, ctypes.c_uint64(node), name, ctypes.c_size_t(len(name))
        )

    def destroy(self) -> None:
        """Give back what libfuse holds; nothing of it may be under way."""
        self._library.fuse_destroy(self._fuse)


def detach(directory: Path) -> None:
    """Take the mount at *directory* out of the tree; it ends after its last handle."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.umount2(os.fsencode(directory), LAZY) == 0:
        return
    number = ctypes.get_errno()
    if number == errno.EPERM:
        command = ["fusermount3", "-u", "-z", "-q", "--", os.fspath(directory)]
        subprocess.run(command, check=False, cwd="/")
    elif number != errno.EINVAL:  # EINVAL: it is not mounted any more
        raise OSError(number, os.strerror(number), os.fspath(directory))
