"""Is everything there, and is it what it says? Read only; every finding by id and hash alone."""

from collections.abc import Iterator
from types import SimpleNamespace

from msgspec import Struct

from holdfast.engines.base import Engine, Reader
from holdfast.ground.scope import EVERYBODY
from holdfast.library.upkeep.chains import VersionRow, check_chain
from holdfast.library.upkeep.finding import Finding
from holdfast.library.upkeep.words import rebuild_words

VERSIONS_AT_ONCE = 100
"""Versions read at a time; with their contents 10 MiB at most."""


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


class _Store(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    number: int
    memories: int
    words: int
    link: bytes
    last_at: int


class _Head(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    path: str
    version_id: str
    content_sha256: str
    content_size_bytes: int
    words: int
    version_sha256: str | None
    version_size_bytes: int | None
    version_memory_id: str | None


class _Indexed(Struct, frozen=True, kw_only=True):
    id: str | None
    words: int


class _Stray(Struct, frozen=True, kw_only=True):
    table: str
    id: str


def verify(
    engine: Engine, *, quick: bool = False, repair: bool = False, head: str | None = None
) -> VerifyReport:
    """Check storage, heads, chains, counts, exclusive paths, words, redactions and owners.

    *quick* asks the engine for its quick check of the storage. *repair* rebuilds what is derived
    (the words) when it does not fit. *head*, a link written down earlier (hex), is a finding
    when no chain holds it any more.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.library.upkeep")

    def work(reader: Reader) -> VerifyReport:
        findings = [*_storage(reader, sql, quick=quick)]
        counts = {"stores": 0, "memories": 0, "versions": 0}
        links: dict[str, str] = {}
        seen: set[str] = set()
        for store in reader.all(_Store, sql.all_stores):
            versions = _versions(reader, sql, store.id)
            chained = check_chain(store.id, store.workspace, store.link, versions)
            heads = reader.all(_Head, sql.heads_of_store, store=store.id)
            findings += chained.findings
            findings += _heads(heads, chained.newest)
            findings += _counters(store, heads)
            findings += _exclusive(heads)
            counts["stores"] += 1
            counts["memories"] += len(heads)
            counts["versions"] += chained.count
            links[store.id] = store.link.hex()
            if head is not None and head in chained.links:
                seen.add(head)
        findings += _words(reader, sql)
        findings += [
            Finding(check="owners", table=stray.table, id=stray.id, expected="owner", found="none")
            for stray in reader.all(_Stray, sql.strays)
        ]
        if head is not None and head not in seen:
            findings.append(
                Finding(
                    check="chains", table="versions", id="", expected=head, found="no such link"
                )
            )
        return VerifyReport(ok=not findings, findings=tuple(findings), counts=counts, links=links)

    report = everybody.read(work)
    if repair and any(finding.check == "derived" for finding in report.findings):
        rebuild_words(everybody)
        after = everybody.read(work)
        return VerifyReport(
            ok=after.ok,
            findings=after.findings,
            counts=after.counts,
            links=after.links,
            repaired=True,
        )
    return report


def _text(*, finding: str) -> str:
    return finding


def _storage(reader: Reader, sql: SimpleNamespace, *, quick: bool) -> Iterator[Finding]:
    said = reader.all(_text, sql.quick_integrity if quick else sql.integrity)
    for text in [*(each for each in said if each != "ok"), *reader.all(_text, sql.orphans)]:
        yield Finding(check="storage", table="", id="", expected="ok", found=text)


def _versions(reader: Reader, sql: SimpleNamespace, store_id: str) -> Iterator[VersionRow]:
    after = 0
    while rows := reader.all(
        VersionRow, sql.versions_after, store=store_id, after=after, rows=VERSIONS_AT_ONCE
    ):
        yield from rows
        after = rows[-1].number


def _heads(heads: list[_Head], newest: dict[str, str]) -> Iterator[Finding]:
    for head in heads:
        if newest.get(head.id) != head.version_id or head.version_memory_id != head.id:
            yield Finding(
                check="heads",
                table="memories",
                id=head.id,
                expected=newest.get(head.id, "a version"),
                found=head.version_id,
            )
        elif (head.content_sha256, head.content_size_bytes) != (
            head.version_sha256,
            head.version_size_bytes,
        ):
            yield Finding(
                check="heads",
                table="memories",
                id=head.id,
                expected=head.version_sha256 or "none",
                found=head.content_sha256,
            )


def _counters(store: _Store, heads: list[_Head]) -> Iterator[Finding]:
    for name, kept, counted in (
        ("memories", store.memories, len(heads)),
        ("words", store.words, sum(head.words for head in heads)),
    ):
        if kept != counted:
            yield Finding(
                check="counters",
                table="stores",
                id=store.id,
                expected=f"{name} {counted}",
                found=f"{name} {kept}",
            )


def _exclusive(heads: list[_Head]) -> Iterator[Finding]:
    paths = {head.path: head.id for head in heads}
    for head in heads:
        above = head.path
        while above := above.rpartition("/")[0]:
            if above in paths:
                yield Finding(
                    check="exclusivity",
                    table="memories",
                    id=head.id,
                    expected="a free path",
                    found=paths[above],
                )


def _words(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    indexed = {row.id: row.words for row in reader.all(_Indexed, sql.indexed_words)}
    counted = {row.id: row.words for row in reader.all(_Indexed, sql.counted_words)}
    for memory_id in sorted({*indexed, *counted}, key=str):
        if indexed.get(memory_id, 0) != counted.get(memory_id, 0):
            yield Finding(
                check="derived",
                table="memory_words",
                id=memory_id or "",
                expected=f"{counted.get(memory_id, 0)} words",
                found=f"{indexed.get(memory_id, 0)} words",
            )
