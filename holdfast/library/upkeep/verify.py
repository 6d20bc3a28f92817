"""Run all checks of a database, and rebuild its indexes."""

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct, field

from holdfast.engines import queries
from holdfast.engines.base import Dialect, Engine, Reader, Transaction
from holdfast.engines.migrate import known
from holdfast.engines.sqlite.connection import APPLICATION_ID, Connection, connect
from holdfast.ground.errors import Corrupt, EngineFault, InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.tables import (
    Finding,
    check_indexes,
    check_storage,
    in_batches,
    strays,
)
from holdfast.library.upkeep.verify_durable import check_entries
from holdfast.library.upkeep.verify_longterm import check_longterm, mend_longterm
from holdfast.library.upkeep.verify_runs import check_runs, check_threads
from holdfast.library.upkeep.verify_stores import (
    HeadRow,
    StoreRow,
    VersionRow,
    check_chain,
    check_counters,
    check_counts,
    check_exclusive,
    check_heads,
    check_words,
    fill_words_of,
)

_DROPPED: Final = ("trigger", "view", "index", "table")
"""Kinds of objects in the order in which foreign ones are dropped."""

SCHEMA: Final = "schema"
"""Name of this check in findings."""

_Key = tuple[str, str, str]
"""Kind, table and name of an object."""
_ObjectRow = tuple[str, str, str, str]
"""A key with the object's definition: a line of `schema.postgres.json`."""


class SchemaObject(Struct, frozen=True, kw_only=True):
    """A table, index, trigger, column or other object of a schema.

    *text* is its definition, if compared.
    """

    kind: str
    table: str
    name: str
    text: str

    @property
    def key(self) -> _Key:
        """The key of this object."""
        return self.kind, self.table, self.name


def check_schema(engine: Engine, reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield a finding for each foreign, missing or differently defined object."""
    expected, found = schema_of(engine.dialect), objects_in(reader, sql)
    for key in sorted({*expected, *found}):
        kind, table, name = key
        whole = ("table", table, table)
        if kind == "column" and not (whole in expected and whole in found):
            continue
        if expected.get(key) != found.get(key):
            yield Finding(
                SCHEMA,
                table,
                name,
                f"the {kind} of this release" if key in expected else "nothing",
                ("another" if key in expected else f"a foreign {kind}")
                if key in found
                else "nothing",
            )


@cache
def schema_of(dialect: Dialect) -> dict[_Key, str]:
    """Return the objects of this release's schema, each with its definition."""
    if dialect == "sqlite":
        return _sqlite_schema(max(migration.number for migration in known("sqlite")))
    rows = files("holdfast.engines").joinpath("migrations", "schema.postgres.json").read_bytes()
    found = msgspec.json.decode(rows, type=list[_ObjectRow])
    return {(kind, table, name): text for kind, table, name, text in found}


def objects_in(reader: Reader, sql: SimpleNamespace) -> dict[_Key, str]:
    """Return the objects of the database of *reader*, each with its definition."""
    return {each.key: _plain(each.text) for each in reader.all(SchemaObject, sql.schema_objects)}


def drop_foreign(path: Path) -> tuple[str, ...]:
    """Drop all objects of the SQLite file *path* that no migration of ours creates.

    Return their names.

    These are tables with their rows, views, triggers and indexes. A file that is not ours, or of a
    newer release, is not changed.
    """
    connection = connect(str(path), "writer")
    try:
        number = connection.number("pragma user_version")
        newest = max(migration.number for migration in known("sqlite"))
        ours = connection.number("pragma application_id") == APPLICATION_ID
        if not ours or not 0 < number <= newest:
            return ()
        expected = _sqlite_schema(number)
        foreign = [each for each in _objects(connection) if each.key not in expected]
        connection.do("pragma foreign_keys = off")
        for each in sorted(foreign, key=lambda each: _DROPPED.index(each.kind)):
            name = each.name.replace('"', '""')
            connection.do(f'drop {each.kind} if exists "{name}"')
        return tuple(sorted(f"{each.kind} {each.name}" for each in foreign))
    finally:
        connection.raw.close(force=True)


@cache
def _sqlite_schema(number: int) -> dict[_Key, str]:
    """Return the objects that the migrations up to *number* create."""
    connection = connect(":memory:", "writer")
    try:
        for migration in known("sqlite"):
            if migration.number <= number:
                for statement in migration.statements:
                    connection.do(statement)
        return {each.key: _plain(each.text) for each in _objects(connection)}
    finally:
        connection.raw.close(force=True)


def _objects(connection: Connection) -> list[SchemaObject]:
    sql = queries.load("holdfast.library.upkeep", "sqlite")
    return connection.all(SchemaObject, sql.schema_objects, {})


def _plain(text: str) -> str:
    """Return *text* without quotes and white space, which vary by SQLite version."""
    return re.sub(r'[\s"`\[\]]+', "", text)


def rebuild(engine: Engine) -> None:
    """Rebuild the words of memories, and the terms and vectors of long-term memory.

    It is one transaction; *engine* is scoped to all owners.
    """
    mends = (mend_longterm(engine), fill_words_of(engine))

    def work(tx: Transaction) -> None:
        for mend in mends:
            mend(tx)

    engine.write(work, timeout=3600)


VERSIONS_AT_ONCE = 100
"""Versions read at a time: 10 MiB at most with their contents."""

_LINK = re.compile(r"[0-9a-f]{64}")


COUNTED: Final = (
    *("stores", "memories", "versions", "durable_entries", "durable_changes"),
    *("ltm_items", "ltm_turns", "runs", "thread_turns"),
)
"""Kinds of rows that are checked."""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """Result of `verify`: its findings, none if `ok`.

    `counts` holds the number of rows checked by kind; `links` each store's last link in hex. A
    link that was noted elsewhere proves later that no earlier version is missing.
    """

    ok: bool
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    links: dict[str, str]
    repaired: bool = False


class _Walk(Struct, kw_only=True):
    """Findings so far."""

    quick: bool
    head: str | None
    head_seen: bool = False
    findings: list[Finding] = field(default_factory=list[Finding])
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    links: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_another_schema(self) -> bool:
        """Whether the schema is not this release's."""
        return any(finding.check == SCHEMA for finding in self.findings)

    def report(self) -> VerifyReport:
        return VerifyReport(
            ok=not self.findings,
            findings=tuple(self.findings),
            counts=self.counts,
            links=self.links,
        )


def verify(
    engine: Engine, *, quick: bool = False, repair: bool = False, head: str | None = None
) -> VerifyReport:
    """Verify a whole database: schema, storage, chains, counts, words, owners.

    It also checks heads, exclusive paths and redactions. On a foreign schema the rest is checked as
    far as its statements can run. *quick* uses the engine's quick check of the storage, and counts
    the words without comparing them. *repair* rebuilds derived data (the words, the terms and the
    set of vectors of long-term memory) if it differs. *head*, a link noted earlier (hex), is a
    finding if no chain contains it any more. Raises InvalidInput if it is no link.
    """
    if head is not None and not _LINK.fullmatch(head := head.strip().lower()):
        raise InvalidInput("head", "must be a link: 64 hexadecimal digits", given=head)
    all_owners = engine.scoped(EVERYBODY)
    report = _report(all_owners, quick=quick, head=head)
    if repair and any(finding.check == "derived" for finding in report.findings):
        rebuild(all_owners)
        report = _report(all_owners, quick=quick, head=head)
        return msgspec.structs.replace(report, repaired=True)
    return report


def _report(all_owners: Engine, *, quick: bool, head: str | None) -> VerifyReport:
    def work(reader: Reader) -> _Walk:
        walk = _Walk(quick=quick, head=head)
        try:
            _walk(all_owners, reader, walk)
        except Corrupt as error:
            # Damaged data ends the reading; findings until here still count.
            walk.findings.append(Finding("storage", "", "", "ok", error.findings))
        except EngineFault:
            # A statement fails on a foreign schema: the findings name the differences.
            if not walk.has_another_schema:
                raise
        return walk

    walk = all_owners.read(work)
    if not quick:
        walk.findings += check_indexes(all_owners)
    return walk.report()


def _walk(all_owners: Engine, reader: Reader, walk: _Walk) -> None:
    sql = all_owners.queries("holdfast.library.upkeep")
    reader.all(dict[str, object], sql.make_ready)
    walk.findings += check_schema(all_owners, reader, sql)
    walk.findings += check_storage(all_owners, reader, quick=walk.quick)
    for store in reader.all(StoreRow, sql.all_stores):
        _walk_store(reader, sql, store, walk)
    walk.findings += check_counts(reader, sql)
    walk.findings += check_entries(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += check_longterm(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += check_runs(reader, sql, walk.counts)
    walk.findings += check_threads(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += strays(reader, sql.strays)
    walk.findings += strays(reader, sql.stray_durable)
    walk.findings += strays(reader, sql.other_tiers, "heads", "the tier of its change")
    if walk.head is not None and not walk.head_seen:
        walk.findings.append(Finding("chains", "versions", "", walk.head, "no such link"))


def _walk_store(reader: Reader, sql: SimpleNamespace, store: StoreRow, walk: _Walk) -> None:
    chained = check_chain(store, _versions(reader, sql, store.id))
    heads = reader.all(HeadRow, sql.heads_of_store, store=store.id)
    walk.findings += chained.findings
    walk.findings += check_heads(heads, chained.live)
    walk.findings += check_counters(store, heads)
    walk.findings += check_exclusive(heads)
    if not walk.quick:
        walk.findings += check_words(reader, sql, store)
    walk.counts["stores"] += 1
    walk.counts["memories"] += len(heads)
    walk.counts["versions"] += chained.count
    walk.links[store.id] = store.link.hex()
    walk.head_seen = walk.head_seen or walk.head in chained.links


def _versions(reader: Reader, sql: SimpleNamespace, store_id: str) -> Iterator[VersionRow]:
    by, most = {"after": "number"}, VERSIONS_AT_ONCE
    return in_batches(reader, VersionRow, sql.versions_after, by, store=store_id, rows=most)
