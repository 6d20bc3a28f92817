"""Graphs of LangGraph on our store: async calls, cancellation, restarts, handles, imports."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypedDict, cast

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.store.base import BaseStore, GetOp, Op, PutOp, Result

import holdfast
from holdfast import tools
from holdfast.doors.adapters.langgraph import HoldfastStore, tools_for
from holdfast.errors import HoldfastError, InvalidInput
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio

NS = ("users", "ada")
WAIT = 60


# Async.


async def test_async_calls_do_the_same(hf: Holdfast) -> None:
    store = HoldfastStore(hf)
    await store.aput(NS, "k", {"text": "tabs"})

    item = await store.aget(NS, "k")

    assert item is not None
    assert item == store.get(NS, "k")
    assert [each.key for each in await store.asearch(NS, query="tabs")] == ["k"]
    assert await store.alist_namespaces() == [NS]
    await store.adelete(NS, "k")
    assert await store.aget(NS, "k") is None


async def test_many_callers_at_once_lose_nothing(hf: Holdfast) -> None:
    store = HoldfastStore(hf)

    await asyncio.gather(*(store.aput(NS, f"k{n}", {"n": n}) for n in range(64)))

    assert {each.value["n"] for each in await store.asearch(NS, limit=100)} == set(range(64))


class Held(HoldfastStore):
    """A store whose batches wait, once they have begun, until they are released."""

    def __init__(self, hf: Holdfast) -> None:
        super().__init__(hf)
        self.begun, self.release = threading.Event(), threading.Event()

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        self.begun.set()
        assert self.release.wait(WAIT)
        return super().batch(ops)


async def test_a_write_that_has_begun_is_done_before_its_cancellation_goes_on(
    hf: Holdfast,
) -> None:
    store = Held(hf)
    putting = asyncio.create_task(store.aput(NS, "k", {"n": 1}))
    assert await asyncio.to_thread(store.begun.wait, WAIT)

    for _ in range(3):
        putting.cancel()
        await asyncio.sleep(0)
    assert not putting.done()
    store.release.set()
    with pytest.raises(asyncio.CancelledError):
        await putting

    item = HoldfastStore(hf).get(NS, "k")
    assert item is not None
    assert item.value == {"n": 1}


async def waiting(store: Held, *batches: list[Op]) -> list[asyncio.Task[list[Result]]]:
    """Return a task for each of *batches*; they wait for one more, which has begun."""
    tasks = [asyncio.create_task(store.abatch([PutOp(NS, "first", {"n": 0})]))]
    assert await asyncio.to_thread(store.begun.wait, WAIT)
    tasks += [asyncio.create_task(store.abatch(each)) for each in batches]
    await asyncio.sleep(0)
    return tasks


def transactions(hf: Holdfast) -> int:
    """Return in how many transactions the store was written."""
    [own] = hf.memory_stores.list().data
    versions = hf.memory_stores.memory_versions.list(own.id, limit=100)
    return len({each.created_at for each in versions.all()})


async def test_puts_that_wait_are_written_in_one_transaction(hf: Holdfast) -> None:
    store = Held(hf)
    puts: list[list[Op]] = [[PutOp(NS, f"k{n}", {"n": n}), GetOp(NS, "first")] for n in range(40)]
    tasks = await waiting(store, *puts)
    tasks[7].cancel()
    await asyncio.sleep(0)
    assert not tasks[7].done()

    store.release.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert isinstance(results.pop(7), asyncio.CancelledError)
    assert all(isinstance(each, list) for each in results)
    assert [getattr(each, "key", None) for each in cast("list[Result]", results[-1])] == [
        None,
        "first",
    ]
    assert len(store.search(NS, limit=100)) == 41
    assert transactions(hf) == 2


async def test_a_put_that_is_refused_fails_alone(hf: Holdfast) -> None:
    store = Held(hf)
    good: list[Op] = [PutOp(NS, "good", {"n": 1})]
    bad: list[Op] = [PutOp(NS, "half", {"n": 1}), PutOp(NS, "bad", {"n": {1}})]
    tasks = await waiting(store, good, bad, [PutOp(NS, "better", {"n": 2})])

    store.release.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(each) for each in results] == [list, list, TypeError, list]
    assert {each.key for each in store.search(NS)} == {"first", "good", "better"}


async def test_each_of_two_puts_of_a_key_that_wait_is_a_version(hf: Holdfast) -> None:
    store = Held(hf)
    tasks = await waiting(store, [PutOp(NS, "k", {"n": 1})], [PutOp(NS, "k", {"n": 2})])

    store.release.set()
    await asyncio.gather(*tasks)

    assert len(store.history(NS, "k")) == 2
    item = store.get(NS, "k")
    assert item is not None
    assert item.value == {"n": 2}


async def test_a_cancelled_write_that_fails_is_logged_without_its_text(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with holdfast.open(":memory:") as hf:
        store = Held(hf)
        putting = asyncio.create_task(store.aput(NS, "k", {"secret": {1}}))
        assert await asyncio.to_thread(store.begun.wait, WAIT)
        putting.cancel()
        store.release.set()
        with pytest.raises(asyncio.CancelledError):
            await putting

    assert caplog.messages == ["a call that was cancelled has failed: TypeError"]


# Handles.


def test_a_handle_of_a_session_reaches_its_store_alone(hf: Holdfast) -> None:
    stores = hf.memory_stores
    mine, other = stores.create(name="mine"), stores.create(name="other")
    session = hf.sessions.create(
        agent={"type": "agent", "id": "agent_1"},
        environment_id="env_1",
        resources=[{"type": "memory_store", "memory_store_id": mine.id, "access": "read_write"}],
    )
    narrowed = hf.for_session(session.id)

    store = HoldfastStore(narrowed, mine.id)
    store.put(NS, "k", {"text": "tabs"})

    assert [each.key for each in store.search(NS, query="tabs")] == ["k"]
    assert len(HoldfastStore(hf, mine.id).search(NS)) == 1
    with pytest.raises(HoldfastError):
        HoldfastStore(narrowed, other.id).put(NS, "k", {"text": "tabs"})


async def test_an_async_handle_is_refused_at_construction(tmp_path: Path) -> None:
    async with await holdfast.aio.open(tmp_path / "h.db") as hf:
        with pytest.raises(InvalidInput, match="synchronous methods"):
            HoldfastStore(hf)  # pyright: ignore[reportArgumentType] - what a user may try


# A graph.


class State(TypedDict, total=False):
    said: str
    known: str


def remember(state: State, *, store: BaseStore) -> State:
    """Return what is known of the user, and put what was said."""
    item = store.get(NS, "profile")
    if "said" in state:
        store.put(NS, "profile", {"text": state["said"]})
    return {"known": item.value["text"] if item else ""}


async def aremember(state: State, *, store: BaseStore) -> State:
    """Return what is known of the user, and put what was said."""
    item = await store.aget(NS, "profile")
    if "said" in state:
        await store.aput(NS, "profile", {"text": state["said"]})
    return {"known": item.value["text"] if item else ""}


def graph_of(node: object, hf: Holdfast) -> Any:
    """Return the graph of one node; its types are generic in what a test does not name."""
    graph: Any = StateGraph(State)
    graph.add_node("remember", node)
    graph.add_edge(START, "remember")
    graph.add_edge("remember", END)
    return graph.compile(store=HoldfastStore(hf))


def test_a_graph_knows_after_a_restart_what_it_was_told(tmp_path: Path) -> None:
    known: list[str] = []
    for said in ("likes tabs", "likes spaces", "likes both"):
        with holdfast.open(tmp_path / "h.db") as hf:
            known.append(graph_of(remember, hf).invoke({"said": said})["known"])

    assert known == ["", "likes tabs", "likes spaces"]


async def test_an_async_graph_knows_after_a_restart_what_it_was_told(tmp_path: Path) -> None:
    known: list[str] = []
    for said in ("likes tabs", "likes spaces"):
        with holdfast.open(tmp_path / "h.db") as hf:
            known.append((await graph_of(aremember, hf).ainvoke({"said": said}))["known"])

    assert known == ["", "likes tabs"]


def test_tools_of_ours_work_in_a_node_of_tools(hf: Holdfast) -> None:
    durable = hf.durable("helper")
    arguments = {"key": "city", "category": "core", "content": "Rome"}
    calls = [
        {"name": "memory_store", "args": each, "id": str(number), "type": "tool_call"}
        for number, each in enumerate([arguments, {"key": ""}])
    ]
    graph: Any = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools_for(tools.durable(durable))))
    graph.add_edge(START, "tools")

    state = graph.compile().invoke({"messages": [AIMessage("", tool_calls=calls)]})

    assert [each.status for each in state["messages"][1:]] == ["success", "error"]
    entry = durable.get("city")
    assert entry is not None
    assert entry.content == "Rome"


KILLED = """
import os, sys
import holdfast
from holdfast.doors.adapters.langgraph import HoldfastStore, tools_for
HoldfastStore(holdfast.open(sys.argv[1])).put(("users", "ada"), "k", {"n": 1})
os._exit(9)
"""


def test_a_put_that_returned_is_there_after_the_process_was_killed(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "h.db")], check=False, timeout=WAIT
    )

    assert ended.returncode == 9
    with holdfast.open(tmp_path / "h.db") as hf:
        assert len(HoldfastStore(hf).search(NS)) == 1


# Imports.

OTHERS = """
import sys
from holdfast.doors.adapters import {name}
hosts = ("agents", "agent_framework", "google", "llama_index", "pydantic_ai", "strands", "crewai",
    "langchain", "anthropic", "openai", "mcp")
print(sorted({{each.partition(".")[0] for each in sys.modules}} & set(hosts)))
"""
MISSING = """
import sys
sys.modules["{host}"] = None
try:
    from holdfast.doors.adapters import {name}
except ImportError as error:
    print(type(error).__name__, error)
"""


def output(code: str) -> str:
    return subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=WAIT
    ).stdout.strip()


@pytest.mark.parametrize(("name", "own"), [("langgraph", []), ("langchain", ["langchain"])])
def test_the_import_of_an_adapter_imports_no_other_host(name: str, own: list[str]) -> None:
    assert output(OTHERS.format(name=name)) == str(own)


@pytest.mark.parametrize("host", ["", "langchain_core"])
@pytest.mark.parametrize("name", ["langgraph", "langchain"])
def test_a_missing_host_is_named(name: str, host: str) -> None:
    shown = output(MISSING.format(name=name, host=host or name))

    assert shown == f"MissingExtra '{name}' is not installed. Install it: pip install {name}"
