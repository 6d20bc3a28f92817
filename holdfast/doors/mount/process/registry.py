"""What other processes are told of a mount: kept in the user's state directory while it is there.

A mount through FUSE tells its status by itself; its entry here adds what was agreed about its
stores, for the note. A synced directory is plain files, so that its status is here as well.
"""

import fcntl
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from platformdirs import user_state_dir

from holdfast.memories.stores.records import Resource

Mode = Literal["fuse", "sync"]


class Facts(Struct, frozen=True, kw_only=True):
    """What a mount is, whatever becomes of its files."""

    dir: str
    mode: Mode
    binding: str | None
    pid: int
    session_id: str | None
    since: str
    spool: str
    resources: tuple[Resource, ...]
    reason: str | None = None
    """Why it is a synced directory, where FUSE was wanted."""


def state_directory() -> Path:
    """Return where this user's programs keep what outlives them."""
    return Path(user_state_dir("holdfast", appauthor=False))


class Register:
    """The mounts of a user, by directory."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (state_directory() if root is None else root) / "mounts"
        self._held: dict[Path, int] = {}

    def put(self, facts: Facts) -> None:
        """Tell of a mount; raises OSError where that cannot be kept."""
        self._write(self._file(Path(facts.dir), "json"), msgspec.json.encode(facts))

    def get(self, directory: Path) -> Facts | None:
        """Return what was told of the mount on *directory*, perhaps by a process that is gone."""
        try:
            return msgspec.json.decode(self._file(directory, "json").read_bytes(), type=Facts)
        except (OSError, msgspec.DecodeError):
            return None

    def put_status(self, directory: Path, status: bytes) -> None:
        """Tell how the mount on *directory* is, as JSON."""
        self._write(self._file(directory, "status"), status)

    def status(self, directory: Path) -> bytes | None:
        """Return how the mount on *directory* was when that last changed."""
        try:
            return self._file(directory, "status").read_bytes()
        except OSError:
            return None

    def remove(self, directory: Path) -> None:
        """Tell no more of the mount on *directory*, and let it go."""
        for kind in ("json", "status"):
            self._file(directory, kind).unlink(missing_ok=True)
        self.let_go(directory)

    def hold(self, directory: Path) -> bool:
        """Keep *directory* for this process while it lives; tell whether nobody else does."""
        held = self._lock(directory)
        if held is not None:
            self._held[directory] = held
        return held is not None

    def let_go(self, directory: Path) -> None:
        """Keep *directory* no longer; again does nothing."""
        held = self._held.pop(directory, None)
        if held is not None:
            os.close(held)

    def is_held(self, directory: Path) -> bool:
        """Tell whether a living process keeps *directory*."""
        if directory in self._held:
            return True
        if not self._file(directory, "lock").exists():
            return False
        held = self._lock(directory)
        if held is not None:
            os.close(held)
        return held is None

    def _lock(self, directory: Path) -> int | None:
        # The file stays: were it removed, two processes could each lock one of that name.
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        file = os.open(self._file(directory, "lock"), flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        return file

    def _file(self, directory: Path, kind: str) -> Path:
        return self._root / f"{sha256(os.fsencode(directory)).hexdigest()[:32]}.{kind}"

    def _write(self, file: Path, content: bytes) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = file.with_suffix(f"{file.suffix}.{os.getpid()}")
        try:
            with os.fdopen(
                os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb"
            ) as made:
                made.write(content)
            part.replace(file)
        except OSError:
            with suppress(OSError):
                part.unlink()
            raise
