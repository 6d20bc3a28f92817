"""What one workspace knows of another: nothing."""

import pytest

from contracts.access import READS, WRITES, Act
from contracts.sessions import attached
from contracts.stores import GivenAStore, written
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


class WorkspacesContract(GivenAStore):
    """A subclass provides `hf`, `clock`, and `elsewhere` in another workspace."""

    def test_each_has_its_own_stores(self, hf: Holdfast, elsewhere: Holdfast, store: Store) -> None:
        theirs = elsewhere.memory_stores.create(name="Theirs")

        assert list(hf.memory_stores.list()) == [store]
        assert list(elsewhere.memory_stores.list()) == [theirs]

    @pytest.mark.parametrize("act", [*READS.values(), *WRITES.values()], ids=[*READS, *WRITES])
    def test_anothers_memories_are_not_found(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store, act: Act
    ) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(NotFound):
            act(elsewhere, memory)

        found = hf.memory_stores.memories.retrieve(
            memory.id, memory_store_id=store.id, view="basic"
        )
        assert found == memory

    def test_anothers_store_cannot_be_changed(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        with pytest.raises(NotFound):
            elsewhere.memory_stores.update(store.id, name="Mine")
        with pytest.raises(NotFound):
            elsewhere.memory_stores.archive(store.id)
        with pytest.raises(NotFound):
            elsewhere.memory_stores.delete(store.id)
        with pytest.raises(NotFound):
            attached(elsewhere, store)

        assert hf.memory_stores.retrieve(store.id) == store

    def test_a_memory_is_not_found_through_a_store_of_ones_own(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        own = elsewhere.memory_stores.create(name="Own")

        with pytest.raises(NotFound):
            elsewhere.memory_stores.memories.retrieve(memory.id, memory_store_id=own.id)
        with pytest.raises(NotFound):
            elsewhere.memory_stores.memory_versions.redact(
                memory.memory_version_id, memory_store_id=own.id
            )

    def test_anothers_sessions_and_agents_are_not_found(
        self, hf: Holdfast, elsewhere: Holdfast, store: Store
    ) -> None:
        session = attached(hf, store)
        agent = hf.agents.create({"name": "Coder", "model": "claude-x"})

        with pytest.raises(NotFound):
            elsewhere.sessions.retrieve(session.id)
        with pytest.raises(NotFound):
            elsewhere.for_session(session.id)
        with pytest.raises(NotFound):
            elsewhere.agents.retrieve(agent["id"])
        assert list(elsewhere.sessions.list()) == []
        assert list(elsewhere.agents.list()) == []

    def test_each_has_its_own_settings(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        hf.memory_stores.configure(memories_cap=1)

        assert elsewhere.memory_stores.settings().memories_cap == 10_000

    @pytest.mark.parametrize("name", ["*", "a b", "a/b", "-a", "x" * 129, "a\n", "\u00fc"])
    def test_what_is_no_name_is_refused(self, hf: Holdfast, name: str) -> None:
        with pytest.raises(InvalidInput):
            hf.acting(workspace=name).memory_stores.list()
