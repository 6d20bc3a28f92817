"""Report on the configuration and health of a database."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine, EngineStatus, Reader, scalar
from holdfast.engines.migrate import known
from holdfast.engines.sqlite.connection import APPLICATION_ID
from holdfast.engines.sqlite.maintenance import holders
from holdfast.engines.sqlite.target import RISKY
from holdfast.ground.clock import SystemClock, to_microseconds
from holdfast.ground.errors import Corrupt
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import mining_report
from holdfast.library.upkeep.tables import Check, check_storage, counters
from holdfast.library.upkeep.verify_durable import miscounted_agents
from holdfast.library.upkeep.verify_longterm import miscounted_collections
from holdfast.library.upkeep.verify_runs import miscounted_threads
from holdfast.memories.durable.context import LAPSES_AFTER
from holdfast.memories.durable.records import DAY
from holdfast.memories.longterm.recall.analyze import VERSION


class _Failed(Struct, frozen=True, kw_only=True):
    kind: str
    error: str
    jobs: int


class _Others(Struct, frozen=True, kw_only=True):
    collections: int
    newer: int


NAMED: Final = 3
"""Collections that a check names."""


def _extractors(hf: Holdfast) -> Check:
    """Return the check of the extractors of collections that are to be mined."""
    found = mining_report(hf.engine, hf.longterm_shared)
    bad = [each for each in found if each.extractor.state in ("waiting", "failing")]
    if not bad:
        return Check("long-term extractors", True, f"ready, for {len(found):,} collections")
    named = ", ".join(
        f"{each.collection_id} is {each.extractor.state} ({each.extractor.reason})"
        for each in bad[:NAMED]
    )
    more = f", and {len(bad) - NAMED:,} more" if len(bad) > NAMED else ""
    return Check("long-term extractors", False, f"{named}{more}; their turns stay queued")


def look_at_longterm(engine: Engine, sql: SimpleNamespace) -> Iterator[Check]:
    """Yield the checks of long-term memory; *engine* is scoped to all owners."""
    yield counters("long-term counters", miscounted_collections(engine, sql))
    failed = engine.all(_Failed, sql.failed_jobs)
    jobs = ", ".join(f"{each.jobs:,} {each.kind} ({each.error})" for each in failed)
    yield Check(
        "long-term jobs",
        not failed,
        f"failed for good: {jobs}; retry() queues them again" if failed else "none failed",
    )
    others = engine.one(_Others, sql.other_analyzers, ours=VERSION)
    older = others.collections - others.newer
    says = [f"version {VERSION}"]
    if older:
        says.append(f"{older:,} collections are of an older one, until they are next recalled from")
    if others.newer:
        says.append(f"{others.newer:,} are of a newer one: upgrade holdfast")
    yield Check("long-term analyzer", not others.newer, "; ".join(says))


DAMAGE_NAMED = 3
"""Findings on damaged storage that the doctor repeats; `verify` lists all."""

FREE_BYTES_LEAST = 1 << 30
LOG_BYTES_MOST = 64 << 20
SYNCED = 2
"""SQLite's value for commits that are synced before they return."""

CLOCKS_APART_MOST = 2.0
"""Seconds; beyond it, entries expire at times that users do not expect."""


QUESTIONS_LATE_MOST = 60.0
"""Seconds after which an expired question is a finding; servers settle them each second."""

UNTAKEN_AFTER = 60_000_000
"""Microseconds after which a queued run should have been taken by a worker."""

DBOS_FILE = ".dbos"
"""The end of the name of the file with DBOS's tables, beside a SQLite database."""

PRAGMAS = ("application_id", "page_size", "auto_vacuum", "freelist_count", "foreign_keys")


class _Over(Struct, frozen=True, kw_only=True):
    entries: int
    runs: int
    expired_at: int | None
    seen_at: int | None


class _OverQuestions(Struct, frozen=True, kw_only=True):
    waiting: int
    questions: int
    runs: int
    expired_at: int | None


class _Role(Struct, frozen=True, kw_only=True):
    name: str
    powerful: bool
    owned: int


def doctor(hf: Holdfast) -> list[Check]:
    """Return the checks of the database of *hf*; nothing is changed."""
    engine = hf.engine.scoped(EVERYBODY)
    status = hf.engine.status()
    if not status.ready:
        # All other checks would fail for the same reason.
        return [_database(status)]
    storage = _storage(engine)
    if not storage.ok:
        return [_database(status), storage]
    sql = hf.engine.queries("holdfast.library.upkeep")
    checks = [_database(status), storage, _schema(engine, sql, status), _durability(engine, sql)]
    if status.dialect == "sqlite":
        found = {name: engine.one(scalar, getattr(sql, name)) for name in PRAGMAS}
        marked = found["application_id"] == (0 if status.details["in_memory"] else APPLICATION_ID)
        ours = marked and found["foreign_keys"] == 1
        says = ", ".join(f"{name} {value}" for name, value in found.items())
        checks += [*_file(status), Check("pragmas", ours, says), _processes(status)]
    else:
        checks += _server(engine, sql)
    checks.append(counters("durable counters", miscounted_agents(engine, sql)))
    checks += [_overdue(engine, sql), _questions(engine, sql), _queued(engine, sql)]
    checks += [*look_at_longterm(engine, sql), _extractors(hf)]
    checks.append(counters("thread counters", miscounted_threads(engine, sql)))
    return [*checks, _pinned(status), _erasure(status), _clock(engine, sql)]


def has_dbos(hf: Holdfast) -> bool:
    """Whether there are tables of DBOS for the database of *hf*."""
    target = hf.opened.target if hf.opened else ""
    if hf.engine.dialect == "sqlite":
        return bool(target) and Path(f"{target}{DBOS_FILE}").exists()
    return hf.engine.one(scalar, hf.engine.queries("holdfast.library.upkeep").dbos_tables)


def _database(status: EngineStatus) -> Check:
    about = status.details.get("sqlite") or status.details.get("postgres") or ""
    says = f"{status.target} ({status.dialect} {about})"
    return Check("database", status.ready, f"{says}: {status.reason or 'ready'}")


def _storage(engine: Engine) -> Check:
    def work(reader: Reader) -> list[str]:
        sql = engine.queries("holdfast.library.upkeep")
        reader.all(dict[str, object], sql.make_ready)
        # A server has no quick check: its tables are counted instead.
        found = check_storage(engine, reader, quick=engine.dialect == "sqlite")
        return [f"{each.table}: {each.found}" if each.table else each.found for each in found]

    try:
        damage = engine.read(work)
    except Corrupt as error:
        damage = [error.findings]
    if not damage:
        return Check("storage", ok=True, says="readable")
    more = f" and {len(damage) - DAMAGE_NAMED:,} more" if len(damage) > DAMAGE_NAMED else ""
    return Check(
        "storage",
        ok=False,
        says=f"damaged: {'; '.join(damage[:DAMAGE_NAMED])}{more}. Nothing else was checked."
        " Run holdfast verify for all findings, then holdfast restore from a backup",
    )


def _schema(engine: Engine, sql: SimpleNamespace, status: EngineStatus) -> Check:
    newest = max(migration.number for migration in known(status.dialect))
    taken = engine.one(scalar, sql.schema_taken)
    return Check(
        "schema",
        taken == status.schema == newest,
        f"{status.schema}, by its migrations {taken}; this release knows {newest}",
    )


def _durability(engine: Engine, sql: SimpleNamespace) -> Check:
    journal = engine.one(scalar, sql.journal)
    level = engine.one(scalar, sql.durability)
    says = f"journal {journal}, " + ("every commit is synced" if level >= SYNCED else "NOT synced")
    return Check("durability", level >= SYNCED, says)


def _file(status: EngineStatus) -> Iterator[Check]:
    kind = str(status.details.get("file_system") or "memory")
    risky = kind in RISKY
    yield Check(
        "file system",
        not risky,
        f"{kind}; the log does not work across machines" if risky else kind,
    )
    free = status.details.get("free_bytes")
    if isinstance(free, int):
        yield Check("free space", free >= FREE_BYTES_LEAST, f"{free / 2**30:,.1f} GiB")
    log = status.details.get("log_bytes")
    if isinstance(log, int):
        yield Check("log", log <= LOG_BYTES_MOST, f"{log / 2**20:,.1f} MiB")


def _processes(status: EngineStatus) -> Check:
    found = holders(status.target)
    says = ", ".join(f"{each.pid} ({each.name}) {each.doing}" for each in found)
    return Check("other processes", ok=True, says=says or "none that is known")


def _server(engine: Engine, sql: SimpleNamespace) -> Iterator[Check]:
    role = engine.one(_Role, sql.role)
    yield Check(
        "role",
        not role.powerful,
        f"{role.name}, which owns {role.owned} tables"
        + (" and can bypass row security" if role.powerful else ""),
    )
    unforced = engine.all(scalar, sql.unforced)
    yield Check(
        "row security",
        not unforced,
        f"not as it should be: {', '.join(unforced)}" if unforced else "forced on every table",
    )
    yield Check("extensions", ok=True, says=", ".join(engine.all(scalar, sql.extensions)) or "none")
    yield Check(
        "forgetting",
        ok=True,
        says="forgotten data is deleted from tables and indexes; log segments until they are"
        " recycled, archives, base backups and standbys are the server owner's to clear ("
        + ", ".join(engine.all(scalar, sql.archiving))
        + ")",
    )


def _erasure(status: EngineStatus) -> Check:
    pending = status.metrics.get("erasure_pending", 0)
    return Check(
        "erasure", not pending, "waits for a reader to end" if pending else "nothing is queued"
    )


def _pinned(status: EngineStatus) -> Check:
    held = {
        name.removeprefix("pinned_by_").removesuffix("_seconds"): seconds
        for name, seconds in status.details.items()
        if name.startswith("pinned_by_")
    }
    says = ", ".join(f"{who} for {seconds} s" for who, seconds in held.items())
    return Check("readers", not held, says or "none holds an old snapshot")


def _overdue(engine: Engine, sql: SimpleNamespace) -> Check:
    now = to_microseconds(SystemClock().now())
    over = engine.one(_Over, sql.overdue, now=now, lapsed=now - LAPSES_AFTER)
    expired = now if over.expired_at is None else over.expired_at
    lapsed = now if over.seen_at is None else over.seen_at + LAPSES_AFTER
    days = (now - min(expired, lapsed)) / DAY
    says = f"{over.entries:,} entries and {over.runs:,} runs are over and still there"
    if days > 1:
        says += f", for {days:,.0f} days: run holdfast durable sweep"
    return Check("durable sweep", days <= 1, says if days else "nothing has expired")


def _questions(engine: Engine, sql: SimpleNamespace) -> Check:
    now = to_microseconds(SystemClock().now())
    over = engine.one(_OverQuestions, sql.overdue_questions, now=now)
    late = 0.0 if over.expired_at is None else (now - over.expired_at) / 1e6
    waits = "run waits" if over.waiting == 1 else "runs wait"
    says = f"{over.waiting:,} {waits} for answers" if over.waiting else "no run waits"
    if over.questions:
        asks = "question has" if over.questions == 1 else "questions have"
        of_runs = "one run" if over.runs == 1 else f"{over.runs:,} runs"
        says += (
            f"; {over.questions:,} {asks} expired {late:,.0f} s ago, of {of_runs}: serve the"
            " database, or read its runs"
        )
    return Check("questions", late <= QUESTIONS_LATE_MOST, says)


class _Untaken(Struct, frozen=True, kw_only=True):
    definition: str
    version: str
    runs: int


def _queued(engine: Engine, sql: SimpleNamespace) -> Check:
    now = to_microseconds(SystemClock().now())
    found = engine.all(_Untaken, sql.untaken_runs, now=now, before=now - UNTAKEN_AFTER)
    named = ", ".join(
        f"{each.runs:,} of {each.definition}" + (f" {each.version}" if each.version else "")
        for each in found
    )
    says = f"no worker takes them: {named}" if found else "none is left without a worker"
    return Check("queued runs", not found, says)


def _clock(engine: Engine, sql: SimpleNamespace) -> Check:
    here = to_microseconds(SystemClock().now())
    apart = abs(engine.one(scalar, sql.server_clock) - here) / 1e6
    return Check("clock", apart <= CLOCKS_APART_MOST, f"{apart:.2f} s from the database's")
