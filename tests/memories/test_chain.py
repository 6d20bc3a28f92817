"""The hash chain over a store's versions, and bytes of deleted memories."""

import json
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from threading import Event as Signal
from typing import Any

import psycopg
import pytest
from contracts.sessions import attached
from contracts.stores import written
from msgspec import Struct
from psycopg import sql

import holdfast
from holdfast.engines.base import Reader
from holdfast.engines.queries import read
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor, ActorKind, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Save
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.serving import new_workspace


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give a database that nobody shares: what is meddled with here stays broken."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


class Row(Struct, frozen=True, kw_only=True):
    """What the chain is made of, as the table keeps it."""

    id: str
    memory_id: str
    operation: str
    path: str | None
    content: bytes | None
    created_at: int
    actor_kind: ActorKind
    actor_id: str
    salt: bytes | None
    seal: bytes
    link: bytes


VERSIONS = """
select id, memory_id, operation, path, content, created_at, actor_kind, actor_id, salt, seal, link
from versions
where store_id = :store
order by number
"""


def spelled(hf: Holdfast, statement: str) -> Any:
    """Return *statement* as the engine of *hf* spells it."""
    return read(f"-- statement --\n{statement}", hf.engine.dialect, source="here")["statement"]


def rows(hf: Holdfast, store: Store) -> list[Row]:
    """Return the store's versions in the order of the chain."""
    engine = hf.engine.scoped(Scope(workspace=hf.workspace))
    return engine.all(Row, spelled(hf, VERSIONS), store=store.id)


def meddle(hf: Holdfast, statement: str, **params: object) -> None:
    """Change the table behind the library's back."""
    engine = hf.engine.scoped(Scope(workspace=hf.workspace))
    assert engine.write(lambda tx: tx.run(spelled(hf, statement), **params))


@pytest.fixture
def store(kept: Holdfast) -> Store:
    """Give a store with versions of every operation, restored and redacted ones among them."""
    store = kept.memory_stores.create(name="Notes")
    memories, versions = kept.memory_stores.memories, kept.memory_stores.memory_versions
    first, second = written(kept, store, "/\u00e9", "/b", content="x\x00y")
    memories.update(first.id, memory_store_id=store.id, content="new")
    memories.rename(store.id, "/b", "/c/d")
    memories.delete(second.id, memory_store_id=store.id)
    versions.redact(first.memory_version_id, memory_store_id=store.id)
    versions.restore(second.memory_version_id, memory_store_id=store.id)
    memories.delete_under(store.id, "/\u00e9")
    written(kept, store, "/z")
    return store


def found(hf: Holdfast, store: Store) -> set[str]:
    """Return what verify finds amiss with the store: ids of its rows, and its own."""
    ids = {each.id for each in rows(hf, store)} | {store.id}
    return {each.id for each in hf.verify().findings} & ids


def test_each_link_is_made_as_the_format_says(kept: Holdfast, store: Store) -> None:
    link = sha256(store.id.encode()).digest()

    chain = rows(kept, store)

    assert [row.operation for row in chain].count("deleted") == 2
    for row in chain:
        actor = Actor(row.actor_kind, row.actor_id).to_wire()
        parts = (row.id, row.memory_id, row.operation, str(row.created_at))
        by = json.dumps(actor, sort_keys=True, separators=(",", ":"))
        body = b"".join(part.encode() + b"\0" for part in (*parts, by)) + row.seal
        link = sha256(link + body).digest()
        assert row.link == link


def test_each_seal_is_that_of_path_and_content_under_its_salt(kept: Holdfast, store: Store) -> None:
    chain = rows(kept, store)

    sealed = [row for row in chain if row.salt is not None and row.path is not None]
    for row in sealed:
        assert row.salt is not None
        assert row.path is not None
        assert len(row.salt) == 32
        body = row.path.encode() + b"\0" + (row.content or b"")
        assert row.seal == sha256(row.salt + body).digest()
    assert len(sealed) == len(chain) - 1
    assert len({row.salt for row in sealed}) == len(sealed)


def test_redaction_takes_the_salt_and_leaves_seal_and_link(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a")
    kept.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
    before = rows(kept, store)[0]

    kept.memory_stores.memory_versions.redact(memory.memory_version_id, memory_store_id=store.id)

    after = rows(kept, store)[0]
    assert (after.seal, after.link) == (before.seal, before.link)
    assert (after.salt, after.path, after.content) == (None, None, None)


def test_the_chain_is_whole_after_every_kind_of_write(kept: Holdfast, store: Store) -> None:
    report = kept.verify()

    assert found(kept, store) == set()
    assert report.links[store.id] == rows(kept, store)[-1].link.hex()


@pytest.mark.parametrize("at", [0, 2, -1])
def test_a_row_that_is_missing_is_found(kept: Holdfast, store: Store, at: int) -> None:
    meddle(kept, "delete from versions where id = :id", id=rows(kept, store)[at].id)

    assert found(kept, store)


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (0, -1)])
def test_rows_that_are_swapped_are_found(
    kept: Holdfast, store: Store, pair: tuple[int, int]
) -> None:
    one, other = (rows(kept, store)[at] for at in pair)

    meddle(
        kept,
        "update versions set memory_id = case id when :one then cast(:theirs as text)"
        " else cast(:ours as text) end where id in (:one, :other)",
        one=one.id,
        other=other.id,
        ours=one.memory_id,
        theirs=other.memory_id,
    )

    assert found(kept, store)


@pytest.mark.parametrize(
    "statement",
    [
        "update versions set created_at = created_at - 1 where id = :id",
        "update versions set actor_id = 'apikey_other' where id = :id",
        "update versions set operation = 'modified' where id = :id and operation = 'created'",
        "update versions set path = '/forged' where id = :id",
        "update versions set content = seal where id = :id",
        "update versions set salt = seal where id = :id",
        "update versions set seal = link where id = :id",
        "update versions set link = seal where id = :id",
        "update versions set content_size_bytes = 7 where id = :id",
        "update versions set content_sha256 = 'forged' where id = :id",
    ],
)
def test_a_row_that_was_edited_is_found(kept: Holdfast, store: Store, statement: str) -> None:
    second = rows(kept, store)[1]

    meddle(kept, statement, id=second.id)

    assert found(kept, store)


def test_a_redacted_row_that_was_edited_is_found(kept: Holdfast, store: Store) -> None:
    redacted = rows(kept, store)[0]
    assert redacted.salt is None

    meddle(kept, "update versions set created_at = created_at - 1 where id = :id", id=redacted.id)

    assert found(kept, store)


PATH = "zqpathmarkerwvk"
WORD = "xjcontentmarkerqz"
NAME = "wvnamemarkerqxz"
ABOUT = "qzaboutmarkerxj"
DATA = "jxmetamarkerzvq"
CONTENT = f"it says {WORD} once"
HASH = sha256(CONTENT.encode()).hexdigest()
PLANTED = (PATH, WORD, HASH)

Seen = Callable[..., set[str]]


def in_bytes(data: bytes, markers: tuple[str, ...]) -> set[str]:
    """Return which of *markers* *data* holds, in any case, whole or half, as text or as hex.

    An index may cut a word short where it begins like the one before it, and a database may
    print bytes as hex: so eight characters in a row are enough.
    """
    data = data.lower()
    found: set[str] = set()
    for marker in markers:
        pieces = [marker[at : at + 8].encode() for at in range(len(marker) - 7)]
        if any(piece in data or piece.hex().encode() in data for piece in pieces):
            found.add(marker)
    if HASH in markers and bytes.fromhex(HASH) in data:
        found.add(HASH)
    return found


def _kept_digest(hf: Holdfast) -> bytes | None:
    rows = hf.engine.scoped(Scope(workspace=hf.workspace)).all(
        dict[str, bytes | None], "select digest from store_edits"
    )
    return rows[0]["digest"]


class GoneContract:
    """Subclass it, and give it `hf` and `seen`, which says which markers are still there."""

    @pytest.fixture
    def store(self, hf: Holdfast) -> Store:
        return hf.memory_stores.create(
            name=f"Notes {NAME}", description=f"About {ABOUT}", metadata={f"k{DATA}": f"v{DATA}"}
        )

    @pytest.fixture
    def memory(self, hf: Holdfast, store: Store) -> Memory:
        """Give a memory as it was made, with the markers; it has changed since."""
        memories = hf.memory_stores.memories
        memory = memories.create(store.id, path=f"/a/{PATH}/b", content=CONTENT)
        memories.update(memory.id, memory_store_id=store.id, path="/plain", content="plain")
        return memory

    def redact(self, hf: Holdfast, memory: Memory) -> None:
        hf.memory_stores.memory_versions.redact(
            memory.memory_version_id, memory_store_id=memory.memory_store_id
        )

    @pytest.mark.usefixtures("memory")
    def test_what_is_kept_is_seen(self, seen: Seen) -> None:
        assert seen(*PLANTED, NAME, ABOUT, DATA) == {*PLANTED, NAME, ABOUT, DATA}

    def test_a_redacted_version_is_gone(self, hf: Holdfast, memory: Memory, seen: Seen) -> None:
        self.redact(hf, memory)

        assert seen(*PLANTED) == set()

    def test_a_redacted_version_of_a_deleted_memory_is_gone(
        self, hf: Holdfast, store: Store, seen: Seen
    ) -> None:
        memory = hf.memory_stores.memories.create(store.id, path=f"/{PATH}", content=CONTENT)
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        newest = hf.memory_stores.memory_versions.list(store.id).data[0]

        self.redact(hf, memory)
        hf.memory_stores.memory_versions.redact(newest.id, memory_store_id=store.id)

        assert seen(*PLANTED) == set()

    def test_a_redacted_version_that_was_found_and_restored_and_compared_is_gone(
        self, hf: Holdfast, store: Store, memory: Memory, seen: Seen
    ) -> None:
        versions, memories = hf.memory_stores.memory_versions, hf.memory_stores.memories
        versions.restore(memory.memory_version_id, memory_store_id=store.id)
        memories.search(store.id, WORD)
        newest = versions.list(store.id).data[0]
        versions.diff(memory.memory_version_id, newest.id, memory_store_id=store.id)
        memories.delete(memory.id, memory_store_id=store.id)

        self.redact(hf, memory)
        versions.redact(newest.id, memory_store_id=store.id)

        assert seen(*PLANTED) == set()

    def test_a_redacted_version_that_filled_many_pages_is_gone(
        self, hf: Holdfast, store: Store, seen: Seen
    ) -> None:
        memories = hf.memory_stores.memories
        content = f"{WORD} " * (100_000 // (len(WORD) + 1))
        memory = memories.create(store.id, path=f"/{PATH}", content=content)
        memories.update(memory.id, memory_store_id=store.id, path="/plain", content="plain")

        self.redact(hf, memory)

        assert seen(PATH, WORD) == set()

    def test_a_redacted_version_that_was_applied_is_gone(
        self, hf: Holdfast, store: Store, seen: Seen
    ) -> None:
        memories = hf.memory_stores.memories
        save = Save(path=f"/{PATH}", content=CONTENT)
        (applied,) = memories.apply(store.id, [save], edit_id="edit_1")
        (memory,) = applied.memories
        memories.update(memory.id, memory_store_id=store.id, path="/plain", content="plain")
        digest = _kept_digest(hf)
        assert digest is not None

        self.redact(hf, memory)

        assert seen(*PLANTED, digest.hex()) == set()
        assert _kept_digest(hf) is None

    def test_a_redacted_version_among_many_is_gone(
        self, hf: Holdfast, store: Store, memory: Memory, seen: Seen
    ) -> None:
        for number in range(50):
            hf.memory_stores.memories.create(
                store.id, path=f"/others/{number}", content=f"other words {number} " * 50
            )

        self.redact(hf, memory)

        assert seen(*PLANTED) == set()

    @pytest.mark.usefixtures("memory")
    def test_a_deleted_store_is_gone(self, hf: Holdfast, store: Store, seen: Seen) -> None:
        hf.memory_stores.update(store.id, name="plain", description="", metadata={f"k{DATA}": None})
        hf.memory_stores.memories.create(store.id, path=f"/{PATH}", content=CONTENT)

        hf.memory_stores.delete(store.id)

        assert seen(*PLANTED, NAME, ABOUT, DATA) == set()

    def test_of_a_deleted_store_sessions_keep_name_and_description_alone(
        self, hf: Holdfast, store: Store, memory: Memory, seen: Seen
    ) -> None:
        session = attached(hf, store)
        hf.for_session(session.id).memory_stores.memories.update(
            memory.id, memory_store_id=store.id, path=f"/{PATH}", content=CONTENT
        )

        hf.memory_stores.delete(store.id)

        assert seen(*PLANTED, NAME, ABOUT, DATA) == {NAME, ABOUT}

    def test_nothing_of_it_is_told_in_events_and_logs(
        self, hf: Holdfast, store: Store, memory: Memory, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        told: list[Event] = []
        off = hf.events.subscribe(told.append)
        made = hf.memory_stores.memories.create(store.id, path=f"/{PATH}", content=CONTENT)

        self.redact(hf, memory)
        hf.memory_stores.memories.delete(made.id, memory_store_id=store.id)
        hf.memory_stores.delete(store.id)
        off()

        assert told
        said = f"{told} {caplog.text} {hf.engine.status().metrics}"
        assert in_bytes(said.encode(), (*PLANTED, NAME, ABOUT, DATA)) == set()


class TestOnSQLite(GoneContract):
    """Looks into every file beside the database, while it is open."""

    @pytest.fixture
    def hf(self, sqlite_file: Path) -> Iterator[Holdfast]:
        with holdfast.open(sqlite_file) as hf:
            yield hf

    @pytest.fixture
    def seen(self, sqlite_file: Path) -> Seen:
        def seen(*markers: str) -> set[str]:
            files = [each for each in sqlite_file.parent.rglob("*") if each.is_file()]
            assert sqlite_file in files
            return set[str]().union(*(in_bytes(each.read_bytes(), markers) for each in files))

        return seen

    def test_it_is_gone_when_a_reader_of_the_old_moment_is_done(
        self, hf: Holdfast, memory: Memory, seen: Seen
    ) -> None:
        reading, done = Signal(), Signal()

        def look(reader: Reader) -> None:
            reader.all(dict, "select id from versions")
            reading.set()
            done.wait()

        with ThreadPoolExecutor(2) as pool:
            held = pool.submit(hf.engine.read, look)
            reading.wait()
            redaction = pool.submit(self.redact, hf, memory)
            while hf.memory_stores.memory_versions.list(memory.memory_store_id).data[1].path:
                continue
            done.set()
            held.result()
            redaction.result()

        assert seen(*PLANTED) == set()

    def test_it_is_gone_when_two_handles_had_the_file_open(
        self, hf: Holdfast, sqlite_file: Path, memory: Memory, seen: Seen
    ) -> None:
        with holdfast.open(sqlite_file) as other:
            other.memory_stores.memories.search(memory.memory_store_id, WORD)

            self.redact(hf, memory)

            assert seen(*PLANTED) == set()


class TestOnPostgres(GoneContract):
    """Looks at every row of every table, as the database's owner."""

    @pytest.fixture
    def hf(self, postgres_url: str) -> Iterator[Holdfast]:
        with holdfast.open(postgres_url, workspace=new_workspace()) as hf:
            yield hf

    @pytest.fixture
    def seen(self, postgres_url: str, hf: Holdfast) -> Seen:
        def seen(*markers: str) -> set[str]:
            with psycopg.connect(postgres_url, autocommit=True) as owner:
                return in_bytes("\n".join(_rows(owner, hf.workspace)).encode(), markers)

        return seen

    def test_nothing_of_it_is_in_what_the_planner_keeps(
        self, hf: Holdfast, store: Store, postgres_url: str
    ) -> None:
        for number in range(30):
            hf.memory_stores.memories.create(
                store.id, path=f"/{PATH}{number}", content=f"{CONTENT} {number}"
            )

        with psycopg.connect(postgres_url, autocommit=True) as owner:
            owner.execute("analyze")
            kept = owner.execute(
                "select s::text from pg_stats s where schemaname = 'holdfast'"
            ).fetchall()

        assert kept
        assert in_bytes(str(kept).encode(), (PATH, WORD, NAME, ABOUT, DATA)) == set()


def _rows(owner: psycopg.Connection, workspace: str) -> Iterator[str]:
    """Give every row of the workspace's, in every table that tells whose its rows are."""
    tables = owner.execute(
        "select table_name from information_schema.columns"
        " where table_schema = 'holdfast' and column_name = 'workspace'"
    ).fetchall()
    assert tables
    for (table,) in tables:
        statement = sql.SQL("select t::text from {} t where workspace = %s").format(
            sql.Identifier("holdfast", table)
        )
        for (row,) in owner.execute(statement, [workspace]):
            yield row
