"""Run memory with many writers at once: nothing is lost, and nothing is told out of order."""

import sys
from collections.abc import Callable, Iterator
from threading import Barrier, Thread

import pytest

from holdfast import RunEntry, RunLimits, RunMemory, keys
from holdfast.errors import PreconditionFailed

BOUND = 60.0


@pytest.fixture(autouse=True)
def _turns() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction] - pytest uses it
    """Let threads take turns a hundred times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-5)
    yield
    sys.setswitchinterval(before)


def at_once(acts: list[Callable[[], None]]) -> None:
    """Let a thread for each of *acts* begin at one moment; wait for their end."""
    ready = Barrier(len(acts))

    def begin(act: Callable[[], None]) -> None:
        ready.wait(BOUND)
        act()

    threads = [Thread(target=begin, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    assert not any(thread.is_alive() for thread in threads)


def test_sixteen_threads_lose_no_entry() -> None:
    memory = RunMemory(limits=RunLimits(entries=16_000))
    heard: list[str] = []
    memory.subscribe(lambda entry: heard.append(entry.key))

    def writer(number: int) -> Callable[[], None]:
        def write() -> None:
            for each in range(1_000):
                memory.set(keys.shared(f"{number}:{each}"), each)

        return write

    at_once([writer(number) for number in range(16)])

    assert len(memory) == 16_000
    assert {entry.version for entry in memory.snapshot()} == {1}
    assert heard == [entry.key for entry in memory.snapshot()]
    assert memory.size_bytes == sum(entry.value_bytes for entry in memory.snapshot())


def test_threads_that_write_one_key_lose_no_version() -> None:
    memory = RunMemory()
    versions: list[int] = []
    memory.subscribe(lambda entry: versions.append(entry.version))

    def write() -> None:
        for _ in range(200):
            memory.set("shared:a", 1)

    at_once([write] * 16)

    entry = memory.get("shared:a")
    assert entry is not None
    assert entry.version == 3_200
    assert versions == list(range(1, 3_201))


def test_of_fifty_writers_exactly_the_successful_ones_are_counted_by_the_version() -> None:
    memory = RunMemory()
    memory.set("shared:a", 0)
    outcomes: list[str] = []

    def write() -> None:
        entry = memory.get("shared:a")
        assert entry is not None
        try:
            memory.set("shared:a", 1, expected_version=entry.version)
        except PreconditionFailed:
            outcomes.append("lost")
        else:
            outcomes.append("won")

    at_once([write] * 50)

    entry = memory.get("shared:a")
    assert entry is not None
    assert len(outcomes) == 50
    assert entry.version == 1 + outcomes.count("won")


def test_readers_see_whole_entries_while_others_write_restore_and_clear() -> None:
    memory = RunMemory()
    memory.set("shared:a", ["a"] * 20)
    kept = memory.snapshot()
    seen: list[RunEntry] = []

    def read() -> None:
        for _ in range(500):
            seen.extend(memory.list(kind="shared"))
            memory.by_last_write()
            memory.render()

    def write() -> None:
        for _ in range(500):
            memory.set("shared:b", ["b"] * 20)

    def come_and_go() -> None:
        for _ in range(250):
            memory.clear()
            memory.restore(kept, replace=True)

    at_once([read, read, write, write, come_and_go])

    assert {json for entry in seen for json in (entry.key, *set_of(entry.value))} <= {
        *("shared:a", "shared:b", "a", "b")
    }
    assert memory.size_bytes == sum(entry.value_bytes for entry in memory.snapshot())


def set_of(value: object) -> set[object]:
    """Return the elements of *value*, which all are one when no two writes were mixed."""
    assert isinstance(value, list)
    assert len(set(value)) == 1  # pyright: ignore[reportUnknownArgumentType] - of texts
    return set(value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType] - of texts
