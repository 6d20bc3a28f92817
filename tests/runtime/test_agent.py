"""Agents: their definition, and their three modes."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool
from pydantic_ai.messages import ToolReturnPart

from holdfast import keys
from holdfast.ground.errors import (
    InvalidInput,
    InvalidPlan,
    NoModel,
    RunFailed,
    StepFailed,
    ToolNameTaken,
)
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    MemoryCheckpoints,
    MultiModeAgent,
    RunUpdate,
    Step,
    Task,
    TaskPlan,
    ToolContext,
)
from holdfast.runtime.agent import AnyTool
from holdfast.testing.scripted import Asked, ScriptedModel, Turn, call
from holdfast.tools.base import Tool


def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing at {place}"


OURS = Tool(
    id="own.look",
    name="look",
    description="Look somewhere.",
    parameters={"type": "object", "properties": {}},
    work=lambda _: None,
)


@pytest.mark.parametrize("name", ["", " ada", "ada ", "a\nb", "a\x7fb", "x" * 129, 7, None])
def test_a_name_is_text_of_a_line_without_spaces_at_its_ends(name: Any) -> None:
    with pytest.raises(InvalidInput, match="name"):
        Agent(name, instructions="")


@pytest.mark.parametrize("name", ["a", "x" * 128, "Ada Lovelace", "ада"])
def test_any_other_name_will_do(name: str) -> None:
    assert Agent(name, instructions="").name == name


def test_instructions_are_text_or_a_function() -> None:
    given: Any = 7

    with pytest.raises(InvalidInput, match="instructions"):
        Agent("ada", instructions=given)


def test_an_agent_cannot_be_changed() -> None:
    agent: Any = Agent("ada", instructions="")

    with pytest.raises(dataclasses.FrozenInstanceError):
        agent.name = "bob"


def test_a_changed_copy_leaves_the_first_as_it_was() -> None:
    agent = Agent("ada", instructions="Be brief.", skills=("sql",))

    changed = agent.replace(name="bob")

    assert (changed.name, changed.instructions, changed.skills) == ("bob", "Be brief.", ("sql",))
    assert agent.name == "ada"


def test_another_model_changes_nothing_else() -> None:
    hooks = AgentHooks(enabled=True)
    agent = Agent("ada", instructions="", assistant="Yes?", tools=[look], hooks=hooks)
    model = ScriptedModel([])

    changed = agent.with_model(model)

    told = [field.name for field in dataclasses.fields(Agent) if field.name != "model"]
    assert changed.model is model
    assert [getattr(changed, each) for each in told] == [getattr(agent, each) for each in told]


@pytest.mark.parametrize("other", [look, ModelTool(look), OURS])
def test_two_tools_with_one_name_are_refused(other: AnyTool) -> None:
    with pytest.raises(ToolNameTaken, match="look"):
        Agent("ada", instructions="", tools=[look, other])


def test_a_tool_that_is_to_be_chosen_must_be_there() -> None:
    with pytest.raises(InvalidInput, match="look") as raised:
        Agent("ada", instructions="", tools=[look], tool_choice="jump")

    assert raised.value.field == "tool_choice"


async def _knows(ctx: RunContext[ToolContext], word: str) -> str:
    return f"{word} in {ctx.deps.run_id}, {ctx.deps.network}"


@pytest.mark.anyio
async def test_as_a_pydantic_ai_agent_its_tools_know_the_context() -> None:
    def remember(ctx: ToolContext) -> bool:
        ctx.state.kv.set("seen", 1)
        return ctx.context is context and ctx.memory is context.memory

    model = ScriptedModel([[call("remember"), call("knows", word="it")], "Done."])
    context = Context(run_id="run_1", model=model)
    agent = Agent(
        "ada",
        instructions=lambda run: f"In {run.run_id}.",
        tools=[remember, ModelTool(_knows, name="knows")],
    )

    ended = await agent.to_pydantic_ai(context).run("Go.", deps=context)

    assert ended.output == "Done."
    assert model.asked[0].instructions == "In run_1."
    assert "True" in model.asked[1].text
    assert "it in run_1, None" in model.asked[1].text


NUMBER = {"type": "integer"}


def context(*turns: Turn) -> Context:
    return Context(model=ScriptedModel(turns))


def answering(answer: Callable[[Asked], object]) -> Context:
    return Context(model=ScriptedModel(answer))


def asked(context: Context) -> list[Asked]:
    assert isinstance(context.model, ScriptedModel)
    return context.model.asked


def counting(**fields: Any) -> MultiModeAgent:
    given: dict[str, Any] = {"name": "the counter", "objective": "Count the ships."} | fields
    return MultiModeAgent(**given)


def task() -> Task:
    return Task(id="count", title="Count", steps=[Step(id="all", instructions="Count all.")])


async def last(agent: MultiModeAgent, context: Context) -> RunUpdate:
    """Return the last thing that is told of an execution of *agent*."""
    *_, event = [each async for each in agent.execute(context)]
    assert isinstance(event, RunUpdate)
    return event


@pytest.mark.anyio
async def test_a_loop_is_one_step_under_the_agents_name() -> None:
    run = context(call("finish_step", result=3))
    agent = counting(output_schema=NUMBER, system_prompt="Be quick.", inputs={"harbour": "Kiel"})

    result = await agent.run(run)

    assert result == agent.get_results() == 3
    assert run.memory.get_value(keys.step("the_counter")) == 3
    assert asked(run)[0].instructions.startswith("Be quick.")
    assert "input:harbour" in asked(run)[0].text
    assert "Kiel" not in asked(run)[0].text


@pytest.mark.anyio
async def test_a_loop_that_fails_says_why_and_has_no_result() -> None:
    agent = counting()

    event = await last(agent, context(ValueError("no line")))

    assert (event.event, event.executor) == ("failed", "loop")
    assert agent.get_results() is None
    assert agent.error is not None
    assert agent.error.reason == "model_error"


@pytest.mark.anyio
async def test_what_a_loop_failed_with_is_raised() -> None:
    with pytest.raises(StepFailed, match="no line"):
        await counting().run(context(ValueError("no line")))


@pytest.mark.anyio
async def test_a_plan_that_is_given_is_run() -> None:
    plan = TaskPlan(title="Count", tasks=[task()])

    assert await counting(mode="plan", plan=plan).run(context("Three.")) == "Three."


@pytest.mark.anyio
async def test_a_task_alone_is_a_plan() -> None:
    run = context("Three.")

    assert await counting(mode="plan", task=task()).run(run) == "Three."
    assert run.memory.get_value(keys.task("count")) == "Three."


@pytest.mark.anyio
async def test_the_schema_is_that_of_the_final_result() -> None:
    agent = counting(mode="plan", task=task(), output_schema=NUMBER)

    assert await agent.run(context(call("finish_step", result=3))) == 3


@pytest.mark.anyio
async def test_without_a_plan_one_is_made() -> None:
    steps = [{"id": "all", "instructions": "Count all."}]
    run = context(
        [call("add_task", id="count", title="Count", steps=steps)],
        [call("finish_plan")],
        call("finish_step", result=3),
    )
    agent = counting(mode="plan", output_schema=NUMBER)

    assert await agent.run(run) == 3


@pytest.mark.anyio
async def test_a_plan_that_could_not_be_made_is_said() -> None:
    agent = counting(mode="plan")

    event = await last(agent, context(ValueError("no line")))

    assert event.event == "failed"
    assert agent.error is not None
    assert agent.error.reason == "model_error"
    assert "no line" in agent.error.message


@pytest.mark.anyio
async def test_a_plan_that_fails_is_said() -> None:
    agent = counting(mode="plan", task=task())

    event = await last(agent, context(ValueError("no line")))

    assert event.event == "failed"
    assert agent.get_results() is None
    assert agent.error is not None
    assert agent.error.reason == "steps"


@pytest.mark.anyio
async def test_a_plan_goes_on_from_what_is_kept() -> None:
    kept = MemoryCheckpoints()

    for turns in (["Three."], []):
        run = Context(run_id="run_1", model=ScriptedModel(turns))
        assert await counting(mode="plan", task=task(), checkpoint=kept).run(run) == "Three."


@pytest.mark.anyio
async def test_a_team_works_and_leaves_its_result() -> None:
    agents = [
        Agent("lead", description="Leads.", instructions="Lead."),
        Agent("mate", description="Counts.", instructions="Count."),
    ]
    agent = counting(mode="multi-agent", agents=agents, system_prompt="Be quick.")
    run = answering(team_turn())

    assert await agent.run(run) == "three"
    assert asked(run)[0].instructions.startswith("Be quick.\n\nLead.")


@pytest.mark.anyio
async def test_a_team_is_designed_where_none_is_given() -> None:
    agent = counting(mode="multi-agent")
    run = answering(team_turn())

    assert await agent.run(run) == "three"
    assert "Count the ships." in asked(run)[0].text
    design = run.memory.get_value(keys.step("the_counter.team"))
    assert isinstance(design, list)
    assert len(design) == 2


@pytest.mark.anyio
async def test_a_team_that_fails_says_how_it_ended() -> None:
    agents = [Agent(name, description="Counts.", instructions="Count.") for name in ("a", "b")]
    agent = counting(mode="multi-agent", agents=agents)

    with pytest.raises(RunFailed, match="the counter failed"):
        await agent.run(answering(lambda _: ValueError("no line")))

    assert agent.get_results() is None
    assert agent.error is not None
    assert agent.error.reason == "stalled"


@pytest.mark.anyio
async def test_what_was_in_memory_before_is_found_by_the_first_listing() -> None:
    run = context(call("memory_list"), "Three.")
    run.memory.set(keys.shared("log"), "a log", title="The log")

    await counting().run(run)

    assert "shared:log" in asked(run)[1].text


@pytest.mark.anyio
async def test_an_agent_may_be_executed_again() -> None:
    agent = counting()

    await last(agent, context(ValueError("no line")))
    await last(agent, context("Three."))

    assert (agent.get_results(), agent.error) == ("Three.", None)


@pytest.mark.anyio
async def test_a_cancelled_execution_has_no_result() -> None:
    run = context("Three.")
    run.cancel("enough")
    agent = counting()

    event = await last(agent, run)

    assert event.event == "cancelled"
    assert agent.get_results() is None


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "alone"},
        {"objective": " "},
        {"mode": "multi-agent", "max_sub_agents": 1},
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        counting(**fields)


def test_an_unknown_mode_is_told_the_three() -> None:
    with pytest.raises(InvalidInput, match="loop, plan, multi-agent"):
        counting(mode="alone")


def test_what_cannot_be_executed_is_refused_before_anything_runs() -> None:
    with pytest.raises(NoModel):
        counting().execute(Context())
    with pytest.raises(InvalidPlan):
        counting(mode="plan", plan=TaskPlan(title="", tasks=[])).execute(context())


def team_turn() -> Callable[[Asked], object]:
    """Return what answers for a whole team: designed, its task laid out, claimed and completed."""
    ids: list[str] = []

    def turn(asked: Asked) -> object:
        if "Design the team" in asked.text:
            agents = [
                {"name": name, "description": "Counts.", "instructions": "Count."}
                for name in ("lead", "mate")
            ]
            return call("finish_step", result=agents)
        if "create_task" in asked.offered and not ids:
            ids.append("")
            return call("create_task", title="Count them")
        return finish(asked)

    def finish(asked: Asked) -> object:
        returns: list[tuple[str, Any]] = [
            (part.tool_name, part.content)
            for message in asked.messages
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        found = [content["task_id"] for name, content in returns if name == "create_task"]
        ids.extend(found)
        task_id = ids[-1]
        if not any(name == "claim_task" for name, _ in returns):
            return call("claim_task", task_id=task_id)
        if not any(name == "complete_task" for name, _ in returns):
            return call("complete_task", task_id=task_id, result="three")
        return "Done."

    return turn
