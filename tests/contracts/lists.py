"""Contract of lists of stores and memories, their filters and cursors."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import NotFound, StoreFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, MemoryPrefix, Store
from holdfast.testing.fakes import FrozenClock


class StoreListsContract:
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_page_that_is_just_full_is_the_last(self, hf: Holdfast) -> None:
        for _ in range(2):
            hf.memory_stores.create(name="Notes")

        assert hf.memory_stores.list(limit=2).next_page is None

    def test_archived_stores_are_listed_when_asked_for(self, hf: Holdfast) -> None:
        live = hf.memory_stores.create(name="live")
        archived = hf.memory_stores.archive(hf.memory_stores.create(name="gone").id)

        assert list(hf.memory_stores.list()) == [live]
        assert list(hf.memory_stores.list(include_archived=True)) == [archived, live]

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_cap_once_set_is_kept(self, hf: Holdfast) -> None:
        settings = hf.memory_stores.configure(memories_cap=7)

        assert settings.memories_cap == 7
        assert hf.memory_stores.settings() == settings

    def test_configuring_nothing_changes_nothing(self, hf: Holdfast) -> None:
        settings = hf.memory_stores.configure(memories_cap=7)

        assert hf.memory_stores.configure() == settings

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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


MIXED = (
    "/B",
    "/a",
    "/a-b",
    "/a.md",
    "/a0/x",
    "/b/1",
    "/b/2/3",
    "/b0",
    "/b-/x",
    "/\u00e9",
    "/\uff5e",
    "/\U0001f600/x",
    "/ ",
)


def by_bytes(paths: tuple[str, ...]) -> list[str]:
    """Return *paths* in the order of their UTF-8 bytes."""
    return sorted(paths, key=str.encode)


class ListingContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def paths(self, hf: Holdfast, store: Store, **how: Any) -> list[str]:
        """Return the paths of all pages."""
        return [each.path for each in hf.memory_stores.memories.list(store.id, **how).all()]

    def test_an_empty_store_has_an_empty_page(self, hf: Holdfast, store: Store) -> None:
        page = hf.memory_stores.memories.list(store.id)

        assert (page.data, page.next_page) == ([], None)

    def test_every_memory_below_is_listed_in_the_order_of_bytes(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, *MIXED)

        assert self.paths(hf, store) == by_bytes(MIXED)
        assert self.paths(hf, store, depth=0, path_prefix="/") == by_bytes(MIXED)

    def test_depth_1_gives_children_and_a_prefix_for_each_directory_among_them(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, *MIXED)

        page = hf.memory_stores.memories.list(store.id, depth=1)

        children = {f"/{path.split('/')[1]}{'/' * (path.count('/') > 1)}" for path in MIXED}
        assert [each.path for each in page] == by_bytes(tuple(children))
        for each in page:
            assert isinstance(each, MemoryPrefix) == each.path.endswith("/")

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_prefix_says_its_path_and_nothing_else(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/b/c")

        page = hf.memory_stores.memories.list(store.id, depth=1)

        assert page.data == [MemoryPrefix(path="/a/")]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_depth_1_below_a_directory(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a/b", "/a/c/d", "/a/c/e", "/a0", "/b")

        assert self.paths(hf, store, depth=1, path_prefix="/a/") == ["/a/b", "/a/c/"]
        assert self.paths(hf, store, depth=1, path_prefix="/a/c/") == ["/a/c/d", "/a/c/e"]

    @pytest.mark.surface("http", "query parameters cross the wire")
    @pytest.mark.parametrize(
        ("prefix", "expected"),
        [
            ("/a/", ["/a/b", "/a/c/d"]),
            ("/a/c/", ["/a/c/d"]),
            ("/ab/", []),
            ("/a/b/", []),
            ("/A/", []),
            ("/%/", ["/%/x"]),
            ("/_/", []),
            ("/*/", []),
        ],
    )
    def test_a_prefix_matches_whole_segments_and_is_no_pattern(
        self, hf: Holdfast, store: Store, prefix: str, expected: list[str]
    ) -> None:
        written(hf, store, "/a/b", "/a/c/d", "/abc", "/a.md", "/%/x", "/b/x")

        assert self.paths(hf, store, path_prefix=prefix) == expected

    @pytest.mark.parametrize("prefix", ["", "a/", "/a", "a", "/a\ud800/"])
    def test_a_bad_prefix_is_refused(self, hf: Holdfast, store: Store, prefix: str) -> None:
        with invalid("path_prefix"):
            hf.memory_stores.memories.list(store.id, path_prefix=prefix)

    @pytest.mark.parametrize("depth", [-1, 2, 100])
    def test_a_depth_other_than_0_and_1_is_refused(
        self, hf: Holdfast, store: Store, depth: int
    ) -> None:
        with invalid("depth"):
            hf.memory_stores.memories.list(store.id, depth=depth)

    @pytest.mark.parametrize("limit", [0, -1, 101, 1.0, 1.5, True])
    def test_a_limit_that_is_no_integer_from_1_to_100_is_refused(
        self, hf: Holdfast, store: Store, limit: Any
    ) -> None:
        with invalid("limit"):
            hf.memory_stores.memories.list(store.id, limit=limit)

    def test_a_bad_view_is_refused(self, hf: Holdfast, store: Store) -> None:
        bad: Any = "whole"

        with invalid("view"):
            hf.memory_stores.memories.list(store.id, view=bad)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_the_list_of_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.list("memstore_" + "0" * 24)

    def test_a_page_has_20_unless_told(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, *(f"/{n:02}" for n in range(21)))

        page = hf.memory_stores.memories.list(store.id)

        assert len(page) == 20
        assert page.next_page is not None

    def test_the_content_is_left_out_unless_asked_for(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")

        assert hf.memory_stores.memories.list(store.id).data == [memory]

    def test_the_content_comes_when_asked_for(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a", content="täbs")

        (full,) = hf.memory_stores.memories.list(store.id, view="full")

        assert full == hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_with_contents_a_page_has_at_most_20(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, *(f"/{n:02}" for n in range(21)))

        page = hf.memory_stores.memories.list(store.id, view="full", limit=100)

        assert len(page) == 20
        assert len(list(page.all())) == 21

    @pytest.mark.surface("http", "query parameters cross the wire")
    @pytest.mark.parametrize("how", [{}, {"depth": 1}, {"depth": 1, "view": "full"}])
    @pytest.mark.parametrize("limit", [1, 2, 5])
    def test_pages_give_what_one_page_gives(
        self, hf: Holdfast, store: Store, how: dict[str, Any], limit: int
    ) -> None:
        written(hf, store, *MIXED)

        whole = hf.memory_stores.memories.list(store.id, **how)
        page = hf.memory_stores.memories.list(store.id, limit=limit, **how)

        found = list(page)
        while page.next_page is not None:
            page = hf.memory_stores.memories.list(store.id, limit=limit, page=page.next_page, **how)
            assert page.data
            found += page.data
        assert found == whole.data

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_page_that_is_just_full_is_the_last(self, hf: Holdfast, store: Store) -> None:
        written(hf, store, "/a", "/b/1", "/b/2", "/b/3")

        assert hf.memory_stores.memories.list(store.id, limit=4).next_page is None
        assert hf.memory_stores.memories.list(store.id, limit=2, depth=1).next_page is None

    def test_a_list_shows_renames_and_deletions(self, hf: Holdfast, store: Store) -> None:
        first, second, _ = written(hf, store, "/a", "/b/c", "/d")

        hf.memory_stores.memories.update(first.id, memory_store_id=store.id, path="/z")
        hf.memory_stores.memories.delete(second.id, memory_store_id=store.id)

        assert self.paths(hf, store, depth=1) == ["/d", "/z"]

    def test_at_gives_the_memory_at_a_path_with_its_content(
        self, hf: Holdfast, store: Store
    ) -> None:
        (memory,) = written(hf, store, "/a/b", content="täbs")

        found = hf.memory_stores.memories.at(store.id, "/a/b")

        assert found == hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)

    @pytest.mark.parametrize("path", ["/a", "/a/b/c", "/A/b", "/a/B", "/%/b"])
    def test_at_gives_none_where_no_memory_sits(
        self, hf: Holdfast, store: Store, path: str
    ) -> None:
        written(hf, store, "/a/b")

        assert hf.memory_stores.memories.at(store.id, path) is None

    @pytest.mark.surface("http", "the client has a branch for it")
    def test_at_of_an_unknown_store_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound):
            hf.memory_stores.memories.at("memstore_" + "0" * 24, "/a")


@pytest.mark.surface("http", "cursors cross the wire")
class CursorsContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.fixture
    def cursor(self, hf: Holdfast, store: Store) -> str:
        """Lead to the second page of the memories of `store`, which has three."""
        written(hf, store, "/a", "/b/c", "/b/d")
        page = hf.memory_stores.memories.list(store.id, limit=1)
        assert page.next_page is not None
        return page.next_page

    def test_a_cursor_is_safe_in_a_url(self, cursor: str) -> None:
        assert cursor.startswith("page_")
        assert cursor.replace("-", "").replace("_", "").isalnum()

    def test_limit_and_view_may_change(self, hf: Holdfast, store: Store, cursor: str) -> None:
        page = hf.memory_stores.memories.list(store.id, limit=100, view="full", page=cursor)

        assert [each.path for each in page] == ["/b/c", "/b/d"]
        assert all(isinstance(each, Memory) and each.content == "x" for each in page)

    def test_the_defaults_may_be_said(self, hf: Holdfast, store: Store, cursor: str) -> None:
        page = hf.memory_stores.memories.list(store.id, path_prefix="/", depth=0, page=cursor)

        assert len(page) == 2

    @pytest.mark.parametrize("other", [{"depth": 1}, {"path_prefix": "/b/"}])
    def test_other_filters_are_refused(
        self, hf: Holdfast, store: Store, cursor: str, other: dict[str, Any]
    ) -> None:
        with invalid("page"):
            hf.memory_stores.memories.list(store.id, page=cursor, **other)

    def test_another_store_is_refused(self, hf: Holdfast, cursor: str) -> None:
        other = hf.memory_stores.create(name="Other")

        with invalid("page"):
            hf.memory_stores.memories.list(other.id, page=cursor)

    def test_another_list_is_refused(self, hf: Holdfast, store: Store, cursor: str) -> None:
        with invalid("page"):
            hf.memory_stores.memory_versions.list(store.id, page=cursor)
        with invalid("page"):
            hf.memory_stores.list(page=cursor)
        with invalid("page"):
            hf.sessions.list(page=cursor)

    @pytest.mark.parametrize(
        "given", ["", "page_", "page_AAAA", "nonsense", "page_\u00fc", "page_a b"]
    )
    def test_what_is_no_cursor_is_refused(self, hf: Holdfast, store: Store, given: str) -> None:
        with invalid("page"):
            hf.memory_stores.memories.list(store.id, page=given)

    def test_a_cut_cursor_is_refused(self, hf: Holdfast, store: Store, cursor: str) -> None:
        for end in range(len("page_"), len(cursor), 7):
            with invalid("page"):
                hf.memory_stores.memories.list(store.id, page=cursor[:end])

    def test_an_altered_cursor_is_refused(self, hf: Holdfast, store: Store, cursor: str) -> None:
        for at in range(0, len(cursor), 7):
            other = "A" if cursor[at] != "A" else "B"
            with invalid("page"):
                hf.memory_stores.memories.list(
                    store.id, page=cursor[:at] + other + cursor[at + 1 :]
                )

    def test_a_longer_cursor_is_refused(self, hf: Holdfast, store: Store, cursor: str) -> None:
        for more in ("A", "=", "\n", "AAAA"):
            with invalid("page"):
                hf.memory_stores.memories.list(store.id, page=cursor + more)

    def test_what_stays_is_given_once_while_others_write(self, hf: Holdfast, store: Store) -> None:
        kept = written(hf, store, *(f"/{n:02}" for n in range(0, 12, 2)))
        doomed = written(hf, store, "/00a", "/05", "/11")
        page = hf.memory_stores.memories.list(store.id, limit=3)
        seen = list(page)

        for n, memory in enumerate(doomed):
            hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
            written(hf, store, f"/{2 * n + 1:02}", f"/zz{n}")
            page = hf.memory_stores.memories.list(store.id, limit=3, page=page.next_page)
            seen += page

        seen_ids = [each.id for each in seen if isinstance(each, Memory)]
        assert len(seen_ids) == len(set(seen_ids))
        assert {each.id for each in kept} <= set(seen_ids)

    def test_the_memory_a_cursor_stands_on_may_go(self, hf: Holdfast, store: Store) -> None:
        first, _, _ = written(hf, store, "/a", "/b", "/c")
        page = hf.memory_stores.memories.list(store.id, limit=1)
        hf.memory_stores.memories.delete(first.id, memory_store_id=store.id)

        rest = hf.memory_stores.memories.list(store.id, page=page.next_page)

        assert [each.path for each in rest] == ["/b", "/c"]
