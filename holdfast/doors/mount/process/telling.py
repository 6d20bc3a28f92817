"""What a mount says of itself to other processes: its status, and the note for a system prompt."""

import os
from errno import ENOTCONN
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast.doors.mount.process import mount_table
from holdfast.doors.mount.process.registry import Facts, Register
from holdfast.ground.errors import NotFound, Unavailable
from holdfast.memories.stores.records import JSONObject, Resource
from holdfast.memories.stores.session_input import note

STATUS = "user.holdfast.status"
STALE = "stale"


def status_of(directory: Path, register: Register) -> JSONObject:
    """Return what the mount on *directory*, an absolute path, says of itself.

    One whose process is dead is "stale". NotFound where there is none of ours, Unavailable where
    it does not answer.
    """
    facts = register.get(directory)
    mounted = mount_table.at(directory)
    if mounted is not None and mounted.ours:
        state = mounted.state()
        if state == "silent":
            raise silent(directory, mounted.pid)
        told = _asked(directory) if state == "live" else None
        return told or _stale(directory, mounted.pid, facts)
    if facts is None or facts.mode != "sync":
        raise NotFound("mount of memory stores on", str(directory), next="Check the directory.")
    status = register.status(directory)
    if status is None or not register.is_held(directory):
        return _stale(directory, facts.pid, facts)
    return msgspec.json.decode(status)


def note_of(directory: Path, register: Register) -> str:
    """Return text for a system prompt about what is mounted on *directory*, with its real paths."""
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
    """Return what the note says of *store*, of the status: its access now, the rest as *agreed*."""
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
    """Return the error that says the process of the mount on *directory* does not answer."""
    return Unavailable(
        f"The mount on {directory} does not answer; it is process {pid or 'unknown'}.",
        reason="timeout",
        next="Check why it waits, or kill it; closed files are kept.",
    )


def _asked(directory: Path) -> JSONObject | None:
    """Return what the mount answers, or None if its process died just now."""
    try:
        return msgspec.json.decode(os.getxattr(directory, STATUS))
    except OSError as error:
        if error.errno != ENOTCONN:
            raise
        return None


def _stale(directory: Path, pid: int | None, facts: Facts | None) -> JSONObject:
    """Return the status of a mount whose process is dead: what is known of it, and no store."""
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
