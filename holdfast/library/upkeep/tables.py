"""Rows of one database into another, of either engine, table by table.

Which columns a table has is asked of the databases, so a migration that adds one is copied
without a change here. What is derived (words) is not copied but made again.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import LiteralString, cast

from msgspec import Struct

from holdfast.engines import queries
from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.memories.longterm.vectors.table import from_stored, to_stored

ROWS_AT_ONCE = 200


class CopiedTable(Struct, frozen=True):
    """A table to copy, and the columns its rows are read in order of."""

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
    CopiedTable("agents", ("id", "version")),
    CopiedTable("environments", ("id",)),
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
    CopiedTable("ltm_access", ("collection", "number")),
    CopiedTable("ltm_cursors", ("collection", "thread_id", "chunk")),
    CopiedTable("ltm_tombstones", ("collection", "id")),
    CopiedTable("user_tombstones", ("workspace", "user_hash")),
    CopiedTable("ltm_secrets", ("workspace", "user_id")),
    CopiedTable("ltm_jobs", ("number",)),
    CopiedTable("ltm_vectors", ("collection", "id")),
    CopiedTable("ltm_vector_sets", ("collection",)),
    CopiedTable("runs", ("workspace", "id")),
    CopiedTable("run_entries", ("workspace", "run_id", "key")),
    CopiedTable("run_events", ("workspace", "run_id", "seq")),
    CopiedTable("run_checkpoints", ("workspace", "run_id")),
    CopiedTable("threads", ("workspace", "id")),
    CopiedTable("thread_turns", ("seq",)),
    CopiedTable("network_runs", ("workspace", "id")),
    CopiedTable("thread_tombstones", ("workspace", "thread_hash")),
    CopiedTable("tombstone_secrets", ("workspace",)),
    CopiedTable("changes", ("seq",)),
)
"""Every table that holds what cannot be made again, owners before what they own.

Triggers count durable entries into the rows of agents that are there, and let a run take its
lane; so what they write into is copied after the first, and before the other.
"""


class _Column(Struct, frozen=True, kw_only=True):
    name: str
    pk: int


class Copied(Struct, kw_only=True):
    """How much was copied: rows by table, and the last number of the engine-wide order."""

    rows: dict[str, int]
    seq: int


def columns(engine: Engine, reader: Reader, table: str) -> list[str]:
    """Return the columns that *table* has there."""
    sql = engine.queries("holdfast.library.upkeep")
    return [column.name for column in reader.all(_Column, sql.columns_of, table=table)]


def copy(
    source: Engine, reader: Reader, target: Engine, tx: Transaction, *, told: Callable[[int], None]
) -> Copied:
    """Copy every row that *reader* sees into *tx*; *told* hears how many rows went so far."""
    copied = Copied(rows={}, seq=reader.one(_seq, _sql(source).last_seq))
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
            told(done)
            after = {f"after_{column}": rows[-1][column] for column in table.key}
    _raise_numbers(target, tx, copied.seq)
    return copied


def _stored(target: Engine, table: CopiedTable, row: dict[str, object]) -> dict[str, object]:
    """Return *row* as *target* has it: vectors are of another type on each engine."""
    if table.name != "ltm_vectors":
        return row
    return {**row, "vector": to_stored(target.dialect, from_stored(row["vector"]))}


def _raise_numbers(target: Engine, tx: Transaction, seq: int) -> None:
    """Let what the target numbers next come after every number that was copied."""
    sql = _sql(target)
    for statement in (sql.raise_seq, sql.raise_store_numbers, sql.raise_version_numbers):
        tx.all(dict[str, object], statement, seq=seq)


def hold_writers(tx: Transaction) -> None:
    """Let nobody else write to any table until this transaction ends; they may read.

    For PostgreSQL: on SQLite a transaction is alone anyway.
    """
    names = ", ".join(table.name for table in TABLES)
    tx.all(dict[str, object], ours(f"lock table {names} in exclusive mode"))


def empty(tx: Transaction) -> None:
    """Delete every row, what is owned before its owner."""
    for table in reversed(TABLES):
        tx.run(ours(f"delete from {table.name}"))


def counted(reader: Reader) -> int:
    """Return how many rows there are in all."""
    return sum(
        reader.one(_seq, ours(f"select count(*) as seq from {table.name}")) for table in TABLES
    )


def is_used(reader: Reader) -> bool:
    """Tell whether there is anything but the change feed."""
    return any(
        reader.first(dict[str, object], ours(f"select 1 as used from {table.name} limit 1"))
        for table in TABLES
        if table.name != "changes"
    )


def _seq(*, seq: int) -> int:
    return seq


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
    """Return *statement*, whose values stand as `:name`, as *engine* wants to see it."""
    read = queries.read(f"-- copying --\n{statement}", engine.dialect, source="copying")
    return ours(read["copying"])


def ours(statement: str) -> LiteralString:
    """Return *statement*, whose names come from the table above and the catalogue alone."""
    return cast("LiteralString", statement)
