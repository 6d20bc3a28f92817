"""What holds for the versions that changes leave."""

from datetime import timedelta
from typing import Any

import pytest

from contracts.stores import GivenAStore, invalid, sha256_of, written
from holdfast.ground.errors import NotFound
from holdfast.ground.scope import LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store, Version
from holdfast.testing.fakes import FrozenClock


class VersionsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def memory(self, hf: Holdfast, clock: FrozenClock, store: Store) -> Memory:
        """Give a memory that was created, changed, moved and deleted, a second apart."""
        memories = hf.memory_stores.memories
        (memory,) = written(hf, store, "/a")
        clock.tick()
        memories.update(memory.id, memory_store_id=store.id, content="yy")
        clock.tick()
        memories.update(memory.id, memory_store_id=store.id, path="/b")
        clock.tick()
        memories.delete(memory.id, memory_store_id=store.id)
        return memory

    def listed(self, hf: Holdfast, store: Store, **how: Any) -> list[Version]:
        """Return the versions of all pages."""
        return list(hf.memory_stores.memory_versions.list(store.id, **how).all())

    def test_a_store_without_memories_has_no_versions(self, hf: Holdfast, store: Store) -> None:
        page = hf.memory_stores.memory_versions.list(store.id)

        assert (page.data, page.next_page) == ([], None)

    @pytest.mark.usefixtures("memory")
    def test_the_newest_comes_first_and_each_tells_of_its_moment(
        self, hf: Holdfast, store: Store
    ) -> None:
        facts = [
            (each.operation, each.path, each.content, each.content_size_bytes)
            for each in self.listed(hf, store, view="full")
        ]

        assert facts == [
            ("deleted", "/b", None, None),
            ("modified", "/b", "yy", 2),
            ("modified", "/a", "yy", 2),
            ("created", "/a", "x", 1),
        ]

    def test_of_one_instant_the_later_comes_first(self, hf: Holdfast, store: Store) -> None:
        made = [each.memory_version_id for each in written(hf, store, "/a", "/b", "/c")]

        assert [each.id for each in self.listed(hf, store)] == made[::-1]

    def test_a_clock_that_is_set_back_leaves_their_order(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        first, second = written(hf, store, "/a", "/b")
        clock.tick(-60)
        third, fourth = written(hf, store, "/c", "/d")
        clock.tick(60)

        versions = self.listed(hf, store, limit=2)

        assert [each.id for each in versions] == [
            each.memory_version_id for each in (fourth, third, second, first)
        ]

    def test_the_content_is_left_out_of_a_list_unless_asked_for(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, "/a")

        (version,) = hf.memory_stores.memory_versions.list(store.id)

        assert (version.content, version.content_size_bytes) == (None, 1)
        assert version.content_sha256 == sha256_of("x")

    @pytest.mark.usefixtures("memory")
    def test_what_is_listed_can_be_retrieved(self, hf: Holdfast, store: Store) -> None:
        for view in ("basic", "full"):
            for each in self.listed(hf, store, view=view):
                found = hf.memory_stores.memory_versions.retrieve(
                    each.id, memory_store_id=store.id, view=view
                )
                assert found == each

    def test_a_version_says_whose_it_is_and_what_it_holds(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a")

        version = hf.memory_stores.memory_versions.retrieve(
            memory.memory_version_id, memory_store_id=store.id, view="full"
        )

        assert (version.type, version.id) == ("memory_version", memory.memory_version_id)
        assert (version.memory_id, version.memory_store_id) == (memory.id, store.id)
        assert (version.path, version.content) == ("/a", "x")
        assert (version.created_at, version.created_by) == (clock.now(), LOCAL)
        assert version.created_by.type == "api_actor"
        assert (version.redacted_at, version.redacted_by) == (None, None)

    def test_versions_of_one_memory(self, hf: Holdfast, store: Store, memory: Memory) -> None:
        written(hf, store, "/other")

        versions = self.listed(hf, store, memory_id=memory.id)

        assert len(versions) == 4
        assert {each.memory_id for each in versions} == {memory.id}

    @pytest.mark.parametrize("id", ["mem_" + "0" * 24, "mem_short", "nonsense", ""])
    @pytest.mark.usefixtures("memory")
    def test_versions_of_an_unknown_memory_are_none(
        self, hf: Holdfast, store: Store, id: str
    ) -> None:
        assert self.listed(hf, store, memory_id=id) == []

    @pytest.mark.parametrize(
        ("operation", "count"), [("created", 1), ("modified", 2), ("deleted", 1)]
    )
    @pytest.mark.usefixtures("memory")
    def test_versions_of_one_operation(
        self, hf: Holdfast, store: Store, operation: Any, count: int
    ) -> None:
        versions = self.listed(hf, store, operation=operation)

        assert [each.operation for each in versions] == [operation] * count

    @pytest.mark.usefixtures("memory")
    def test_versions_of_one_actor(self, hf: Holdfast, store: Store) -> None:
        session = hf.sessions.create(
            agent="coder",
            environment_id="laptop",
            resources=[{"type": "memory_store", "memory_store_id": store.id}],
        )
        written(hf.for_session(session.id), store, "/c")

        of_session = self.listed(hf, store, session_id=session.id)
        of_key = self.listed(hf, store, api_key_id="apikey_local")

        assert [each.path for each in of_session] == ["/c"]
        assert len(of_key) == 4
        assert self.listed(hf, store, service_account_id="svac_none") == []

    @pytest.mark.usefixtures("memory")
    def test_bounds_of_created_at_are_inclusive(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        last, second = clock.now(), timedelta(seconds=1)

        assert len(self.listed(hf, store, created_at_gte=last)) == 1
        assert len(self.listed(hf, store, created_at_gte=last - second)) == 2
        assert len(self.listed(hf, store, created_at_lte=last - second)) == 3
        assert len(self.listed(hf, store, created_at_gte=last + second)) == 0

    @pytest.mark.usefixtures("memory")
    def test_filters_narrow_together(self, hf: Holdfast, clock: FrozenClock, store: Store) -> None:
        versions = self.listed(
            hf,
            store,
            operation="modified",
            created_at_gte=clock.now() - timedelta(seconds=1),
        )

        assert [each.path for each in versions] == ["/b"]

    @pytest.mark.parametrize(
        ("field", "value"),
        [("operation", "redacted"), ("view", "whole"), ("limit", 0), ("limit", 101)],
    )
    def test_a_bad_filter_is_refused(
        self, hf: Holdfast, store: Store, field: str, value: Any
    ) -> None:
        with invalid(field):
            hf.memory_stores.memory_versions.list(store.id, **{field: value})

    @pytest.mark.usefixtures("memory")
    def test_pages_give_what_one_page_gives(self, hf: Holdfast, store: Store) -> None:
        whole = hf.memory_stores.memory_versions.list(store.id)

        assert self.listed(hf, store, limit=1) == whole.data
        assert self.listed(hf, store, limit=3) == whole.data

    @pytest.mark.usefixtures("memory")
    def test_a_cursor_of_other_filters_is_refused(self, hf: Holdfast, store: Store) -> None:
        page = hf.memory_stores.memory_versions.list(store.id, limit=1)

        with invalid("page"):
            hf.memory_stores.memory_versions.list(
                store.id, page=page.next_page, operation="created"
            )

    def test_a_page_has_20_unless_told_and_at_most_20_with_contents(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, *(f"/{n:02}" for n in range(21)))
        versions = hf.memory_stores.memory_versions

        assert len(versions.list(store.id)) == 20
        assert len(versions.list(store.id, limit=100)) == 21
        assert len(versions.list(store.id, limit=100, view="full")) == 20

    @pytest.mark.parametrize("id", ["memver_" + "0" * 24, "memver_short", "", "nonsense"])
    def test_an_id_that_is_unknown_or_malformed_is_not_found(
        self, hf: Holdfast, store: Store, id: str
    ) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.retrieve(id, memory_store_id=store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.redact(id, memory_store_id=store.id)
        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.restore(id, memory_store_id=store.id)

    def test_a_version_is_not_found_through_another_store(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        other = hf.memory_stores.create(name="Other")

        with pytest.raises(NotFound):
            hf.memory_stores.memory_versions.retrieve(
                memory.memory_version_id, memory_store_id=other.id
            )

    def test_nothing_that_failed_leaves_a_version(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        for bad in ("no slash", "/a/b"):
            with pytest.raises(Exception):  # noqa: B017, PT011 - the paths contract says which
                written(hf, store, bad)

        assert [each.memory_id for each in self.listed(hf, store)] == [memory.id]
