"""Unsaved bytes on disk, for the next mount.

An entry is two files in the folder of its store: the bytes, under a name that says when, why and
what, and beside them a description under the same name with `.json`. The description is begun once
the bytes are written, and tells their hash. Bytes without a description that fits them are of a
process that was killed, or of a machine that lost power before they were on its disk: they are left
for a person. Whoever holds an entry has its bytes locked: no other process takes it, and a lock
ends with its process.
"""

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from errno import EINVAL, EPERM
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace
from platformdirs import user_state_dir

from holdfast.ground.clock import EPOCH, Clock
from holdfast.ground.text import sha256_hex

_FILE_MODE = 0o600
_PAUSES = (0.0, 0.001, 0.004)


class Lock:
    """The bytes of an entry, open and locked until they are released or the process ends."""

    def __init__(self, fd: int) -> None:
        self._open = [fd]
        self.on_disk = False
        """Whether a loss of power leaves the entry there."""

    @classmethod
    def on_new(cls, path: Path) -> "Lock":
        """Make the file *path*, empty and locked; FileExistsError if it is there."""
        fd = made(path)
        # Whoever looks for entries in this moment lets go as soon as it sees that it is none yet.
        fcntl.flock(fd, fcntl.LOCK_EX)
        return cls(fd)

    @classmethod
    def on(cls, path: Path) -> "Lock | None":
        """Lock the file *path*; None if it is locked already or gone."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if _flocked(fd) and os.fstat(fd).st_nlink:
            return cls(fd)
        os.close(fd)
        return None

    def write(self, content: bytes) -> None:
        """Write *content*."""
        write(self._open[0], content)

    def sync(self) -> bool:
        """Have the bytes on disk; return False once they were let go."""
        for fd in self._open:
            os.fsync(fd)
        return bool(self._open)

    def read(self) -> bytes:
        """Return all the bytes."""
        with os.fdopen(os.dup(self._open[0]), "rb") as file:
            file.seek(0)
            return file.read()

    def seize(self) -> int | None:
        """Return the open file, to be closed by the caller; None once it was let go."""
        return self._open.pop() if self._open else None

    def release(self) -> None:
        """Unlock it; again does nothing."""
        if (fd := self.seize()) is not None:
            os.close(fd)


def made(path: Path) -> int:
    """Make the file *path*, for its owner alone, and open it; FileExistsError if it is there."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)


def write(fd: int, content: bytes) -> None:
    """Write all of *content* to *fd*."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _flocked(fd: int) -> bool:
    """Lock *fd* if nobody has it locked for longer than it takes to look at it."""
    for pause in _PAUSES:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(pause)
    return False


SUFFIX = ".json"
NAME_BYTES_MAX = 255
NOT_FAILED = "OK"
"""What stands in place of an errno where nothing failed: on a transient file."""

UNDESCRIBED = "The cause is unknown: the mount was killed while it recorded it."

_FOLDER_MODE, _OF_OTHERS = 0o700, 0o077
_TIME = "%Y%m%dT%H%M%S.%fZ"
_ENTRY = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-([A-Z0-9]+)-(.*)", re.DOTALL)


class Spooled(Struct, frozen=True, kw_only=True, tag_field="type", tag="spooled"):
    """What an entry is: which save of which file of which store it was, and why it failed.

    *errno* is a name such as EIO, or OK where nothing failed; *at* is RFC 3339. *content_sha256* is
    the spool's to fill in; without one, any bytes fit.
    """

    store_id: str
    memory_id: str | None
    path: str
    base_sha256: str | None
    kind: Literal["save", "append", "transient"]
    errno: str
    message: str
    edit_id: str
    at: str
    session_id: str | None
    content_sha256: str = ""


class SpoolEntry(Struct, frozen=True):
    """One entry that this process holds: the file of its bytes, and the lock on it."""

    path: Path
    lock: Lock


class Spool:
    """The entries of all stores, one folder for each. Threads and processes share it.

    Only a save, a person, or the deletion of its store removes an entry.
    """

    def __init__(self, root: Path, *, clock: Clock) -> None:
        self.root, self._clock = root, clock
        self._last, self._turn = EPOCH, threading.Lock()

    def put(
        self,
        spooled: Spooled,
        content: bytes,
        *,
        instead_of: SpoolEntry | None = None,
        on_disk: bool = True,
    ) -> SpoolEntry:
        """Keep *content* and return its entry, held; then *instead_of* goes.

        It outlives its process; *on_disk*, or if *instead_of* does, a loss of power too. OSError
        when it cannot be kept: then nothing is left of it, and *instead_of* stays.
        """
        folder = self._folder(spooled.store_id)
        spooled = replace(spooled, content_sha256=sha256_hex(content))
        kept, description = self._begun(folder, spooled)
        try:
            kept.lock.write(content)
            write(description, msgspec.json.encode(spooled))
            if on_disk or (instead_of is not None and instead_of.lock.on_disk):
                self.secure(kept)
        except BaseException:
            self.remove(kept)
            raise
        finally:
            os.close(description)
        if instead_of is not None:
            self.remove(instead_of)
        return kept

    def secure(self, kept: SpoolEntry) -> None:
        """Have the entry outlive a loss of power; OSError if it cannot. Again does nothing."""
        if kept.lock.on_disk or not kept.lock.sync():
            return
        _sync(_description_of(kept.path))
        _sync(kept.path.parent)
        kept.lock.on_disk = True

    def remove(self, kept: SpoolEntry) -> None:
        """Remove the entry, whose bytes are saved; nothing if it is not held any more.

        A loss of power may bring it back; then its edit id tells that it was done.
        """
        if (fd := kept.lock.seize()) is None:
            return
        try:
            # In this order, since bytes without a description are taken for somebody's.
            kept.path.unlink(missing_ok=True)
            _description_of(kept.path).unlink(missing_ok=True)
        finally:
            os.close(fd)

    def release(self, kept: SpoolEntry) -> None:
        """Hold the entry no longer: it is for a person, or for the next mount."""
        kept.lock.release()

    def take(self, store_id: str) -> list[tuple[SpoolEntry, Spooled, bytes]]:
        """Return the store's entries that nobody holds, the oldest first, and hold them."""
        folder = self.root / _checked(store_id)
        if folder.exists():
            _refuse_others(folder)
        taken: list[tuple[SpoolEntry, Spooled, bytes]] = []
        for path in self._entries(store_id):
            if (lock := Lock.on(path)) is None:
                continue
            spooled, content = _described(path), lock.read()
            if spooled is None or spooled.content_sha256 not in ("", sha256_hex(content)):
                lock.release()
            else:
                taken.append((SpoolEntry(path, lock), spooled, content))
        return taken

    def list(self, store_id: str | None = None) -> "list[tuple[Path, Spooled]]":
        """Return the entries of one store or of all, held or not, the oldest of each first.

        Of bytes whose description is missing it says what their name tells.
        """
        stores = sorted(_folders(self.root)) if store_id is None else [store_id]
        return [
            (path, _described(path) or _guessed(path))
            for store in stores
            for path in self._entries(store)
        ]

    def count(self, store_id: str) -> int:
        """Return how many entries the store has, held or not."""
        return sum(1 for _ in self._entries(store_id))

    def held(self, path: Path) -> bool:
        """Tell whether a process, this one or another, holds the entry at *path*."""
        lock = Lock.on(path)
        if lock is not None:
            lock.release()
        return lock is None and path.exists()

    def forget(self, store_id: str) -> None:
        """Remove all that is kept of a store, held or not: the store was deleted."""
        folder = self.root / _checked(store_id)
        for name in _files(folder):
            (folder / name).unlink(missing_ok=True)
        # What is not ours keeps its folder.
        with suppress(OSError):
            folder.rmdir()
            _sync(self.root)

    def _begun(self, folder: Path, spooled: Spooled) -> tuple[SpoolEntry, int]:
        """Return a new entry of a name that no other has, and the file of its description.

        Both are empty: until the description can be read, it is no entry.
        """
        while True:
            path = folder / _name(self._time(), spooled)
            with suppress(FileExistsError):
                kept = SpoolEntry(path, Lock.on_new(path))
                try:
                    return kept, made(_description_of(path))
                except BaseException:
                    path.unlink()
                    kept.lock.release()
                    raise

    def _time(self) -> str:
        """Return the time, which is that of no other entry, lest `a.json` be taken for `a`'s."""
        with self._turn:
            self._last = max(self._clock.now(), self._last + timedelta(microseconds=1))
            return self._last.strftime(_TIME)

    def _entries(self, store_id: str) -> Iterator[Path]:
        folder = self.root / _checked(store_id)
        names = _files(folder)
        for name in sorted(names):
            if _ENTRY.fullmatch(name) and not _describes(folder / name, names):
                yield folder / name

    def _folder(self, store_id: str) -> Path:
        """Return the folder of a store, made if need be, and nobody else's."""
        folder = self.root / _checked(store_id)
        _make(folder)
        _refuse_others(folder)
        if folder.stat().st_mode & _OF_OTHERS:
            folder.chmod(_FOLDER_MODE)
        return folder


def default_root() -> Path:
    """Return where this user's mounts keep what could not be saved."""
    return Path(user_state_dir("holdfast", appauthor=False)) / "spool"


def _checked(store_id: str) -> str:
    """Return *store_id* if it can name a folder; the id comes from a server."""
    if "/" in store_id or "\0" in store_id or store_id in ("", ".", ".."):
        raise OSError(EINVAL, "This is no id of a store")
    return store_id


def _name(at: str, spooled: Spooled) -> str:
    """Return the name of an entry's bytes, so short that its description's fits too."""
    prefix = f"{at}-{spooled.errno}-"
    name = spooled.path.rpartition("/")[2]
    room = NAME_BYTES_MAX - len(SUFFIX) - len(prefix)
    return prefix + name.encode()[:room].decode(errors="ignore")


def _description_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _described(path: Path) -> Spooled | None:
    """Return what is told of the entry at *path*, or None where that is missing or cut short."""
    return _parsed(_description_of(path))


def _describes(path: Path, names: set[str]) -> bool:
    """Tell whether *path* tells of an entry, one whose bytes a person has taken away too.

    *names* are those beside it.
    """
    if not path.name.endswith(SUFFIX) or path.name + SUFFIX in names:
        return False
    return path.name.removesuffix(SUFFIX) in names or _parsed(path) is not None


def _parsed(path: Path) -> Spooled | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Spooled)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _guessed(path: Path) -> Spooled:
    """Return what the name at *path* tells of its bytes."""
    parts = _ENTRY.fullmatch(path.name)
    at, errno, name = parts.groups() if parts else ("", "", path.name)
    day, hour = f"{at[:4]}-{at[4:6]}-{at[6:8]}", f"{at[9:11]}:{at[11:13]}:{at[13:]}"
    return Spooled(
        store_id=path.parent.name,
        memory_id=None,
        path=f"/{name}",
        base_sha256=None,
        kind="save",
        errno=errno,
        message=UNDESCRIBED,
        edit_id="",
        at=f"{day}T{hour}",
        session_id=None,
    )


def _files(folder: Path) -> set[str]:
    """Return the names of the plain files in *folder*; none if it is not there."""
    try:
        with os.scandir(folder) as found:
            return {each.name for each in found if each.is_file(follow_symlinks=False)}
    except FileNotFoundError:
        return set()


def _folders(root: Path) -> set[str]:
    try:
        with os.scandir(root) as found:
            return {each.name for each in found if each.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return set()


def _make(folder: Path) -> None:
    """Make *folder* and what is missing above it, for its owner alone, so that they last."""
    if folder.is_dir():
        return
    _make(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=_FOLDER_MODE)
    _sync(folder.parent)


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError if somebody else could put entries into *folder*."""
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(EPERM, "The folder of the spool is not this user's", str(folder))


def _sync(path: Path) -> None:
    """Have a file, or the names in a folder, on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
