"""What holds when a memory is updated, with a precondition or without."""

from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, still, written
from holdfast.ground.errors import InvalidInput, PreconditionFailed
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.fakes import FrozenClock


class MemoryUpdatesContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def memory(self, hf: Holdfast, store: Store) -> Memory:
        return hf.memory_stores.memories.create(store.id, path="/a", content="x")

    def test_new_content_is_a_new_version_of_the_same_memory(
        self, hf: Holdfast, clock: FrozenClock, memory: Memory
    ) -> None:
        now = clock.tick()

        changed = hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, content="yy"
        )

        assert (changed.id, changed.path, changed.created_at) == (
            memory.id,
            "/a",
            memory.created_at,
        )
        assert (changed.content_sha256, changed.content_size_bytes) == (sha256_of("yy"), 2)
        assert changed.memory_version_id > memory.memory_version_id
        assert changed.updated_at == now

    def test_a_new_path_keeps_id_content_and_birthday(
        self, hf: Holdfast, clock: FrozenClock, memory: Memory
    ) -> None:
        now = clock.tick()

        moved = hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, path="/b", view="full"
        )

        assert (moved.id, moved.path, moved.content) == (memory.id, "/b", "x")
        assert (moved.created_at, moved.updated_at) == (memory.created_at, now)
        assert hf.memory_stores.memories.at(memory.memory_store_id, "/a") is None

    def test_content_and_path_at_once_make_one_version(self, hf: Holdfast, memory: Memory) -> None:
        store_id = memory.memory_store_id
        hf.memory_stores.memories.update(
            memory.id, memory_store_id=store_id, content="y", path="/b"
        )

        newest, *older = hf.memory_stores.memory_versions.list(store_id, view="full")

        assert (newest.operation, newest.path, newest.content) == ("modified", "/b", "y")
        assert len(older) == 1

    @pytest.mark.parametrize("nothing", [{}, {"content": None}, {"path": None, "content": None}])
    def test_an_update_of_nothing_is_refused(
        self, hf: Holdfast, memory: Memory, nothing: dict[str, Any]
    ) -> None:
        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=memory.memory_store_id, **nothing
            )

    def test_none_beside_a_value_counts_as_left_out(self, hf: Holdfast, memory: Memory) -> None:
        changed = hf.memory_stores.memories.update(
            memory.id,
            memory_store_id=memory.memory_store_id,
            content="y",
            path=None,
            precondition=None,
        )

        assert (changed.path, changed.content_sha256) == ("/a", sha256_of("y"))

    @pytest.mark.parametrize(
        "same", [{"content": "x"}, {"path": "/a"}, {"content": "x", "path": "/a"}]
    )
    def test_an_update_to_what_is_there_changes_nothing(
        self, hf: Holdfast, clock: FrozenClock, memory: Memory, same: dict[str, Any]
    ) -> None:
        clock.tick()

        again = hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, **same
        )

        assert again == memory
        assert len(hf.memory_stores.memory_versions.list(memory.memory_store_id)) == 1

    def test_a_retried_write_whose_first_try_was_kept_succeeds(
        self, hf: Holdfast, memory: Memory
    ) -> None:
        store_id, memories = memory.memory_store_id, hf.memory_stores.memories
        first = memories.update(
            memory.id, memory_store_id=store_id, content="y", precondition=still("x")
        )

        second = memories.update(
            memory.id, memory_store_id=store_id, content="y", precondition=still("x")
        )

        assert second == first
        assert len(hf.memory_stores.memory_versions.list(store_id)) == 2

    def test_the_empty_text_is_content(self, hf: Holdfast, memory: Memory) -> None:
        changed = hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, content="", view="full"
        )

        assert (changed.content, changed.content_size_bytes) == ("", 0)

    def test_a_bad_path_beside_good_content_changes_nothing(
        self, hf: Holdfast, memory: Memory
    ) -> None:
        store_id = memory.memory_store_id

        with invalid("path"):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store_id, content="y", path="no slash"
            )

        assert (
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store_id, view="basic")
            == memory
        )


class PreconditionsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_precondition_that_holds_lets_the_write_through(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")

        changed = hf.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="y", precondition=still("x")
        )

        assert changed.content_sha256 == sha256_of("y")

    @pytest.mark.parametrize("change", [{"content": "y"}, {"path": "/b"}])
    def test_a_precondition_that_fails_changes_nothing(
        self, hf: Holdfast, store: Store, change: dict[str, Any]
    ) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, precondition=still("other"), **change
            )

        assert (
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id, view="basic")
            == memory
        )
        assert len(hf.memory_stores.memory_versions.list(store.id)) == 1

    def test_a_failed_precondition_answers_before_a_taken_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        memory, _ = written(hf, store, "/a", "/b")

        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, path="/b", precondition=still("other")
            )

    @pytest.mark.parametrize(
        "precondition",
        [
            {},
            {"type": "content_sha256"},
            {"type": "content_sha256", "content_sha256": None},
            {"type": "content_sha256", "content_sha256": ""},
            {"type": "content_sha256", "content_sha256": "0" * 63},
            {"type": "content_sha256", "content_sha256": "A" * 64},
            {"type": "content_sha256", "content_sha256": "0" * 64 + "\n"},
            {"type": "content_sha256", "content_sha256": 7},
            {"type": "etag", "content_sha256": "0" * 64},
            {"content_sha256": "0" * 64},
            {"type": "content_sha256", "content_sha256": "0" * 64, "more": "x"},
            "0" * 64,
        ],
    )
    def test_a_malformed_precondition_is_refused_even_for_a_no_op(
        self, hf: Holdfast, store: Store, precondition: Any
    ) -> None:
        (memory,) = written(hf, store, "/a")

        with invalid("precondition"):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, content="x", precondition=precondition
            )
