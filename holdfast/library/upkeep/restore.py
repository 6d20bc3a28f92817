"""Restore a backup into a database.

Redactions and erasures in the target since the backup are applied to the restored data before any
client can read it; keys and tokens that were revoked there stay revoked.
"""

import os
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from msgspec import Struct

from holdfast import engines
from holdfast.engines.base import Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.maintenance import alone
from holdfast.engines.sqlite.target import resolve
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.backup import no_progress, write_rows
from holdfast.library.upkeep.reapply import (
    ForgottenRecords,
    Redaction,
    Redone,
    Repeated,
    Revocation,
    forget_all_again,
    forgotten_of,
    read_ledger,
    redact_again,
    redactions,
    revocations,
    revoke_again,
)
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
from holdfast.library.upkeep.verify import SCHEMA, drop_foreign, verify
from holdfast.library.upkeep.verify_stores import fill_words_of

Stamp = tuple[int, int, int]


class PresentFile(Struct, frozen=True, kw_only=True):
    """The present target file, or none, as it was when checked.

    `readable` is False if it is too damaged to read its redactions, revocations and erasures.
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
    """Return the present file at *place*.

    Raises InvalidInput if it is used, or damaged, and not *replace*.
    """
    if not place.exists() or not place.stat().st_size:
        return PresentFile(stamp=_stamp(place))
    try:
        engine = SQLiteEngine.open(str(place), clock=SystemClock())
    except Corrupt:
        return _damaged(place, replace=replace)
    try:
        all_owners = engine.scoped(EVERYBODY)
        used = all_owners.read(is_used)
        sql = engine.queries("holdfast.library.upkeep")
        redacted, revoked = redactions(all_owners, sql), revocations(all_owners, sql)
        forgotten = forgotten_of(all_owners, engine)
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
    """Rename *part* to *place*; return the path of the replaced file, if any.

    Raises Unavailable if a process has *place* open, or it changed since *present* was read.
    """
    there: AbstractContextManager[None] = nullcontext()
    if present.stamp is not None:
        there = alone(place)
    kept = f"{place}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}" if present.keep else None
    with there:
        if _stamp(place) != present.stamp:
            raise Unavailable(f"{place} changed while the backup was made ready.", reason="busy")
        if present.stamp is not None:
            shutil.copymode(place, part)
            if os.geteuid() == 0:
                found = place.stat()
                os.chown(part, found.st_uid, found.st_gid)
        if kept is not None:
            try:
                # A second name, so that *place* always exists.
                os.link(place, kept)
            except OSError:
                # A file system without hard links.
                place.rename(kept)
        for file in beside(place):
            # Left by a process that did not close it; SQLite would take it for the new file's.
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


def _stamp(place: Path) -> Stamp | None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class RestoreReport(Struct, frozen=True, kw_only=True):
    """Result of a restore: rows, and the path of the replaced file, if any.

    `redacted` counts the redactions applied again, of versions and of texts with names of erased
    people, `deleted` names the memories deleted because their head was redacted. `forgotten` counts
    the keys, agents, users, cleared collections, items, turns and threads forgotten again, `erased`
    the people and agents among them. `kept` may hold erased people, as `warning` says: delete it
    once it is not needed. `redactions_read` is False if the target was too damaged to read its
    redactions and erasures. `pending` names the places that may still hold the replaced data.
    `left_out` names the tables, views, triggers and indexes of the backup that no release creates:
    only rows of our tables are restored.
    """

    rows: int
    redacted: int
    deleted: tuple[str, ...]
    forgotten: int = 0
    erased: int = 0
    redactions_read: bool = True
    kept: str | None = None
    warning: str | None = None
    left_out: tuple[str, ...] = ()
    pending: tuple[str, ...] = ()


def restore(
    path: str | Path,
    target: str,
    *,
    replace: bool = False,
    erasures: str | Path | None = None,
    progress: Callable[[int], None] = no_progress,
) -> RestoreReport:
    """Restore the backup *path* into *target*, which must be empty unless *replace*.

    Into PostgreSQL it is one transaction; a SQLite file is written under a temporary name and
    renamed, and the old one stays beside it as `<file>.replaced-<time>`. Calls *progress* with the
    number of rows copied so far. What the ledger *erasures*, a file of `holdfast forget --ledger`,
    has erased is erased in the copy too. Raises InvalidInput, Corrupt, and Unavailable if a process
    has the file open.
    """
    path = Path(path)
    _check_backup(path)
    ledger = ForgottenRecords() if erasures is None else read_ledger(erasures)
    if target.startswith(("postgresql://", "postgres://")):
        with (
            TemporaryDirectory(prefix="holdfast-") as folder,
            aside(Path(folder) / "copy.db") as part,
        ):
            return _into_postgres(path, target, part, ledger, replace=replace, progress=progress)
    return _into_sqlite(path, target, ledger, replace=replace, progress=progress)


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


_KEPT: Final = "It may hold people who were erased since: delete it once it is not needed."


def _erase_again(source: SQLiteEngine, ledger: ForgottenRecords) -> Repeated:
    """Erase in the copy what *ledger*, of a file, has."""
    return forget_all_again(source, ledger) if ledger.seq else Repeated()


def _into_sqlite(
    path: Path,
    target: str,
    ledger: ForgottenRecords,
    *,
    replace: bool,
    progress: Callable[[int], None],
) -> RestoreReport:
    found = resolve(target)
    if found.in_memory:
        raise InvalidInput("target", "must be a file or a server", given=target)
    place = Path(found.path)
    redone = Redone()
    with aside(place) as copied, aside(place) as part:
        source, left_out = _opened(path, copied)
        try:
            repeated = _erase_again(source, ledger)
            present = look_at(place, replace=replace)
            redact_again(source, present.redactions, redone)
            revoke_again(source, present.revocations)
            repeated += forget_all_again(source, present.forgotten)
            rows = source.scoped(EVERYBODY).read(counted)
            write_rows(source, part, progress)
        finally:
            source.close()
        settle(part)
        kept = put_in_place(part, place, present)
    return RestoreReport(
        rows=rows,
        redacted=redone.redacted + repeated.redacted,
        deleted=redone.deleted,
        forgotten=repeated.forgotten,
        erased=repeated.erased,
        redactions_read=present.readable,
        kept=kept,
        warning=_KEPT if kept else None,
        left_out=left_out,
    )


def _into_postgres(
    path: Path,
    url: str,
    part: Path,
    ledger: ForgottenRecords,
    *,
    replace: bool,
    progress: Callable[[int], None],
) -> RestoreReport:
    redone = Redone()
    source, left_out = _opened(path, part)
    try:
        repeated = _erase_again(source, ledger)
        engine = engines.PostgresEngine.open(url, clock=SystemClock())
        try:
            all_owners = engine.scoped(EVERYBODY)
            sql, shown = all_owners.queries("holdfast.library.upkeep"), engine.status().target

            def work(tx: Transaction) -> None:
                nonlocal repeated
                tx.all(dict[str, object], sql.make_ready)
                hold_writers(tx)
                if not replace and is_used(tx):
                    raise PresentFile.used(shown)
                # A retry finds its earlier redactions in the copy.
                redact_again(source, redactions(tx, sql), redone)
                revoke_again(source, revocations(tx, sql))
                repeated += forget_all_again(source, forgotten_of(tx, engine))
                empty(tx)
                copy(source, source.scoped(EVERYBODY), all_owners, tx, progress=progress)
                fill_words_of(all_owners)(tx)

            all_owners.write(work, timeout=3600)
            pending = engine.scrub().pending if replace else ()
            rows = source.scoped(EVERYBODY).read(counted)
        finally:
            engine.close()
    finally:
        source.close()
    return RestoreReport(
        rows=rows,
        redacted=redone.redacted + repeated.redacted,
        deleted=redone.deleted,
        forgotten=repeated.forgotten,
        erased=repeated.erased,
        left_out=left_out,
        pending=pending,
    )


def _opened(path: Path, part: Path) -> tuple[SQLiteEngine, tuple[str, ...]]:
    """Open a copy of the backup *path* at *part*, migrated to this release.

    Return it with the names of the objects that were left out.

    """
    shutil.copyfile(path, part)
    try:
        left_out = drop_foreign(part)
        engine = SQLiteEngine.open(str(part), clock=SystemClock())
    except Corrupt as error:
        raise Corrupt(str(path), error.findings) from error
    except InvalidInput as error:
        raise InvalidInput("file", "is no backup of ours", given=str(path)) from error
    try:
        _demand_whole(engine, path)
    except BaseException:
        engine.close()
        raise
    return engine, left_out


def _demand_whole(engine: SQLiteEngine, path: Path) -> None:
    """Raise Corrupt for the first finding in *engine*, a copy of *path*."""
    findings = [each for each in verify(engine, quick=True).findings if each.check != SCHEMA]
    if findings:
        first = findings[0]
        where = f"the first of {first.check} in {first.table or 'the file'}"
        raise Corrupt(os.fspath(path), f"{len(findings)} findings, {where}")
