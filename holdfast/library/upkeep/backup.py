"""A backup: one moment of a whole database in one SQLite file, whatever the engine."""

import os
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct

from holdfast.engines.base import Engine, Reader
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.target import MEMORY
from holdfast.engines.sqlite.whole import copy_whole
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.copying import copy, counted
from holdfast.library.upkeep.verify import verify
from holdfast.library.upkeep.words import fill_words_of


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

    Writers are not blocked. The file is written aside, synced, verified and renamed, so that
    nothing half-written stays. Raises InvalidInput when *path* exists, unless *force*.
    """
    path = Path(path).absolute()
    if path.exists() and not force:
        raise InvalidInput("file", "exists already", given=path, next="Choose another, or --force.")
    if not path.parent.is_dir():
        raise InvalidInput("file", "lies in a folder that does not exist", given=path)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        _write(engine, aside, told)
        report = _checked(aside, path)
        aside.replace(path)
        sync(path.parent)
    except OSError as error:
        raise Unavailable(
            f"The backup could not be written: {error.strerror}.", reason="io"
        ) from error
    finally:
        for name in (aside.name, f"{aside.name}-wal", f"{aside.name}-shm"):
            aside.with_name(name).unlink(missing_ok=True)
    return report


def _write(engine: Engine, aside: Path, told: Callable[[int], None]) -> None:
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    status = engine.status()
    if status.dialect == "sqlite" and status.target != MEMORY:
        copy_whole(status.target, aside)
        sync(aside)
        return
    target = SQLiteEngine.open(str(aside), clock=SystemClock())
    try:
        everybody = target.scoped(EVERYBODY)
        source = engine.scoped(EVERYBODY)

        def read(reader: Reader) -> None:
            everybody.write(lambda tx: copy(source, reader, everybody, tx, told=told), timeout=3600)

        source.read(read)
        everybody.write(fill_words_of(everybody), timeout=3600)
        target.scrub()
    finally:
        target.close()
    sync(aside)


def _checked(aside: Path, path: Path) -> BackupReport:
    copied = SQLiteEngine.open(str(aside), clock=SystemClock())
    try:
        report = verify(copied, quick=True)
        if not report.ok:
            raise Corrupt(str(path), f"the copy has {len(report.findings)} findings")
        everybody = copied.scoped(EVERYBODY)
        rows = everybody.read(counted)
        seq = everybody.one(_seq, copied.queries("holdfast.library.upkeep").last_seq)
    finally:
        copied.close()
    return BackupReport(file=str(path), rows=rows, size_bytes=aside.stat().st_size, seq=seq)


def _seq(*, seq: int) -> int:
    return seq


def sync(place: Path) -> None:
    """Make what *place*, a file or a folder, holds survive a power loss."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
