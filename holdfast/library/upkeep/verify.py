"""Run all checks of a database, and rebuild its indexes."""

import re
from collections.abc import Iterator
from types import SimpleNamespace

import msgspec
from msgspec import Struct, field

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.errors import Corrupt, EngineFault, InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.schema import SCHEMA, check_schema
from holdfast.library.upkeep.tables import Finding, check_indexes, check_storage
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


def rebuild(engine: Engine) -> None:
    """Make the words of memories, and the terms and vectors of long-term memory, fit again.

    That is one transaction; *engine* is scoped to everybody.
    """
    mends = (mend_longterm(engine), fill_words_of(engine))

    def work(tx: Transaction) -> None:
        for mend in mends:
            mend(tx)

    engine.write(work, timeout=3600)


VERSIONS_AT_ONCE = 100
"""Versions read at a time; with their contents 10 MiB at most."""

_LINK = re.compile(r"[0-9a-f]{64}")


class VerifyReport(Struct, frozen=True, kw_only=True):
    """What `verify` found: nothing when `ok`.

    `counts` says how much was looked at; `links` holds each store's last link, hex, which
    written down proves later that nothing before it went missing.
    """

    ok: bool
    findings: tuple[Finding, ...]
    counts: dict[str, int]
    links: dict[str, str]
    repaired: bool = False


class _Stray(Struct, frozen=True, kw_only=True):
    table: str
    id: str
    found: str


class _Walk(Struct, kw_only=True):
    """What was found so far."""

    quick: bool
    head: str | None
    head_seen: bool = False
    findings: list[Finding] = field(default_factory=list[Finding])
    counts: dict[str, int] = field(
        default_factory=lambda: {
            "stores": 0,
            "memories": 0,
            "versions": 0,
            "durable_entries": 0,
            "durable_changes": 0,
            "ltm_items": 0,
            "ltm_turns": 0,
            "runs": 0,
            "thread_turns": 0,
        }
    )
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
    """Check schema, storage, heads, chains, counts, exclusive paths, words, redactions, owners.

    On a schema that is not this release's the rest is checked as far as its statements can run.
    *quick* asks the engine for its quick check of the storage, and counts the words without
    comparing them. *repair* rebuilds what is derived (the words, the terms of long-term memory and
    which vectors it has) when it does not fit. *head*, a
    link written down earlier (hex), is a finding when no chain holds it any more. Raises
    InvalidInput for one that is no link.
    """
    if head is not None and not _LINK.fullmatch(head := head.strip().lower()):
        raise InvalidInput("head", "must be a link: 64 hexadecimal digits", given=head)
    everybody = engine.scoped(EVERYBODY)
    report = _look(everybody, quick=quick, head=head)
    if repair and any(finding.check == "derived" for finding in report.findings):
        rebuild(everybody)
        report = _look(everybody, quick=quick, head=head)
        return msgspec.structs.replace(report, repaired=True)
    return report


def _look(everybody: Engine, *, quick: bool, head: str | None) -> VerifyReport:
    def work(reader: Reader) -> _Walk:
        walk = _Walk(quick=quick, head=head)
        try:
            _walk(everybody, reader, walk)
        except Corrupt as error:
            # What is damaged cannot be read on, and what was found until here still counts.
            walk.findings.append(_damage(error.findings))
        except EngineFault:
            # A statement that another schema does not allow: the findings name what is different.
            if not walk.has_another_schema:
                raise
        return walk

    walk = everybody.read(work)
    if not quick:
        walk.findings += check_indexes(everybody)
    return walk.report()


def _walk(everybody: Engine, reader: Reader, walk: _Walk) -> None:
    sql = everybody.queries("holdfast.library.upkeep")
    reader.all(dict[str, object], sql.make_ready)
    walk.findings += check_schema(everybody, reader, sql)
    walk.findings += check_storage(everybody, reader, quick=walk.quick)
    for store in reader.all(StoreRow, sql.all_stores):
        _walk_store(reader, sql, store, walk)
    walk.findings += check_counts(reader, sql)
    walk.findings += check_entries(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += check_longterm(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += check_runs(reader, sql, walk.counts)
    walk.findings += check_threads(reader, sql, walk.counts, quick=walk.quick)
    walk.findings += [
        Finding(check="owners", table=stray.table, id=stray.id, expected="its", found=stray.found)
        for statement in (sql.strays, sql.stray_durable)
        for stray in reader.all(_Stray, statement)
    ]
    if walk.head is not None and not walk.head_seen:
        walk.findings.append(
            Finding(
                check="chains", table="versions", id="", expected=walk.head, found="no such link"
            )
        )


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
    after = 0
    while rows := reader.all(
        VersionRow, sql.versions_after, store=store_id, after=after, rows=VERSIONS_AT_ONCE
    ):
        yield from rows
        after = rows[-1].number


def _damage(found: str) -> Finding:
    return Finding(check="storage", table="", id="", expected="ok", found=found)
