"""What a mount tells of itself, as one JSON object: what it is, and what it counted."""

from pathlib import Path
from typing import Any

import msgspec

from holdfast.doors.mount.process.registry import Facts
from holdfast.memories.stores.records import JSONObject

TOLD = (
    *("id", "name", "slug", "path", "access", "archived_at", "memories", "cap"),
    *("unsaved", "retrying", "spooled", "hidden", "saves", "refused", "failed"),
    *("promoted", "conflicts"),
)
"""What programs may rely on for each store; what else is counted is the log's."""


def report(facts: Facts, status: object) -> JSONObject:
    """Return the status of a mount: what its core or synced directory says of itself, placed."""
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
    """Return what is told of *store*, with the path of its directory."""
    known = store | {"path": str(directory / store["slug"])}
    return {name: known[name] for name in TOLD}
