"""Writes of one agent that wait together are one batch, with the answers of single ones."""

import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar, cast

import apsw
import pytest
from contracts.durable_forget import DurableForgettingContract
from contracts.durable_limits import DurableEvictionContract
from contracts.durable_runs import DurableCaptureContract
from contracts.durable_writes import (
    DurableManyContract,
    DurablePreconditionsContract,
    DurableWritingContract,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from memories import groups
from memories.durable.faults import FailingSQLite

import holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.transaction import INSERT_CHANGE
from holdfast.ground.errors import HoldfastError, MemoryFull, PreconditionFailed, Unavailable
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import StoredEntry, StoredMany
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

T = TypeVar("T")


class Apart:
    """*engine*, but each write runs by itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def scoped(self, *scope: Any) -> "Apart":
        return Apart(self._engine.scoped(*scope))

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        return self._engine.write(lambda tx: work(tx), timeout=timeout)  # noqa: PLW0108 - no kin


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def opened(sqlite_file: Path, clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(sqlite_file, clock=clock) as hf:
        yield hf


class EachApart:
    @pytest.fixture
    def hf(self, opened: Holdfast) -> Holdfast:
        return opened.acting(through=lambda engine: cast("Engine", Apart(engine)))


class TestWritingApart(EachApart, DurableWritingContract):
    """The contract of writes, without batches."""


class TestManyApart(EachApart, DurableManyContract):
    """The contract of many at once, without batches."""


class TestPreconditionsApart(EachApart, DurablePreconditionsContract):
    """The contract of preconditions, without batches."""


class TestEvictionApart(EachApart, DurableEvictionContract):
    """The contract of eviction, without batches."""


class TestForgettingApart(EachApart, DurableForgettingContract):
    """The contract of forgetting, without batches."""


class TestCaptureApart(EachApart, DurableCaptureContract):
    """The contract of captures, without batches."""


Act = Callable[[DurableMemory], object]


def together(hf: Holdfast, acts: Sequence[Act]) -> list[object]:
    """Do *acts* as one caller that waits for none of them; return results and errors."""
    return groups.together(hf, [lambda hf, act=act: act(hf.durable("agent_7")) for act in acts])


def engine_of(hf: Holdfast) -> SQLiteEngine:
    assert isinstance(hf.engine, SQLiteEngine)
    return hf.engine


def setting(number: int, **options: Any) -> Act:
    text = f"text {number}"
    return lambda durable: durable.set(f"k{number}", text, category="core", **options)


@pytest.mark.parametrize("callers", [1, 2, 64])
def test_the_sets_of_one_agent_in_a_group_are_four_statements(
    opened: Holdfast, callers: int
) -> None:
    together(opened, [setting(1)])
    engine, ran = engine_of(opened), Counter[str]()

    def trace(_cursor: object, sql: str, _bindings: object) -> bool:
        ran[sql] += 1
        return True

    engine.core.writer.group.connection().raw.exec_trace = trace
    before = engine.statements

    stored = together(opened, [setting(number) for number in range(callers)])

    assert all(isinstance(each, StoredEntry) for each in stored)
    assert engine.statements - before <= 4 + 1
    assert ran[INSERT_CHANGE] == callers
    assert not any("savepoint" in sql for sql in ran)
    keys = {each.key for each in opened.durable("agent_7").list(limit=100).data}
    assert keys == {"k1", *(f"k{number}" for number in range(callers))}


def test_a_refused_write_of_a_batch_has_its_own_error(opened: Holdfast) -> None:
    durable = opened.durable("agent_7")
    first = durable.set("k0", "x", category="core")

    results = together(
        opened,
        [
            setting(0, expected_seq=first.seq),
            setting(1, expected_seq=7),
            setting(2),
            setting(2, expected_seq=0),
        ],
    )

    assert [type(each).__name__ for each in results] == [
        "StoredEntry",
        "PreconditionFailed",
        "StoredEntry",
        "PreconditionFailed",
    ]
    assert {each.key for each in durable.list().data} == {"k0", "k2"}
    assert opened.verify().findings == ()


def test_a_full_memory_refuses_each_of_a_batch(opened: Holdfast) -> None:
    opened.durable("agent_7").set_limits(cap=2)

    notes: list[Act] = [lambda durable: durable.set("note", "x", category="note") for _ in range(3)]
    results = together(opened, [setting(0), setting(1), *notes])

    assert [type(each) for each in results] == [StoredEntry] * 2 + [MemoryFull] * 3
    assert [each.key for each in opened.durable("agent_7").list().data] == ["k1", "k0"]
    assert opened.verify().findings == ()


def test_a_batch_whose_writes_are_all_refused_leaves_no_agent(opened: Holdfast) -> None:
    results = together(opened, [setting(number, expected_seq=5) for number in range(3)])

    assert all(isinstance(each, HoldfastError) for each in results)
    assert len({id(each) for each in results}) == 3
    assert engine_of(opened).rows("select agent from durable_agents") == []


def test_many_callers_set_and_forget_at_once(opened: Holdfast) -> None:
    durable = opened.durable("agent_7")
    for number in range(40):
        durable.set(f"old{number}", "x", category="core")

    def caller(me: int) -> bool:
        durable.set(f"new{me}", f"text {me}", category="core")
        return durable.forget(f"old{me % 40}")

    with ThreadPoolExecutor(64) as pool:
        forgotten = list(pool.map(caller, range(64)))

    assert sum(forgotten) == 40
    assert {each.key for each in durable.list(limit=100).data} == {f"new{n}" for n in range(64)}
    assert opened.verify().findings == ()


class Wanted(Exception):
    """Raised by a write after its first change."""


def test_each_of_64_callers_gets_its_own_outcome(opened: Holdfast) -> None:
    durable = opened.durable("agent_7")
    durable.set_limits(cap=1_000)

    def late(tx: Transaction) -> None:
        tx.run("update engine_state set seq = seq")
        raise Wanted

    def caller(me: int) -> dict[str, str]:
        kept: dict[str, str] = {}
        for turn in range(10):
            key, text, mark = f"{me} {turn}", f"text {me} {turn}", me * 10 + turn
            if mark % 50 == 7:
                with pytest.raises(Wanted):
                    opened.engine.write(late)
            elif mark % 10 == 0:
                with pytest.raises(PreconditionFailed):
                    durable.set(key, text, category="core", expected_seq=7)
            else:
                assert durable.set(key, text, category="core").content == text
                kept[key] = text
        return kept

    with ThreadPoolExecutor(64) as pool:
        kept = {key: text for each in pool.map(caller, range(64)) for key, text in each.items()}

    assert {each.key: each.content for each in durable.list(limit=1_000).data} == kept
    assert opened.verify().findings == ()


ACTS = st.lists(
    st.tuples(
        st.sampled_from(["set", "keep", "daily", "shared", "expect", "many"]),
        st.integers(0, 5),
        st.sampled_from(["x", "y"]),
    ),
    min_size=1,
    max_size=40,
)


def act_of(kind: str, number: int, content: str) -> Act:
    key = f"k{number}"
    match kind:
        case "keep":
            return lambda durable: durable.set(key, content, category="core", refresh=False)
        case "daily":
            return lambda durable: durable.set(key, content, category="daily")
        case "shared":
            return lambda durable: durable.set(key, content, category="workspace")
        case "expect":
            return lambda durable: durable.set(key, content, category="core", expected_seq=0)
        case "many":
            items = [
                {"key": f"k{each}", "content": content * (each or 20_000), "category": "note"}
                for each in (number, 0)
            ]
            return lambda durable: durable.set_many(items, on_error="skip")
        case _:
            return lambda durable: durable.set(key, content, category="core")


def outcome(result: object) -> object:
    """Return what a batch and single writes have in common: all but ids, numbers and times."""
    if isinstance(result, StoredEntry):
        gone = [each.key for each in result.evicted]
        return (result.key, result.content, result.outcome, gone, result.shadows, result.notices)
    if isinstance(result, StoredMany):
        stored = [outcome(each) for each in result.stored]
        return stored, [(each.index, each.key, str(each.error)) for each in result.refused]
    return type(result)


def attempt(act: Act, durable: DurableMemory) -> object:
    try:
        return act(durable)
    except HoldfastError as error:
        return error


@pytest.fixture
def two(clock: FrozenClock) -> Iterator[tuple[Holdfast, Holdfast]]:
    with (
        holdfast.open(":memory:", clock=clock) as one,
        holdfast.open(":memory:", clock=clock) as other,
    ):
        yield one, other
        assert one.verify().findings == ()


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(chosen=ACTS)
def test_a_batch_gives_the_answers_of_single_writes(
    two: tuple[Holdfast, Holdfast], chosen: list[tuple[str, int, str]]
) -> None:
    acts = [act_of(*each) for each in chosen]
    workspace = new_workspace()
    one, other = (hf.acting(workspace=workspace) for hf in two)
    for hf in (one, other):
        hf.durable("agent_7").set_limits(cap=4)
    single = other.durable("agent_7")

    results = together(one, acts)
    expected = [attempt(act, single) for act in acts]

    assert [outcome(each) for each in results] == [outcome(each) for each in expected]
    found, wanted = (hf.durable("agent_7").list().data for hf in (one, other))
    assert [(e.key, e.content, e.category, e.scope) for e in found] == [
        (e.key, e.content, e.category, e.scope) for e in wanted
    ]


@pytest.mark.parametrize(("callers", "step"), [(1, 1), (2, 1), (64, 9)])
def test_a_fault_at_a_statement_of_a_group_leaves_no_half_write(
    opened: Holdfast, callers: int, step: int
) -> None:
    failing, kept = FailingSQLite(engine_of(opened), apsw.SQLITE_FULL), dict[str, str]()
    statement, fired = 1, ["none yet"]

    while fired:
        texts = {f"k{number}": f"{statement} {number}" for number in range(callers)}
        with failing.at(statement) as fired:
            results = together(opened, [putting(key, text) for key, text in texts.items()])
        for (key, text), result in zip(texts.items(), results, strict=True):
            assert isinstance(result, StoredEntry | Unavailable)
            if isinstance(result, StoredEntry):
                kept[key] = text
            else:
                assert result.written is False
        entries = opened.durable("agent_7").list(limit=100).data
        assert {each.key: each.content for each in entries} == kept
        statement += step

    assert statement > 8 * step
    assert opened.verify().findings == ()


def putting(key: str, text: str) -> Act:
    return lambda durable: durable.set(key, text, category="core")


def test_another_process_reads_what_a_batch_wrote(opened: Holdfast, sqlite_file: Path) -> None:
    together(opened, [setting(number) for number in range(9)])

    program = (
        "import sys, holdfast\n"
        "entries = holdfast.open(sys.argv[1]).durable('agent_7').list().data\n"
        "print(*sorted(each.key for each in entries))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program, str(sqlite_file)],
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert found.stdout.split() == [f"k{number}" for number in range(9)]
