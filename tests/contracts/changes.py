"""What holds of a store that is taken whole, and of what changed in it since."""

import pytest

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import CursorExpired, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Move, Moved, Save
from holdfast.memories.stores.records import ChangesPage, Memory, Store

LONG = 30.0
"""Seconds to wait for what is sure to come."""


def basic(hf: Holdfast, memory: Memory) -> Memory:
    """Return *memory* as it is now, without its content."""
    memories = hf.memory_stores.memories
    return memories.retrieve(memory.id, memory_store_id=memory.memory_store_id, view="basic")


class SnapshotContract(GivenAStore):
    """Subclass it, and give it an `hf` fixture."""

    def test_it_holds_every_memory_in_the_basic_view_by_path(
        self, hf: Holdfast, store: Store
    ) -> None:
        b, a = written(hf, store, "/b", "/a/1")

        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert snapshot.memories == (basic(hf, a), basic(hf, b))

    def test_of_an_empty_store_there_is_one_too(self, hf: Holdfast, store: Store) -> None:
        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert (snapshot.memories, snapshot.archived_at) == ((), None)
        assert snapshot.seq > 0

    def test_it_tells_the_cap_and_when_the_store_was_archived(
        self, hf: Holdfast, store: Store
    ) -> None:
        cap = hf.memory_stores.settings().memories_cap
        assert hf.memory_stores.memories.snapshot(store.id).cap == cap
        hf.memory_stores.configure(memories_cap=7)
        archived = hf.memory_stores.archive(store.id)

        snapshot = hf.memory_stores.memories.snapshot(store.id)

        assert (snapshot.cap, snapshot.archived_at) == (7, archived.archived_at)

    def test_its_number_is_that_of_the_last_write(self, hf: Holdfast, store: Store) -> None:
        before = hf.memory_stores.memories.snapshot(store.id).seq

        edit = Save(path="/a", content="x")
        (applied,) = hf.memory_stores.memories.apply(store.id, [edit], edit_id="edit_1")

        assert hf.memory_stores.memories.snapshot(store.id).seq == applied.seq
        assert applied.seq > before

    def test_of_an_unknown_store_there_is_none(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")
        for id in (theirs.id, "memstore_" + "0" * 24, "x", "\0"):
            with pytest.raises(NotFound):
                hf.memory_stores.memories.snapshot(id)


class ChangesContract(GivenAStore):
    """Subclass it, and give it `hf` and `elsewhere` fixtures."""

    @pytest.fixture
    def after(self, hf: Holdfast, store: Store) -> int:
        """Return the store's number before the test's own changes."""
        return hf.memory_stores.memories.snapshot(store.id).seq

    def test_nothing_changed_at_first(self, hf: Holdfast, store: Store, after: int) -> None:
        cap = hf.memory_stores.settings().memories_cap

        assert hf.memory_stores.memories.changes(store.id, after) == ChangesPage(
            seq=after, changes=(), cap=cap, archived_at=None
        )

    def test_it_tells_what_became_of_each_memory_oldest_first(
        self, hf: Holdfast, store: Store
    ) -> None:
        a, b, c = written(hf, store, "/a", "/b", "/c")
        after = hf.memory_stores.memories.snapshot(store.id).seq
        hf.memory_stores.memories.delete(b.id, memory_store_id=store.id)
        hf.memory_stores.memories.update(a.id, memory_store_id=store.id, content="new")
        (d,) = written(hf, store, "/d")

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation, each.memory) for each in changes] == [
            (b.id, "deleted", None),
            (a.id, "modified", basic(hf, a)),
            (d.id, "created", basic(hf, d)),
        ]
        assert c.id not in {each.memory_id for each in changes}
        assert [each.seq for each in changes] == sorted({each.seq for each in changes})

    def test_only_the_last_change_of_a_memory_is_told(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        a, b = written(hf, store, "/a", "/b")
        for text in ("1", "2", "3"):
            hf.memory_stores.memories.update(a.id, memory_store_id=store.id, content=text)
        hf.memory_stores.memories.delete(b.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation) for each in changes] == [
            (a.id, "modified"),
            (b.id, "deleted"),
        ]

    def test_what_came_back_and_went_again_is_told_once(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        (a,) = written(hf, store, "/a")
        for _ in range(2):
            hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)
            hf.memory_stores.memory_versions.restore(a.memory_version_id, memory_store_id=store.id)
        hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.operation, each.memory) for each in changes] == [("deleted", None)]

    def test_going_on_from_an_answer_tells_what_came_after_it(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        written(hf, store, "/a")
        first = hf.memory_stores.memories.changes(store.id, after)
        (b,) = written(hf, store, "/b")

        second = hf.memory_stores.memories.changes(store.id, first.seq)

        assert [each.memory_id for each in second.changes] == [b.id]
        assert hf.memory_stores.memories.changes(store.id, second.seq).changes == ()

    def test_from_the_beginning_it_tells_all(self, hf: Holdfast, store: Store) -> None:
        made = written(hf, store, "/a", "/b")

        changes = hf.memory_stores.memories.changes(store.id, 0).changes

        assert [each.memory_id for each in changes] == [each.id for each in made]

    def test_many_changes_come_in_parts_that_split_no_transaction(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        for part, many in enumerate((600, 600, 1_000)):
            edits = [Save(path=f"/{part}/{number}", content="") for number in range(many)]
            hf.memory_stores.memories.apply(store.id, edits, edit_id=f"edit_{part}")

        parts: list[int] = []
        while changes := hf.memory_stores.memories.changes(store.id, after):
            after = changes.seq
            parts.append(len(changes.changes))
            if not changes.changes:
                break

        assert parts == [600, 600, 1_000, 0]

    def test_a_transaction_of_more_than_an_answer_holds_comes_whole(
        self, hf: Holdfast, store: Store
    ) -> None:
        for part in range(2):
            edits = [Save(path=f"/a/{part}/{number}", content="") for number in range(600)]
            hf.memory_stores.memories.apply(store.id, edits, edit_id=f"edit_{part}")
        snapshot = hf.memory_stores.memories.snapshot(store.id)
        moves = tuple(
            Moved(memory_id=each.id, path=each.path.replace("/a/", "/b/"))
            for each in snapshot.memories
        )
        hf.memory_stores.memories.apply(store.id, [Move(moves=moves)], edit_id="edit_m")

        changes = hf.memory_stores.memories.changes(store.id, snapshot.seq)

        assert len(changes.changes) == 1_200
        assert hf.memory_stores.memories.changes(store.id, changes.seq).changes == ()

    def test_a_redacted_version_is_told_of_all_the_same(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        (a,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(a.id, memory_store_id=store.id)
        for version in hf.memory_stores.memory_versions.list(store.id).data:
            hf.memory_stores.memory_versions.redact(version.id, memory_store_id=store.id)

        changes = hf.memory_stores.memories.changes(store.id, after).changes

        assert [(each.memory_id, each.operation) for each in changes] == [(a.id, "deleted")]

    def test_a_number_the_store_never_came_to_asks_for_a_snapshot(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        with pytest.raises(CursorExpired) as refusal:
            hf.memory_stores.memories.changes(store.id, after + 1, wait=LONG)

        assert refusal.value.oldest == after

    def test_nor_does_one_it_passed_over_tell_what_came_after_it(
        self, hf: Holdfast, store: Store
    ) -> None:
        edits = [Save(path=f"/{number}", content="") for number in range(3)]
        hf.memory_stores.memories.apply(store.id, edits, edit_id="edit_1")
        passed = hf.memory_stores.memories.snapshot(store.id).seq + 1
        written(hf, store, "/later")
        assert passed < hf.memory_stores.memories.snapshot(store.id).seq

        with pytest.raises(CursorExpired):
            hf.memory_stores.memories.changes(store.id, passed)

    def test_what_is_no_number_and_no_time_is_refused(
        self, hf: Holdfast, store: Store, after: int
    ) -> None:
        with invalid("after"):
            hf.memory_stores.memories.changes(store.id, -1)
        for wait in (-1.0, 30.1):
            with invalid("wait"):
                hf.memory_stores.memories.changes(store.id, after, wait=wait)

    def test_an_unknown_store_has_none(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")
        for id, number in ((theirs.id, 0), ("memstore_" + "0" * 24, -1), ("x", 0)):
            with pytest.raises(NotFound):
                hf.memory_stores.memories.changes(id, number, wait=LONG)
