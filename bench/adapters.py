"""Are adapters as fast as the memories that the other frameworks bring along?

Run it with the interpreter of the frameworks: `.venv/hosts/bin/python bench/adapters.py`, after
`make hosts`. Each baseline is at its own settings.
"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

from agents import SQLiteSession
from langchain.agents.middleware.types import ModelRequest
from langchain_core.messages import HumanMessage
from langgraph.store.sqlite import SqliteStore
from langgraph.store.sqlite.aio import AsyncSqliteStore
from measure import Bench, Timing, main, one_by_one, paired
from texts import Texts

import holdfast
from holdfast import Holdfast, LongTermMemory, recalled_block
from holdfast.doors.adapters.google_adk import HoldfastMemoryService
from holdfast.doors.adapters.langchain import HoldfastMiddleware
from holdfast.doors.adapters.langgraph import HoldfastStore
from holdfast.doors.adapters.openai_agents import SOURCE, HoldfastSession
from holdfast.doors.adapters.strands import HoldfastMemoryStore
from holdfast.edits import Save

NS = ("users", "ada")
CALLERS = 64
ITEMS = 1_000
"""Items below the prefix of a search."""
OTHERS = 200
"""Items beside it."""
HISTORY = 200
"""Items of a session that are read."""
TURNS = 600
"""Turns that ADK's search goes over."""
FEW = 20
"""Turns where a recall itself should take little."""
WORDS_ASKED = 4
BEYOND, QUICK_BEYOND = 400, 40
"""Calls of each side that are compared."""
HOP = 60
"""Microseconds that a call of an adapter may take beyond the library's."""

Call = Callable[[int], object]
Awaited = Callable[[int], Awaitable[object]]


def run(bench: Bench) -> None:
    """Measure LangGraph's store, the SDK's sessions, ADK's search, and what a call adds."""
    _store(bench)
    _sessions(bench)
    _recall(bench)


class Loop:
    """One event loop for all calls of a bench, so that starting one is not measured."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self.run = self._runner.run

    def one_by_one(self, count: int, call: Awaited) -> Timing:
        """Return what each of *count* awaited calls of *call*(number) took."""

        async def measured() -> list[int]:
            took: list[int] = []
            for number in range(count):
                begun = perf_counter_ns()
                await call(number)
                took.append(perf_counter_ns() - begun)
            return took

        return _timing(sorted(self.run(measured())))

    def together(self, count: int, call: Awaited) -> Timing:
        """Return what each of *count* calls took, shared out among callers on the loop."""
        share = count // CALLERS

        async def caller(first: int) -> None:
            for number in range(first, first + share):
                await call(number)

        async def measured() -> int:
            begun = perf_counter_ns()
            await asyncio.gather(*(caller(each * share) for each in range(CALLERS)))
            return perf_counter_ns() - begun

        return Timing(each=self.run(measured()) / (share * CALLERS))

    def close(self) -> None:
        self._runner.close()


def _timing(took: list[int]) -> Timing:
    count = len(took)
    return Timing(
        each=sum(took) / count,
        p50=took[count // 2],
        p95=took[count * 95 // 100],
        p99=took[count * 99 // 100],
        worst=took[-1],
    )


@contextmanager
def _loop() -> Iterator[Loop]:
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


def _beyond(
    bench: Bench, loop: Loop, names: tuple[str, str], ours: Awaited, library: Awaited
) -> None:
    """Add the row of how many microseconds the median call of ours takes beyond the library's.

    They alternate call by call: the difference is far less than what a busy machine adds to both.
    """
    count = bench.size(BEYOND, QUICK_BEYOND)

    async def alternated() -> float:
        took: tuple[list[int], list[int]] = [], []
        for number in range(2 * count):
            side = number % 2 if number % 4 < 2 else 1 - number % 2
            call = library if side else ours
            begun = perf_counter_ns()
            await call(number // 2)
            took[side].append(perf_counter_ns() - begun)
        return (median(took[0]) - median(took[1])) / 1_000

    found = [loop.run(alternated()) for _ in range(bench.rounds)]
    bench.amount(f"{names[0]}, beyond", names[1], HOP, "µs", found)


def _at_once(call: Call) -> Awaited:
    """Return *call* for a loop, on the loop itself: it is a host's call that blocks."""

    async def one(number: int) -> object:
        return call(number)

    return one


def _on_a_thread(call: Call) -> Awaited:
    return lambda number: asyncio.to_thread(call, number)


# LangGraph's store.


class Values:
    """Values of an item, none twice, and keys that are new with each call."""

    def __init__(self) -> None:
        texts = Texts(5)
        self._pool = [texts.of_bytes(200) for _ in range(500)]
        self._numbers = iter(range(10**9))

    def value(self, number: int) -> dict[str, Any]:
        """Return a value of about 260 bytes."""
        return {
            "text": self._pool[number % len(self._pool)],
            "n": number,
            "kind": "fact" if number % 4 else "preference",
            "tags": ["a", "b"],
        }

    def put(self, store: Any) -> Call:
        """Return a call that puts a new item."""

        def one(_: int) -> None:
            number = next(self._numbers)
            store.put(NS, f"key_{number:09}", self.value(number))

        return one

    def fill(self, store: Any) -> None:
        """Put the items of a search, and others beside them."""
        for number in range(ITEMS):
            store.put((*NS, "facts"), f"key_{number}", self.value(number))
        for number in range(OTHERS):
            store.put(("users", "bob"), f"key_{number}", self.value(number))


def _store(bench: Bench) -> None:
    hf = holdfast.open(bench.folder / "store.db")
    hf.memory_stores.configure(memories_cap=1_000_000)
    ours, values = HoldfastStore(hf), Values()
    with SqliteStore.from_conn_string(str(bench.folder / "sqlite_store.db")) as theirs:
        theirs.setup()
        for each in (ours, theirs):
            values.fill(each)
        _puts(bench, ours, theirs, values)
        _reads(bench, ours, theirs)
        with _loop() as loop:
            _callers(bench, loop, ours, theirs, values)
            _beyond_memories(bench, loop)
    hf.close()


def _puts(bench: Bench, ours: HoldfastStore, theirs: SqliteStore, values: Values) -> None:
    count = bench.size(200, 40)
    rounds = paired(
        lambda: one_by_one(count, values.put(ours)),
        lambda: one_by_one(count, values.put(theirs)),
        bench.rounds,
    )
    bench.rate("langgraph put, one caller, file", "SqliteStore", 1.5, rounds)


def _reads(bench: Bench, ours: HoldfastStore, theirs: SqliteStore) -> None:
    count, below = bench.size(400, 40), (*NS, "facts")

    def compared(goal: float, what: str, call: Callable[[Any], Call]) -> None:
        rounds = paired(
            lambda: one_by_one(count, call(ours)),
            lambda: one_by_one(count, call(theirs)),
            bench.rounds,
        )
        bench.rate(what, "SqliteStore", goal, rounds)

    compared(0.5, "langgraph get", lambda store: lambda n: store.get(below, f"key_{n}"))
    what = f"langgraph search(prefix, limit=10) of {ITEMS:,} below it"
    compared(1, what, lambda store: lambda _: store.search(below, limit=10))
    compared(
        3,
        f"{what}, one filter",
        lambda store: lambda _: store.search(below, filter={"kind": "preference"}, limit=10),
    )


def _beyond_memories(bench: Bench, loop: Loop) -> None:
    """Compare with the calls of a memory store, in memory: no disk is measured."""
    hf, values = holdfast.open(":memory:"), Values()
    hf.memory_stores.configure(memories_cap=1_000_000)
    store, below = HoldfastStore(hf), (*NS, "facts")
    values.fill(store)
    [own] = hf.memory_stores.list().data
    memories, numbers = hf.memory_stores.memories, iter(range(10**9))

    def applied(_: int) -> None:
        number = next(numbers)
        content = json.dumps(values.value(number), indent=2, sort_keys=True)
        edit = Save(path=f"/users/eve/key_{number:09}.json", content=content)
        memories.apply(own.id, [edit], edit_id=f"edit_{number:032x}")

    def put(number: int) -> Awaitable[object]:
        return store.aput(NS, f"aput_{next(numbers)}", values.value(number))

    def at(number: int) -> object:
        return memories.at(own.id, f"/users/ada/facts/key_{number}.json")

    for what, ours, of, library in (
        ("put", _at_once(values.put(store)), "memories.apply", _at_once(applied)),
        ("aput", put, "memories.apply on a thread", _on_a_thread(applied)),
        ("get", _at_once(lambda n: store.get(below, f"key_{n}")), "memories.at", _at_once(at)),
    ):
        _beyond(bench, loop, (f"langgraph {what}", of), ours, library)
    hf.close()


def _callers(
    bench: Bench, loop: Loop, ours: HoldfastStore, theirs: SqliteStore, values: Values
) -> None:
    count = CALLERS * bench.size(5, 2)
    numbers = iter(range(10**9))

    def awaited(store: Any) -> Awaited:
        async def one(_: int) -> None:
            number = next(numbers)
            await store.aput(NS, f"async_{number:09}", values.value(number))

        return one

    put = values.put(theirs)
    rounds = paired(
        lambda: loop.together(count, awaited(ours)),
        lambda: loop.together(count, lambda number: asyncio.to_thread(put, number)),
        bench.rounds,
    )
    what = f"langgraph aput, {CALLERS} callers, file"
    bench.rate(what, "SqliteStore in threads", 8, rounds)
    path = bench.folder / "async_store.db"
    rounds = paired(
        lambda: loop.together(count, awaited(ours)),
        lambda: loop.run(_async_store(path, count, awaited)),
        bench.rounds,
    )
    bench.rate(what, "AsyncSqliteStore, which keeps no versions", 0.1, rounds)


async def _async_store(path: Path, count: int, awaited: Callable[[Any], Awaited]) -> Timing:
    async with AsyncSqliteStore.from_conn_string(str(path)) as store:
        await store.setup()
        call, share = awaited(store), count // CALLERS

        async def caller() -> None:
            for number in range(share):
                await call(number)

        begun = perf_counter_ns()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return Timing(each=(perf_counter_ns() - begun) / (share * CALLERS))


# Sessions of the OpenAI Agents SDK.


def _sessions(bench: Bench) -> None:
    hf, count = holdfast.open(bench.folder / "sessions.db"), bench.size(100, 15)
    path, texts = bench.folder / "sqlite_session.db", Texts(9)
    items: list[Any] = [
        {"role": "user" if n % 2 else "assistant", "content": texts.of_bytes(200)}
        for n in range(HISTORY)
    ]
    written = HoldfastSession("written", hf), SQLiteSession("written", path)
    read = HoldfastSession("read", hf), SQLiteSession("read", path)
    with _loop() as loop:

        def compared(goal: float, what: str, calls: tuple[Awaited, Awaited]) -> None:
            rounds = paired(
                lambda: loop.one_by_one(count, calls[0]),
                lambda: loop.one_by_one(count, calls[1]),
                bench.rounds,
            )
            bench.rate(f"openai_agents {what}", "SQLiteSession on a file", goal, rounds)

        def adding(session: Any) -> Awaited:
            return lambda _: session.add_items(items[:4])

        def reading(session: Any) -> Awaited:
            return lambda _: session.get_items()

        compared(1.5, "add_items of 4", (adding(written[0]), adding(written[1])))
        for each in read:
            loop.run(each.add_items(items))
        compared(0.5, f"get_items() of {HISTORY}", (reading(read[0]), reading(read[1])))
        thread = f"{SOURCE}:read"

        def turns() -> list[Any]:
            return [turn.value for turn in hf.threads.turns(thread, 1_000, kind="foreign").all()]

        of = "threads.turns on a thread"
        library = _on_a_thread(lambda _: turns())
        _beyond(bench, loop, ("openai_agents get_items", of), reading(read[0]), library)
    read[1].close()
    written[1].close()
    hf.close()


# Adapters on long-term memory.


def _recall(bench: Bench) -> None:
    hf, texts = holdfast.open(bench.folder / "recall.db"), Texts(3)
    turns = [texts.of_bytes(170) for _ in range(bench.size(TURNS, 60))]
    asked = Texts(4)
    queries = [asked.asked(text, WORDS_ASKED) for text in turns[:40]]

    def filled(namespace: str, turns: list[str]) -> LongTermMemory:
        memory = hf.longterm("ada", namespace=namespace, enabled=True)
        if memory is None:
            raise SystemExit("long-term memory is disabled here: unset HOLDFAST_LTM_ENABLED")
        messages = [{"role": "user", "content": text} for text in turns]
        for first in range(0, len(messages), 100):
            memory.remember_conversation(messages[first : first + 100], "t")
        return memory

    with _loop() as loop:
        _search_of_adk(bench, loop, hf, filled("adk:bench", turns), queries)
        _others(bench, loop, hf, filled("chat", turns[:FEW]), queries)
    hf.close()


def _search_of_adk(
    bench: Bench, loop: Loop, hf: Holdfast, memory: LongTermMemory, queries: list[str]
) -> None:
    count, service = bench.size(80, 20), HoldfastMemoryService(hf)
    loop.run(service.search_memory(app_name="bench", user_id="ada", query=queries[0]))

    def searching(number: int) -> Awaitable[object]:
        query = queries[number % len(queries)]
        return service.search_memory(app_name="bench", user_id="ada", query=query)

    rounds = paired(
        lambda: loop.one_by_one(count, searching),
        lambda: one_by_one(count, lambda n: memory.recall(queries[n % len(queries)], 10)),
        bench.rounds,
    )
    turns = bench.size(TURNS, 60)
    bench.cost(f"google_adk search_memory, {turns} turns", "recall of the library", 1.3, rounds)


def _others(
    bench: Bench, loop: Loop, hf: Holdfast, memory: LongTermMemory, queries: list[str]
) -> None:
    count = bench.size(BEYOND, QUICK_BEYOND)
    store = HoldfastMemoryStore(hf, user="ada")
    middleware = HoldfastMiddleware(hf, user="ada", tools=False)

    def query(number: int) -> str:
        return queries[number % len(queries)]

    def recalled(number: int) -> str:
        return recalled_block(memory.recall(query(number), 5))

    def recall(number: int) -> object:
        return memory.recall(query(number), 5)

    requests: Iterator[Any] = iter(
        [
            ModelRequest(model=_NO_MODEL, messages=[HumanMessage(query(n))], runtime=_NO_MODEL)
            for n in range(bench.rounds * count)
        ]
    )

    def requested(_: int) -> Awaitable[object]:
        return middleware.awrap_model_call(next(requests), _answered)

    for what, ours, of, library in (
        ("strands search", lambda n: store.search(query(n)), "recall", recall),
        ("langchain awrap_model_call", requested, "recall and its block", recalled),
    ):
        _beyond(bench, loop, (what, f"{of} on a thread"), ours, _on_a_thread(library))


_NO_MODEL: Any = SimpleNamespace()
"""Stands for a model that is not called."""


async def _answered(request: Any) -> Any:
    return request


if __name__ == "__main__":
    main("adapters", __doc__ or "", run)
