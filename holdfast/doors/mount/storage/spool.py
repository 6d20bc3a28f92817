"""Unsaved bytes on disk, for the next mount.

An entry is two files in the folder of its store: the bytes, under a name with time, errno and file
name, and a description under the same name with `.json`. The description is written after the bytes
and has their hash. Bytes without a matching description are from a process that was killed, or from
a machine that lost power before they were on its disk: they are left for a person. A process that
holds an entry has its bytes locked: no other process takes it, and the lock ends with the process.
"""

import fcntl
import logging
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

_log = logging.getLogger(__name__)

_FILE_MODE = 0o600
_PAUSES = (0.0, 0.001, 0.004)


class SpoolEntry:
    """One entry that this process holds: the path of its bytes, locked until released."""

    def __init__(self, path: Path, fd: int) -> None:
        self.path = path
        self.open = [fd]
        """The open file; empty once it was released."""
        self.on_disk = False
        """Whether the entry survives a loss of power."""

    @classmethod
    def new(cls, path: Path) -> "SpoolEntry":
        """Create the file *path*, empty and locked; FileExistsError if it exists."""
        fd = made(path)
        # A process that lists entries now releases its lock as soon as it sees no description.
        fcntl.flock(fd, fcntl.LOCK_EX)
        return cls(path, fd)

    @classmethod
    def lock(cls, path: Path) -> "SpoolEntry | None":
        """Lock the file *path*; None if it is already locked or does not exist."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        if _flocked(fd) and os.fstat(fd).st_nlink:
            return cls(path, fd)
        os.close(fd)
        return None

    def read(self) -> bytes:
        """Return all the bytes."""
        with os.fdopen(os.dup(self.open[0]), "rb") as file:
            file.seek(0)
            return file.read()

    def release(self) -> None:
        """Unlock the file, for a person or the next mount; again, this does nothing."""
        if self.open:
            os.close(self.open.pop())


def made(path: Path) -> int:
    """Create and open the file *path*, mode 0600; FileExistsError if it exists."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE)


def write(fd: int, content: bytes) -> None:
    """Write all of *content* to *fd*."""
    left = memoryview(content)
    while left:
        left = left[os.write(fd, left) :]


def _flocked(fd: int) -> bool:
    """Lock *fd*; return False if another process holds it longer than a check takes."""
    for pause in _PAUSES:
        with suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(pause)
    return False


SUFFIX = ".json"
NAME_BYTES_MAX = 255
NOT_FAILED = "OK"
"""Used instead of an errno if nothing failed, for a transient file."""

UNDESCRIBED = "The cause is unknown: the mount was killed while it recorded it."

_FOLDER_MODE, _OF_OTHERS = 0o700, 0o077
_TIME = "%Y%m%dT%H%M%S.%fZ"
_ENTRY = re.compile(r"(\d{8}T\d{6}\.\d{6}Z)-([A-Z0-9]+)-(.*)", re.DOTALL)


class Spooled(Struct, frozen=True, kw_only=True, tag_field="type", tag="spooled"):
    """Description of an entry: its store, file and save, and why that failed.

    *errno* is a name such as EIO, or OK if nothing failed; *at* is RFC 3339. The spool fills in
    *content_sha256*; without one, any bytes match.
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


class Spool:
    """The entries of all stores, one folder for each. Safe for threads and processes.

    An entry is only removed by a save, a person, or the deletion of its store.
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
        """Write *content* to a new entry and return it, held; then remove *instead_of*.

        The entry survives its process, and with *on_disk*, or if *instead_of* does, a loss of
        power. If it cannot be written, raise OSError: nothing remains of it, and *instead_of*
        stays.
        """
        folder = self._folder(spooled.store_id)
        spooled = replace(spooled, content_sha256=sha256_hex(content))
        entry, description = self._begun(folder, spooled)
        try:
            write(entry.open[0], content)
            write(description, msgspec.json.encode(spooled))
            if on_disk or (instead_of is not None and instead_of.on_disk):
                self.secure(entry)
        except BaseException:
            self.remove(entry)
            raise
        finally:
            os.close(description)
        if instead_of is not None:
            try:
                self.remove(instead_of)
            except OSError as error:
                # As after a loss of power, its edit id shows that it was replaced.
                _log.warning("%s stays: %s", instead_of.path, error)
        return entry

    def secure(self, entry: SpoolEntry) -> None:
        """Sync the entry to disk, once; OSError if that fails."""
        if entry.on_disk or not entry.open:
            return
        for fd in entry.open:
            os.fsync(fd)
        _sync(_description_of(entry.path))
        _sync(entry.path.parent)
        entry.on_disk = True

    def remove(self, entry: SpoolEntry) -> None:
        """Remove the entry, as its bytes are saved; do nothing if it is not held any more.

        A loss of power may restore it; then its edit id shows that it was already applied.
        """
        if not entry.open:
            return
        fd = entry.open.pop()
        try:
            # Bytes first: without a description they would be left for a person.
            entry.path.unlink(missing_ok=True)
            _description_of(entry.path).unlink(missing_ok=True)
        finally:
            os.close(fd)

    def take(self, store_id: str) -> list[tuple[SpoolEntry, Spooled, bytes]]:
        """Lock and return the store's entries that no process holds, the oldest first."""
        folder = self.root / _checked(store_id)
        if folder.exists():
            _refuse_others(folder)
        taken: list[tuple[SpoolEntry, Spooled, bytes]] = []
        for path in self._entries(store_id):
            if (entry := SpoolEntry.lock(path)) is None:
                continue
            spooled, content = _described(path), entry.read()
            if spooled is None or spooled.content_sha256 not in ("", sha256_hex(content)):
                entry.release()
            else:
                taken.append((entry, spooled, content))
        return taken

    def list(self, store_id: str | None = None) -> "list[tuple[Path, Spooled]]":
        """Return the entries of one store or of all, held or not, oldest first by store.

        Without a description, the facts are taken from the file's name.
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
        """Check whether any process, this one included, holds the entry at *path*."""
        entry = SpoolEntry.lock(path)
        if entry is not None:
            entry.release()
        return entry is None and path.exists()

    def forget(self, store_id: str) -> None:
        """Remove all entries of a deleted store, held or not."""
        folder = self.root / _checked(store_id)
        for name in _files(folder):
            (folder / name).unlink(missing_ok=True)
        # The folder stays if it has other files.
        with suppress(OSError):
            folder.rmdir()
            _sync(self.root)

    def _begun(self, folder: Path, spooled: Spooled) -> tuple[SpoolEntry, int]:
        """Create an entry with a unique name; return it and its description's open file.

        Both files are empty: the entry counts only once its description can be parsed.
        """
        while True:
            path = folder / _name(self._time(), spooled)
            with suppress(FileExistsError):
                entry = SpoolEntry.new(path)
                try:
                    return entry, made(_description_of(path))
                except BaseException:
                    path.unlink()
                    entry.release()
                    raise

    def _time(self) -> str:
        """Return the time for a name, unique in this process.

        Otherwise the bytes of `a.json` could pass for the description of `a`.
        """
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
        """Return the folder of a store, created if missing, for this user only."""
        folder = self.root / _checked(store_id)
        _make(folder)
        _refuse_others(folder)
        if folder.stat().st_mode & _OF_OTHERS:
            folder.chmod(_FOLDER_MODE)
        return folder


def default_root() -> Path:
    """Return the default directory of this user's spool."""
    return Path(user_state_dir("holdfast", appauthor=False)) / "spool"


def _checked(store_id: str) -> str:
    """Return *store_id*, which comes from a server, if it is a safe folder name."""
    if "/" in store_id or "\0" in store_id or store_id in ("", ".", ".."):
        raise OSError(EINVAL, "This is no id of a store")
    return store_id


def _name(at: str, spooled: Spooled) -> str:
    """Return the name of an entry's bytes, short enough to add the suffix."""
    prefix = f"{at}-{spooled.errno}-"
    name = spooled.path.rpartition("/")[2]
    room = NAME_BYTES_MAX - len(SUFFIX) - len(prefix)
    return prefix + name.encode()[:room].decode(errors="ignore")


def _description_of(path: Path) -> Path:
    return path.with_name(path.name + SUFFIX)


def _described(path: Path) -> Spooled | None:
    """Return the description of the entry at *path*; None if missing or truncated."""
    return _parsed(_description_of(path))


def _describes(path: Path, names: set[str]) -> bool:
    """Check whether *path* is a description, even one without bytes any more.

    *names* are the files of its folder.
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
    """Return a description derived from the name of the bytes at *path*."""
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
    """Return the names of the plain files in *folder*; none if it does not exist."""
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
    """Create *folder* and its missing parents, mode 0700, and sync them to disk."""
    if folder.is_dir():
        return
    _make(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=_FOLDER_MODE)
    _sync(folder.parent)


def _refuse_others(folder: Path) -> None:
    """Raise PermissionError if another user could put entries into *folder*."""
    if folder.is_symlink() or folder.stat().st_uid != os.geteuid():
        raise PermissionError(EPERM, "The folder of the spool is not this user's", str(folder))


def _sync(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
