"""Back up a database: one snapshot of it in one SQLite file."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.engines.base import Engine, Reader, scalar
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.maintenance import copy_whole
from holdfast.engines.sqlite.target import MEMORY
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.erasure.proof import note_backup
from holdfast.library.upkeep.tables import aside, beside, copy, counted, settle, sync
from holdfast.library.upkeep.verify import SCHEMA, verify
from holdfast.library.upkeep.verify_stores import fill_words_of


class BackupReport(Struct, frozen=True, kw_only=True):
    """Contents of a backup: rows of all tables, size, last number of the order."""

    file: str
    rows: int
    size_bytes: int
    seq: int


def no_progress(done: int) -> None:
    """Ignore the progress; *done* is the number of rows copied so far."""


def backup(
    engine: Engine,
    path: str | Path,
    *,
    force: bool = False,
    progress: Callable[[int], None] = no_progress,
) -> BackupReport:
    """Write a snapshot of the database to *path*, mode 0600, and verify it.

    Writers are not blocked, except those of a database in memory. The file is written under a
    temporary name, synced, verified and renamed, so that *path* never holds a partial file. Calls
    *progress* with the number of rows copied so far. Raises InvalidInput if *path* exists, unless
    *force*, and if it is a database in use; Unavailable if it cannot be written, or the copy is
    damaged.
    """
    place = Path(os.path.realpath(path))
    _check_free(place, engine, force=force)
    with aside(place) as part:
        _write(engine, part, progress)
        report = _checked(part, place)
        settle(part)
        _check_free(place, engine, force=force)
        part.replace(place)
        sync(place.parent)
    note_backup(engine, place, at=SystemClock().now(), seq=report.seq, rows=report.rows)
    return report


def _check_free(place: Path, engine: Engine, *, force: bool) -> None:
    if place.is_dir():
        raise InvalidInput("file", "is a folder", given=str(place), next="Name a file in it.")
    if not place.parent.is_dir():
        raise InvalidInput("file", "is in a folder that does not exist", given=str(place))
    target = Path(engine.status().target)
    is_file = engine.dialect == "sqlite" and place.exists() and target.exists()
    if is_file and place.samefile(target):
        raise InvalidInput(
            "file", "is the database itself", given=str(place), next="Choose another."
        )
    if found := beside(place):
        raise InvalidInput(
            "file",
            f"is a database in use: {found[0].name} is beside it",
            given=str(place),
            next="Choose another.",
        )
    if place.exists() and not force:
        raise InvalidInput(
            "file", "exists already", given=str(place), next="Choose another, or --force."
        )


def _write(engine: Engine, part: Path, progress: Callable[[int], None]) -> None:
    status = engine.status()
    if status.dialect == "sqlite" and status.target != MEMORY:
        copy_whole(status.target, part)
        return
    write_rows(engine, part, progress)


def write_rows(engine: Engine, part: Path, progress: Callable[[int], None] = no_progress) -> None:
    """Write a snapshot of all rows of *engine* into a new database at *part*.

    Calls *progress* with the number of rows copied so far.
    """
    target = SQLiteEngine.open(str(part), clock=SystemClock())
    try:
        all_owners = target.scoped(EVERYBODY)
        source = engine.scoped(EVERYBODY)

        def read(reader: Reader) -> None:
            all_owners.write(
                lambda tx: copy(source, reader, all_owners, tx, progress=progress), timeout=3600
            )

        source.read(read)
        all_owners.write(fill_words_of(all_owners), timeout=3600)
    finally:
        target.close()


def _checked(part: Path, place: Path) -> BackupReport:
    copied = SQLiteEngine.open(str(part), clock=SystemClock())
    try:
        # Only the rows of our tables are restored, so another schema does not prevent a backup.
        findings = [each for each in verify(copied, quick=True).findings if each.check != SCHEMA]
        if findings:
            first = findings[0]
            raise Unavailable(
                f"The copy is damaged: {len(findings)} findings, the first of"
                f" {first.check} in {first.table or 'the file'}.",
                reason="io",
                next="Run holdfast verify on the database.",
            )
        all_owners = copied.scoped(EVERYBODY)
        rows = all_owners.read(counted)
        seq = all_owners.one(scalar, copied.queries("holdfast.library.upkeep").last_seq)
    finally:
        copied.close()
    return BackupReport(file=str(place), rows=rows, size_bytes=part.stat().st_size, seq=seq)
