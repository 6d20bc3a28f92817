"""What outlives a handle, a process and a restart, on both engines."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from contracts.longterm_items import items, kept, memory_of, said, texts

import holdfast
from holdfast.engines.base import Dialect
from holdfast.engines.queries import load
from holdfast.ground.errors import NotPermitted
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.cache_budget import ByteBudget
from holdfast.memories.longterm.read import gauges
from holdfast.memories.longterm.recall.cache import PostingsCache
from holdfast.memories.longterm.recall.index import Postings, Row
from holdfast.testing.serving import new_workspace

PACKAGE = "holdfast.memories.longterm"
DIALECTS: tuple[Dialect, Dialect] = ("sqlite", "postgres")
NOBODYS = {
    ("sqlite", "count_terms"): "the index itself counts",
    ("sqlite", "drop_terms"): "the index itself counts",
    ("sqlite", "index_row"): "a term carries its collection's mark",
    ("sqlite", "unindex_row"): "a term carries its collection's mark",
}


@pytest.fixture
def workspace() -> str:
    return new_workspace()


@pytest.fixture
def hf(target: str, workspace: str) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=workspace) as hf:
        yield hf


def until(true: Callable[[], bool]) -> bool:
    """Wait, at most ten seconds, until it is so; tell whether it is."""
    pause = threading.Event()
    for _ in range(500):
        if true():
            return True
        pause.wait(0.02)
    return False


def test_what_was_remembered_outlives_the_handle(target: str, workspace: str) -> None:
    with holdfast.open(target, workspace=workspace) as hf:
        kept(memory_of(hf, "ada"), "Likes tabs")

    with holdfast.open(target, workspace=workspace) as hf:
        assert texts(memory_of(hf, "ada").recall("tabs")) == ["Likes tabs"]


def test_closing_writes_the_marks_that_wait(target: str, workspace: str) -> None:
    with holdfast.open(target, workspace=workspace) as hf:
        item = kept(memory_of(hf, "ada"), "Likes tabs")
        memory_of(hf.acting(), "ada").recall("tabs")

    with holdfast.open(target, workspace=workspace) as hf:
        marked: Any = memory_of(hf, "ada").get(item.id)
        assert marked.access_count == 1


def test_marks_are_written_by_themselves(hf: Holdfast) -> None:
    ltm = memory_of(hf, "ada")
    item = kept(ltm, "Likes tabs")
    ltm.recall("tabs")

    def marked() -> bool:
        found: Any = ltm.get(item.id)
        return found.access_count == 1

    assert until(marked)


def test_another_process_is_seen_at_once(hf: Holdfast, target: str, workspace: str) -> None:
    ltm = memory_of(hf, "ada")
    first = kept(ltm, "Likes tabs in Python")
    ltm.recall("tabs")
    with holdfast.open(target, workspace=workspace) as other:
        there = memory_of(other, "ada")
        kept(there, "Likes tabs in Go")
        there.forget(first.id)

    assert texts(ltm.recall("tabs")) == ["Likes tabs in Go"]


def test_the_first_writers_of_a_user_meet_in_one_collection(hf: Holdfast) -> None:
    def write(number: int) -> None:
        memory_of(hf, "ada").record([said(f"Number {number}")])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(16)))

    assert memory_of(hf, "ada").status().turns == 16


def test_writers_and_forgetters_leave_the_counts_right(hf: Holdfast) -> None:
    ltm = memory_of(hf, "ada")

    def act(number: int) -> None:
        item = kept(ltm, f"Likes thing number {number}")
        ltm.recall("thing")
        if number % 2:
            ltm.forget(item.id)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(act, range(24)))

    assert ltm.status().items == len(items(ltm)) == 12
    assert len(ltm.recall("thing", k=100, min_relevance=0)) == 12


def test_a_session_has_no_long_term_memory(hf: Holdfast) -> None:
    store = hf.memory_stores.create(name="Notes")
    attached = [{"type": "memory_store", "memory_store_id": store.id}]
    session = hf.sessions.create(agent="a", environment_id="e", resources=attached)
    narrowed = hf.for_session(session.id)

    for ask in (
        lambda: narrowed.longterm("ada", enabled=True),
        lambda: narrowed.longterm_data("ada"),
        lambda: narrowed.forget_user("ada"),
    ):
        with pytest.raises(NotPermitted):
            ask()


@pytest.mark.parametrize(
    ("dialect", "name"),
    [(dialect, name) for dialect in DIALECTS for name in vars(load(PACKAGE, dialect))],
)
def test_a_statement_names_whose_rows_it_means(dialect: Dialect, name: str) -> None:
    statement = vars(load(PACKAGE, dialect))[name]
    mark = ":workspace" if dialect == "sqlite" else "%(workspace)s"

    assert (mark in statement) == ((dialect, name) not in NOBODYS)


def test_the_least_recently_used_postings_are_dropped() -> None:
    row = Row(id="turn_1", seq=1, body="tab " * 50, at=0)
    kept_here = PostingsCache(ByteBudget(2 * Postings([row]).size_bytes + 10))
    for number in (1, 2, 3):
        entry = kept_here.entry(number, ("w", "u", "n", str(number)))
        entry.postings = Postings([row])
        kept_here.weigh(number, entry)

    assert kept_here.at(("w", "u", "n", "1")) is None
    assert kept_here.at(("w", "u", "n", "3")) is not None
    assert 0 < kept_here.size_bytes <= 2 * Postings([row]).size_bytes


def test_upkeep_counts_what_everybody_has(hf: Holdfast, workspace: str) -> None:
    for user in ("ada", "bob"):
        kept(memory_of(hf, user), "Likes tabs")
    memory_of(hf, "ada").record([said("One"), said("Two")])
    everybody = hf.engine.scoped(EVERYBODY)
    own = hf.engine.scoped(Scope(workspace=workspace, user="*"))

    numbers = gauges(own)
    assert (numbers.pop("items"), numbers.pop("turns")) == (2, 2)
    assert gauges(everybody)["items"] >= 2
    assert set(numbers.values()) == {0}
