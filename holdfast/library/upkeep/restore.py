"""A backup, put where it can be used again, on either engine.

What was redacted or forgotten in the target since the backup was made is so in what comes back,
before anybody can read it; keys and tokens that were revoked there stay revoked.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.database import resolve
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.aside import aside, beside, settle
from holdfast.library.upkeep.backup import unheard, write_rows
from holdfast.library.upkeep.reapply import forget_all_again, forgotten_of
from holdfast.library.upkeep.redactions import Redone, redact_again, redactions
from holdfast.library.upkeep.replacing import PresentFile, look_at, put_in_place
from holdfast.library.upkeep.revocations import revocations, revoke_again
from holdfast.library.upkeep.schema import SCHEMA, drop_foreign
from holdfast.library.upkeep.tables import copy, counted, empty, hold_writers, is_used
from holdfast.library.upkeep.verify import verify
from holdfast.library.upkeep.words import fill_words_of


class RestoreReport(Struct, frozen=True, kw_only=True):
    """What came back: rows, and where the file that was there before is kept, if one was.

    `redacted` counts the redactions that were applied again, `deleted` names the memories that
    went with them because their head was one, `forgotten` counts the keys, agents, users,
    cleared collections, items, turns and threads that were forgotten again; `redactions_read` is
    False when the target was too damaged to tell what it had redacted and forgotten. `pending` says
    where what was replaced may still lie. `left_out` names the tables, views, triggers and indexes
    of the backup that no release made: only rows of our tables come back.
    """

    rows: int
    redacted: int
    deleted: tuple[str, ...]
    forgotten: int = 0
    redactions_read: bool = True
    kept: str | None = None
    left_out: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


def restore(
    path: str | Path,
    target: str,
    *,
    replace: bool = False,
    told: Callable[[int], None] = unheard,
) -> RestoreReport:
    """Bring the backup *path* into *target*, which must be empty unless *replace*.

    Into PostgreSQL it is one transaction; a SQLite file is put together aside and renamed, the
    old one kept beside it as `<file>.replaced-<time>`. Raises InvalidInput, Corrupt,
    Unavailable when somebody has the file open.
    """
    path = Path(path)
    _check_backup(path)
    if target.startswith(("postgresql://", "postgres://")):
        with (
            TemporaryDirectory(prefix="holdfast-") as folder,
            aside(Path(folder) / "copy.db") as part,
        ):
            return _into_postgres(path, target, part, replace, told)
    return _into_sqlite(path, target, replace, told)


def _check_backup(path: Path) -> None:
    if not path.is_file():
        raise InvalidInput("file", "does not exist, or is no file", given=str(path))
    if not path.stat().st_size:
        raise InvalidInput("file", "is empty", given=str(path), next="Name a backup.")
    if beside(path):
        raise InvalidInput(
            "file",
            "is a database in use, not a backup",
            given=str(path),
            next="Make a backup of it first, and restore that.",
        )


def _into_sqlite(
    path: Path, target: str, replace: bool, told: Callable[[int], None]
) -> RestoreReport:
    found = resolve(target)
    if found.in_memory:
        raise InvalidInput("target", "must be a file or a server", given=target)
    place = Path(found.path)
    redone = Redone()
    with aside(place) as copied, aside(place) as part:
        source, left_out = _opened(path, copied)
        try:
            present = look_at(place, replace=replace)
            redact_again(source, present.redactions, redone)
            revoke_again(source, present.revocations)
            forgotten = forget_all_again(source, present.forgotten)
            rows = source.scoped(EVERYBODY).read(counted)
            write_rows(source, part, told)
        finally:
            source.close()
        settle(part)
        kept = put_in_place(part, place, present)
    return RestoreReport(
        rows=rows,
        redacted=redone.redacted,
        deleted=redone.deleted,
        forgotten=forgotten,
        redactions_read=present.readable,
        kept=kept,
        left_out=left_out,
    )


def _into_postgres(
    path: Path, url: str, part: Path, replace: bool, told: Callable[[int], None]
) -> RestoreReport:
    from holdfast.engines.postgres import PostgresEngine

    redone, forgotten = Redone(), 0
    source, left_out = _opened(path, part)
    try:
        engine = PostgresEngine.open(url, clock=SystemClock())
        try:
            everybody = engine.scoped(EVERYBODY)
            sql, shown = everybody.queries("holdfast.library.upkeep"), engine.status().target

            def work(tx: Transaction) -> None:
                nonlocal forgotten
                tx.all(dict[str, object], sql.make_ready)
                hold_writers(tx)
                if not replace and is_used(tx):
                    raise PresentFile.used(shown)
                # Tried again, it finds in the copy what it redacted before.
                redact_again(source, redactions(tx, sql), redone)
                revoke_again(source, revocations(tx, sql))
                forgotten += forget_all_again(source, forgotten_of(tx, sql))
                empty(tx)
                copy(source, source.scoped(EVERYBODY), everybody, tx, told=told)
                fill_words_of(everybody)(tx)

            everybody.write(work, timeout=3600)
            pending = engine.scrub().pending if replace else ()
            rows = source.scoped(EVERYBODY).read(counted)
        finally:
            engine.close()
    finally:
        source.close()
    return RestoreReport(
        rows=rows,
        redacted=redone.redacted,
        deleted=redone.deleted,
        forgotten=forgotten,
        left_out=left_out,
        pending=pending,
    )


def _opened(path: Path, part: Path) -> tuple[SQLiteEngine, tuple[str, ...]]:
    """Return a copy of the backup *path*, opened at *part*, and what was left out of it.

    It is brought to this release.
    """
    shutil.copyfile(path, part)
    try:
        left_out = drop_foreign(part)
        engine = SQLiteEngine.open(str(part), clock=SystemClock())
    except Corrupt as error:
        raise Corrupt(str(path), error.findings) from error
    except InvalidInput as error:
        raise InvalidInput("file", "is no backup of ours", given=str(path)) from error
    findings = [each for each in verify(engine, quick=True).findings if each.check != SCHEMA]
    if findings:
        engine.close()
        first = findings[0]
        raise Corrupt(
            os.fspath(path),
            f"{len(findings)} findings, the first of {first.check} in {first.table or 'the file'}",
        )
    return engine, left_out
