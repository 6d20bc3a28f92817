"""Runs whose objective and result are recorded in a user's long-term memory."""

from collections.abc import Iterator
from typing import Any

import pytest
from teams import a_team, an_agent

import holdfast
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Turn
from holdfast.runtime import (
    Agent,
    Context,
    EngineHistory,
    Network,
    ParallelTaskExecutor,
    Session,
    Step,
    StepExecutor,
    Task,
    TaskPlan,
)
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.scripted import ScriptedModel, call
from holdfast.testing.serving import new_workspace

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["sqlite", "postgres", "http"])
def hf(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", "nobody-has:this")
    if request.param == "postgres":
        url = postgres_server.url(postgres_server.new_database(TEMPLATE))
        with holdfast.open(url, workspace=new_workspace()) as hf:
            yield hf
    elif request.param == "http":
        yield request.getfixturevalue("remote")
    else:
        with holdfast.open(":memory:") as hf:
            yield hf


@pytest.fixture
def local(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holdfast]:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")
    with holdfast.open(":memory:") as hf:
        yield hf


def agent(*turns: Any, name: str = "scout", **fields: Any) -> Agent:
    fields = {"auto_persist": True, **fields}
    model = ScriptedModel(turns or ["Six ships."])
    return Agent(name, instructions="Look.", model=model, **fields)


def memory(hf: Holdfast, user: str = "ada") -> LongTermMemory:
    found = hf.longterm(user)
    assert found is not None
    return found


def recorded(hf: Holdfast, user: str = "ada") -> list[tuple[str, str, str | None]]:
    """Return who said what in which thread, oldest first."""
    turns: list[Turn] = memory(hf, user).list("turns").data[::-1]
    return [(turn.role, turn.text, turn.thread_id) for turn in turns]


def a_plan(model: ScriptedModel | None = None, **fields: Any) -> ParallelTaskExecutor:
    plan = TaskPlan(
        title="Count the ships",
        tasks=[Task(id="count", title="Count", steps=[Step(id="count", instructions="Count.")])],
    )
    scout = agent(name="scout", **fields.pop("scout", {}))
    scout = scout.with_model(model or ScriptedModel(["Six ships."]))
    return ParallelTaskExecutor(plan=plan, agent=scout, context=Context(**fields))


async def test_a_completed_run_becomes_two_queued_turns(hf: Holdfast) -> None:
    await agent().run("Which ships are there?", hf=hf, user="ada", run_id="run_1")

    assert recorded(hf) == [
        ("user", "Which ships are there?", "run:run_1"),
        ("assistant", "Six ships.", "run:run_1"),
    ]
    assert [turn.tier for turn in memory(hf).list("turns").data[::-1]] == ["said", "assistant"]
    assert memory(hf).status().pending_extraction == 1


async def test_a_run_of_a_history_is_of_its_user(hf: Holdfast) -> None:
    await agent(history=EngineHistory(hf, user="ada")).run("Which ships are there?")

    assert [text for _, text, _ in recorded(hf)] == ["Which ships are there?", "Six ships."]


async def test_off_is_the_default(hf: Holdfast) -> None:
    await agent(auto_persist=False).run("Which ships are there?", hf=hf, user="ada")

    assert recorded(hf) == []


async def test_a_run_of_no_user_is_not_recorded(hf: Holdfast) -> None:
    await agent().run("Which ships are there?", hf=hf)

    assert recorded(hf) == []


async def test_nothing_is_recorded_where_the_memory_is_off(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")
    await agent().run("Which ships are there?", hf=local, user="ada")
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "1")

    assert recorded(local) == []


async def test_a_failed_run_records_nothing(hf: Holdfast) -> None:
    with pytest.raises(HoldfastError):
        await agent(ValueError("no")).run("Which ships are there?", hf=hf, user="ada")

    assert recorded(hf) == []


async def test_a_network_is_recorded_by_what_it_was_given_and_its_last_result(
    hf: Holdfast,
) -> None:
    network = Network(
        "desk",
        [agent("First.", name="one", auto_persist=False), agent("Last.", name="two")],
        router=lambda ctx: ["one", "two"] if not ctx.call_count else None,
    )

    run = await network.run("Which ships are there?", hf=hf, user="ada")

    assert recorded(hf) == [
        ("user", "Which ships are there?", f"run:{run.id}"),
        ("assistant", "Last.", f"run:{run.id}"),
    ]


async def test_a_network_that_fails_records_nothing(hf: Holdfast) -> None:
    network = Network(
        "desk",
        [agent(ValueError("no"), name="one")],
        router=lambda ctx: None if ctx.call_count else "one",
    )

    await network.run("Which ships are there?", hf=hf, user="ada", raises=False)

    assert recorded(hf) == []


async def test_a_plan_is_recorded_by_its_title_and_its_final_result(hf: Holdfast) -> None:
    executor = a_plan(hf=hf, user="ada")

    await executor.run()

    thread = f"run:{executor.context.run_id}"
    assert recorded(hf) == [
        ("user", "Count the ships", thread),
        ("assistant", "Six ships.", thread),
    ]


async def test_a_plan_that_fails_records_nothing(hf: Holdfast) -> None:
    executor = a_plan(ScriptedModel([ValueError("no")] * 9), hf=hf, user="ada")

    with pytest.raises(HoldfastError):
        await executor.run()

    assert recorded(hf) == []


async def test_a_cancelled_run_records_nothing(hf: Holdfast) -> None:
    executor = a_plan(hf=hf, user="ada")
    executor.context.cancel()

    with pytest.raises(HoldfastError):
        await executor.run()

    assert recorded(hf) == []


async def test_the_result_of_a_step_that_is_no_text_is_recorded_as_json(hf: Holdfast) -> None:
    step = Step(id="count", instructions="Count the ships.", output_schema={"type": "object"})
    executor = StepExecutor(
        task=Task(id="count", title="Count", steps=[step]),
        step=step,
        agent=agent(call("finish_step", result={"ships": 6})),
        context=Context(hf=hf, user="ada"),
    )

    await executor.run()

    assert [text for _, text, _ in recorded(hf)][1] == '{"ships":6}'


async def test_a_team_is_recorded_by_its_objective_and_its_result(hf: Holdfast) -> None:
    team = a_team(
        an_agent("one", auto_persist=True),
        strategy="autonomous",
        context=Context(hf=hf, user="ada"),
    )

    await team.run()

    assert [(role, text) for role, text, _ in recorded(hf)] == [
        ("user", "Count the seals."),
        ("assistant", "Count the seals. is done"),
    ]


async def test_what_an_agent_asked_of_another_was_said_by_no_person(hf: Holdfast) -> None:
    inner = agent("Six.", name="inner")

    async def look() -> str:
        result = await inner.run("Count them.", hf=hf, user="ada", run_id="run_inner")
        return result.text

    outer = agent(call("look"), "Six.", name="outer", tools=[look])
    await outer.run("Which ships are there?", hf=hf, user="ada", run_id="run_outer")

    turns = {turn.text: turn for turn in memory(hf).list("turns").data}
    assert turns["Count them."].tier == "assistant"
    assert turns["Which ships are there?"].tier == "said"


async def test_a_session_records_its_turns_once(local: Holdfast) -> None:
    async with Session(agent(), hf=local, user="ada", id="s", auto_persist=True) as session:
        await session.send("Which ships are there?")

    assert recorded(local) == [
        ("user", "Which ships are there?", "s"),
        ("assistant", "Six ships.", "s"),
    ]


async def test_a_session_records_the_runs_that_its_agent_starts(local: Holdfast) -> None:
    inner = agent("Six.", name="inner", auto_persist=False)

    async def look() -> str:
        return (await inner.run("Count them.", run_id="run_1")).text

    outer = agent(call("look"), "Six.", name="outer", tools=[look])
    async with Session(outer, hf=local, user="ada", id="s", auto_persist=True) as session:
        await session.send("Which ships are there?")

    assert {thread for _, _, thread in recorded(local)} == {"s", "run:run_1"}


async def test_a_veto_of_a_session_wins_over_every_switch(
    local: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_EXTRACTOR", "openai:gpt")
    local.longterm_data("ada").configure(extractor="openai:gpt")
    inner = agent("Six.", name="inner")

    async def look() -> str:
        return (await inner.run("Count them.", hf=local, user="ada")).text

    outer = agent(call("look"), "Six.", name="outer", tools=[look])
    memory(local).remember("Ada sails")
    async with Session(
        outer, hf=local, user="ada", longterm=False, auto_persist=True, extractor="openai:gpt"
    ) as session:
        async for _ in session.stream("What do I like to do, sail?"):
            pass

    assert [each.data for each in session.events if each.type == "longterm_off"] == [
        {"reason": "vetoed"}
    ]
    assert recorded(local) == []
    assert isinstance(outer.model, ScriptedModel)
    request = outer.model.asked[0]
    assert "Ada sails" not in request.text
    assert not [name for name in request.offered if name.startswith("ltm_")]


def test_an_extractor_beside_a_memory_is_refused(local: Holdfast) -> None:
    with pytest.raises(InvalidInput, match="extractor"):
        Session(agent(), hf=local, longterm=memory(local), extractor="openai:gpt")


async def test_a_session_mines_with_the_extractor_it_was_given(local: Holdfast) -> None:
    def extract(_: object) -> str:
        return '[{"text": "Wants ships counted"}]'

    async with Session(agent(), hf=local, user="ada", extractor=extract) as session:
        await session.send("I want the ships counted")

    mined = next(each.data for each in session.events if each.type == "mined")
    assert mined["outcomes"] == ["stored"]
