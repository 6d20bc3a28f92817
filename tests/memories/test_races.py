"""Many writers and editors at once in one store."""

import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import racing
from contracts.stores import sha256_of, still, written
from fork_server import forked_script
from racing import add_lines

from holdfast.ground.errors import (
    HoldfastError,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreFull,
)
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Remove, Save
from holdfast.memories.stores.records import Applied, Memory, Snapshot
from holdfast.testing.models import excludes

T = TypeVar("T")

THREADS = 16


def at_once(act: Callable[[int], T], threads: int = THREADS) -> list[T | HoldfastError]:
    """Return what *act* answered or raised in each of many threads that begin together."""
    start = Barrier(threads)

    def one(number: int) -> T | HoldfastError:
        start.wait()
        try:
            return act(number)
        except HoldfastError as error:
            return error

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def lines_of(hf: Holdfast, store_id: str) -> list[str]:
    """Return the lines of the memory at `/a`, sorted."""
    found = hf.memory_stores.memories.at(store_id, "/a")
    assert found is not None
    assert found.content is not None
    return sorted(found.content.splitlines())


def check_whole(hf: Holdfast) -> None:
    """Demand that the database finds nothing wrong with itself."""
    report = hf.verify()
    assert report.findings == ()


def test_of_racing_updates_with_one_precondition_exactly_one_wins(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a", content="0")

    outcomes = at_once(
        lambda number: kept.memory_stores.memories.update(
            memory.id,
            memory_store_id=store.id,
            content=f"by {number}",
            precondition=still("0"),
        )
    )

    lost = [each for each in outcomes if isinstance(each, PreconditionFailed)]
    assert len(lost) == THREADS - 1
    assert len(kept.memory_stores.memory_versions.list(store.id)) == 2


def test_no_line_is_lost_among_threads(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a", content="")

    outcomes = at_once(
        lambda number: add_lines(kept, store.id, memory.id, who=f"thread {number}", times=4)
    )

    assert outcomes == [None] * THREADS
    wanted = sorted(f"thread {number} {n}" for number in range(THREADS) for n in range(4))
    assert lines_of(kept, store.id) == wanted
    modified = kept.memory_stores.memory_versions.list(store.id, operation="modified")
    assert len(list(modified.all())) == 4 * THREADS
    check_whole(kept)


def test_no_line_is_lost_among_processes(kept: Holdfast, target: str) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a", content="")
    racer, place = Path(racing.__file__), (target, kept.workspace, store.id, memory.id)

    processes = [
        subprocess.Popen(forked_script(racer, *place, f"process {number}", "25"))
        for number in range(4)
    ]
    codes = [process.wait() for process in processes]

    assert codes == [0] * 4
    wanted = sorted(f"process {number} {n}" for number in range(4) for n in range(25))
    assert lines_of(kept, store.id) == wanted
    check_whole(kept)


def test_a_path_and_one_below_it_are_never_both_made(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")

    for round in range(8):
        tree = f"/{round}"
        outcomes = at_once(
            lambda number, tree=tree: written(
                kept, store, tree if number % 2 else f"{tree}/{number}/x"
            )
        )
        assert all(isinstance(each, list | PathTaken) for each in outcomes)

    shown = [each.path for each in kept.memory_stores.memories.list(store.id).all()]
    assert {path.split("/")[1] for path in shown} == {str(round) for round in range(8)}
    assert not any(excludes(*pair) for pair in combinations(shown, 2))
    check_whole(kept)


def test_renames_and_creations_never_meet_at_one_path(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    written(kept, store, *(f"/from{n}/x" for n in range(8)))

    outcomes = at_once(
        lambda number: (
            kept.memory_stores.memories.rename(store.id, f"/from{number // 2}", "/to")
            if number % 2
            else written(kept, store, "/to/x")
        )
    )

    assert sum(isinstance(each, list) for each in outcomes) == 1
    assert all(isinstance(each, list | PathTaken) for each in outcomes)
    shown = [each.path for each in kept.memory_stores.memories.list(store.id).all()]
    assert shown.count("/to/x") == 1
    check_whole(kept)


def test_a_memory_is_deleted_once(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a")

    outcomes = at_once(
        lambda _: kept.memory_stores.memories.delete(
            memory.id, memory_store_id=store.id, expected_content_sha256=sha256_of("x")
        )
    )

    assert sum(isinstance(each, NotFound) for each in outcomes) == THREADS - 1
    assert len(kept.memory_stores.memory_versions.list(store.id)) == 2


def test_a_store_never_holds_more_than_its_cap(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    kept.memory_stores.configure(memories_cap=5)

    outcomes = at_once(lambda number: written(kept, store, f"/{number}"))

    assert sum(isinstance(each, StoreFull) for each in outcomes) == THREADS - 5
    assert len(kept.memory_stores.memories.list(store.id)) == 5
    check_whole(kept)


def test_writers_never_stand_in_the_way_of_a_walk(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    stays = written(kept, store, *(f"/{n:02}/stays" for n in range(20)))

    def act(number: int) -> list[str]:
        if number:
            (memory,) = written(kept, store, f"/{number:02}/comes")
            kept.memory_stores.memories.delete(memory.id, memory_store_id=store.id)
            return []
        walk = kept.memory_stores.memories.list(store.id, limit=3).all()
        return [each.path for each in walk]

    walked = at_once(act)[0]

    assert isinstance(walked, list)
    assert [path for path in walked if path.endswith("stays")] == [each.path for each in stays]
    assert len(walked) == len(set(walked))


ids = Ids()


def edited_at_once(act: Callable[[int], T], threads: int) -> list[T]:
    """Return what *act* answered in each of many threads that begin together."""
    start = Barrier(threads)

    def one(number: int) -> T:
        start.wait()
        return act(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, range(threads)))


def apply(hf: Holdfast, store_id: str, edit: Edit) -> Applied:
    """Do *edit* under a new id."""
    (applied,) = hf.memory_stores.memories.apply(store_id, [edit], edit_id=ids.new("edit", 0))
    return applied


def test_no_append_is_lost_among_threads(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    (memory,) = written(kept, store, "/a", content="")
    base = sha256_of("")

    def append(number: int) -> None:
        for turn in range(5):
            line = f"{number} {turn}\n"
            edit = Save(
                path="/a", content=line, memory_id=memory.id, base_sha256=base, appended=line
            )
            apply(kept, store.id, edit)

    edited_at_once(append, 16)

    held = kept.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
    lines = (held.content or "").splitlines()
    assert sorted(lines) == sorted(f"{number} {turn}" for number in range(16) for turn in range(5))
    assert kept.verify().findings == ()


def test_an_append_asked_for_by_many_at_once_is_done_once(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    edits = [Save(path="/a", content="x", base_sha256=sha256_of("y"), appended="x")]

    answers = edited_at_once(
        lambda _: kept.memory_stores.memories.apply(store.id, edits, edit_id="edit_1"), 8
    )

    held = kept.memory_stores.memories.at(store.id, "/a")
    assert held is not None
    assert held.content == "x"
    assert answers == [answers[0]] * 8


class Follower:
    """Knows a store by a snapshot and by what changed since."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.seq, self.seen = snapshot.seq, 0
        self.heads: dict[str, Memory] = {each.id: each for each in snapshot.memories}

    def follow(self, hf: Holdfast, store_id: str, until: int) -> None:
        """Take in changes until the number *until* is reached."""
        while self.seq < until:
            changes = hf.memory_stores.memories.changes(store_id, self.seq, wait=30)
            assert [each.seq for each in changes.changes] == sorted(
                each.seq for each in changes.changes
            )
            assert all(self.seq < each.seq <= changes.seq for each in changes.changes)
            for change in changes.changes:
                self.heads.pop(change.memory_id, None)
                if change.memory is not None:
                    self.heads[change.memory_id] = change.memory
            self.seq = changes.seq
            self.seen += 1


def write_many(hf: Holdfast, store_id: str, number: int) -> int:
    """Make, change and delete memories; return the number of the last write."""
    applied = apply(hf, store_id, Save(path=f"/{number}/first", content=""))
    for turn in range(10):
        applied = apply(hf, store_id, Save(path=f"/{number}/{turn}", content=f"{turn}"))
        memory = applied.memories[0]
        apply(hf, store_id, Save(path=memory.path, content="new", memory_id=memory.id))
        if turn % 2:
            applied = apply(hf, store_id, Remove(memory_id=memory.id))
    return applied.seq


def test_who_follows_writers_comes_to_what_they_left(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    written(kept, store, "/before")
    follower = Follower(kept.memory_stores.memories.snapshot(store.id))

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follower.follow, kept, store.id, follower.seq + 1)
        last = max(edited_at_once(lambda number: write_many(kept, store.id, number), 8))
        following.result(60)
    follower.follow(kept, store.id, last)

    snapshot = kept.memory_stores.memories.snapshot(store.id)
    assert {each.id: each for each in snapshot.memories} == follower.heads
    assert follower.seq == snapshot.seq
