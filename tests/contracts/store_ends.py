"""What holds when a store is archived, and when it is deleted."""

import pytest

from contracts.given import GivenAStore, still, written
from holdfast.ground.errors import InvalidInput, NotFound, Refused, StoreArchived
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock


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
