"""Load the installed libfuse 3, described by mfusepy, and mount with it."""

import ctypes
import importlib
import logging
import os
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache, partial
from importlib.metadata import version
from operator import itemgetter
from pathlib import Path
from struct import Struct
from typing import Any

from holdfast.doors.mount.process.system import HERE, Machine, needs
from holdfast.ground.errors import Refused

logger = logging.getLogger(__name__)

CHOICE = "FUSE_LIBRARY_PATH"
"""Environment variable in which mfusepy finds the library to load."""
VERSION = 3
TIME_BYTES = 16
MESSAGE_BYTES = 1024


class MountFailed(Exception):
    """libfuse could not mount; the message has its reason."""


def find_libfuse(machine: Machine = HERE) -> str:
    """Return the name under which libfuse 3 loads.

    Raise Refused, with what to install, if it is missing.
    """
    need = next(each for each in needs(machine) if each.name == "libfuse3")
    if not need.met:
        raise Refused(need.says, next=need.next)
    return need.says


@cache
def bindings() -> Any:  # a module without types
    """Return the module mfusepy, loaded with libfuse 3.

    By default it takes libfuse 2 where both are installed. Raise Refused without libfuse 3, or if
    it was imported with libfuse 2 before.
    """
    before = os.environ.get(CHOICE)
    os.environ[CHOICE] = find_libfuse()
    try:
        module: Any = importlib.import_module("mfusepy")
    finally:
        if before is None:
            del os.environ[CHOICE]
        else:
            os.environ[CHOICE] = before
    if module.fuse_version_major != VERSION:
        raise Refused(
            "mfusepy was imported with libfuse 2 before.", next="Leave its import to Holdfast."
        )
    return module


def binding() -> str:
    """Return the versions for the status, such as `mfusepy 3.1.1, libfuse 3.14`."""
    module = bindings()
    major, minor = module.fuse_version_major, module.fuse_version_minor
    return f"mfusepy {version('mfusepy')}, libfuse {major}.{minor}"


def packing(structure: Any, *names: str) -> Callable[..., bytes]:
    """Return a function that packs values of *names* into the bytes of *structure*.

    Other fields are zero. A field of sixteen bytes, a time, takes two values. Setting the fields
    of a ctypes structure one by one takes twice as long.
    """
    places: list[tuple[int, str]] = []
    for name in names:
        field = getattr(structure, name)
        if field.size == TIME_BYTES:
            places += [(field.offset, "Q"), (field.offset + TIME_BYTES // 2, "Q")]
        else:
            places.append((field.offset, {4: "I", 8: "Q"}[field.size]))
    order = sorted(range(len(places)), key=places.__getitem__)
    form, end = "=", 0
    for offset, letter in (places[each] for each in order):
        form += f"{offset - end}x{letter}"
        end = offset + {"I": 4, "Q": 8}[letter]
    pack = Struct(f"{form}{ctypes.sizeof(structure) - end}x").pack
    if order == sorted(order):
        return pack
    choose = itemgetter(*order)
    return lambda *values: pack(*choose(values))


class FuseArguments(ctypes.Structure):
    """Options of libfuse (`struct fuse_args`)."""

    _fields_ = (
        ("argc", ctypes.c_int),
        ("argv", ctypes.POINTER(ctypes.c_char_p)),
        ("allocated", ctypes.c_int),
    )


class FuseSession:
    """A file system mounted at *directory*; the kernel sends requests at once."""

    def __init__(self, operations: Any, directory: Path, options: Sequence[str]) -> None:
        # libfuse calls the table's functions for as long as the session exists.
        self._operations = operations
        self._buffer = bindings().fuse_buf
        self._library = library = functions(find_libfuse())
        words = [b"holdfast", *(b"-o" + option.encode() for option in options)]
        argv = (ctypes.c_char_p * len(words))(*words)
        self._fuse = library.fuse_new(
            ctypes.byref(FuseArguments(len(words), argv, 0)),
            ctypes.byref(operations),
            ctypes.sizeof(operations),
            None,
        )
        if not self._fuse:
            raise MountFailed(f"Cannot mount with {', '.join(options)}: {last_message(library)}")
        if library.fuse_mount(self._fuse, os.fsencode(directory)) != 0:
            library.fuse_destroy(self._fuse)
            raise MountFailed(f"Cannot mount at {directory}: {last_message(library)}")
        self._session = library.fuse_get_session(self._fuse)
        self.fd: int = library.fuse_session_fd(self._session)
        os.set_inheritable(self.fd, False)

    def buffer_at(self, address: int) -> tuple[Any, Callable[[], object]]:
        """Return libfuse's buffer at *address*, and a function that answers its request."""
        buffer = self._buffer()
        buffer.mem = address
        process = self._library.fuse_session_process_buf
        return buffer, partial(process, self._session, ctypes.byref(buffer))

    def drop_content(self, path: bytes) -> bool:
        """Drop the data and attributes of *path*; return False if the kernel has none."""
        return self._library.fuse_invalidate_path(self._fuse, path) == 0

    def drop_name(self, node: int, name: bytes) -> int:
        """Drop *name* in the directory *node*; return 0 or a negative errno."""
        notify = self._library.fuse_lowlevel_notify_inval_entry
        number: int = notify(self._session, node, name, len(name))
        return number

    def destroy(self) -> None:
        """Free libfuse's memory; no request may be in progress."""
        self._library.fuse_destroy(self._fuse)


@cache
def functions(name: str) -> Any:
    """Load the library *name* and declare the types of the functions used.

    Its calls release the interpreter lock.
    """
    pointer, text, number, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_size_t
    types: dict[str, tuple[Any, ...]] = {
        "fuse_new": (pointer, pointer, pointer, size, pointer),
        "fuse_mount": (number, pointer, text),
        "fuse_destroy": (None, pointer),
        "fuse_get_session": (pointer, pointer),
        "fuse_session_fd": (number, pointer),
        "fuse_session_process_buf": (None, pointer, pointer),
        "fuse_invalidate_path": (number, pointer, text),
        "fuse_lowlevel_notify_inval_entry": (number, pointer, ctypes.c_uint64, text, size),
    }
    library: Any = ctypes.CDLL(name)
    for function, (result, *arguments) in types.items():
        getattr(library, function).restype = result
        getattr(library, function).argtypes = arguments
    library.messages = deque[str](maxlen=1)
    library.listener = LISTENER(partial(log_message, library.messages))
    library.fuse_set_log_func(library.listener)
    return library


LISTENER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
"""Log callback of libfuse: a level, a format, and its values (a `va_list`, by address)."""


def log_message(messages: deque[str], _level: int, form: bytes, values: int) -> None:
    """Log a message of libfuse, and store it in *messages*."""
    line = ctypes.create_string_buffer(MESSAGE_BYTES)
    ctypes.CDLL(None).vsnprintf(line, MESSAGE_BYTES, form, ctypes.c_void_p(values))
    message = line.value.decode("utf-8", "replace").strip().removeprefix("fuse: ")
    messages.append(message)
    logger.info("libfuse: %s", message)


def last_message(library: Any) -> str:
    """Return the last message of *library*."""
    messages: deque[str] = library.messages
    return messages[-1] if messages else "libfuse does not say why"
