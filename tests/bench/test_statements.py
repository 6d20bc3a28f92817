"""Cheap by design: how many statements a call may run, counted and not timed."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import holdfast
from holdfast.doors.mcp.changes import ChangeHub, Watch
from holdfast.doors.mcp.owners import HostMemories, Owners
from holdfast.doors.mcp.resources import HostResources
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.events import Event
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Turn
from holdfast.memories.stores.edits import Edit, Save
from holdfast.memories.stores.records import Memory
from holdfast.testing.fakes import FrozenClock


@pytest.fixture
def hf(sqlite_file: Path) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file) as hf:
        yield hf


@pytest.fixture
def store(hf: Holdfast) -> str:
    return hf.memory_stores.create(name="Notes").id


@pytest.fixture
def memory(hf: Holdfast, store: str) -> Memory:
    return hf.memory_stores.memories.create(store, path="/a.md", content="Prefers tabs.")


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    memory = hf.longterm("ada", enabled=True)
    assert memory is not None
    memory.record([Turn(role="user", text="I like tabs"), Turn(role="assistant", text="Noted")])
    memory.remember("Likes tabs")
    return memory


def statements(hf: Holdfast, call: Callable[[], object]) -> int:
    """Return how many statements *call* had the engine run, after earlier background work."""
    for thread in threading.enumerate():
        if thread.name == "holdfast-longterm":
            thread.join(60)
            assert not thread.is_alive()
    engine = cast("SQLiteEngine", hf.engine)
    before = engine.statements
    call()
    return engine.statements - before


def test_a_read_by_id_is_one_statement(hf: Holdfast, store: str, memory: Memory) -> None:
    memories = hf.memory_stores.memories

    assert statements(hf, lambda: memories.retrieve(memory.id, memory_store_id=store)) == 1


def test_a_read_by_path_is_one_statement(hf: Holdfast, store: str, memory: Memory) -> None:
    assert statements(hf, lambda: hf.memory_stores.memories.at(store, memory.path)) == 1


@pytest.mark.usefixtures("memory")
@pytest.mark.parametrize("depth", [0, 1])
def test_a_page_of_a_list_is_one_statement(hf: Holdfast, store: str, depth: int) -> None:
    assert statements(hf, lambda: hf.memory_stores.memories.list(store, depth=depth)) == 1


def test_a_create_is_at_most_six_statements(hf: Holdfast, store: str) -> None:
    create = hf.memory_stores.memories.create

    assert statements(hf, lambda: create(store, path="/b.md", content="Prefers spaces.")) <= 6


def test_an_update_of_the_content_is_at_most_six_statements(
    hf: Holdfast, store: str, memory: Memory
) -> None:
    update = hf.memory_stores.memories.update

    assert statements(hf, lambda: update(memory.id, memory_store_id=store, content="Spaces.")) <= 6


@pytest.mark.parametrize("more", [0, 2])
def test_a_save_is_six_statements_besides_one_for_the_feed(
    hf: Holdfast, store: str, memory: Memory, more: int
) -> None:
    memories = hf.memory_stores.memories
    before: Edit = Save(path="/a.md", content=f"Spaces {more}.", memory_id=memory.id)
    existing: Edit = Save(path="/a.md", content="Other.", memory_id=memory.id)
    new: Edit = Save(path=f"/b{more}.md", content="Spaces.")
    for number in range(more):
        memories.apply(store, [before], edit_id=f"edit_{number}")

    assert statements(hf, lambda: memories.apply(store, [existing], edit_id="edit_x")) == 7
    assert statements(hf, lambda: memories.apply(store, [new], edit_id="edit_y")) == 7


def test_a_look_for_changes_where_there_are_none_is_one_statement(
    hf: Holdfast, store: str, memory: Memory
) -> None:
    memories = hf.memory_stores.memories
    del memory
    seq = memories.snapshot(store).seq

    assert statements(hf, lambda: memories.changes(store, seq)) == 1


def test_a_search_reads_all_its_hits_in_one_statement(hf: Holdfast, store: str) -> None:
    memories = hf.memory_stores.memories
    for number in range(10):
        memories.create(store, path=f"/{number}.md", content="Prefers tabs.")

    assert statements(hf, lambda: memories.search(store, "tabs")) <= 3


@pytest.fixture
def durable(hf: Holdfast) -> DurableMemory:
    durable = hf.durable("agent_7")
    durable.set("owner", "Ada", category="core")
    return durable


def test_an_entry_by_its_key_is_one_statement(hf: Holdfast, durable: DurableMemory) -> None:
    assert statements(hf, lambda: durable.get("owner")) == 1


def test_a_page_of_entries_is_one_statement(hf: Holdfast, durable: DurableMemory) -> None:
    assert statements(hf, lambda: durable.list(category="core", key_prefix="o")) == 1


@pytest.mark.parametrize("key", ["owner", "colour"])
def test_a_set_that_evicts_nothing_is_at_most_five_statements(
    hf: Holdfast, durable: DurableMemory, key: str
) -> None:
    assert statements(hf, lambda: durable.set(key, "Grace", category="core")) <= 5


def test_opening_a_run_is_at_most_six_statements(hf: Holdfast, durable: DurableMemory) -> None:
    assert statements(hf, lambda: durable.run("run_1")) <= 6


def test_a_hydration_is_two_statements(hf: Holdfast, durable: DurableMemory) -> None:
    assert statements(hf, durable.hydrate) == 2


def test_a_hydration_that_leaves_something_out_is_three_statements(
    hf: Holdfast, durable: DurableMemory
) -> None:
    durable.set("colour", "A colour that is not in the budget", category="note")

    assert statements(hf, lambda: durable.hydrate(20)) == 3


@pytest.mark.parametrize("query", ["tabs", "what has nothing to do with it"])
def test_a_warm_recall_is_one_statement(hf: Holdfast, ltm: LongTermMemory, query: str) -> None:
    ltm.recall("tabs", touch=False)

    assert statements(hf, lambda: ltm.recall(query, touch=False)) == 1


def test_recalls_of_instants_between_two_changes_read_the_rows_once(tmp_path: Path) -> None:
    clock = FrozenClock()
    with holdfast.open(tmp_path / "past.db", clock=clock) as hf:
        ltm = hf.longterm("ada", enabled=True)
        assert ltm is not None
        ltm.remember("Likes tabs")
        early, later = clock.tick(), clock.tick()
        clock.tick()
        ltm.remember("Likes spaces")
        last = clock.tick()

        assert statements(hf, lambda: ltm.recall("likes", touch=False, at=early)) == 6
        assert statements(hf, lambda: ltm.recall("likes", touch=False, at=later)) == 2
        (found,) = ltm.recall("likes", touch=False, at=later)
        assert found.text == "Likes tabs"
        assert len(ltm.recall("likes", touch=False, at=last)) == 2


def test_remembering_is_at_most_five_statements(hf: Holdfast, ltm: LongTermMemory) -> None:
    assert statements(hf, lambda: ltm.remember("Has a dog")) <= 5


def test_recording_costs_no_more_statements_for_more_turns(
    hf: Holdfast, ltm: LongTermMemory
) -> None:
    turns = [Turn(role="user", text=f"Number {number}") for number in range(100)]

    one = statements(hf, lambda: ltm.record(turns[:1], thread_id="t1"))

    assert statements(hf, lambda: ltm.record(turns, thread_id="t2")) == one <= 7


class Subscribed:
    """A hub with subscribers to one note, and what a change of it has the engine run."""

    def __init__(self, hf: Holdfast, store: str, number: int) -> None:
        self._hf, self._engine = hf, cast("SQLiteEngine", hf.engine)
        self._resources = HostResources(HostMemories(hf, Owners(store=store)))
        self._uri, self._number = f"holdfast://stores/{store}/a.md", number
        self._statements, self._noticed = 0, asyncio.Semaphore(0)
        self._receive: Callable[[Event | None], None] = print

    async def count(self, event: Event) -> int:
        """Return how many statements run until every subscriber has its notice of *event*."""
        hub = ChangeHub(self._source, self._run)
        try:
            for _ in range(self._number):
                uris = [self._uri]
                await hub.add(
                    Watch(
                        self._resources,
                        "default",
                        uris,
                        listed=True,
                        send=self._send,
                        allowed=self._allowed,
                    )
                )
            self._hf.memory_stores.memories.update(
                event.ids["memory_id"],
                memory_store_id=event.ids["memory_store_id"],
                content=f"Tabs for {self._number}.",
            )
            self._statements = 0
            self._receive(event)
            async with asyncio.timeout(60):
                for _ in range(self._number):
                    await self._noticed.acquire()
            return self._statements
        finally:
            hub.close()

    def _source(
        self,
        receive: Callable[[Event | None], None],
        opened: Callable[[], None],
        stop: threading.Event,
    ) -> None:
        self._receive = receive
        opened()
        stop.wait()

    async def _run(self, work: Callable[[], Any]) -> Any:
        before = self._engine.statements
        result = work()
        self._statements += self._engine.statements - before
        return result

    async def _send(self, notice: object) -> None:
        del notice
        self._noticed.release()

    async def _allowed(self) -> bool:
        return True


@pytest.mark.anyio
async def test_the_notices_of_many_subscribers_cost_no_more_statements_than_that_of_one(
    hf: Holdfast, store: str, memory: Memory
) -> None:
    events = list[Event]()
    hf.events.subscribe(events.append, ["memory.modified"])
    hf.memory_stores.memories.update(memory.id, memory_store_id=store, content="Spaces.")

    one = await Subscribed(hf, store, 1).count(events[0])
    many = await Subscribed(hf, store, 40).count(events[0])

    assert one == many <= 6
