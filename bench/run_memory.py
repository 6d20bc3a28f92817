"""How does run memory compare with a plain dict, and with LangGraph's store in memory?"""

import sys
from pathlib import Path

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))
# What only benchmarks need is kept apart, so that it changes nothing that is tested.
sys.path.append(str(Path(__file__).parents[1] / ".venv" / "bench"))

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

from measure import Bench, Round, Timing, main, paired

from holdfast import RunLimits, RunMemory, keys, tools

KEYS = 1_000
MANY = 10_000
PAGE = 200
ROUNDS = 7
PASSES = 5
"""Through all keys, for one figure."""
VALUE = {
    "findings": "Three sources agree that the alpha route is the shortest, and that it floods in"
    " spring; the beta route is dry all year round, and takes two days more than the other one."
    " Choose the beta."
}
"""200 bytes as compact JSON."""

NAMES = [keys.task(f"research_{number}") for number in range(KEYS)]
WHERE = ("run",)


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    rounds = bench.size(ROUNDS, 2)
    memory, plain = RunMemory(), dict[str, object]()
    for name in NAMES:
        memory.set(name, VALUE)
        plain[name] = VALUE

    for what, goal, call in (
        ("run_memory.get", 4, memory.get),
        ("run_memory.get_value", 10, memory.get_value),
    ):
        bench.cost(what, "dict.get", goal, best(call, plain.get, rounds))
    writes = _best(lambda: _written(memory.set), lambda: _written(plain.__setitem__), rounds)
    bench.cost("run_memory.set", "dict.__setitem__", 30, writes)
    if (store := langgraph()) is None:
        print("left out, for langgraph-checkpoint is not installed: all against InMemoryStore")
    else:
        _against_store(bench, memory, store, rounds)
    _lists(bench, rounds)


Call = Callable[[str], object]


def langgraph() -> Any:
    """Return an `InMemoryStore`, or None where there is none."""
    try:
        from langgraph.store.memory import InMemoryStore
    except ImportError:
        return None
    return InMemoryStore()


def _against_store(bench: Bench, memory: RunMemory, store: Any, rounds: int) -> None:
    def put(name: str) -> None:
        store.put(WHERE, name, VALUE)

    def get(name: str) -> object:
        return store.get(WHERE, name)

    for name in NAMES:
        put(name)

    def against_store(what: str, theirs: str, goal: float, ours: Call, other: Call) -> None:
        bench.cost(what, f"InMemoryStore.{theirs}", goal, best(ours, other, rounds))

    against_store("run_memory.get", "get", 0.25, memory.get, get)
    against_store("run_memory.get_value", "get", 0.5, memory.get_value, get)
    against_store("run_memory.set", "put", 1, lambda name: memory.set(name, VALUE), put)
    found = best_of_one(
        lambda: memory.list(kind="task_result"), lambda: store.search(WHERE, limit=KEYS), rounds
    )
    bench.cost("run_memory.list(kind) of 1,000", "InMemoryStore.search", 0.25, found)


def _lists(bench: Bench, rounds: int) -> None:
    few, many = listing(KEYS), listing(MANY)
    found = best_of_one(many, few, rounds)
    bench.cost("list tool, 200 of 10,000", "200 of 1,000", 3, found)
    bench.amount("list tool, 200 of 10,000", "a call", 2, "ms", [found[0][0].each / 1e6])


def listing(entries: int) -> Callable[[], object]:
    """Return what lists the newest 200 of as many *entries*."""
    memory = RunMemory(limits=RunLimits(entries=entries))
    for number in range(entries):
        memory.set(keys.task(f"research_{number}"), VALUE, title=f"Research {number}")
    tool = tools.run(memory)[0]
    return lambda: tool.call({"kind": ["task_result"], "limit": PAGE})


def best(ours: Call, theirs: Call, rounds: int) -> list[Round]:
    """Return the best round of each side, of a call for every key."""
    return _best(lambda: _through(ours), lambda: _through(theirs), rounds)


def best_of_one(
    ours: Callable[[], object], theirs: Callable[[], object], rounds: int
) -> list[Round]:
    """Return the best round of each side, of one call."""
    return _best(lambda: _once(ours), lambda: _once(theirs), rounds)


def _best(ours: Callable[[], Timing], theirs: Callable[[], Timing], rounds: int) -> list[Round]:
    found = paired(ours, theirs, rounds)
    return [
        (
            min((mine for mine, _ in found), key=lambda each: each.each),
            min((other for _, other in found), key=lambda each: each.each),
        )
    ]


def _through(call: Call) -> Timing:
    # A clock around each call would take longer than what it measures.
    return _least(lambda: _each(call))


def _each(call: Call) -> None:
    for name in NAMES:
        call(name)


def _written(call: Callable[[str, object], object]) -> Timing:
    def write() -> None:
        for name in NAMES:
            call(name, VALUE)

    return _least(write)


def _once(call: Callable[[], object]) -> Timing:
    return _least(call)


def _least(act: Callable[[], object]) -> Timing:
    """Return the least that *act* took in some passes."""
    took: list[int] = []
    for _ in range(PASSES):
        begun = perf_counter_ns()
        act()
        took.append(perf_counter_ns() - begun)
    return Timing(each=min(took))


if __name__ == "__main__":
    main("run_memory", "How does run memory compare with a dict, and with LangGraph's?", run)
