"""Tools as a model is offered them, and their schemas."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai import Tool as ModelTool
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import ToolReturnPart
from pydantic_ai.toolsets import FunctionToolset

from holdfast.ground.errors import ToolNameTaken
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent, ToolContext
from holdfast.runtime.agent import AnyTool, name_of, named
from holdfast.runtime.mcp import BySchema, unusable
from holdfast.runtime.tools import equipped
from holdfast.testing.scripted import ScriptedModel, call
from holdfast.tools.base import Tool

AGENT = Agent("ada", instructions="")


def context_of(ctx: RunContext[Any]) -> ToolContext:
    return ToolContext(
        agent=AGENT,
        state=NetworkState(),
        run_id="run_1",
        call_id=ctx.tool_call_id or "",
        tool_name=ctx.tool_name or "",
        usage=ctx.usage,
    )


def ask(
    tools: Sequence[AnyTool], name: str, arguments: Any, toolsets: Sequence[Any] = ()
) -> tuple[ScriptedModel, ToolReturnPart]:
    """Return the model that called the tool *name*, and what came back."""
    part = call(name, call_id="call_1")
    part.args = arguments
    model = ScriptedModel([part, "Done."])
    agent = ModelAgent(model, toolsets=[equipped(tools, toolsets, context_of=context_of)])
    messages = asyncio.run(agent.run("Go.", deps="whatever")).all_messages()
    found = [p for m in messages for p in m.parts if isinstance(p, ToolReturnPart)]
    return model, found[0]


def plain(place: str, times: int = 1) -> str:
    """Look somewhere.

    Args:
        place: where to look
        times: how often
    """
    return f"{place} x{times}"


async def awaited(place: str) -> str:
    return place


def with_context(ctx: ToolContext, place: str) -> list[str]:
    """Look somewhere.

    Args:
        ctx: the call
        place: where to look
    """
    return [ctx.tool_name, ctx.call_id, ctx.run_id, place]


async def with_context_awaited(ctx: ToolContext) -> str:
    return ctx.call_id


def with_run_context(ctx: RunContext[ToolContext], place: str) -> list[str]:
    return [ctx.deps.call_id, place]


class Looker:
    """Something with a method to call."""

    def look(self, ctx: ToolContext, place: str) -> str:
        return f"{ctx.tool_name} at {place}"

    def __call__(self, place: str) -> str:
        return place


OURS = Tool(
    id="run.look",
    name="look",
    description="Look somewhere.",
    parameters={
        "type": "object",
        "properties": {"place": {"type": "string"}},
        "required": ["place"],
        "additionalProperties": False,
    },
    work=lambda arguments: {"got": arguments},  # pyright: ignore[reportArgumentType] - JSON it is
)

FREE = Tool(
    id="own.free",
    name="free",
    description="Anything goes.",
    parameters={"type": "object"},
    work=OURS.work,
)


def test_a_function_is_offered_with_what_its_signature_and_docstring_say() -> None:
    model, came = ask([plain], "plain", {"place": "home"})

    offered = model.asked[0].tools[0]
    assert came.content == "home x1"
    assert offered.description == "Look somewhere."
    assert offered.parameters_json_schema["properties"]["place"] == {
        "type": "string",
        "description": "where to look",
    }


def test_an_awaitable_function_is_awaited() -> None:
    assert ask([awaited], "awaited", {"place": "home"})[1].content == "home"


def test_a_first_parameter_of_the_call_is_filled_and_not_shown() -> None:
    model, came = ask([with_context], "with_context", {"place": "home"})

    schema = model.asked[0].tools[0].parameters_json_schema
    assert came.content == ["with_context", "call_1", "run_1", "home"]
    assert list(schema["properties"]) == ["place"]
    assert schema["properties"]["place"]["description"] == "where to look"


def test_an_awaitable_function_may_ask_for_the_call_too() -> None:
    assert ask([with_context_awaited], "with_context_awaited", {})[1].content == "call_1"


def test_a_method_may_be_a_tool() -> None:
    assert ask([Looker().look], "look", {"place": "home"})[1].content == "look at home"


@pytest.mark.parametrize(
    "tool", [with_run_context, ModelTool(with_run_context, name="with_run_context")]
)
def test_a_run_context_has_the_call_as_its_deps(tool: AnyTool) -> None:
    came = ask([tool], "with_run_context", {"place": "home"})[1]

    assert came.content == ["call_1", "home"]


def test_a_toolset_of_pydantic_ais_is_told_of_the_call_too() -> None:
    toolset = FunctionToolset[Any]([with_run_context])

    came = ask([], "with_run_context", {"place": "home"}, [toolset])[1]

    assert came.content == ["call_1", "home"]


def test_a_tool_of_our_own_is_offered_by_its_schema() -> None:
    model, came = ask([OURS], "look", {"place": "home"})

    assert came.content == {"got": {"place": "home"}}
    assert model.asked[0].tools[0].parameters_json_schema == OURS.parameters


def test_tools_of_a_runs_memory_wait_for_each_other() -> None:
    model, _ = ask([OURS, plain], "look", {"place": "home"})

    assert [each.sequential for each in model.asked[0].tools] == [True, False]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "'place' is a required property"),
        ({"place": 1}, "$.place: 1 is not of type 'string'"),
        ({"place": "x", "no": 1}, "'no' was unexpected"),
        ("null", "must be an object, not null"),
        ("[1]", "must be an object, not [1]"),
        ("{place", "not JSON"),
    ],
)
def test_a_tool_with_a_schema_alone_is_never_called_past_it(arguments: Any, said: str) -> None:
    came = ask([OURS], "look", arguments)[1]

    assert came.outcome == "retried"
    assert said in str(came.content)


def test_a_pydantic_ai_tool_with_a_schema_alone_is_held_to_it_too() -> None:
    tool = ModelTool[Any].from_schema(plain, "look", "Look.", OURS.parameters)

    assert ask([tool], "look", {"place": 1})[1].outcome == "retried"


def test_what_is_missing_altogether_is_no_arguments() -> None:
    assert ask([FREE], "free", None)[1].content == {"got": {}}


@pytest.mark.parametrize("tool", [partial(plain, times=2), Looker()])
def test_whatever_can_be_called_may_be_a_tool(tool: AnyTool) -> None:
    name = name_of(tool)

    assert str(ask([tool], name, {"place": "home"})[1].content).startswith("home")


def test_names_that_clash_between_tools_and_toolsets_are_loud() -> None:
    toolset = FunctionToolset[Any]([plain], id="other")

    with pytest.raises(ToolNameTaken, match="other"):
        ask([plain], "plain", {"place": "home"}, [toolset])


def test_names_that_clash_among_tools_are_loud_before_anything_is_asked() -> None:
    with pytest.raises(ToolNameTaken) as raised:
        named([plain], [ModelTool(awaited, name="plain")])

    assert raised.value.ids == ("plain", "awaited")


@pytest.mark.parametrize(
    ("tool", "name"),
    [
        (plain, "plain"),
        (partial(plain, times=2), "plain"),
        (Looker().look, "look"),
        (OURS, "look"),
        (ModelTool(plain, name="other"), "other"),
    ],
)
def test_a_tool_has_the_name_a_model_sees(tool: AnyTool, name: str) -> None:
    assert name_of(tool) == name


NUMBERS = {
    "type": "object",
    "properties": {name: {"type": "integer"} for name in "abcdefg"},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        NUMBERS,
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"},
    ],
)
def test_a_schema_of_an_object_is_of_use(schema: Any) -> None:
    assert unusable(schema) is None


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "no object"),
        ([], "no object"),
        ({}, "not one of an object"),
        ({"type": "array"}, "not one of an object"),
        ({"type": "object", "properties": {"x": {"type": "wrong"}}}, r"\$.properties.x"),
        ({"type": "object", "properties": {"x": {"$ref": "https://x.org/y"}}}, "https://x.org/y"),
        ({"type": "object", "allOf": [{"$ref": "other.json"}]}, "other.json"),
    ],
)
def test_others_are_not_and_it_is_said_why(schema: Any, why: str) -> None:
    told = unusable(schema)

    assert told is not None
    assert why.replace("\\", "") in told


def test_so_many_problems_are_told_at_once() -> None:
    wrong = dict.fromkeys("abcdefg", "x")

    with pytest.raises(ModelRetry) as raised:
        BySchema(NUMBERS).validate_python(wrong)

    assert raised.value.message.count("is not of type 'integer'") == 5


def test_what_is_allowed_passes_as_it_is() -> None:
    assert BySchema(NUMBERS).validate_json('{"a": 1}') == {"a": 1}
