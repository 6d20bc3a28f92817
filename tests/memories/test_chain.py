"""The hash chain over a store's versions: whole after any writes, and broken by any meddling."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from contracts.stores import written
from msgspec import Struct

from holdfast.engines.queries import read
from holdfast.ground.scope import Actor, ActorKind, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


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
