"""What holds when a version is restored, and when two are compared."""

import pytest

from contracts.stores import GivenAStore, sha256_of, written
from holdfast.ground.errors import InvalidInput, NotFound, PathTaken, Refused
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store


class RestoreContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def restored(self, hf: Holdfast, memory: Memory) -> Memory:
        """Restore the version that *memory* tells of."""
        return hf.memory_stores.memory_versions.restore(
            memory.memory_version_id, memory_store_id=memory.memory_store_id
        )

    def operations(self, hf: Holdfast, store: Store) -> list[str]:
        """Return the operations of the store's versions, newest first."""
        return [each.operation for each in hf.memory_stores.memory_versions.list(store.id)]

    def test_a_live_memory_gets_its_old_content_and_keeps_its_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a", content="old")
        hf.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="new", path="/b"
        )

        restored = self.restored(hf, memory)

        assert (restored.id, restored.path) == (memory.id, "/b")
        assert restored.content_sha256 == sha256_of("old")
        assert self.operations(hf, store) == ["modified", "modified", "created"]

    def test_what_is_there_already_makes_no_version(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        moved = hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, path="/b")

        restored = self.restored(hf, memory)

        assert restored.memory_version_id == moved.memory_version_id
        assert self.operations(hf, store) == ["modified", "created"]

    def test_a_deleted_memory_comes_back_with_its_id_at_the_versions_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a", content="old")
        hf.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="new", path="/b"
        )
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        restored = self.restored(hf, memory)

        found = hf.memory_stores.memories.at(store.id, "/a")
        assert found is not None
        assert (found.id, found.content) == (memory.id, "old")
        assert restored.memory_version_id == found.memory_version_id
        assert self.operations(hf, store) == ["created", "deleted", "modified", "created"]

    def test_a_restored_memory_can_be_found_again(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="tabs")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        self.restored(hf, memory)

        matches = hf.memory_stores.memories.search(store.id, "tabs")
        assert [match.memory.id for match in matches] == [memory.id]

    @pytest.mark.parametrize("taken", ["/a", "/a/b"])
    def test_a_deleted_memory_stays_deleted_when_its_path_is_taken(
        self, hf: Holdfast, store: Store, taken: str
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        (blocker,) = written(hf, store, taken)

        with pytest.raises(PathTaken) as refusal:
            self.restored(hf, memory)

        assert refusal.value.conflicting_memory_id == blocker.id
        with pytest.raises(NotFound):
            hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)

    def test_a_deleted_version_cannot_be_restored(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        newest = hf.memory_stores.memory_versions.list(store.id).data[0]

        with pytest.raises((InvalidInput, Refused)):
            hf.memory_stores.memory_versions.restore(newest.id, memory_store_id=store.id)

    def test_a_memory_can_be_deleted_and_restored_again_and_again(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        for _ in range(3):
            hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
            self.restored(hf, memory)

        assert self.operations(hf, store) == ["created", "deleted"] * 3 + ["created"]
        assert len(hf.memory_stores.memories.list(store.id)) == 1


class DiffContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def compared(self, hf: Holdfast, store: Store, old: str, new: str) -> list[str]:
        """Return the lines after the headers of the diff from *old* to *new*."""
        (memory,) = written(hf, store, "/a", content=old)
        changed = hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content=new)
        diff = hf.memory_stores.memory_versions.diff(
            memory.memory_version_id, changed.memory_version_id, memory_store_id=store.id
        )
        headers = (f"--- /a@{memory.memory_version_id}", f"+++ /a@{changed.memory_version_id}")
        assert tuple(diff.split("\n")[:2]) == headers
        return diff.split("\n")[2:]

    def test_a_change_is_shown_among_three_lines_of_context(
        self, hf: Holdfast, store: Store
    ) -> None:
        old = "".join(f"{n}\n" for n in range(1, 10))

        lines = self.compared(hf, store, old, old.replace("5\n", "five\n"))

        assert lines == ["@@ -2,7 +2,7 @@", " 2", " 3", " 4", "-5", "+five", " 6", " 7", " 8", ""]

    def test_a_line_without_a_newline_at_the_end_is_marked(
        self, hf: Holdfast, store: Store
    ) -> None:
        lines = self.compared(hf, store, "a\n", "a")

        marked = "\\ No newline at end of file"
        assert [line for line in lines if line] == ["@@ -1 +1 @@", "-a", "+a", marked]

    def test_a_line_ends_at_a_newline_and_nowhere_else(self, hf: Holdfast, store: Store) -> None:
        lines = self.compared(hf, store, "a\x0cb\u2028c\rd\n", "a\x0cb\u2028c\re\n")

        assert [line for line in lines if line] == [
            "@@ -1 +1 @@",
            "-a\x0cb\u2028c\rd",
            "+a\x0cb\u2028c\re",
        ]

    def test_equal_contents_have_no_difference(self, hf: Holdfast, store: Store) -> None:
        first, second = written(hf, store, "/a", "/b")

        diff = hf.memory_stores.memory_versions.diff(
            first.memory_version_id, second.memory_version_id, memory_store_id=store.id
        )

        assert diff == ""

    def test_deleted_counts_as_empty(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="x\n")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        deleted = hf.memory_stores.memory_versions.list(store.id).data[0]

        gone = hf.memory_stores.memory_versions.diff(
            memory.memory_version_id, deleted.id, memory_store_id=store.id
        )
        come = hf.memory_stores.memory_versions.diff(
            deleted.id, memory.memory_version_id, memory_store_id=store.id
        )

        assert gone == f"--- /a@{memory.memory_version_id}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"
        assert come == f"--- /dev/null\n+++ /a@{memory.memory_version_id}\n@@ -0,0 +1 @@\n+x\n"

    def test_an_unknown_version_is_not_found(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        unknown = "memver_" + "0" * 24

        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.diff(
                memory.memory_version_id, unknown, memory_store_id=store.id
            )
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.diff(
                unknown, memory.memory_version_id, memory_store_id=store.id
            )

    def test_a_version_of_another_store_is_not_found(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        (foreign,) = written(hf, hf.memory_stores.create(name="Other"), "/a")

        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.diff(
                memory.memory_version_id, foreign.memory_version_id, memory_store_id=store.id
            )
