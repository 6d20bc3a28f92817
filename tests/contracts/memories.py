"""Contract of memories: create, retrieve, update, delete, and their texts."""

from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, still, written
from holdfast.ground.errors import InvalidInput, NotFound, PathTaken, PreconditionFailed, StoreFull
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_the_expected_hash_lets_the_delete_through(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        hf.memory_stores.memories.delete(
            memory.id, memory_store_id=store.id, expected_content_sha256=sha256_of("x")
        )

        assert hf.memory_stores.memories.at(store.id, "/a") is None

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_another_hash_deletes_nothing(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.delete(
                memory.id, memory_store_id=store.id, expected_content_sha256=sha256_of("y")
            )

        assert [each.operation for each in hf.memory_stores.memory_versions.list(store.id)] == [
            "created"
        ]

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_none_beside_a_value_counts_as_left_out(self, hf: Holdfast, memory: Memory) -> None:
        changed = hf.memory_stores.memories.update(
            memory.id,
            memory_store_id=memory.memory_store_id,
            content="y",
            path=None,
            precondition=None,
        )

        assert (changed.path, changed.content_sha256) == ("/a", sha256_of("y"))

    @pytest.mark.surface("http", "the server has a branch for it")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_the_empty_text_is_content(self, hf: Holdfast, memory: Memory) -> None:
        changed = hf.memory_stores.memories.update(
            memory.id, memory_store_id=memory.memory_store_id, content="", view="full"
        )

        assert (changed.content, changed.content_size_bytes) == ("", 0)

    @pytest.mark.surface("http", "error fields cross the wire")
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


@pytest.mark.surface("http", "what was expected crosses the wire")
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


GOOD = {
    "nothing": "",
    "spaces": "  \n\n ",
    "all kinds of newlines": "a\nb\r\nc\rd\x85e\u2028f",
    "a byte order mark": "\ufeffa",
    "U+0000": "\x00a\x00\x00b\x00",
    "controls": "".join(map(chr, range(32))),
    "not in normal form C": "e\u0301 \u212a",
    "noncharacters": "\ufffe\uffff\U0010ffff",
    "four bytes each": "\U0001f600" * 25_600,
    "102,400 bytes": "x" * 102_400,
    "what JSON and SQL would escape": "\"'\\%_;--/*\u2028</script>",
}


@pytest.mark.surface("file", "texts of any size and letters are written to disk")
class ContentsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
    def test_content_comes_back_byte_for_byte(
        self, hf: Holdfast, store: Store, content: str
    ) -> None:
        (memory,) = written(hf, store, "/a", content=content)

        kept = hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)

        assert kept.content == content
        assert kept.content_sha256 == sha256_of(content)
        assert kept.content_size_bytes == len(content.encode())

    @pytest.mark.parametrize("content", GOOD.values(), ids=GOOD)
    def test_a_version_keeps_it_byte_for_byte(
        self, hf: Holdfast, store: Store, content: str
    ) -> None:
        (memory,) = written(hf, store, "/a", content=content)

        version = hf.memory_stores.memory_versions.retrieve(
            memory.memory_version_id, memory_store_id=store.id, view="full"
        )

        assert version.content == content
        assert version.content_sha256 == sha256_of(content)
        assert version.content_size_bytes == len(content.encode())

    @pytest.mark.parametrize(
        "content",
        ["x" * 102_401, "\u00fc" * 51_201, "a\ud800b", 7, b"bytes", ["x"]],
        ids=["102,401 bytes", "102,402 bytes of two each", "a surrogate", "int", "bytes", "list"],
    )
    def test_bad_content_is_refused(self, hf: Holdfast, store: Store, content: Any) -> None:
        (memory,) = written(hf, store, "/a")

        with invalid("content"):
            hf.memory_stores.memories.create(store.id, path="/b", content=content)
        with invalid("content"):
            hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content=content)

        assert len(hf.memory_stores.memory_versions.list(store.id)) == 1

    def test_a_refusal_never_repeats_the_content(self, hf: Holdfast, store: Store) -> None:
        with pytest.raises(InvalidInput) as refusal:
            hf.memory_stores.memories.create(store.id, path="/a", content="private " * 20_000)

        assert "private" not in str(refusal.value)
        assert refusal.value.limit == 102_400
