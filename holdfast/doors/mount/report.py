"""What a mount tells of itself, as one JSON object: what it is, and what it counted."""

from pathlib import Path
from typing import Any

import msgspec

from holdfast.doors.mount.register import Facts
from holdfast.memories.stores.records import JSONObject


def report(facts: Facts, status: object) -> JSONObject:
    """Return the status of a mount: *status*, of its core or its synced directory, in its place.

    The counts are the core's own; no number is left out, however many stores there are.
    """
    counted: dict[str, Any] = msgspec.to_builtins(status)
    stores = counted.pop("stores")
    told: JSONObject = {
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
    return told | counted | ({} if facts.reason is None else {"reason": facts.reason})


def ready_line(told: JSONObject) -> str:
    """Return the line that says what is mounted where: *told*, for a person."""
    stores = ", ".join(
        f"{store['slug']} ({store['access'].replace('_', '-')})" for store in told["stores"]
    )
    how = f" as a synced directory ({told['reason']})" if told["mode"] == "sync" else ""
    return f"mounted {told['dir']}{how}: {stores}"


def _placed(store: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Return *store* with the path of its directory, after its slug."""
    placed: dict[str, Any] = {}
    for name, value in store.items():
        if name == "path":
            continue
        placed[name] = value
        if name == "slug":
            placed["path"] = str(directory / value)
    return placed
