"""Restore a backup into a database.

What was redacted or forgotten in the target since the backup was made is so in what comes back,
before anybody can read it; keys and tokens that were revoked there stay revoked.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.database import resolve
from holdfast.engines.sqlite.maintenance import alone
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.backup import unheard, write_rows
from holdfast.library.upkeep.reapply import (
    ForgottenRecords,
    Redaction,
    Redone,
    Revocation,
    forget_all_again,
    forgotten_of,
    redact_again,
    redactions,
    revocations,
    revoke_again,
)
from holdfast.library.upkeep.schema import SCHEMA, drop_foreign
from holdfast.library.upkeep.tables import (
    aside,
    beside,
    copy,
    counted,
    empty,
    hold_writers,
    is_used,
    settle,
    sync,
)
from holdfast.library.upkeep.verify import verify
from holdfast.library.upkeep.verify_stores import fill_words_of

Stamp = tuple[int, int, int]


class PresentFile(Struct, frozen=True, kw_only=True):
    """What is in the place: a file as it was when looked at, or none.

    `readable` is False when it is too damaged to tell what it redacted, revoked and forgot.
    """

    stamp: Stamp | None
    redactions: tuple[Redaction, ...] = ()
    revocations: tuple[Revocation, ...] = ()
    forgotten: ForgottenRecords = ForgottenRecords()
    keep: bool = False
    readable: bool = True

    @staticmethod
    def used(target: str) -> InvalidInput:
        """Return the error of a *target* that is not empty."""
        return InvalidInput(
            "target", "is in use", given=target, next="Restore into an empty one, or --replace it."
        )


def look_at(place: Path, *, replace: bool) -> PresentFile:
    """Return what is at *place*; InvalidInput when it is used, or damaged, and not *replace*."""
    if not place.exists() or not place.stat().st_size:
        return PresentFile(stamp=_stamp(place))
    try:
        engine = SQLiteEngine.open(str(place), clock=SystemClock())
    except Corrupt:
        return _damaged(place, replace=replace)
    try:
        everybody = engine.scoped(EVERYBODY)
        used = everybody.read(is_used)
        sql = engine.queries("holdfast.library.upkeep")
        redacted, revoked = redactions(everybody, sql), revocations(everybody, sql)
        forgotten = forgotten_of(everybody, sql)
    except Corrupt:
        return _damaged(place, replace=replace)
    finally:
        engine.close()
    if used and not replace:
        raise PresentFile.used(str(place))
    return PresentFile(
        stamp=_stamp(place),
        redactions=tuple(redacted),
        revocations=tuple(revoked),
        forgotten=forgotten,
        keep=used,
    )


def put_in_place(part: Path, place: Path, present: PresentFile) -> str | None:
    """Rename *part* to *place*, where *present* is, and return where that is kept, if it is.

    Raises Unavailable when somebody has it open, or wrote to it since it was looked at.
    """
    there: AbstractContextManager[None] = nullcontext()
    if present.stamp is not None:
        there = alone(place)
    kept = f"{place}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}" if present.keep else None
    with there:
        if _stamp(place) != present.stamp:
            raise Unavailable(f"{place} changed while the backup was made ready.", reason="busy")
        if present.stamp is not None:
            _take_after(place, part)
        if kept is not None:
            _keep(place, kept)
        for file in beside(place):
            # Left by who did not close it; beside the new file it would be taken for its own.
            ending = file.name.removeprefix(place.name)
            file.rename(kept + ending) if kept else file.unlink()
        part.replace(place)
        sync(place.parent)
    return kept


def _damaged(place: Path, *, replace: bool) -> PresentFile:
    if not replace:
        raise InvalidInput(
            "target",
            "is damaged",
            given=str(place),
            next="Restore into another, or --replace it: what it redacted may come back.",
        )
    return PresentFile(stamp=_stamp(place), keep=True, readable=False)


def _keep(place: Path, kept: str) -> None:
    """Give the file at *place* a second name, so that the place is never empty."""
    try:
        os.link(place, kept)
    except OSError:
        # A file system without second names.
        place.rename(kept)


def _take_after(place: Path, part: Path) -> None:
    """Let *part* be for the eyes that *place* was for."""
    shutil.copymode(place, part)
    if os.geteuid() == 0:
        found = place.stat()
        os.chown(part, found.st_uid, found.st_gid)


def _stamp(place: Path) -> Stamp | None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


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
