"""A long conversation of one agent: what its turns take, the last ones against the first ones."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import Any

from machine import connected
from measure import Bench, Round, Timing
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast import NetworkState, View
from holdfast.runtime import Agent, EngineHistory, Network

TURNS = 400
"""Turns of a long conversation; the first of them are no measure for the rest."""
EARLY = 50
STORED = 100
"""Turns of a conversation in a thread."""
NEAR = 10
"""Turns of which the median is taken."""
SAID = 1_000
"""Bytes of a question and of an answer."""
BUDGET = 20_000
"""Bytes of earlier messages that an agent with a budget is sent."""

Turn = Callable[[str], Any]


def text(number: int) -> str:
    """Return a text of one turn, which no other turn has."""
    return f"{number:05} where is the ship? ".ljust(SAID, "~")


class Speaker:
    """An agent whose model answers each request with a text of its own."""

    def __init__(self, **options: Any) -> None:
        self._answers = 0
        model = FunctionModel(self._answer)
        self.agent = Agent("ada", instructions="Name the harbour.", model=model, **options)

    async def _answer(self, _: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        self._answers += 1
        return ModelResponse([TextPart(text(self._answers))])


async def _turns(count: int, turn: Turn) -> list[int]:
    """Return what each of *count* turns took, in nanoseconds of the processor."""
    times: list[int] = []
    for number in range(count):
        begun = process_time_ns()
        await turn(text(number))
        times.append(process_time_ns() - begun)
    return times


def _round(times: Sequence[int], first: int) -> Round:
    """Return the last turns, and those from the place *first* on."""
    early, late = times[first : first + NEAR], times[-NEAR:]
    return Timing(each=median(late)), Timing(each=median(early))


def in_a_state(bench: Bench) -> None:
    """Talk with a state that is kept: the time of a turn."""
    count, early = bench.size(TURNS, 80), bench.size(EARLY, 20)
    for budget, most in ((BUDGET, 1.3), (None, count / early)):
        rounds = [asyncio.run(_late_and_early(count, early, budget)) for _ in range(bench.rounds)]
        shown = "all of it sent" if budget is None else f"{budget:,} bytes of it sent"
        bench.cost(f"turn {count} of 1 KB, {shown}", f"turn {early}", most, rounds)


async def _late_and_early(late: int, early: int, budget: int | None) -> Round:
    """Return the turn *late* and the turn *early* of one conversation.

    They are taken in turns: what else the machine does hits both.
    """
    agent = Speaker().agent
    network = Network("desk", [agent], view=View(budget=budget))

    def turn(state: NetworkState) -> Turn:
        return partial(agent.run, state=state, network=network)

    states: list[NetworkState] = []
    for count in (late - 1, early - 1):
        states.append(NetworkState())
        await _turns(count, turn(states[-1]))
    times: list[list[int]] = [[], []]
    for _ in range(NEAR):
        for state, found in zip(states, times, strict=True):
            found.extend(await _turns(1, turn(state.clone())))
    return Timing(each=median(times[0])), Timing(each=median(times[1]))


def in_a_thread(bench: Bench) -> None:
    """Talk in a thread, which each turn loads: the time of a turn, and the bytes stored."""
    count = bench.size(STORED, 40)
    rounds: list[Round] = []
    stored: list[float] = []
    for number in range(bench.rounds):
        path = bench.folder / f"talk{number}.db"
        with holdfast.open(path) as hf:
            agent = Speaker(history=EngineHistory(hf)).agent
            rounds.append(_round(asyncio.run(_turns(count, partial(agent.run, thread_id="t"))), 0))
        stored.append(_stored(path) / (count * 2 * SAID))
    bench.cost(f"last {NEAR} turns of {count} in a thread", f"first {NEAR}", 3, rounds)
    bench.amount(f"bytes of {count} turns in all tables", "bytes said", 6, "times", stored)


def _stored(path: Path) -> int:
    """Return the bytes in the columns of all tables that hold threads and runs."""
    stored = 0
    connection = connected(path)
    tables = "select name from sqlite_schema where type = 'table' and name not like 'sqlite%'"
    for (table,) in connection.execute(tables).fetchall():
        if not table.startswith(("run", "thread")):
            continue
        found = connection.execute("select name from pragma_table_info(?)", (table,)).fetchall()
        size = " + ".join(f"coalesce(length(cast({name} as blob)), 0)" for (name,) in found)
        ((total,),) = connection.execute(f"select total({size}) from {table}").fetchall()
        stored += int(total)
    connection.close()
    return stored


def room(bench: Bench) -> None:
    """Talk with a state that is kept: the JSON of the state, and what each turn adds to it."""
    turns, short, long = bench.size(TURNS, 80), 20, 60
    agent, state = Speaker().agent, NetworkState()
    sizes = [0]

    async def turn(said: str) -> None:
        await agent.run(said, state=state)
        sizes.append(len(state.to_json()))

    asyncio.run(_turns(turns, turn))
    early = bench.size(EARLY, 20)
    added = [after - before for before, after in pairwise(sizes)]
    bench.amount(f"JSON of {long} turns", f"of {short}", 4, "times", [sizes[long] / sizes[short]])
    bench.amount(
        f"JSON that turn {turns} adds", f"turn {early}", 1.3, "times", [added[-1] / added[early]]
    )
