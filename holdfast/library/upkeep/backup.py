"""A backup: one moment of a whole database in one SQLite file, whatever the engine."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.engines.base import Engine, Reader
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.database import MEMORY
from holdfast.engines.sqlite.maintenance import copy_whole
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.schema import SCHEMA
from holdfast.library.upkeep.tables import aside, beside, copy, counted, settle, sync
from holdfast.library.upkeep.verify import verify
from holdfast.library.upkeep.verify_stores import fill_words_of


class BackupReport(Struct, frozen=True, kw_only=True):
    """What is in the file: rows of all tables, its size, the last number of the order."""

    file: str
    rows: int
    size_bytes: int
    seq: int


def unheard(done: int) -> None:
    """Hear how many rows went so far, and say nothing."""


def backup(
    engine: Engine,
    path: str | Path,
    *,
    force: bool = False,
    told: Callable[[int], None] = unheard,
) -> BackupReport:
    """Write the database as it is at one moment to *path*, mode 0600, and verify the copy.

    Writers are not blocked, but for those of a database in memory. The file is written aside,
    synced, verified and renamed, so that nothing half-written is ever at *path*. Raises
    InvalidInput when *path* exists, unless *force*, and for one that is a database in use;
    Unavailable when it cannot be written, or what is backed up is not whole.
    """
    place = Path(os.path.realpath(path))
    _check_free(place, engine, force=force)
    with aside(place) as part:
        _write(engine, part, told)
        report = _checked(part, place)
        settle(part)
        _check_free(place, engine, force=force)
        part.replace(place)
        sync(place.parent)
    return report


def _check_free(place: Path, engine: Engine, *, force: bool) -> None:
    if place.is_dir():
        raise InvalidInput("file", "is a folder", given=str(place), next="Name a file in it.")
    if not place.parent.is_dir():
        raise InvalidInput("file", "is in a folder that does not exist", given=str(place))
    target = Path(engine.status().target)
    if engine.dialect == "sqlite" and all(map(Path.exists, (place, target))):
        _refuse_same(place, target)
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


def _refuse_same(place: Path, target: Path) -> None:
    if place.samefile(target):
        raise InvalidInput(
            "file", "is the database itself", given=str(place), next="Choose another."
        )


def _write(engine: Engine, part: Path, told: Callable[[int], None]) -> None:
    status = engine.status()
    if status.dialect == "sqlite" and status.target != MEMORY:
        copy_whole(status.target, part)
        return
    write_rows(engine, part, told)


def write_rows(engine: Engine, part: Path, told: Callable[[int], None] = unheard) -> None:
    """Write every row of *engine*, as at one moment, into a new database of ours at *part*."""
    target = SQLiteEngine.open(str(part), clock=SystemClock())
    try:
        everybody = target.scoped(EVERYBODY)
        source = engine.scoped(EVERYBODY)

        def read(reader: Reader) -> None:
            everybody.write(lambda tx: copy(source, reader, everybody, tx, told=told), timeout=3600)

        source.read(read)
        everybody.write(fill_words_of(everybody), timeout=3600)
    finally:
        target.close()


def _checked(part: Path, place: Path) -> BackupReport:
    copied = SQLiteEngine.open(str(part), clock=SystemClock())
    try:
        # Only the rows of our tables come back, so another schema is no reason to have no backup.
        findings = [each for each in verify(copied, quick=True).findings if each.check != SCHEMA]
        if findings:
            first = findings[0]
            raise Unavailable(
                f"The copy is damaged: {len(findings)} findings, the first of"
                f" {first.check} in {first.table or 'the file'}.",
                reason="io",
                next="Run holdfast verify on the database.",
            )
        everybody = copied.scoped(EVERYBODY)
        rows = everybody.read(counted)
        seq = everybody.one(_seq, copied.queries("holdfast.library.upkeep").last_seq)
    finally:
        copied.close()
    return BackupReport(file=str(place), rows=rows, size_bytes=part.stat().st_size, seq=seq)


def _seq(*, seq: int) -> int:
    return seq
