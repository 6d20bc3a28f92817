"""Contract of versions: lists, restore, diff, redaction."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs

from contracts.stores import GivenAStore, invalid, sha256_of, written
from holdfast.ground.errors import (
    ContentGone,
    HeadVersion,
    InvalidInput,
    NotFound,
    PathTaken,
    Refused,
)
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    @pytest.mark.usefixtures("memory")
    def test_bounds_of_created_at_are_inclusive(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        last, second = clock.now(), timedelta(seconds=1)

        assert len(self.listed(hf, store, created_at_gte=last)) == 1
        assert len(self.listed(hf, store, created_at_gte=last - second)) == 2
        assert len(self.listed(hf, store, created_at_lte=last - second)) == 3
        assert len(self.listed(hf, store, created_at_gte=last + second)) == 0

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_page_has_20_unless_told_and_at_most_20_with_contents(
        self, hf: Holdfast, store: Store
    ) -> None:
        written(hf, store, *(f"/{n:02}" for n in range(21)))
        versions = hf.memory_stores.memory_versions

        assert len(versions.list(store.id)) == 20
        assert len(versions.list(store.id, limit=100)) == 21
        assert len(versions.list(store.id, limit=100, view="full")) == 20

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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


@pytest.mark.surface("file", "deleted bytes leave the file")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "error fields cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_deleted_version_loses_its_path(self, hf: Holdfast, store: Store) -> None:
        (memory,) = written(hf, store, "/a")
        hf.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
        versions = hf.memory_stores.memory_versions
        newest = versions.list(store.id).data[0]

        redacted = versions.redact(newest.id, memory_store_id=store.id)

        assert (redacted.operation, redacted.path) == ("deleted", None)
        assert redacted.redacted_at is not None

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_what_was_redacted_cannot_be_restored(self, hf: Holdfast, memory: Memory) -> None:
        redacted = self.redacted(hf, memory)

        with pytest.raises(ContentGone) as refusal:
            hf.memory_stores.memory_versions.restore(
                redacted.id, memory_store_id=memory.memory_store_id
            )

        assert refusal.value.version_id == redacted.id
        assert refusal.value.redacted_at == redacted.redacted_at

    @pytest.mark.surface("http", "error fields cross the wire")
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
