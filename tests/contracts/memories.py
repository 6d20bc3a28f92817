"""What holds when a memory is created, retrieved and deleted."""

from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, written
from holdfast.ground.errors import InvalidInput, NotFound, PathTaken, PreconditionFailed, StoreFull
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock


class MemoriesContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_new_memory_holds_what_was_given(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memory = hf.memory_stores.memories.create(store.id, path="/a.md", content="täbs")

        assert (memory.type, memory.memory_store_id, memory.path) == ("memory", store.id, "/a.md")
        assert memory.content_sha256 == sha256_of("täbs")
        assert memory.content_size_bytes == 5
        assert memory.created_at == memory.updated_at == clock.now()
        assert memory.id.startswith("mem_")
        assert memory.memory_version_id.startswith("memver_")

    def test_create_and_update_answer_without_the_content_unless_asked(
        self, hf: Holdfast, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        created = memories.create(store.id, path="/a", content="x")
        changed = memories.update(created.id, memory_store_id=store.id, content="y")

        assert (created.content, changed.content) == (None, None)

    def test_create_and_update_answer_with_the_content_when_asked(
        self, hf: Holdfast, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        created = memories.create(store.id, path="/a", content="x", view="full")
        changed = memories.update(created.id, memory_store_id=store.id, content="y", view="full")

        assert (created.content, changed.content) == ("x", "y")

    def test_retrieve_answers_with_the_content_unless_told(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")

        full = hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
        basic = hf.memory_stores.memories.retrieve(
            memory.id, memory_store_id=store.id, view="basic"
        )

        assert full.content == "x"
        assert basic == memory

    def test_a_bad_view_is_refused(self, hf: Holdfast, store: Store) -> None:
        bad: Any = "whole"

        with invalid("view"):
            hf.memory_stores.memories.create(store.id, path="/a", content="x", view=bad)

        assert hf.memory_stores.memories.at(store.id, "/a") is None

    def test_null_content_is_refused_and_the_way_out_is_said(
        self, hf: Holdfast, store: Store
    ) -> None:
        with pytest.raises(InvalidInput, match='""') as refusal:
            hf.memory_stores.memories.create(store.id, path="/a", content=None)

        assert refusal.value.field == "content"

    def test_create_never_overwrites(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(PathTaken) as refusal:
            written(hf, store, "/a")

        assert refusal.value.conflicting_memory_id == memory.id
        assert refusal.value.conflicting_path == "/a"

    def test_a_taken_path_answers_before_a_full_store(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        written(hf, store, "/a")

        with pytest.raises(PathTaken):
            written(hf, store, "/a")

    def test_each_change_is_a_version(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        versions = hf.memory_stores.memory_versions.list(store.id)

        assert [each.operation for each in versions] == ["deleted", "modified", "created"]
        assert {each.memory_id for each in versions} == {memory.id}
        assert {each.created_by for each in versions} == {LOCAL}

    def test_a_memory_of_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.create("memstore_" + "0" * 24, path="/a", content="x")

    @pytest.mark.parametrize("id", ["mem_" + "0" * 24, "mem_short", "", "nonsense"])
    def test_an_id_that_is_unknown_or_malformed_is_not_found(
        self, hf: Holdfast, store: Store, id: str
    ) -> None:
        memories = hf.memory_stores.memories

        with pytest.raises(NotFound):
            memories.retrieve(id, memory_store_id=store.id)
        with pytest.raises(NotFound):
            memories.update(id, memory_store_id=store.id, content="y")
        with pytest.raises(NotFound):
            memories.delete(id, memory_store_id=store.id)

    def test_a_memory_is_not_found_through_another_store(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        other = hf.memory_stores.create(name="Other")

        with pytest.raises(NotFound):
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=other.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete(memory.id, memory_store_id=other.id)


class DeletedMemoriesContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_deleting_says_what_was_deleted(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        deleted = hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert (deleted.id, deleted.type) == (memory.id, "memory_deleted")

    def test_a_deleted_memory_is_not_found(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        with pytest.raises(NotFound):
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        assert list(hf.memory_stores.memories.list(store.id)) == []

    def test_deleting_leaves_a_version_without_content(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        now = clock.tick()
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        newest = hf.memory_stores.memory_versions.list(store.id, view="full").data[0]

        assert (newest.operation, newest.memory_id, newest.path) == ("deleted", memory.id, "/a")
        assert (newest.content, newest.content_sha256, newest.content_size_bytes) == (
            None,
            None,
            None,
        )
        assert (newest.created_at, newest.redacted_at, newest.redacted_by) == (now, None, None)

    def test_the_path_is_free_at_once_and_the_next_memory_there_is_another(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        (successor,) = written(hf, store, "/a")

        assert successor.id != memory.id

    def test_the_expected_hash_lets_the_delete_through(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        hf.memory_stores.memories.delete(
            memory.id, memory_store_id=store.id, expected_content_sha256=sha256_of("x")
        )

        assert hf.memory_stores.memories.at(store.id, "/a") is None

    def test_another_hash_deletes_nothing(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.delete(
                memory.id, memory_store_id=store.id, expected_content_sha256=sha256_of("y")
            )

        assert [each.operation for each in hf.memory_stores.memory_versions.list(store.id)] == [
            "created"
        ]

    @pytest.mark.parametrize("expected", ["", "0" * 63, "A" * 64, "nonsense"])
    def test_a_malformed_hash_is_refused(self, hf: Holdfast, store: Store, expected: str) -> None:
        (memory,) = written(hf, store, "/a")

        with invalid("expected_content_sha256"):
            hf.memory_stores.memories.delete(
                memory.id, memory_store_id=store.id, expected_content_sha256=expected
            )

    def test_a_deleted_memory_makes_room(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        (memory,) = written(hf, store, "/a")
        with pytest.raises(StoreFull):
            written(hf, store, "/b")

        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert len(written(hf, store, "/b")) == 1
