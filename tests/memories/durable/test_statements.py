"""Cheap by design: how many statements a call runs, and how often it crosses to the server."""

from collections.abc import Callable

import pytest

from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory

ACTS: dict[str, tuple[int, int, Callable[[DurableMemory], object]]] = {
    "get": (1, 1, lambda durable: durable.get("a")),
    "list": (1, 1, lambda durable: durable.list(category="core", limit=50)),
    "set of a new key": (5, 3, lambda durable: durable.set("new", "x", category="core")),
    "set of a held key": (5, 3, lambda durable: durable.set("a", "y", category="core")),
    "set unchanged": (
        5,
        3,
        lambda durable: durable.set("a", "x", category="core", refresh=False),
    ),
    "set of a daily key": (5, 3, lambda durable: durable.set("new", "x", category="daily")),
    "set for all": (5, 3, lambda durable: durable.set("new", "x", category="workspace")),
    "open a run": (6, 4, lambda durable: durable.run("one")),
    "open a run after another": (6, 4, lambda durable: durable.run("two", lane="busy")),
}
"""At most how many statements, and round trips to a server, each takes once it was done before."""


@pytest.mark.parametrize("name", ACTS)
def test_it_keeps_to_its_statements(hf: Holdfast, durable: DurableMemory, name: str) -> None:
    most, trips, act = ACTS[name]
    durable.set("a", "x", category="core")
    durable.set("w", "x", category="workspace")
    durable.run("before", lane="busy")
    engine = hf.engine
    assert isinstance(engine, SQLiteEngine | PostgresEngine)
    crossed = engine.round_trips if isinstance(engine, PostgresEngine) else 0
    before = engine.statements

    act(durable)

    assert engine.statements - before <= most
    if isinstance(engine, PostgresEngine):
        assert engine.round_trips - crossed <= trips
