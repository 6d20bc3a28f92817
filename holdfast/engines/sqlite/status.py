"""How the engine is, in words and numbers."""

import os
import shutil

import apsw

from holdfast.engines.base import EngineStatus
from holdfast.engines.sqlite.core import SQLiteCore
from holdfast.engines.sqlite.database import Database
from holdfast.engines.sqlite.log import LONG
from holdfast.engines.sqlite.target import file_system
from holdfast.ground.errors import HoldfastError

Detail = str | int | float | bool | None


def status_of(core: SQLiteCore) -> EngineStatus:
    """Return how *core* is; it looks at the file, and reads one number."""
    database = core.database
    database.look_for_file()
    _recheck(database)
    schema, reason = 0, database.stopped
    if core.writer.queue.closed:
        reason = "closed"
    else:
        try:
            schema = _schema(core)
        except HoldfastError as error:
            reason = reason or getattr(error, "reason", "io")
    return EngineStatus(
        dialect="sqlite",
        target=database.path,
        ready=reason is None,
        reason=reason,
        schema=schema,
        details=_details(core),
        metrics=_metrics(core),
    )


def _recheck(database: Database) -> None:
    """Check a file in which damage was met, unless the writer is about to."""
    if database.stopped == "corrupt" and database.turn.acquire(blocking=False):
        try:
            database.recheck()
        finally:
            database.turn.release()
        database.send()


def _schema(core: SQLiteCore) -> int:
    connection = core.take()
    try:
        return connection.number("pragma user_version")
    finally:
        core.readers.give(connection)


def _details(core: SQLiteCore) -> dict[str, Detail]:
    database = core.database
    details: dict[str, Detail] = {
        "sqlite": apsw.sqlite_lib_version(),
        "read_only": database.read_only,
        "in_memory": database.in_memory,
    }
    for thread, age in core.readers.old().items():
        details[f"pinned_by_{thread}_seconds"] = round(age, 1)
    if not database.in_memory:
        log = database.log_bytes()
        details |= {
            "log_bytes": log,
            "log_long": log > LONG,
            "file_system": file_system(database.path),
        }
        if os.path.exists(database.path):  # noqa: PTH110 - a plain name is all there is
            details["file_bytes"] = os.path.getsize(database.path)  # noqa: PTH202 - the same
            details["free_bytes"] = shutil.disk_usage(os.path.dirname(database.path)).free  # noqa: PTH120 - the same
    return details


def _metrics(core: SQLiteCore) -> dict[str, float]:
    group, database = core.writer.group, core.database
    return {
        **{f'writes_total{{outcome="{name}"}}': n for name, n in group.outcomes.items()},
        "groups_total": group.groups,
        **group.sizes.flat("group_size"),
        **group.waits.flat("write_wait_seconds"),
        **group.commits.flat("commit_seconds"),
        "queue": len(core.writer.queue),
        "readers": len(core.readers),
        "wal_bytes": 0 if database.in_memory else database.log_bytes(),
        'retries_total{reason="alone"}': group.retries,
        "unknown_outcomes_total": group.outcomes["unknown"],
        "pool_in_use": 0,
        "reconnects_total": group.reconnects,
        "feed_lag_seconds": 0,
        "erasure_pending": int(core.writer.log.erasing),
    }
