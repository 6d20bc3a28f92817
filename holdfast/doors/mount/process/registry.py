"""Registry of the mounts on this machine: status and prompt notes.

A FUSE mount returns its status in an extended attribute; its entry here adds the resources of its
stores, for the note. A synced directory is plain files, so that its status is stored here too.
"""

import fcntl
import os
from contextlib import suppress
from errno import ENOTCONN
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from platformdirs import user_state_dir

from holdfast.doors.mount.process.system import at
from holdfast.ground.errors import NotFound, Unavailable
from holdfast.memories.stores.records import JSONObject, Resource
from holdfast.memories.stores.session_input import note

Mode = Literal["fuse", "sync"]


class Facts(Struct, frozen=True, kw_only=True):
    """Constant facts of a mount."""

    dir: str
    mode: Mode
    binding: str | None
    pid: int
    session_id: str | None
    since: str
    spool: str
    resources: tuple[Resource, ...]
    reason: str | None = None
    """Why it is a synced directory."""


def state_directory() -> Path:
    """Return the directory of this user's persistent state."""
    return Path(user_state_dir("holdfast", appauthor=False))


class Register:
    """The mounts of a user, by directory."""

    def __init__(self, root: Path | None = None) -> None:
        self._root = (state_directory() if root is None else root) / "mounts"
        self._held: dict[Path, int] = {}

    def put(self, facts: Facts) -> None:
        """Store the facts of a mount; raise OSError if they cannot be written."""
        self._write(self._file(Path(facts.dir), "json"), msgspec.json.encode(facts))

    def get(self, directory: Path) -> Facts | None:
        """Return the stored facts of the mount on *directory*; its process may be dead."""
        try:
            return msgspec.json.decode(self._file(directory, "json").read_bytes(), type=Facts)
        except (OSError, msgspec.DecodeError):
            return None

    def put_status(self, directory: Path, status: bytes) -> None:
        """Store the status of the mount on *directory*, as JSON."""
        self._write(self._file(directory, "status"), status)

    def status(self, directory: Path) -> bytes | None:
        """Return the last stored status of the mount on *directory*, or None."""
        try:
            return self._file(directory, "status").read_bytes()
        except OSError:
            return None

    def remove(self, directory: Path) -> None:
        """Remove the entry of the mount on *directory*, and release its lock."""
        for kind in ("json", "status"):
            self._file(directory, kind).unlink(missing_ok=True)
        self.let_go(directory)

    def hold(self, directory: Path) -> bool:
        """Lock *directory* for this process; return False if it is locked elsewhere."""
        held = self._lock(directory)
        if held is not None:
            self._held[directory] = held
        return held is not None

    def let_go(self, directory: Path) -> None:
        """Release the lock of *directory*; without a lock this does nothing."""
        held = self._held.pop(directory, None)
        if held is not None:
            os.close(held)

    def is_held(self, directory: Path) -> bool:
        """Check whether a living process has *directory* locked."""
        if directory in self._held:
            return True
        if not self._file(directory, "lock").exists():
            return False
        held = self._lock(directory)
        if held is not None:
            os.close(held)
        return held is None

    def _lock(self, directory: Path) -> int | None:
        # The file is never removed: two processes could each lock a different file of that name.
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


STATUS = "user.holdfast.status"
STALE = "stale"


def status_of(directory: Path, register: Register) -> JSONObject:
    """Return the status of the mount on *directory*, an absolute path.

    The state is "stale" if its process is dead. Raise NotFound if there is no mount of memory
    stores, Unavailable if it does not answer.
    """
    facts = register.get(directory)
    mounted = at(directory)
    if mounted is not None and mounted.ours:
        state = mounted.state()
        if state == "silent":
            raise silent(directory, mounted.pid)
        reply = _read_status(directory) if state == "live" else None
        return reply or _stale(directory, mounted.pid, facts)
    if facts is None or facts.mode != "sync":
        raise NotFound("mount of memory stores on", str(directory), next="Check the directory.")
    status = register.status(directory)
    if status is None or not register.is_held(directory):
        return _stale(directory, facts.pid, facts)
    return msgspec.json.decode(status)


def note_of(directory: Path, register: Register) -> str:
    """Return the system prompt note on the stores mounted on *directory*."""
    status = status_of(directory, register)
    if status["state"] == STALE:
        raise Unavailable(
            f"The mount on {directory} ended with its process.",
            reason="closed",
            next="Mount it again.",
        )
    facts = register.get(directory)
    agreed = facts.resources if facts is not None and facts.pid == status["pid"] else ()
    known = {each.memory_store_id: each for each in agreed}
    stores = cast("list[dict[str, Any]]", status["stores"])
    resources = [_resource(store, known.get(store["id"])) for store in stores]
    synced = status["mode"] == "sync"
    reason = status.get("reason") or "as asked"
    return note(resources, root=str(directory), synced=reason if synced else None)


def _resource(store: dict[str, Any], agreed: Resource | None) -> Resource:
    """Return the resource of *store*, an entry of the status, for the note.

    Its access is the current one; name, description and instructions are those of *agreed*.
    """
    archived = store["archived_at"] is not None
    return Resource(
        memory_store_id=store["id"],
        access="read_only" if archived else store["access"],
        name=agreed.name if agreed else store["name"],
        description=agreed.description if agreed else "",
        instructions=agreed.instructions if agreed else None,
        mount_path=store["path"],
    )


def silent(directory: Path, pid: int | None) -> Unavailable:
    """Return the error for a mount on *directory* that does not answer."""
    return Unavailable(
        f"The mount on {directory} does not answer; it is process {pid or 'unknown'}.",
        reason="timeout",
        next="Check why it waits, or kill it; closed files are kept.",
    )


def _read_status(directory: Path) -> JSONObject | None:
    """Return the status from the mount itself, or None if its process just died."""
    try:
        return msgspec.json.decode(os.getxattr(directory, STATUS))
    except OSError as error:
        if error.errno != ENOTCONN:
            raise
        return None


def _stale(directory: Path, pid: int | None, facts: Facts | None) -> JSONObject:
    """Return the status of a mount with a dead process: the known facts, no stores."""
    return {
        "type": "mount",
        "dir": str(directory),
        "mode": facts.mode if facts else "fuse",
        "binding": facts.binding if facts else None,
        "pid": pid,
        "session_id": facts.session_id if facts else None,
        "state": STALE,
        "since": facts.since if facts else None,
        "spool": facts.spool if facts else None,
        "feed_lag_seconds": None,
        "stores": [],
    }


_STORE_FIELDS = (
    *("id", "name", "slug", "path", "access", "archived_at", "memories", "cap"),
    *("unsaved", "retrying", "spooled", "hidden", "saves", "refused", "failed"),
    *("promoted", "conflicts"),
)
"""Fields of each store in the public status; other counters are only logged."""


def report(facts: Facts, status: object) -> JSONObject:
    """Return the public status of a mount, from its facts and its core's *status*."""
    counted: dict[str, Any] = msgspec.to_builtins(status)
    stores = counted.pop("stores")
    public: JSONObject = {
        "type": "mount",
        "dir": facts.dir,
        "mode": facts.mode,
        "binding": facts.binding,
        "pid": facts.pid,
        "session_id": facts.session_id,
        "state": counted.pop("state"),
        "since": facts.since,
        "spool": facts.spool,
        "feed_lag_seconds": counted.pop("feed_lag_seconds"),
        "stores": [_placed(store, Path(facts.dir)) for store in stores],
    }
    return public | counted | ({} if facts.reason is None else {"reason": facts.reason})


def ready_line(status: JSONObject) -> str:
    """Return the line for a person that a mount is ready, from its *status*."""
    stores = ", ".join(
        f"{store['slug']} ({store['access'].replace('_', '-')})" for store in status["stores"]
    )
    how = f" as a synced directory ({status['reason']})" if status["mode"] == "sync" else ""
    return f"mounted {status['dir']}{how}: {stores}"


def _placed(store: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return the public fields of *store*, with the path of its directory."""
    known = store | {"path": str(directory / store["slug"])}
    return {name: known[name] for name in _STORE_FIELDS}
