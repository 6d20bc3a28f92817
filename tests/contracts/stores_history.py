"""Contract of stores as they were at an earlier moment, and of restoring them."""

from datetime import datetime, timedelta, timezone
from random import Random

import pytest

from contracts.stores import GivenAStore, invalid, written
from holdfast.ground.errors import (
    HeadVersion,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Store
from holdfast.testing.fakes import FrozenClock

HOUR = timedelta(hours=1)
PATHS = ("/a", "/b/one", "/b/two", "/c/d/e", "/c/f")


def shown(hf: Holdfast, store: Store, at: datetime | str | None = None) -> dict[str, Memory]:
    """Return the memories by path, with contents, as they were."""
    memories = hf.memory_stores.memories
    found = memories.list(store.id, limit=3, view="full", at=at).all()
    return {each.path: each for each in found if isinstance(each, Memory)}


def a_write(random: Random, hf: Holdfast, store: Store) -> None:
    """Do something to the store."""
    memories = hf.memory_stores.memories
    live = list(shown(hf, store).values())
    what = random.choice(("create", "content", "move", "delete"))
    free = sorted(set(PATHS) - {each.path for each in live})
    if (what == "create" or not live) and free:
        text = f"text {random.random()}"
        memories.create(store.id, path=random.choice(free), content=text)
    elif what == "content" and live:
        memories.update(
            random.choice(live).id, content=f"text {random.random()}", memory_store_id=store.id
        )
    elif what == "move" and live and free:
        memories.update(random.choice(live).id, path=random.choice(free), memory_store_id=store.id)
    elif live:
        memories.delete(random.choice(live).id, memory_store_id=store.id)


class StoresHistoryContract(GivenAStore):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "times and pages cross the wire")
    @pytest.mark.parametrize("seed", range(3))
    def test_a_store_is_at_each_moment_what_a_reader_got_then(
        self, hf: Holdfast, clock: FrozenClock, store: Store, seed: int
    ) -> None:
        random = Random(seed)
        kept = [(clock.now(), shown(hf, store))]
        for _ in range(25):
            clock.tick(random.choice((1, 60, 3_600)))
            a_write(random, hf, store)
            kept.append((clock.now(), shown(hf, store)))

        for then, memories in kept:
            assert shown(hf, store, then) == memories
            path = random.choice(PATHS)
            assert hf.memory_stores.memories.at(store.id, path, at=then) == memories.get(path)

    @pytest.mark.parametrize("seed", range(3))
    def test_where_the_clock_was_set_back_no_write_is_lost(
        self, hf: Holdfast, clock: FrozenClock, store: Store, seed: int
    ) -> None:
        random, kept = Random(seed), dict[datetime, dict[str, Memory]]()
        for _ in range(25):
            clock.tick(random.choice((1, 3_600, -3_600, -60)))
            a_write(random, hf, store)
            (newest,) = hf.memory_stores.memory_versions.list(store.id, limit=1).data
            kept[newest.created_at] = shown(hf, store)

        for then, memories in kept.items():
            assert shown(hf, store, then) == memories

    @pytest.mark.surface("http", "the count of erased memories crosses the wire")
    def test_what_was_redacted_was_never_there(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories, versions = hf.memory_stores.memories, hf.memory_stores.memory_versions
        first, other = written(hf, store, "/a", "/b")
        before, moments = clock.now() - HOUR, [clock.now()]
        for text in ("y", "z"):
            clock.tick()
            memories.update(first.id, memory_store_id=store.id, content=text)
            moments.append(clock.now())
        middle = versions.list(store.id, memory_id=first.id).data[1]
        versions.redact(middle.id, memory_store_id=store.id)

        erased = [memories.list(store.id, at=each).erased for each in moments]
        assert erased == [0, 1, 0]
        assert [list(shown(hf, store, each)) for each in moments] == [
            ["/a", "/b"],
            ["/b"],
            ["/a", "/b"],
        ]
        assert memories.at(store.id, "/a", at=moments[1]) is None
        assert memories.list(store.id, at=before).data == []
        assert memories.list(store.id).erased == 0
        with pytest.raises(HeadVersion):
            versions.redact(other.memory_version_id, memory_store_id=store.id)

    @pytest.mark.surface("http", "prefixes cross the wire")
    def test_directories_are_those_of_then(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        written(hf, store, *PATHS)
        then = clock.now()
        clock.tick()
        memories.delete_under(store.id, "/c")
        memories.rename(store.id, "/b", "/z")

        page = memories.list(store.id, depth=1, limit=2, at=then)
        assert [each.path for each in page.all()] == ["/a", "/b/", "/c/"]
        below = memories.list(store.id, path_prefix="/c/", depth=1, at=then, view="full")
        assert [each.path for each in below] == ["/c/d/", "/c/f"]
        assert [each.path for each in memories.list(store.id)] == ["/a", "/z/one", "/z/two"]

    @pytest.mark.surface("http", "times cross the wire")
    def test_a_moment_is_a_time_with_a_zone_that_has_been(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        written(hf, store, "/a")
        now = clock.now()
        eastern = now.astimezone(timezone(timedelta(hours=2)))

        for moment in (now, eastern, now.isoformat(), eastern.isoformat()):
            assert list(shown(hf, store, moment)) == ["/a"]
        for wrong in (now + HOUR, now.replace(tzinfo=None), "yesterday", "2026-02-30T10:00:00Z"):
            with invalid("at"):
                memories.list(store.id, at=wrong)
            with invalid("at"):
                memories.at(store.id, "/a", at=wrong)
            with invalid("at"):
                hf.memory_stores.restore(store.id, at=wrong)
        with pytest.raises(NotFound):
            memories.list("memstore_" + "0" * 24, at="yesterday")

    def test_a_page_goes_on_at_its_own_moment_alone(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        written(hf, store, *PATHS)
        page = memories.list(store.id, limit=1, at=clock.now()).next_page

        with invalid("page"):
            memories.list(store.id, page=page)

    @pytest.mark.surface("http", "a restore crosses the wire")
    @pytest.mark.parametrize("seed", range(4))
    def test_a_restore_brings_a_store_back_with_ids_and_keeps_all_versions(
        self, hf: Holdfast, clock: FrozenClock, store: Store, seed: int
    ) -> None:
        random = Random(seed)
        written(hf, store, *PATHS[:3])
        for _ in range(8):
            clock.tick()
            a_write(random, hf, store)
        then, before = clock.now(), shown(hf, store)
        for _ in range(12):
            clock.tick()
            a_write(random, hf, store)
        clock.tick()
        late, after = clock.now(), shown(hf, store)
        clock.tick()

        preview = hf.memory_stores.restore(store.id, at=then, dry_run=True)
        assert shown(hf, store) == after
        done = hf.memory_stores.restore(store.id, at=then, expected_seq=preview.seq)

        assert (done.edits, done.dry_run, done.at) == (preview.edits, False, then)
        assert done.seq == hf.memory_stores.memories.snapshot(store.id).seq
        facts = [
            {path: (each.id, each.content, each.created_at) for path, each in found.items()}
            for found in (shown(hf, store), before)
        ]
        assert facts[0] == facts[1]
        assert shown(hf, store, late) == after
        assert hf.memory_stores.restore(store.id, at=then).edits == ()

    def test_paths_that_were_swapped_are_swapped_back(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        first, second = written(hf, store, "/a", "/b")
        then = clock.now()
        clock.tick()
        for id, path in ((first.id, "/x"), (second.id, "/a"), (first.id, "/b/under")):
            memories.update(id, path=path, memory_store_id=store.id)

        restored = hf.memory_stores.restore(store.id, at=then)

        assert {path: each.id for path, each in shown(hf, store).items()} == {
            "/a": first.id,
            "/b": second.id,
        }
        assert [(each.operation, each.path_before, each.path) for each in restored.edits] == [
            ("modified", "/b/under", "/a"),
            ("modified", "/a", "/b"),
        ]

    @pytest.mark.surface("http", "the precondition crosses the wire")
    def test_a_restore_may_be_of_what_was_previewed_alone(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        written(hf, store, "/a")
        then = clock.now()
        clock.tick()
        written(hf, store, "/b")
        preview = hf.memory_stores.restore(store.id, at=then, dry_run=True)
        written(hf, store, "/c")

        with pytest.raises(PreconditionFailed) as failed:
            hf.memory_stores.restore(store.id, at=then, expected_seq=preview.seq)
        assert failed.value.expected == preview.seq
        assert list(shown(hf, store)) == ["/a", "/b", "/c"]

    def test_what_was_redacted_is_not_restored_and_stays_as_it_is(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        live, gone = written(hf, store, "/a", "/b")
        then = clock.now()
        clock.tick()
        memories.update(live.id, content="new", memory_store_id=store.id)
        memories.delete(gone.id, memory_store_id=store.id)
        for each in (live, gone):
            hf.memory_stores.memory_versions.redact(
                each.memory_version_id, memory_store_id=store.id
            )

        restored = hf.memory_stores.restore(store.id, at=then)

        assert (restored.edits, restored.erased) == ((), 2)
        assert {path: each.content for path, each in shown(hf, store).items()} == {"/a": "new"}

    def test_a_memory_that_stays_may_be_in_the_way(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        memories = hf.memory_stores.memories
        stays, other = written(hf, store, "/a", "/b")
        then = clock.now()
        clock.tick()
        memories.update(other.id, path="/c", memory_store_id=store.id)
        memories.update(stays.id, path="/b", memory_store_id=store.id)
        hf.memory_stores.memory_versions.redact(stays.memory_version_id, memory_store_id=store.id)

        with pytest.raises(PathTaken) as taken:
            hf.memory_stores.restore(store.id, at=then)
        assert taken.value.conflicting_memory_id == stays.id
        assert list(shown(hf, store)) == ["/b", "/c"]

    def test_an_archived_store_is_previewed_and_not_restored(
        self, hf: Holdfast, clock: FrozenClock, store: Store
    ) -> None:
        then = clock.now()
        clock.tick()
        written(hf, store, "/a")
        hf.memory_stores.archive(store.id)

        (edit,) = hf.memory_stores.restore(store.id, at=then, dry_run=True).edits
        assert (edit.operation, edit.path_before, edit.path) == ("deleted", "/a", None)
        with pytest.raises(StoreArchived):
            hf.memory_stores.restore(store.id, at=then)
