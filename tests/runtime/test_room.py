"""The room that runs take, as bytes of all columns, and the messages that they keep in it."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from runtime.plans.workers import step, task

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.history import View
from holdfast.runtime import Agent, Context, EngineHistory, Network, RouterContext, StepExecutor
from holdfast.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

SAID = 1_000
"""Bytes of a question and of an answer."""
TURNS = 24

Turn = Callable[[str], Any]


def text(number: int) -> str:
    """Return a text that no other turn has."""
    return f"{number:05} where is the ship? ".ljust(SAID, "~")


def speaker(name: str, **options: Any) -> Agent:
    """Return an agent whose model answers each request with a text of its own."""
    numbers = count(10_000)

    async def answer(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
        return ModelResponse([TextPart(text(next(numbers)))])

    return Agent(name, instructions="Name the harbour.", model=FunctionModel(answer), **options)


def alone(hf: Holdfast) -> Turn:
    agent = speaker("ada", history=EngineHistory(hf))
    return lambda said: agent.run(said, thread_id="t")


def in_two(hf: Holdfast) -> Turn:
    agents = [speaker("ada"), speaker("bob")]

    def route(ctx: RouterContext) -> str | None:
        return agents[ctx.call_count].name if ctx.call_count < len(agents) else None

    network = Network("desk", agents, router=route, history=EngineHistory(hf))
    return lambda said: network.run(said, thread_id="t")


def sizes(path: Path) -> list[int]:
    """Return the bytes of the rows of each run in all columns, oldest first; then of others."""
    found: Counter[str] = Counter()
    with sqlite3.connect(path) as database:
        names = [name for (name,) in database.execute("select name from sqlite_schema")]
        for table in names:
            columns = [each[1] for each in database.execute(f"pragma table_info({table})")]
            if not columns or table.startswith(("sqlite_", "memory_words", "ltm_lex")):
                continue
            run = "id" if table == "runs" else "run_id" if "run_id" in columns else "null"
            size = " + ".join(f"coalesce(length(cast({each} as blob)), 0)" for each in columns)
            for id, bytes in database.execute(f"select {run}, {size} from {table}"):
                found[id or ""] += bytes
        runs = [id for (id,) in database.execute("select id from runs order by started_at, id")]
    database.close()
    rest = sum(size for id, size in found.items() if id not in runs)
    return [*(found[id] for id in runs), rest]


async def talked(path: Path, turns: int, begin: Callable[[Holdfast], Turn]) -> list[int]:
    """Talk in a thread of a database at *path*; return the bytes of each turn, and others."""
    with holdfast.open(path) as hf:
        turn = begin(hf)
        for number in range(turns):
            await turn(text(number))
    return sizes(path)


@pytest.mark.parametrize(("begin", "said"), [(alone, 2), (in_two, 3)])
async def test_a_thread_takes_six_times_what_was_said_and_no_more_late_than_early(
    tmp_path: Path, begin: Callable[[Holdfast], Turn], said: int
) -> None:
    found = await talked(tmp_path / "h.db", TURNS, begin)

    assert len(found) == TURNS + 1
    assert sum(found) <= 6 * TURNS * said * SAID
    assert found[TURNS - 1] <= 1.3 * found[TURNS // 4]


async def test_a_late_turn_with_a_budget_takes_the_room_of_an_early_one(tmp_path: Path) -> None:
    def begin(hf: Holdfast) -> Turn:
        history = EngineHistory(hf)
        view, ada = View(budget=5_000), speaker("ada")

        def route(ctx: RouterContext) -> str | None:
            return None if ctx.call_count else ada.name

        network = Network("desk", [ada], router=route, view=view, history=history)
        return lambda said: network.run(said, thread_id="t")

    found = await talked(tmp_path / "h.db", TURNS, begin)

    assert found[TURNS - 1] <= 1.3 * found[TURNS // 4]


def contents(hf: Holdfast, run: str, part: str) -> list[tuple[str, object]]:
    found = [each.export() for each in hf.runs.messages(run, part)]
    return [(str(each.get("role")), each.get("content")) for each in found]


@pytest.mark.parametrize("kept", [True, False], ids=["in a thread", "without one"])
async def test_a_call_without_tools_has_its_messages(tmp_path: Path, kept: bool) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        place: dict[str, Any] = {"history": EngineHistory(hf)} if kept else {"hf": hf}
        for run in ("run_1", "run_2"):
            model = ScriptedModel(["North."])
            agent = Agent("ada", instructions="Name the harbour.", model=model, **place)
            await agent.run("Where?", run_id=run, thread_id="t" if kept else None)

            assert contents(hf, run, "ada.0") == [
                ("system", "Name the harbour."),
                ("user", "Where?"),
                ("assistant", "North."),
            ]


async def test_a_step_has_its_last_messages(tmp_path: Path) -> None:
    def look() -> str:
        """Look around."""
        return "fog"

    with holdfast.open(tmp_path / "h.db") as hf:
        model = ScriptedModel(["North.", call("look"), "South."])
        for each in ("read", "sum"):
            one, context = step(each), Context(hf=hf, run_id=f"run_{each}", model=model)
            made = StepExecutor(task=task("t", one), step=one, context=context, tools=[look])
            await made.run()

        read, summed = (contents(hf, f"run_{part}", part) for part in ("read", "sum"))

    assert [role for role, _ in read] == ["system", "user", "assistant"]
    assert read[-1] == ("assistant", "North.")
    assert [role for role, _ in summed] == [
        "system",
        "user",
        "assistant",
        "tool_result",
        "assistant",
    ]
    assert summed[-1] == ("assistant", "South.")


async def test_a_step_that_failed_keeps_no_messages_of_its_tries(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "h.db") as hf:
        context = Context(hf=hf, run_id="run_1", model=ScriptedModel(["North.", "South."]))
        one = step("read", retries=1)
        accepts = iter(["not yet", None])
        made = StepExecutor(
            task=task("t", one), step=one, context=context, accept_result=lambda _: next(accepts)
        )
        await made.run()

        found = contents(hf, "run_1", "read")

    assert found[-1] == ("assistant", "South.")
