"""Many who edit and follow one store at once: no append is lost, nothing is done twice."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

from contracts.stores import sha256_of, written

from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.edits import Edit, Remove, Save
from holdfast.memories.stores.records import Applied, Memory, Snapshot

T = TypeVar("T")

ids = Ids()


def at_once(act: Callable[[int], T], threads: int) -> list[T]:
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

    at_once(append, 16)

    held = kept.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
    lines = (held.content or "").splitlines()
    assert sorted(lines) == sorted(f"{number} {turn}" for number in range(16) for turn in range(5))
    assert kept.verify().findings == ()


def test_an_append_asked_for_by_many_at_once_is_done_once(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="Notes")
    edits = [Save(path="/a", content="x", base_sha256=sha256_of("y"), appended="x")]

    answers = at_once(
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
        last = max(at_once(lambda number: write_many(kept, store.id, number), 8))
        following.result(60)
    follower.follow(kept, store.id, last)

    snapshot = kept.memory_stores.memories.snapshot(store.id)
    assert {each.id: each for each in snapshot.memories} == follower.heads
    assert follower.seq == snapshot.seq
