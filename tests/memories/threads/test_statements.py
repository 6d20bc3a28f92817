"""Cheap by design: how many statements a call runs, and how often it crosses to the server."""

from collections.abc import Callable, Iterator

import pytest

import holdfast
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.library.holdfast import Holdfast
from holdfast.testing.contracts.history import THREAD, began, ended, made
from holdfast.testing.serving import new_workspace

ACTS: dict[str, tuple[int, int, Callable[[Holdfast], object]]] = {
    "append of a result": (3, 3, lambda hf: hf.threads.append(THREAD, [made(9)])),
    "append of a hundred": (
        103,
        4,
        lambda hf: hf.threads.append(THREAD, [made(each) for each in range(100, 200)]),
    ),
    "append of what is there": (3, 4, lambda hf: hf.threads.append(THREAD, [made(0)])),
    "retrieve": (1, 1, lambda hf: hf.threads.retrieve(THREAD)),
    "a page of turns": (2, 2, lambda hf: hf.threads.turns(THREAD)),
    "a page of threads": (1, 1, lambda hf: hf.threads.list()),
    "a run's start": (2, 2, lambda hf: hf.runs.put(began("run_2"))),
    "a run's end": (6, 5, lambda hf: hf.runs.put(ended("run_1"))),
    "a page of runs": (1, 1, lambda hf: hf.runs.list(kind="network")),
}
"""At most how many statements, and round trips to a server, each takes once it was done before."""


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf


@pytest.mark.parametrize("name", ACTS)
def test_it_keeps_to_its_statements(hf: Holdfast, name: str) -> None:
    most, trips, act = ACTS[name]
    hf.threads.append(THREAD, [made(0)])
    hf.runs.put(began("run_1"))
    engine = hf.engine
    assert isinstance(engine, SQLiteEngine | PostgresEngine)
    crossed = engine.round_trips if isinstance(engine, PostgresEngine) else 0
    before = engine.statements

    act(hf)

    assert engine.statements - before <= most
    if isinstance(engine, PostgresEngine):
        assert engine.round_trips - crossed <= trips
