"""Many writers at once: of those who race one wins, and nobody's write is lost."""

import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations
from pathlib import Path
from threading import Barrier
from typing import TypeVar

import racing
from contracts.stores import sha256_of, still, written
from racing import add_lines

import holdfast
from holdfast.ground.errors import (
    HoldfastError,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreFull,
)
from holdfast.library.holdfast import Holdfast
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
    racer = [sys.executable, racing.__file__, target, kept.workspace]
    env = os.environ | {"PYTHONPATH": str(Path(holdfast.__file__).parents[1])}

    processes = [
        subprocess.Popen([*racer, store.id, memory.id, f"process {number}", "25"], env=env)
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
