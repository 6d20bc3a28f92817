"""Copy tables between databases, and replace files atomically.

Columns are read from the databases, so a column added by a migration is copied without a change
here. Derived tables (words) are rebuilt, not copied.
"""

import errno
import os
import secrets
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import LiteralString, TypeVar, cast

from msgspec import Struct

from holdfast.engines import queries
from holdfast.engines.base import Engine, Reader, Transaction, scalar
from holdfast.engines.sqlite.connection import connect
from holdfast.engines.sqlite.maintenance import empty as empty_log
from holdfast.ground.errors import Corrupt, Unavailable
from holdfast.memories.longterm.vectors.table import from_stored, to_stored

T = TypeVar("T")

ROWS_AT_ONCE = 200


class CopiedTable(Struct, frozen=True):
    """A table to copy, and the columns that order its rows."""

    name: str
    key: tuple[str, ...]


TABLES = (
    CopiedTable("stores", ("id",)),
    CopiedTable("memories", ("id",)),
    CopiedTable("versions", ("number",)),
    CopiedTable("store_edits", ("store_id", "id")),
    CopiedTable("store_settings", ("workspace",)),
    CopiedTable("sessions", ("id",)),
    CopiedTable("session_stores", ("session_id", "memory_store_id")),
    CopiedTable("session_tokens", ("id",)),
    CopiedTable("stored_objects", ("id", "version")),
    CopiedTable("api_keys", ("id",)),
    CopiedTable("durable_entries", ("workspace", "agent", "run_id", "key")),
    CopiedTable("durable_agents", ("workspace", "agent")),
    CopiedTable("durable_limits", ("workspace", "agent")),
    CopiedTable("durable_changes", ("seq",)),
    CopiedTable("durable_tombstones", ("workspace", "agent", "run_id", "key_hash")),
    CopiedTable("durable_secrets", ("workspace",)),
    CopiedTable("durable_lanes", ("workspace", "agent", "lane")),
    CopiedTable("durable_runs", ("workspace", "agent", "token")),
    CopiedTable("durable_replays", ("workspace", "agent", "key_hash")),
    CopiedTable("ltm_collections", ("number",)),
    CopiedTable("ltm_items", ("collection", "number")),
    CopiedTable("ltm_turns", ("collection", "number")),
    CopiedTable("ltm_links", ("collection", "item", "turn")),
    CopiedTable("ltm_item_history", ("collection", "item", "seq")),
    CopiedTable("ltm_access", ("collection", "number")),
    CopiedTable("ltm_cursors", ("collection", "thread_id", "chunk")),
    CopiedTable("ltm_tombstones", ("collection", "id")),
    CopiedTable("user_tombstones", ("workspace", "user_hash")),
    CopiedTable("ltm_secrets", ("workspace", "user_id")),
    CopiedTable("ltm_jobs", ("number",)),
    CopiedTable("mining_spending", ("workspace", "day")),
    CopiedTable("ltm_vectors", ("collection", "id")),
    CopiedTable("ltm_vector_sets", ("collection",)),
    CopiedTable("runs", ("workspace", "id")),
    CopiedTable("run_entries", ("workspace", "run_id", "key")),
    CopiedTable("run_events", ("workspace", "run_id", "seq")),
    CopiedTable("run_limits", ("workspace",)),
    CopiedTable("run_parts", ("workspace", "run_id", "kind", "id")),
    CopiedTable("run_versions", ("workspace", "run_id", "number")),
    CopiedTable("run_version_rows", ("workspace", "run_id", "kind", "key", "number")),
    CopiedTable("run_turns", ("workspace", "run_id", "part", "n")),
    CopiedTable("run_texts", ("workspace", "run_id", "sha256")),
    CopiedTable("run_questions", ("workspace", "id")),
    CopiedTable("run_effects", ("workspace", "run_id", "key")),
    CopiedTable("threads", ("workspace", "id")),
    CopiedTable("thread_turns", ("seq",)),
    CopiedTable("thread_tombstones", ("workspace", "thread_hash")),
    CopiedTable("tombstone_secrets", ("workspace",)),
    CopiedTable("subjects", ("workspace", "user_id", "kind", "object_id")),
    CopiedTable("erasures", ("workspace", "id")),
    CopiedTable("backups", ("workspace", "at", "name")),
    CopiedTable("consolidations", ("workspace", "id")),
    CopiedTable("consolidation_changes", ("workspace", "job", "n")),
    CopiedTable("consolidation_calls", ("workspace", "job", "n")),
    CopiedTable("consolidation_policies", ("workspace", "owner_kind", "owner", "scope")),
    CopiedTable("samples", ("workspace", "day")),
    CopiedTable("changes", ("seq",)),
)
"""Every table with data that cannot be rebuilt, owners before what they own.

Sign-ins to the console are left out: one of a backup may have ended since.

Triggers count durable entries into existing rows of agents, and give a run its lane. So agents are
copied after entries, and lanes before runs.
"""


class _Column(Struct, frozen=True, kw_only=True):
    name: str
    pk: int


class Copied(Struct, kw_only=True):
    """Number of rows copied by table, and the last number of the engine-wide order."""

    rows: dict[str, int]
    seq: int


def columns(engine: Engine, reader: Reader, table: str) -> list[str]:
    """Return the columns of *table* in this database."""
    sql = engine.queries("holdfast.library.upkeep")
    return [column.name for column in reader.all(_Column, sql.columns_of, table=table)]


def copy(
    source: Engine,
    reader: Reader,
    target: Engine,
    tx: Transaction,
    *,
    progress: Callable[[int], None],
) -> Copied:
    """Copy every row that *reader* sees into *tx*.

    Calls *progress* with the number of rows copied so far.
    """
    copied = Copied(rows={}, seq=reader.one(scalar, _sql(source).last_seq))
    done = 0
    for table in TABLES:
        shared = set(columns(target, tx, table.name))
        names = [name for name in columns(source, reader, table.name) if name in shared]
        insert = _insert(target, table, names)
        after: dict[str, object] = {}
        copied.rows[table.name] = 0
        while rows := reader.all(dict[str, object], _select(source, table, names, after), **after):
            tx.run_many(insert, [_stored(target, table, row) for row in rows])
            copied.rows[table.name] += len(rows)
            done += len(rows)
            progress(done)
            after = {f"after_{column}": rows[-1][column] for column in table.key}
    sql = _sql(target)
    for statement in (sql.raise_seq, sql.raise_store_numbers, sql.raise_version_numbers):
        tx.all(dict[str, object], statement, seq=copied.seq)
    return copied


def _stored(target: Engine, table: CopiedTable, row: dict[str, object]) -> dict[str, object]:
    """Return *row* in the encoding of *target*: the type of vectors differs."""
    if table.name != "ltm_vectors":
        return row
    return {**row, "vector": to_stored(target.dialect, from_stored(row["vector"]))}


def hold_writers(tx: Transaction) -> None:
    """Block all other writers until this transaction ends; readers continue.

    For PostgreSQL: on SQLite there is only one write transaction at a time.
    """
    names = ", ".join(table.name for table in TABLES)
    tx.all(dict[str, object], ours(f"lock table {names} in exclusive mode"))


def empty(tx: Transaction) -> None:
    """Delete every row, owned rows before their owners."""
    for table in reversed(TABLES):
        tx.run(ours(f"delete from {table.name}"))


def counted(reader: Reader) -> int:
    """Return the total number of rows."""
    return sum(
        reader.one(scalar, ours(f"select count(*) as seq from {table.name}")) for table in TABLES
    )


def is_used(reader: Reader) -> bool:
    """Return whether any table but the change feed and the list of backups has rows."""
    return any(
        reader.first(dict[str, object], ours(f"select 1 as used from {table.name} limit 1"))
        for table in TABLES
        if table.name not in ("changes", "backups")
    )


def _sql(engine: Engine) -> SimpleNamespace:
    return engine.queries("holdfast.library.upkeep")


def _select(
    engine: Engine, table: CopiedTable, names: list[str], after: dict[str, object]
) -> LiteralString:
    key = ", ".join(table.key)
    start = ", ".join(f":{name}" for name in after)
    where = f" where ({key}) > ({start})" if after else ""
    return _spelled(
        engine,
        f"select {', '.join(names)} from {table.name}{where} order by {key} limit {ROWS_AT_ONCE}",
    )


def _insert(engine: Engine, table: CopiedTable, names: list[str]) -> LiteralString:
    overriding = " overriding system value" if engine.dialect == "postgres" else ""
    values = ", ".join(f":{name}" for name in names)
    return _spelled(
        engine,
        f"insert into {table.name} ({', '.join(names)}){overriding} values ({values})",
    )


def _spelled(engine: Engine, statement: str) -> LiteralString:
    """Return *statement* with its `:name` parameters in the dialect of *engine*."""
    read = queries.read(f"-- copying --\n{statement}", engine.dialect, source="copying")
    return ours(read["copying"])


def ours(statement: str) -> LiteralString:
    """Return *statement* as a literal.

    Its names come only from `TABLES` and the database's catalogue.
    """
    return cast("LiteralString", statement)


BESIDE = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside a database."""

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def aside(place: Path) -> Generator[Path]:
    """Yield a new, empty temporary file beside *place*, mode 0600, to rename.

    It is removed on exit if it was not renamed; if the process is killed, it stays under its
    hidden name. Raises Unavailable: full, io.
    """
    part = place.with_name(f".{place.name}.{secrets.token_hex(6)}")
    try:
        try:
            os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield part
        finally:
            for left in (part, *beside(part)):
                if left.exists():
                    left.unlink()
    except OSError as error:
        raise Unavailable(
            f"{place} could not be written: {error.strerror}.",
            reason="full" if error.errno in _NO_ROOM else "io",
            next="Free some space, then try again."
            if error.errno in _NO_ROOM
            else "Check the folder and its permissions, then try again.",
        ) from error


def beside(place: Path) -> list[Path]:
    """Return the existing files that SQLite keeps beside the database *place*."""
    return [path for ending in BESIDE if (path := place.with_name(place.name + ending)).exists()]


def settle(part: Path) -> None:
    """Sync the database *part* before its rename; its log must be empty.

    No process may have it open. Raises Unavailable: full, io; OSError.
    """
    if beside(part):
        # Closing it could not checkpoint its log: another try succeeds, or says why not.
        connection = connect(str(part), "writer")
        try:
            empty_log(connection)
        finally:
            connection.raw.close(force=True)
    if beside(part):
        raise OSError(errno.EIO, "its log could not be written into it")
    sync(part)


def sync(place: Path) -> None:
    """Make the contents of *place*, a file or folder, survive a power loss."""
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Check(Struct, frozen=True):
    """Result of one check, with a message."""

    name: str
    ok: bool
    says: str


class Finding(Struct, frozen=True):
    """One finding: check, table, id, expected and found value.

    It contains ids, counts and hashes only.
    """

    check: str
    table: str
    id: str
    expected: str
    found: str


class _Stray(Struct, frozen=True, kw_only=True):
    table: str
    id: str
    found: str


def strays(
    reader: Reader, statement: LiteralString, check: str = "owners", expected: str = "its"
) -> Iterator[Finding]:
    """Yield a finding for each row that *statement* returns."""
    for stray in reader.all(_Stray, statement):
        yield Finding(check, stray.table, stray.id, expected, stray.found)


def miscounted(table: str, id: str, row: Struct, names: Iterable[str]) -> Iterator[Finding]:
    """Yield each counter of *row* that differs from what `counted_<name>` has counted."""
    for name in names:
        stored, counted = getattr(row, name), getattr(row, f"counted_{name}")
        if stored != counted:
            yield Finding("counters", table, id, f"{name} {counted}", f"{name} {stored}")


def counters(name: str, findings: Iterable[Finding]) -> Check:
    """Return the check of counters with these *findings*."""
    wrong = len(list(findings))
    says = f"{wrong:,} differ from the data; holdfast verify names them"
    return Check(name, not wrong, says if wrong else "match the data")


def in_batches(
    reader: Reader,
    kind: type[T],
    statement: LiteralString,
    by: Mapping[str, str],
    *,
    start: int | str = 0,
    **given: object,
) -> Iterator[T]:
    """Give all rows of *statement*, which returns some after a place.

    *by* names the columns of the last row that are the place, by parameter.
    """
    after: dict[str, object] = dict.fromkeys(by, start)
    while rows := reader.all(kind, statement, **given, **after):
        yield from rows
        after = {name: getattr(rows[-1], column) for name, column in by.items()}


def check_storage(engine: Engine, reader: Reader, *, quick: bool) -> Iterator[Finding]:
    """Yield the engine's findings on its own files, and rows with dangling references."""
    sql = engine.queries("holdfast.library.upkeep")
    for text in reader.all(scalar, sql.quick_integrity if quick else sql.integrity):
        if text != "ok":
            yield Finding("storage", "", "", "ok", text)
    for text in reader.all(scalar, sql.orphans):
        yield Finding("storage", "", "", "ok", text)
    if engine.dialect == "postgres" and not quick:
        for table in TABLES:
            yield from _scanned(reader, sql, table)


def check_indexes(engine: Engine) -> Iterator[Finding]:
    """Yield a finding for each index that PostgreSQL's extension amcheck reports.

    None without the extension.

    It reports by failing, so each index is checked by itself.
    """
    sql = engine.queries("holdfast.library.upkeep")
    for name, statement in engine.all(_check_of, sql.index_checks):
        try:
            engine.all(dict[str, object], ours(statement))
        except Corrupt:
            yield Finding("storage", name, "", "an index that fits its table", "a damaged one")


def _scanned(reader: Reader, sql: SimpleNamespace, table: CopiedTable) -> Iterator[Finding]:
    """Compare row counts of *table* by sequential scan and by primary key."""
    key = ", ".join(table.key)
    counts: list[int] = []
    by_rows = f"select count(*) as rows from {table.name}"
    by_key = f"select count(*) as rows from (select {key} from {table.name} order by {key}) k"
    for way, statement in ((sql.by_rows, by_rows), (sql.by_key, by_key)):
        reader.all(dict[str, object], way)
        counts.append(reader.one(scalar, ours(statement)))
    reader.all(dict[str, object], sql.by_any)
    if counts[0] != counts[1]:
        yield Finding("storage", table.name, "", f"{counts[0]} by row", f"{counts[1]} by key")


def _check_of(*, name: str, statement: str) -> tuple[str, str]:
    return name, statement
