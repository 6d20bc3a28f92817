"""Contract of stores, on any engine and through any interface."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any

import pytest

from holdfast.ground.errors import InvalidInput, NotFound, Refused, StoreArchived
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Precondition, Store
from holdfast.testing.fakes import FrozenClock


class GivenAStore:
    """Gives an empty store, made through the subclass's `hf`."""

    @pytest.fixture
    def store(self, hf: Holdfast) -> Store:
        return hf.memory_stores.create(name="Notes")


def sha256_of(text: str) -> str:
    """Return the hash by which a precondition names the content *text*."""
    return sha256(text.encode()).hexdigest()


def still(text: str) -> Precondition:
    """Return the precondition that a memory's content is *text*."""
    return {"type": "content_sha256", "content_sha256": sha256_of(text)}


def written(hf: Holdfast, store: Store, *paths: str, content: str = "x") -> list[Memory]:
    """Return new memories of *store* at *paths*, in that order, all with *content*."""
    return [
        hf.memory_stores.memories.create(store.id, path=path, content=content) for path in paths
    ]


@contextmanager
def invalid(field: str) -> Generator[None]:
    """Expect InvalidInput that names *field*, or something within it."""
    with pytest.raises(InvalidInput) as caught:
        yield
    assert re.split(r"[^a-z_0-9]", caught.value.field)[0] == field


ID = re.compile(r"(memstore|mem|memver|sesn|agent|env|apikey)_[0-9A-Za-z]{24}")


class StoresContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "ids and numbers cross the wire")
    def test_sizes_count_the_memories_of_stores(self, hf: Holdfast, store: Store) -> None:
        first, _ = written(hf, store, "/a.md", "/b.md")
        empty = hf.memory_stores.create(name="Empty")
        ids = [store.id, empty.id, "memstore_" + "0" * 24, "nothing", store.id]

        assert hf.memory_stores.sizes(ids) == {store.id: 2, empty.id: 0}
        hf.memory_stores.memories.delete(first.id, memory_store_id=store.id)
        assert hf.memory_stores.sizes([store.id]) == {store.id: 1}
        assert hf.memory_stores.sizes([]) == {}
        with invalid("memory_store_ids"):
            hf.memory_stores.sizes([f"memstore_{n:024}" for n in range(101)])

    def test_a_new_store_holds_what_was_given(self, hf: Holdfast, clock: FrozenClock) -> None:
        store = hf.memory_stores.create(name="Notes", description="Mine", metadata={"a": "1"})

        assert (store.type, store.name, store.description) == ("memory_store", "Notes", "Mine")
        assert store.metadata == {"a": "1"}
        assert store.created_at == store.updated_at == clock.now()
        assert store.archived_at is None

    def test_description_and_metadata_are_empty_when_left_out(self, store: Store) -> None:
        assert store.description == ""
        assert store.metadata == {}

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_none_for_description_and_metadata_counts_as_left_out(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes", description=None, metadata=None)

        assert store.description == ""
        assert store.metadata == {}

    def test_an_id_names_its_kind(self, store: Store) -> None:
        assert ID.fullmatch(store.id)
        assert store.id.startswith("memstore_")

    def test_ids_made_later_sort_later(self, hf: Holdfast) -> None:
        ids = [hf.memory_stores.create(name="Notes").id for _ in range(5)]

        assert ids == sorted(set(ids))

    def test_times_are_aware_and_in_utc(self, store: Store) -> None:
        assert store.created_at.utcoffset() is not None
        assert not store.created_at.utcoffset()

    def test_what_was_created_can_be_retrieved(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes", description="Mine", metadata={"a": "1"})

        assert hf.memory_stores.retrieve(store.id) == store

    def test_names_need_not_be_unique(self, hf: Holdfast) -> None:
        first = hf.memory_stores.create(name="Notes")
        second = hf.memory_stores.create(name="Notes")

        assert first.id != second.id

    @pytest.mark.parametrize("name", ["  x ", "x" * 255, "\U0001f600" * 255, "a\u200bb", "Ünï"])
    def test_a_name_is_kept_as_given(self, hf: Holdfast, name: str) -> None:
        store = hf.memory_stores.create(name=name)

        assert hf.memory_stores.retrieve(store.id).name == name

    @pytest.mark.parametrize(
        "name", ["", "x" * 256, "a\nb", "a\x00b", "a\x7fb", "a\x85b", "a\ud800b", 7, None]
    )
    def test_a_bad_name_is_refused(self, hf: Holdfast, name: Any) -> None:
        with invalid("name"):
            hf.memory_stores.create(name=name)

        assert list(hf.memory_stores.list()) == []

    @pytest.mark.parametrize("description", ["x" * 1024, "\U0001f600" * 1024, "a\nb\tc"])
    def test_a_description_has_up_to_1024_code_points(self, hf: Holdfast, description: str) -> None:
        store = hf.memory_stores.create(name="Notes", description=description)

        assert hf.memory_stores.retrieve(store.id).description == description

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("description", ["x" * 1025, "a\x00b", "a\udfffb", 7])
    def test_a_bad_description_is_refused(self, hf: Holdfast, description: Any) -> None:
        with invalid("description"):
            hf.memory_stores.create(name="Notes", description=description)

    @pytest.mark.parametrize(
        "metadata",
        [
            {f"key {n}": "" for n in range(16)},
            {"k" * 64: "v" * 512},
            {"\U0001f600" * 64: "\U0001f600" * 512},
        ],
    )
    def test_metadata_at_its_limits_is_kept(self, hf: Holdfast, metadata: dict[str, str]) -> None:
        store = hf.memory_stores.create(name="Notes", metadata=metadata)

        assert hf.memory_stores.retrieve(store.id).metadata == metadata

    @pytest.mark.parametrize(
        "metadata",
        [
            {f"key {n}": "" for n in range(17)},
            {"": "v"},
            {"k" * 65: "v"},
            {"k": "v" * 513},
            {"k": "a\x00b"},
            {"k": "a\ud800b"},
            {"a\x00b": "v"},
            {"a\ud800b": "v"},
            {"k": 1},
            {"k": None},
            {"k": {"nested": "v"}},
            ["k"],
            "k",
            [],
            "",
            0,
        ],
    )
    def test_bad_metadata_is_refused(self, hf: Holdfast, metadata: Any) -> None:
        with invalid("metadata"):
            hf.memory_stores.create(name="Notes", metadata=metadata)

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize(
        "id",
        [
            "memstore_" + "0" * 24,
            "memstore_short",
            "",
            "nonsense",
            "mem_" + "0" * 24,
            "a/b",
            "\u00e9",
        ],
    )
    def test_an_id_that_is_unknown_or_malformed_is_not_found(self, hf: Holdfast, id: str) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.retrieve(id)

    def test_an_id_of_another_kind_is_not_found_and_the_kind_is_named(
        self, hf: Holdfast, store: Store
    ) -> None:
        memory = hf.memory_stores.memories.create(store.id, path="/a", content="")

        with pytest.raises(NotFound, match="memory version"):
            hf.memory_stores.retrieve(memory.memory_version_id)


class StoreUpdatesContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_an_update_changes_what_is_given_and_nothing_else(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        store = hf.memory_stores.create(name="Notes", description="Mine", metadata={"a": "1"})
        clock.tick()

        changed = hf.memory_stores.update(store.id, name="Letters")

        assert (changed.name, changed.description, changed.metadata) == (
            "Letters",
            "Mine",
            {"a": "1"},
        )
        assert (changed.created_at, changed.updated_at) == (store.created_at, clock.now())
        assert hf.memory_stores.retrieve(store.id) == changed

    def test_an_empty_description_clears_it(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes", description="Mine")

        assert hf.memory_stores.update(store.id, description="").description == ""

    def test_metadata_is_a_patch(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes", metadata={"keep": "1", "set": "1", "go": "1"})

        changed = hf.memory_stores.update(store.id, metadata={"set": "2", "go": None, "new": "3"})

        assert changed.metadata == {"keep": "1", "set": "2", "new": "3"}

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_sixteen_pairs_count_after_the_patch(self, hf: Holdfast) -> None:
        full = {f"key {n}": "" for n in range(16)}
        store = hf.memory_stores.create(name="Notes", metadata=full)

        changed = hf.memory_stores.update(store.id, metadata={"key 0": None, "new": ""})
        with invalid("metadata"):
            hf.memory_stores.update(store.id, metadata={"one more": ""})

        assert len(changed.metadata) == 16
        assert hf.memory_stores.retrieve(store.id) == changed

    @pytest.mark.parametrize(
        "same",
        [
            {},
            {"name": None, "description": None, "metadata": None},
            {"name": "Notes", "description": "Mine", "metadata": {"a": "1"}},
            {"metadata": {}},
            {"metadata": {"missing": None}},
        ],
    )
    def test_an_update_that_changes_nothing_moves_nothing(
        self, hf: Holdfast, clock: FrozenClock, same: dict[str, Any]
    ) -> None:
        store = hf.memory_stores.create(name="Notes", description="Mine", metadata={"a": "1"})
        clock.tick()

        assert hf.memory_stores.update(store.id, **same) == store

    @pytest.mark.parametrize(
        ("field", "value"),
        [("name", ""), ("name", "x" * 256), ("description", "x" * 1025), ("metadata", {"": "v"})],
    )
    def test_a_bad_value_is_refused_and_nothing_changes(
        self, hf: Holdfast, store: Store, field: str, value: Any
    ) -> None:
        with invalid(field):
            hf.memory_stores.update(store.id, **{field: value})

        assert hf.memory_stores.retrieve(store.id) == store

    def test_updated_at_does_not_move_when_memories_are_written(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        clock.tick()

        hf.memory_stores.memories.create(store.id, path="/a", content="x")

        assert hf.memory_stores.retrieve(store.id) == store

    def test_updating_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.update("memstore_" + "0" * 24, name="Letters")


class ArchivedStoresContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_archiving_says_when(self, hf: Holdfast, clock: FrozenClock, store: Store) -> None:
        now = clock.tick()

        archived = hf.memory_stores.archive(store.id)

        assert archived.archived_at == archived.updated_at == now
        assert hf.memory_stores.retrieve(store.id) == archived

    def test_archiving_again_changes_nothing(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        archived = hf.memory_stores.archive(store.id)
        clock.tick()

        assert hf.memory_stores.archive(store.id) == archived

    def test_archiving_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.archive("memstore_" + "0" * 24)

    def test_an_archived_store_cannot_be_updated(self, hf: Holdfast, store: Store) -> None:
        archived = hf.memory_stores.archive(store.id)

        with pytest.raises(StoreArchived) as refusal:
            hf.memory_stores.update(store.id, name="Letters")

        assert refusal.value.store_id == store.id
        assert hf.memory_stores.retrieve(store.id) == archived

    def test_an_archived_store_takes_no_new_memory(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.archive(store.id)

        with pytest.raises(StoreArchived):
            hf.memory_stores.memories.create(store.id, path="/a", content="x")

        assert list(hf.memory_stores.memories.list(store.id)) == []

    def test_a_memory_of_an_archived_store_cannot_be_updated(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.archive(store.id)

        with pytest.raises(StoreArchived):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        with pytest.raises(StoreArchived):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path="/b")

    def test_archived_answers_before_the_no_op_and_the_precondition(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.archive(store.id)

        with pytest.raises(StoreArchived):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="x")
        with pytest.raises(StoreArchived):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, content="y", precondition=still("other")
            )

    def test_a_bad_body_answers_before_archived(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.archive(store.id)

        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.create(store.id, path="no slash", content="x")

    def test_a_version_of_an_archived_store_cannot_be_restored(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        hf.memory_stores.archive(store.id)

        with pytest.raises(StoreArchived):
            hf.memory_stores.memory_versions.restore(
                memory.memory_version_id, memory_store_id=store.id
            )

    def test_an_archived_store_cannot_be_attached(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.archive(store.id)

        with pytest.raises(Refused):
            hf.sessions.create(
                agent="coder",
                environment_id="laptop",
                resources=[{"type": "memory_store", "memory_store_id": store.id}],
            )

    def test_every_read_of_an_archived_store_works(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="tabs")
        hf.memory_stores.archive(store.id)
        stores, versions = hf.memory_stores, hf.memory_stores.memory_versions

        assert stores.memories.retrieve(memory.id, memory_store_id=store.id).content == "tabs"
        assert [each.path for each in stores.memories.list(store.id)] == ["/a"]
        assert stores.memories.at(store.id, "/a") is not None
        assert len(stores.memories.search(store.id, "tabs")) == 1
        assert [each.memory_id for each in versions.list(store.id)] == [memory.id]

    def test_memories_of_an_archived_store_can_be_deleted_and_versions_redacted(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.archive(store.id)

        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        redacted = hf.memory_stores.memory_versions.redact(
            memory.memory_version_id, memory_store_id=store.id
        )

        assert hf.memory_stores.memories.at(store.id, "/a") is None
        assert redacted.redacted_at is not None

    def test_an_archived_store_can_be_deleted(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.archive(store.id)

        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            hf.memory_stores.retrieve(store.id)


class DeletedStoresContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_deleting_a_store_says_what_was_deleted(self, hf: Holdfast, store: Store) -> None:
        deleted = hf.memory_stores.delete(store.id)

        assert (deleted.id, deleted.type) == (store.id, "memory_store_deleted")

    def test_a_deleted_store_is_not_found(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            hf.memory_stores.retrieve(store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.delete(store.id)
        assert list(hf.memory_stores.list(include_archived=True)) == []

    def test_memories_and_versions_go_with_their_store(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memories.list(store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.list(store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.retrieve(
                memory.memory_version_id, memory_store_id=store.id
            )

    def test_nothing_can_be_written_to_a_deleted_store(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.delete(store.id)

        with pytest.raises(NotFound):
            hf.memory_stores.memories.create(store.id, path="/b", content="x")
        with pytest.raises(NotFound):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        with pytest.raises(NotFound):
            hf.memory_stores.memories.search(store.id, "x")

    def test_other_stores_keep_what_they_hold(self, hf: Holdfast, store: Store) -> None:
        other = hf.memory_stores.create(name="Other")
        (kept,) = written(hf, other, "/a", content="tabs")
        written(hf, store, "/a", content="tabs")

        hf.memory_stores.delete(store.id)

        assert [
            match.memory.id for match in hf.memory_stores.memories.search(other.id, "tabs")
        ] == [kept.id]

    def test_a_session_keeps_the_snapshot_of_a_deleted_store(
        self, hf: Holdfast, store: Store
    ) -> None:
        session = hf.sessions.create(
            agent="coder",
            environment_id="laptop",
            resources=[{"type": "memory_store", "memory_store_id": store.id}],
        )
        hf.memory_stores.delete(store.id)

        assert hf.sessions.retrieve(session.id).resources == session.resources
        with pytest.raises(NotFound):
            hf.for_session(session.id).memory_stores.memories.list(store.id)


class OrderContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_store_answers_before_a_bad_query(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.list("memstore_" + "0" * 24, limit=0)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.list("memstore_" + "0" * 24, page="nonsense")

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_store_answers_before_a_bad_body(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.create("memstore_" + "0" * 24, path="a", content="x")
        with pytest.raises(NotFound):
            hf.memory_stores.update("memstore_" + "0" * 24, name="")

    def test_an_unknown_memory_answers_before_a_bad_body(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.update("mem_" + "0" * 24, memory_store_id=store.id, path="a")
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete(
                "mem_" + "0" * 24, memory_store_id=store.id, expected_content_sha256="A"
            )
