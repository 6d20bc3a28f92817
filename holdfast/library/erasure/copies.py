"""Copies of a database that an erasure cannot reach, and those it may delete."""

from datetime import datetime
from pathlib import Path
from typing import Final

from holdfast.engines.base import Engine, scalar
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.erasure.ledger import statements
from holdfast.library.erasure.proof import Evidence
from holdfast.library.erasure.records import Unreached
from holdfast.memories.stores.rows import StoresContext

_MARKS: Final = {"replaced": ".replaced-", "before_migration": ".before-"}
"""Marks in the names of the files that restore and migrations leave beside a database."""


def copies_beside(engine: Engine) -> dict[str, list[Path]]:
    """Return the older copies beside the database file, by their kind."""
    target = Path(engine.status().target)
    if engine.dialect != "sqlite" or not target.is_file():
        return {}
    found = {
        kind: sorted(
            each
            for each in target.parent.iterdir()
            if each.name.startswith(f"{target.name}{mark}") and each.is_file()
        )
        for kind, mark in _MARKS.items()
    }
    return {kind: files for kind, files in found.items() if files}


def purge_copies(engine: Engine) -> list[Path]:
    """Delete the copies that restore and migrations left beside the database."""
    files = [each for found in copies_beside(engine).values() for each in found]
    for each in files:
        each.unlink(missing_ok=True)
    return files


def unreached_of(
    context: StoresContext, evidence: Evidence, *, heads: int, until: int
) -> tuple[Unreached, ...]:
    """Return what the process cannot erase, or does not: copies, keys, current versions."""
    everywhere = context.engine.scoped(EVERYBODY)
    sql = statements(everywhere)
    since = evidence.since
    backups = 0
    if since is not None:
        backups = everywhere.one(scalar, sql.backups_with, since=since, until=until)
    found = [
        Unreached(what="backup", count=backups, reason="restore_applies", who="operator"),
        *(
            Unreached(what=kind, count=len(files), reason="purge_copies", who="operator")
            for kind, files in copies_beside(context.engine).items()
        ),
        Unreached(what="api_key", count=evidence.keys, reason="revoke", who="operator"),
        Unreached(what="version", count=heads, reason="head_of_others", who="operator"),
        Unreached(what="object", count=evidence.shared, reason="other_subjects", who="operator"),
    ]
    if context.engine.dialect == "postgres":
        reason = "log_and_standbys"
        found.append(Unreached(what="server", count=1, reason=reason, who="database_owner"))
    return tuple(each for each in found if each.count)


def note_backup(engine: Engine, path: Path, *, at: datetime, seq: int, rows: int) -> None:
    """Record that a backup was made; a read-only database records none."""
    everywhere = engine.scoped(EVERYBODY)
    statement = statements(everywhere).put_backup
    facts = {"at": to_microseconds(at), "seq": seq, "rows": rows, "name": path.name}
    try:
        everywhere.write(lambda tx: tx.run(statement, **facts))
    except Unavailable as error:
        if error.reason != "read_only":
            raise
