"""A backup, put where it can be used again, on either engine.

What was redacted in the target since the backup was made is redacted in what comes back, before
anybody can read it.
"""

import os
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.alone import require_alone
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import Corrupt, InvalidInput
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, Actor, ActorKind, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.backup import sync, unheard
from holdfast.library.upkeep.copying import copy, counted, empty, is_used
from holdfast.library.upkeep.verify import verify
from holdfast.library.upkeep.words import fill_words_of
from holdfast.memories.stores.caller import Caller


class RestoreReport(Struct, frozen=True, kw_only=True):
    """What came back: rows, redactions applied again, and where the old file was kept."""

    rows: int
    redacted: int
    kept: str | None


class _Redaction(Struct, frozen=True, kw_only=True):
    id: str
    redacted_at: int
    redacted_by_kind: ActorKind
    redacted_by_id: str


class _Version(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    store_id: str
    memory_id: str
    redacted_at: int | None
    live_memory_id: str | None


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
    if not path.is_file():
        raise InvalidInput("file", "does not exist", given=path)
    if target.startswith(("postgresql://", "postgres://")):
        with TemporaryDirectory(prefix="holdfast-") as folder:
            return _into_postgres(path, target, Path(folder) / "copy.db", replace, told)
    return _into_sqlite(path, Path(target.removeprefix("sqlite:")).absolute(), replace)


def _into_postgres(
    path: Path, url: str, aside: Path, replace: bool, told: Callable[[int], None]
) -> RestoreReport:
    from holdfast.engines.postgres import PostgresEngine

    engine = PostgresEngine.open(url, clock=SystemClock())
    try:
        everybody = engine.scoped(EVERYBODY)
        if not replace and everybody.read(is_used):
            raise _is_used(url.rpartition("@")[2])
        source = _opened(path, aside)
        try:
            redacted = _redact_again(source, _redactions(engine))
            rows = source.scoped(EVERYBODY).read(counted)

            def work(tx: Transaction) -> None:
                empty(tx)
                copy(source, source.scoped(EVERYBODY), everybody, tx, told=told)
                fill_words_of(everybody)(tx)

            everybody.write(work, timeout=3600)
        finally:
            source.close()
    finally:
        engine.close()
    return RestoreReport(rows=rows, redacted=redacted, kept=None)


def _into_sqlite(path: Path, target: Path, replace: bool) -> RestoreReport:
    if not target.parent.is_dir():
        raise InvalidInput("target", "lies in a folder that does not exist", given=target)
    redactions: list[_Redaction] = []
    if target.exists() and target.stat().st_size:
        redactions = _release(target, replace)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        source = _opened(path, aside)
        try:
            redacted = _redact_again(source, redactions)
            rows = source.scoped(EVERYBODY).read(counted)
        finally:
            source.close()
        sync(aside)
        kept = None
        if target.exists():
            kept = f"{target}.replaced-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
            target.rename(kept)
        aside.rename(target)
        sync(target.parent)
    finally:
        for name in (aside.name, f"{aside.name}-wal", f"{aside.name}-shm"):
            aside.with_name(name).unlink(missing_ok=True)
    return RestoreReport(rows=rows, redacted=redacted, kept=kept)


def _release(target: Path, replace: bool) -> list[_Redaction]:
    """Return what the file at *target* redacted; Unavailable while somebody has it open."""
    engine = SQLiteEngine.open(str(target), clock=SystemClock())
    try:
        if not replace and engine.scoped(EVERYBODY).read(is_used):
            raise _is_used(str(target))
        redactions = _redactions(engine)
    finally:
        engine.close()
    require_alone(target)
    return redactions


def _opened(path: Path, aside: Path) -> SQLiteEngine:
    """Return a copy of the backup at *path*, opened at *aside*, brought to this release."""
    os.close(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    shutil.copyfile(path, aside)
    engine = SQLiteEngine.open(str(aside), clock=SystemClock())
    report = verify(engine, quick=True)
    if not report.ok:
        engine.close()
        raise Corrupt(str(path), f"it has {len(report.findings)} findings")
    return engine


def _redactions(engine: Engine) -> list[_Redaction]:
    sql = engine.queries("holdfast.library.upkeep")
    return engine.scoped(EVERYBODY).all(_Redaction, sql.redacted_versions)


def _redact_again(engine: Engine, redactions: list[_Redaction]) -> int:
    """Redact in *engine* what *redactions* name and it still holds; return how many."""
    sql = engine.queries("holdfast.library.upkeep")
    everybody = engine.scoped(EVERYBODY)
    count = 0
    for redaction in redactions:
        version = everybody.first(_Version, sql.version_anywhere, version=redaction.id)
        if version is None or version.redacted_at is not None:
            continue
        stores = _as(engine, version.workspace, redaction).memory_stores
        if version.live_memory_id is not None:
            stores.memories.delete(version.live_memory_id, memory_store_id=version.store_id)
            last = everybody.one(_id, sql.last_version_of, memory=version.memory_id)
            stores.memory_versions.redact(last, memory_store_id=version.store_id)
        stores.memory_versions.redact(version.id, memory_store_id=version.store_id)
        count += 1
    return count


def _as(engine: Engine, workspace: str, redaction: _Redaction) -> Holdfast:
    """Return a handle of *workspace* that writes as who made *redaction*."""
    caller = Caller(
        engine=engine.scoped(Scope(workspace=workspace)),
        workspace=workspace,
        actor=Actor(redaction.redacted_by_kind, redaction.redacted_by_id),
        clock=SystemClock(),
        ids=Ids(),
    )
    return Holdfast(engine, caller)


def _id(*, id: str) -> str:
    return id


def _is_used(target: str) -> InvalidInput:
    return InvalidInput(
        "target", "is in use", given=target, next="Restore into an empty one, or --replace it."
    )
