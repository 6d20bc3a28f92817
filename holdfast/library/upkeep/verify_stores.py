"""Check hash chains, heads and the text index."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import get_args

from msgspec import Struct, field

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.scope import Actor, ActorKind
from holdfast.ground.text import sha256_hex
from holdfast.library.upkeep.tables import Finding, in_batches
from holdfast.memories.stores.text_index import marked, words_of
from holdfast.memories.stores.transaction import content_seal, first_link, next_link


class StoreRow(Struct, frozen=True, kw_only=True):
    """A store, with its totals."""

    id: str
    workspace: str
    number: int
    memories: int
    words: int
    link: bytes
    last_at: int


class VersionRow(Struct, frozen=True, kw_only=True):
    """A version, with the fields of its link."""

    number: int
    id: str
    workspace: str
    memory_id: str
    seq: int
    operation: str
    path: str | None
    content: bytes | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int
    actor_kind: ActorKind
    actor_id: str
    redacted_at: int | None
    redacted_by_kind: str | None
    redacted_by_id: str | None
    salt: bytes | None
    seal: bytes
    link: bytes
    tier: str
    held: str | None


class ChainedHead(Struct, frozen=True):
    """Fields of a live memory's row that follow from the chain."""

    version_id: str
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int
    updated_at: int
    tier: str
    held: str | None


class Chained(Struct, kw_only=True):
    """Result of checking a chain: findings, live memories, every link."""

    findings: list[Finding] = field(default_factory=list[Finding])
    live: dict[str, ChainedHead] = field(default_factory=dict[str, ChainedHead])
    links: set[str] = field(default_factory=set[str])
    count: int = 0


def check_chain(store: StoreRow, versions: Iterator[VersionRow]) -> Chained:
    """Check the link, seal, hash and operation of each of *versions*, in order."""
    link, at, seq = first_link(store.id), 0, 0
    walked = Chained(links={link.hex()})
    born: dict[str, int] = {}
    for version in versions:
        memory = version.memory_id
        rules = {
            "link": _expected_link(link, version) == version.link,
            "rising": version.created_at >= at and version.seq >= seq,
            "operation": (memory in walked.live) == (version.operation != "created"),
            **_contents(version),
        }
        walked.findings += [
            _chain_finding(rule, version) for rule, holds in rules.items() if not holds
        ]
        link, at, seq = version.link, version.created_at, version.seq
        walked.count += 1
        walked.links.add(link.hex())
        born.setdefault(memory, at)
        if version.operation == "deleted":
            walked.live.pop(memory, None)
        else:
            walked.live[memory] = ChainedHead(
                version.id,
                version.path,
                version.content_sha256,
                version.content_size_bytes,
                born[memory],
                version.created_at,
                version.tier,
                version.held,
            )
    walked.findings += _end(store, link, at)
    return walked


def _end(store: StoreRow, link: bytes, at: int) -> Iterator[Finding]:
    """Yield fields of the store's row that differ from its chain's end."""
    for expected, found, holds in (
        (link.hex(), store.link.hex(), link == store.link),
        (f"last_at {at} or later", f"last_at {store.last_at}", at <= store.last_at),
    ):
        if not holds:
            yield Finding("chains", "stores", store.id, expected, found)


def _expected_link(previous: bytes, version: VersionRow) -> bytes | None:
    if version.actor_kind not in get_args(ActorKind):
        return None
    return next_link(
        previous,
        version_id=version.id,
        memory_id=version.memory_id,
        operation=version.operation,
        created_at=version.created_at,
        actor=Actor(version.actor_kind, version.actor_id),
        seal=version.seal,
    )


def _contents(version: VersionRow) -> dict[str, bool]:
    """Check the content of a version; return which rules hold."""
    stored = (version.content, version.content_sha256, version.content_size_bytes)
    if version.redacted_at is not None:
        by = version.redacted_by_kind is not None and version.redacted_by_id is not None
        return {
            "forgotten": (*stored, version.path, version.salt) == (None,) * 5,
            "redacted by": by,
        }
    content = version.content or b""
    sealed = (
        version.salt is not None
        and version.path is not None
        and content_seal(version.salt, version.path, content) == version.seal
    )
    known = (
        (None, None, None)
        if version.operation == "deleted"
        else (content, sha256_hex(content), len(content))
    )
    return {"seal": sealed, "content": stored == known}


def _chain_finding(rule: str, version: VersionRow) -> Finding:
    check = {"forgotten": "forgotten", "content": "heads"}.get(rule, "chains")
    return Finding(check, "versions", version.id, rule, version.link.hex())


GONE = "no live memory"


class HeadRow(Struct, frozen=True, kw_only=True):
    """A row of a live memory."""

    id: str
    path: str
    version_id: str
    content_sha256: str
    content_size_bytes: int
    words: int
    created_at: int
    updated_at: int
    tier: str
    held: str | None

    @property
    def chained(self) -> ChainedHead:
        """The fields that also follow from the chain."""
        return ChainedHead(
            self.version_id,
            self.path,
            self.content_sha256,
            self.content_size_bytes,
            self.created_at,
            self.updated_at,
            self.tier,
            self.held,
        )


def check_heads(heads: list[HeadRow], live: Mapping[str, ChainedHead]) -> Iterator[Finding]:
    """Yield each memory that differs between its row and the chain."""
    rows = {head.id: head for head in heads}
    for memory in sorted({*rows, *live}):
        row, chained = rows.get(memory), live.get(memory)
        if row is None or chained is None or row.chained != chained:
            yield Finding(
                "heads",
                "memories",
                memory,
                _rendered(chained),
                _rendered(None) if row is None else _differing(row.chained, chained),
            )


def _rendered(head: ChainedHead | None) -> str:
    return GONE if head is None else f"{head.version_id} {head.content_sha256}"


def _differing(row: ChainedHead, head: ChainedHead | None) -> str:
    if head is None or _rendered(row) != _rendered(head):
        return _rendered(row)
    # A path may reveal content, so only the names of differing fields are reported.
    fields = [name for name in head.__struct_fields__ if getattr(row, name) != getattr(head, name)]
    return f"another {', '.join(fields)}"


def check_counters(store: StoreRow, heads: list[HeadRow]) -> Iterator[Finding]:
    """Yield each total of *store* that differs from its memories."""
    for check, name, stored, counted in (
        ("counters", "memories", store.memories, len(heads)),
        ("derived", "words", store.words, sum(head.words for head in heads)),
    ):
        if stored != counted:
            yield Finding(check, "stores", store.id, f"{name} {counted}", f"{name} {stored}")


def check_exclusive(heads: list[HeadRow]) -> Iterator[Finding]:
    """Yield each memory below the path of another, with that memory's id."""
    paths = {head.path: head.id for head in heads}
    for head in heads:
        above = head.path
        while above := above.rpartition("/")[0]:
            if above in paths:
                yield Finding("exclusivity", "memories", head.id, "a free path", paths[above])


HEADS_AT_ONCE = 100
"""Contents read at a time: 10 MiB at most."""


class _Head(Struct, frozen=True, kw_only=True):
    id: str
    workspace: str
    path: str
    words: int
    content: bytes | None


class _Counted(Struct, frozen=True, kw_only=True):
    id: str | None
    words: int


class _Word(Struct, frozen=True, kw_only=True):
    word: str
    memories: int
    hits: int


def check_counts(reader: Reader, sql: SimpleNamespace) -> Iterator[Finding]:
    """Yield each memory with word counts that differ between index and row."""
    indexed = {row.id: row.words for row in reader.all(_Counted, sql.indexed_words)}
    counted = {row.id: row.words for row in reader.all(_Counted, sql.counted_words)}
    for memory in sorted({*indexed, *counted}, key=str):
        if indexed.get(memory, 0) != counted.get(memory, 0):
            yield _words_finding(
                "memory_words", memory or "", counted.get(memory, 0), indexed.get(memory, 0)
            )


def check_words(reader: Reader, sql: SimpleNamespace, store: StoreRow) -> Iterator[Finding]:
    """Yield each memory with a wrong word count, and the store if its index differs.

    The index is compared word by word over the whole store; a word may be content, so only the
    number of differences is reported.
    """
    hits: Counter[str] = Counter()
    memories: Counter[str] = Counter()
    for head in _heads(reader, sql, store.id):
        words = _words_in(head)
        if len(words) != head.words:
            yield _words_finding("memories", head.id, len(words), head.words)
        hits.update(words)
        memories.update(set(words))
    mark = marked(store.number, [""])
    indexed = {
        row.word.removeprefix(mark): (row.memories, row.hits)
        for row in reader.all(_Word, sql.words_of_store, low=mark, high=mark[:-1] + "`")
    }
    expected = {word: (memories[word], hits[word]) for word in hits}
    if differing := len(expected.items() ^ indexed.items()):
        yield Finding(
            "derived",
            "memory_words",
            store.id,
            f"the words of {memories.total()} places",
            f"{differing} that differ",
        )


def fill_words_of(engine: Engine) -> Callable[[Transaction], None]:
    """Return the work that rebuilds the index of words and the word counts."""
    sql = engine.queries("holdfast.library.upkeep")

    def work(tx: Transaction) -> None:
        for statement in (sql.make_ready, sql.hold_writers):
            tx.all(dict[str, object], statement)
        tx.run(sql.clear_words)
        # A large collection is indexed again by the next write to it.
        for statement in (sql.clear_terms, sql.clear_frequencies, sql.unindex):
            tx.run(statement)
        for store in tx.all(StoreRow, sql.all_stores):
            for head in _heads(tx, sql, store.id):
                words = _words_in(head)
                if words:
                    text = marked(store.number, words)
                    tx.send(sql.fill_words, memory=head.id, words=text, of=head.workspace)
                if len(words) != head.words:
                    tx.send(sql.set_words, memory=head.id, words=len(words))
        tx.run(sql.sum_words)

    return work


def _heads(reader: Reader, sql: SimpleNamespace, store: str) -> Iterator[_Head]:
    by, statement = {"after": "path"}, sql.contents_of_store
    return in_batches(reader, _Head, statement, by, start="", store=store, rows=HEADS_AT_ONCE)


def _words_in(head: _Head) -> list[str]:
    return words_of(head.path) + words_of((head.content or b"").decode(errors="replace"))


def _words_finding(table: str, memory: str, expected: int, found: int) -> Finding:
    return Finding("derived", table, memory, f"{expected} words", f"{found} words")
