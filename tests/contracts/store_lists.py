"""What holds for the list of a workspace's stores, and for their settings."""

from datetime import timedelta

import pytest
from msgspec import structs

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import StoreFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store
from holdfast.testing.fakes import FrozenClock


class StoreListsContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_workspace_without_stores_has_an_empty_page(self, hf: Holdfast) -> None:
        page = hf.memory_stores.list()

        assert (page.data, page.next_page) == ([], None)

    def test_the_newest_comes_first(self, hf: Holdfast, clock: FrozenClock) -> None:
        old = hf.memory_stores.create(name="old")
        clock.tick()
        new = hf.memory_stores.create(name="new")

        assert list(hf.memory_stores.list()) == [new, old]

    def test_of_one_instant_the_later_id_comes_first(self, hf: Holdfast) -> None:
        stores = [hf.memory_stores.create(name="Notes") for _ in range(3)]

        assert list(hf.memory_stores.list()) == stores[::-1]

    def test_a_page_has_20_unless_told(self, hf: Holdfast) -> None:
        for _ in range(21):
            hf.memory_stores.create(name="Notes")

        page = hf.memory_stores.list()

        assert len(page) == 20
        assert page.next_page is not None
        assert page.next_page.startswith("page_")

    def test_pages_follow_one_another_to_the_end(self, hf: Holdfast) -> None:
        stores = [hf.memory_stores.create(name="Notes") for _ in range(5)]

        first = hf.memory_stores.list(limit=2)
        second = hf.memory_stores.list(limit=2, page=first.next_page)
        last = hf.memory_stores.list(limit=2, page=second.next_page)

        assert [*first, *second, *last] == stores[::-1]
        assert (len(last), last.next_page) == (1, None)

    def test_all_walks_on(self, hf: Holdfast) -> None:
        stores = [hf.memory_stores.create(name="Notes") for _ in range(5)]

        assert list(hf.memory_stores.list(limit=2).all()) == stores[::-1]

    def test_a_page_that_is_just_full_is_the_last(self, hf: Holdfast) -> None:
        for _ in range(2):
            hf.memory_stores.create(name="Notes")

        assert hf.memory_stores.list(limit=2).next_page is None

    def test_archived_stores_are_listed_when_asked_for(self, hf: Holdfast) -> None:
        live = hf.memory_stores.create(name="live")
        archived = hf.memory_stores.archive(hf.memory_stores.create(name="gone").id)

        assert list(hf.memory_stores.list()) == [live]
        assert list(hf.memory_stores.list(include_archived=True)) == [archived, live]

    def test_bounds_of_created_at_are_inclusive(self, hf: Holdfast, clock: FrozenClock) -> None:
        stores: list[Store] = []
        for _ in range(3):
            stores.append(hf.memory_stores.create(name="Notes"))
            clock.tick()
        middle = stores[1].created_at

        assert list(hf.memory_stores.list(created_at_gte=middle)) == stores[:0:-1]
        assert list(hf.memory_stores.list(created_at_lte=middle)) == stores[1::-1]
        assert list(hf.memory_stores.list(created_at_gte=middle, created_at_lte=middle)) == [
            stores[1]
        ]

    def test_a_bound_is_exact_to_the_microsecond(self, hf: Holdfast, clock: FrozenClock) -> None:
        clock.tick(0.000_001)
        store = hf.memory_stores.create(name="Notes")
        microsecond = timedelta(microseconds=1)

        assert store.created_at == clock.now()
        assert list(hf.memory_stores.list(created_at_gte=clock.now() + microsecond)) == []
        assert list(hf.memory_stores.list(created_at_lte=clock.now() - microsecond)) == []

    def test_a_naive_bound_is_utc(self, hf: Holdfast) -> None:
        store = hf.memory_stores.create(name="Notes")
        naive = store.created_at.replace(tzinfo=None)

        assert list(hf.memory_stores.list(created_at_gte=naive, created_at_lte=naive)) == [store]

    @pytest.mark.parametrize("limit", [0, -1, 101])
    def test_a_limit_outside_1_to_100_is_refused(self, hf: Holdfast, limit: int) -> None:
        with invalid("limit"):
            hf.memory_stores.list(limit=limit)

    def test_a_cursor_of_other_filters_is_refused(self, hf: Holdfast) -> None:
        for _ in range(2):
            hf.memory_stores.create(name="Notes")
        page = hf.memory_stores.list(limit=1)

        with invalid("page"):
            hf.memory_stores.list(limit=1, page=page.next_page, include_archived=True)

    def test_limit_may_change_between_pages(self, hf: Holdfast) -> None:
        stores = [hf.memory_stores.create(name="Notes") for _ in range(4)]

        first = hf.memory_stores.list(limit=1)
        rest = hf.memory_stores.list(limit=100, page=first.next_page)

        assert [*first, *rest] == stores[::-1]

    def test_stores_that_come_while_walking_are_not_in_the_way(self, hf: Holdfast) -> None:
        stores = [hf.memory_stores.create(name="Notes") for _ in range(4)]

        first = hf.memory_stores.list(limit=2)
        hf.memory_stores.create(name="late")
        rest = hf.memory_stores.list(limit=2, page=first.next_page)

        assert [*first, *rest] == stores[::-1]


class StoreSettingsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_store_holds_10000_memories_and_keeps_all_versions_unless_told(
        self, hf: Holdfast
    ) -> None:
        settings = hf.memory_stores.settings()

        assert structs.asdict(settings) == {
            "type": "memory_store_settings",
            "memories_cap": 10_000,
            "versions_keep_days": None,
            "versions_keep_last": None,
        }

    def test_a_cap_once_set_is_kept(self, hf: Holdfast) -> None:
        settings = hf.memory_stores.configure(memories_cap=7)

        assert settings.memories_cap == 7
        assert hf.memory_stores.settings() == settings

    def test_configuring_nothing_changes_nothing(self, hf: Holdfast) -> None:
        settings = hf.memory_stores.configure(memories_cap=7)

        assert hf.memory_stores.configure() == settings

    def test_a_negative_cap_is_refused(self, hf: Holdfast) -> None:
        with invalid("memories_cap"):
            hf.memory_stores.configure(memories_cap=-1)

    def test_a_full_store_takes_no_new_memory(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=2)
        written(hf, store, "/a", "/b")

        with pytest.raises(StoreFull) as refusal:
            written(hf, store, "/c")

        assert (refusal.value.store_id, refusal.value.cap) == (store.id, 2)
        assert len(hf.memory_stores.memories.list(store.id)) == 2

    def test_everything_else_works_in_a_full_store(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        (memory,) = written(hf, store, "/a")
        memories = hf.memory_stores.memories

        memories.update(memory.id, memory_store_id=store.id, content="y", path="/b")
        memories.delete(memory.id, memory_store_id=store.id)
        (successor,) = written(hf, store, "/c")

        assert [each.path for each in memories.list(store.id)] == [successor.path]

    def test_restoring_a_deleted_memory_needs_room(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        written(hf, store, "/b")

        with pytest.raises(StoreFull):
            hf.memory_stores.memory_versions.restore(
                memory.memory_version_id, memory_store_id=store.id
            )

    def test_a_raised_cap_holds_for_the_next_write(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        written(hf, store, "/a")

        hf.memory_stores.configure(memories_cap=2)
        written(hf, store, "/b")

        assert len(hf.memory_stores.memories.list(store.id)) == 2

    def test_a_lowered_cap_takes_nothing_away(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", "/b")

        hf.memory_stores.configure(memories_cap=1)

        assert len(hf.memory_stores.memories.list(store.id)) == 2
        with pytest.raises(StoreFull):
            written(hf, store, "/c")

    def test_each_store_is_counted_by_itself(self, hf: Holdfast, store: Store) -> None:
        hf.memory_stores.configure(memories_cap=1)
        other = hf.memory_stores.create(name="Other")

        written(hf, store, "/a")
        written(hf, other, "/a")

        assert len(hf.memory_stores.memories.list(other.id)) == 1
