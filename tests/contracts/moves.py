"""What holds when a path, or everything below it, is renamed or deleted at once."""

import pytest

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import InvalidInput, NotFound, PathTaken
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


class RenameContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def paths(self, hf: Holdfast, store: Store) -> list[str]:
        """Return the paths of the store's memories."""
        return [each.path for each in hf.memory_stores.memories.list(store.id)]

    def test_a_memory_is_renamed_and_keeps_its_id(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        (moved,) = hf.memory_stores.memories.rename(store.id, "/a", "/b/c")

        assert (moved.id, moved.path) == (memory.id, "/b/c")
        assert self.paths(hf, store) == ["/b/c"]
        assert [each.operation for each in hf.memory_stores.memory_versions.list(store.id)] == [
            "modified",
            "created",
        ]

    def test_a_directory_moves_with_everything_below_it(self, hf: Holdfast, store: Store) -> None:
        inside = written(hf, store, "/a/1", "/a/b/2")
        written(hf, store, "/ab", "/a.md", "/A/1", "/b/a/1")

        moved = hf.memory_stores.memories.rename(store.id, "/a", "/z/y")

        assert {each.id: each.path for each in moved} == {
            inside[0].id: "/z/y/1",
            inside[1].id: "/z/y/b/2",
        }
        assert self.paths(hf, store) == ["/A/1", "/a.md", "/ab", "/b/a/1", "/z/y/1", "/z/y/b/2"]

    def test_each_memory_that_moves_gets_one_version(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", "/b")

        hf.memory_stores.memories.rename(store.id, "/a", "/c")

        versions = hf.memory_stores.memory_versions.list(store.id, operation="modified")
        assert {each.path for each in versions} == {"/c/1", "/c/2"}
        assert len(versions) == 2

    def test_a_memory_found_by_words_of_its_path_is_found_by_the_new_ones(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/drafts/letter")

        hf.memory_stores.memories.rename(store.id, "/drafts", "/archive")

        search = hf.memory_stores.memories.search
        assert [match.memory.id for match in search(store.id, "archive")] == [memory.id]
        assert search(store.id, "drafts") == []

    @pytest.mark.parametrize("there", ["/z/1", "/z", "/z/1/x"])
    def test_nothing_moves_when_any_target_is_taken(
        self, hf: Holdfast, store: Store, there: str
    ) -> None:
        written(hf, store, "/a/0", "/a/1", "/a/2")
        (blocker,) = written(hf, store, there)
        before = self.paths(hf, store)

        with pytest.raises(PathTaken) as refusal:
            hf.memory_stores.memories.rename(store.id, "/a", "/z")

        assert refusal.value.conflicting_memory_id == blocker.id
        assert self.paths(hf, store) == before
        assert len(hf.memory_stores.memory_versions.list(store.id)) == 4

    def test_a_directory_that_is_there_is_taken_too(self, hf: Holdfast, store: Store) -> None:
        _, there = written(hf, store, "/a/1", "/z/2")

        with pytest.raises(PathTaken) as refusal:
            hf.memory_stores.memories.rename(store.id, "/a", "/z")

        assert refusal.value.conflicting_memory_id == there.id
        assert self.paths(hf, store) == ["/a/1", "/z/2"]

    def test_a_directory_may_move_up(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/a/x", "/a/a/y")

        hf.memory_stores.memories.rename(store.id, "/a/a", "/a")

        assert self.paths(hf, store) == ["/a/x", "/a/y"]

    @pytest.mark.parametrize("old", ["/a", "/a/1"])
    def test_nothing_can_move_into_itself(self, hf: Holdfast, store: Store, old: str) -> None:
        written(hf, store, "/a/1", "/a/2")

        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.rename(store.id, old, f"{old}/b")

        assert self.paths(hf, store) == ["/a/1", "/a/2"]

    def test_nothing_moves_when_any_target_is_no_path(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/" + "x" * 1000)

        with pytest.raises(InvalidInput):
            hf.memory_stores.memories.rename(store.id, "/a", "/" + "z" * 100)

        assert self.paths(hf, store) == ["/a/1", "/a/" + "x" * 1000]

    @pytest.mark.parametrize("path", ["no slash", "/a//b", "/a/../b", "/.anthropic-memory-store"])
    def test_a_bad_new_path_is_refused(self, hf: Holdfast, store: Store, path: str) -> None:
        written(hf, store, "/a")

        with invalid("new_path"):
            hf.memory_stores.memories.rename(store.id, "/a", path)

    def test_nothing_at_the_old_path_is_not_found(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/ab")

        with pytest.raises(NotFound):
            hf.memory_stores.memories.rename(store.id, "/a", "/b")

    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.rename("memstore_" + "0" * 24, "/a", "/b")


class DeleteUnderContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_one_memory_is_deleted(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", "/ab")

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 1
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == ["/ab"]

    def test_everything_below_a_directory_is_deleted_and_nothing_beside_it(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a/1", "/a/b/2", "/ab/3", "/a.md", "/A/1")

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 2
        assert [each.path for each in hf.memory_stores.memories.list(store.id)] == [
            "/A/1",
            "/a.md",
            "/ab/3",
        ]

    def test_each_deleted_memory_leaves_a_version(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", "/b")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        deleted = hf.memory_stores.memory_versions.list(store.id, operation="deleted")
        assert {each.path for each in deleted} == {"/a/1", "/a/2"}

    def test_what_was_deleted_is_found_no_more(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2", content="tabs")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        assert hf.memory_stores.memories.search(store.id, "tabs") == []

    def test_it_makes_room(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=2)
        written(hf, store, "/a/1", "/a/2")

        hf.memory_stores.memories.delete_under(store.id, "/a")

        assert len(written(hf, store, "/b", "/c")) == 2

    def test_it_works_in_an_archived_store(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/1", "/a/2")
        hf.memory_stores.archive(store.id)

        assert hf.memory_stores.memories.delete_under(store.id, "/a") == 2

    def test_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.delete_under("memstore_" + "0" * 24, "/a")
