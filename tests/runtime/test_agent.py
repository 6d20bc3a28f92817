"""What an agent is, before anybody calls it."""

import dataclasses
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool

from holdfast.ground.errors import InvalidInput, ToolNameTaken
from holdfast.runtime import Agent, AgentHooks, Context, ToolContext
from holdfast.runtime.agent import AnyTool
from holdfast.testing.scripted import ScriptedModel, call
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
