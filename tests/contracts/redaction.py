"""What redaction takes from a version, and what it leaves."""

import pytest
from msgspec import structs

from contracts.stores import GivenAStore, written
from holdfast.ground.errors import ContentGone, HeadVersion, NotFound
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store, Version
from holdfast.testing.fakes import FrozenClock


class RedactionContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def memory(self, hf: Holdfast, store: Store) -> Memory:
        """Give a memory as it was made; it has a newer version since."""
        (memory,) = written(hf, store, "/a", content="old words")
        hf.memory_stores.memories.update(
            memory.id, memory_store_id=store.id, content="new words", path="/b"
        )
        return memory

    def redacted(self, hf: Holdfast, memory: Memory) -> Version:
        """Redact the version that *memory* tells of."""
        return hf.memory_stores.memory_versions.redact(
            memory.memory_version_id, memory_store_id=memory.memory_store_id
        )

    def test_content_hash_size_and_path_go_and_all_else_stays(
        self, hf: Holdfast, clock: FrozenClock, memory: Memory
    ) -> None:
        versions = hf.memory_stores.memory_versions
        before = versions.retrieve(
            memory.memory_version_id, memory_store_id=memory.memory_store_id, view="full"
        )
        now = clock.tick()

        redacted = self.redacted(hf, memory)

        assert redacted == structs.replace(
            before,
            path=None,
            content=None,
            content_sha256=None,
            content_size_bytes=None,
            redacted_at=now,
            redacted_by=LOCAL,
        )

    def test_it_shows_in_retrieve_and_list(self, hf: Holdfast, memory: Memory) -> None:
        redacted = self.redacted(hf, memory)
        versions, store_id = hf.memory_stores.memory_versions, memory.memory_store_id

        assert versions.retrieve(redacted.id, memory_store_id=store_id, view="full") == redacted
        assert versions.list(store_id, view="full", memory_id=memory.id).data[1] == redacted
        assert len(versions.list(store_id)) == 2

    def test_the_memory_stays_as_it_is(self, hf: Holdfast, memory: Memory) -> None:
        self.redacted(hf, memory)

        found = hf.memory_stores.memories.at(memory.memory_store_id, "/b")

        assert found is not None
        assert (found.id, found.content) == (memory.id, "new words")

    def test_redacting_again_changes_nothing(
        self, hf: Holdfast, clock: FrozenClock, memory: Memory
    ) -> None:
        redacted = self.redacted(hf, memory)
        clock.tick()

        assert self.redacted(hf, memory) == redacted

    def test_the_head_of_a_live_memory_cannot_be_redacted(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        with pytest.raises(HeadVersion, match="newer version or delete") as refusal:
            self.redacted(hf, memory)

        assert refusal.value.version_id == memory.memory_version_id
        assert refusal.value.memory_id == memory.id

    def test_what_was_the_head_can_be_redacted_once_the_memory_is_deleted(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)

        assert self.redacted(hf, memory).path is None

    def test_a_deleted_version_loses_its_path(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        versions = hf.memory_stores.memory_versions
        newest = versions.list(store.id).data[0]

        redacted = versions.redact(newest.id, memory_store_id=store.id)

        assert (redacted.operation, redacted.path) == ("deleted", None)
        assert redacted.redacted_at is not None

    def test_what_was_redacted_cannot_be_restored(self, hf: Holdfast, memory: Memory) -> None:
        redacted = self.redacted(hf, memory)

        with pytest.raises(ContentGone) as refusal:
            hf.memory_stores.memory_versions.restore(
                redacted.id, memory_store_id=memory.memory_store_id
            )

        assert refusal.value.version_id == redacted.id
        assert refusal.value.redacted_at == redacted.redacted_at

    @pytest.mark.parametrize("turned", [False, True])
    def test_what_was_redacted_cannot_be_compared(
        self, hf: Holdfast, memory: Memory, turned: bool
    ) -> None:
        redacted = self.redacted(hf, memory)
        head = hf.memory_stores.memory_versions.list(memory.memory_store_id).data[0]
        pair = (head.id, redacted.id) if turned else (redacted.id, head.id)

        with pytest.raises(ContentGone):
            hf.memory_stores.memory_versions.diff(*pair, memory_store_id=memory.memory_store_id)

    def test_the_store_goes_on_working(self, hf: Holdfast, store: Store, memory: Memory) -> None:
        self.redacted(hf, memory)

        (later,) = written(hf, store, "/a", content="old words")

        assert later.id != memory.id
        assert [match.memory.id for match in hf.memory_stores.memories.search(store.id, "old")] == [
            later.id
        ]

    def test_a_version_is_not_redacted_through_another_store(
        self, hf: Holdfast, memory: Memory
    ) -> None:
        other = hf.memory_stores.create(name="Other")

        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.redact(
                memory.memory_version_id, memory_store_id=other.id
            )
