"""Contract of events: published after the commit, and none without a change."""

from collections.abc import Iterator

import pytest

from contracts.stores import GivenAStore, still, written
from holdfast.ground.errors import PathTaken, PreconditionFailed
from holdfast.ground.events import Event
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store


class EventsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures; `hf` must be embedded."""

    @pytest.fixture
    def events(self, hf: Holdfast, store: Store) -> Iterator[list[Event]]:
        """Yield the events of the workspace since the store was created, as they come."""
        events: list[Event] = []

        def listen(event: Event) -> None:
            if event.workspace == hf.workspace:
                events.append(event)

        assert store
        off = hf.events.subscribe(listen)
        yield events
        off()

    def test_each_change_to_a_store_is_told(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        hf.memory_stores.create(name="Other")
        hf.memory_stores.update(store.id, name="Letters")
        hf.memory_stores.archive(store.id)
        hf.memory_stores.delete(store.id)

        assert [each.type for each in events] == [
            "store.created",
            "store.updated",
            "store.archived",
            "store.deleted",
        ]
        assert {each.ids["memory_store_id"] for each in events[1:]} == {store.id}

    def test_each_version_is_told_with_its_ids_and_its_actor(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a", content="x")
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="y")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert [each.type for each in events] == [
            "memory.created",
            "memory.modified",
            "memory.deleted",
        ]
        assert {each.ids["memory_id"] for each in events} == {memory.id}
        assert {each.actor for each in events} == {LOCAL}

    def test_a_redaction_is_told(self, hf: Holdfast, events: list[Event], store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        hf.memory_stores.memory_versions.redact(memory.memory_version_id, memory_store_id=store.id)

        assert events[-1].type == "version.redacted"
        assert events[-1].ids["memory_version_id"] == memory.memory_version_id

    def test_sessions_and_keys_are_told(self, hf: Holdfast, events: list[Event]) -> None:
        session = hf.sessions.create(agent="coder", environment_id="laptop")
        hf.sessions.archive(session.id)
        hf.sessions.delete(session.id)
        hf.keys.revoke(hf.keys.create("ci").id)

        assert [each.type for each in events] == [
            "session.created",
            "session.archived",
            "session.deleted",
            "key.created",
            "key.revoked",
        ]

    def test_what_failed_or_changed_nothing_is_not_told(
        self, hf: Holdfast, events: list[Event], store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        events.clear()

        with pytest.raises(PathTaken):
            written(hf, store, "/a/b")
        with pytest.raises(PreconditionFailed):
            hf.memory_stores.memories.update(
                memory.id, memory_store_id=store.id, content="y", precondition=still("z")
            )
        hf.memory_stores.memories.update(memory.id, memory_store_id=store.id, content="x")
        hf.memory_stores.update(store.id, name="Notes")

        assert events == []

    def test_a_listener_that_raises_is_not_felt_by_the_write(
        self, hf: Holdfast, store: Store
    ) -> None:
        def listen(event: Event) -> None:
            raise ValueError(event.type)

        off = hf.events.subscribe(listen)

        (memory,) = written(hf, store, "/a")

        off()
        assert memory.path == "/a"
