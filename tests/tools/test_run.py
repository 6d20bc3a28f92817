"""The tools of run memory before a real agent, beside other tools, and for every error there is."""

import asyncio
import json
from typing import Any

import pytest
from library.test_remote_errors import SAMPLES
from pydantic_ai import Agent
from pydantic_ai import Tool as ModelTool
from pydantic_ai.messages import ToolReturnPart

import holdfast
from holdfast import RunMemory, keys, tools
from holdfast.errors import HoldfastError, ToolNameTaken
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import Published
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.tools.base import Tool, is_error, told


def for_a_model(tool: Tool) -> ModelTool[Any]:
    """Return *tool* as the framework takes it."""

    def answer(**arguments: object) -> object:
        return tool.call(arguments)

    return ModelTool[Any].from_schema(answer, tool.name, tool.description, tool.parameters)


def answers(asked: Asked) -> list[Any]:
    """Return what the tools had answered when *asked* was asked."""
    parts = [part for message in asked.messages for part in message.parts]
    return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def test_an_agent_lists_reads_and_publishes() -> None:
    memory = RunMemory()
    memory.set(keys.task("research"), {"findings": ["alpha"]}, title="Research findings")
    model = ScriptedModel(
        [
            call("memory_list", kind=["task_result"]),
            call("memory_read", keys=["task:research"], path="/findings"),
            call("memory_write", key="top", value=["alpha"], title="Top finding"),
            "Done.",
        ]
    )
    agent = Agent(
        model,
        tools=[for_a_model(tool) for tool in tools.run(memory, writer="planner", budget=24_000)],
        instructions=tools.run_prompt(),
    )

    hint = tools.run_hint(memory, ["task:research"])
    said = asyncio.run(agent.run(f"Go on.\n\n{hint}")).output

    listed, read, written = answers(model.asked[-1])
    assert said == "Done."
    assert model.asked[0].offered == list(tools.RUN_TOOL_NAMES["alone"])
    assert "- task:research — Research findings" in model.asked[0].text
    assert "alpha" not in model.asked[0].text
    assert listed["entries"][0]["key"] == "task:research"
    assert read["entries"]["task:research"]["value"] == ["alpha"]
    assert written["ok"]
    entry = memory.get("shared:top")
    assert entry is not None
    assert (entry.source, entry.value) == ("planner", ["alpha"])


def test_an_agent_that_errs_reads_what_to_do_and_goes_on() -> None:
    memory = RunMemory()
    model = ScriptedModel(
        [
            call("memory_read", keys=["step:a"], offset="x"),
            call("memory_write", key="task:a", value=1),
            "Done.",
        ]
    )
    agent = Agent(model, tools=[for_a_model(tool) for tool in tools.run(memory)])

    asyncio.run(agent.run("Go on."))

    mistake, written = answers(model.asked[-1])
    assert mistake["error"]["field"] == "offset"
    assert mistake["error"]["next"]
    assert written["key"] == "shared:task:a"


@pytest.fixture
def beside(hf: Holdfast) -> list[Tool]:
    return tools.durable(hf.durable("agent_7"))


def test_beside_durable_memory_the_profile_together_keeps_names_apart(beside: list[Tool]) -> None:
    memory = RunMemory()

    with pytest.raises(ToolNameTaken, match="together"):
        tools.lay_out(tools.run(memory), beside)

    table = tools.lay_out(tools.run(memory, profile="together"), beside)
    assert {*tools.RUN_TOOL_NAMES["together"], "memory_list"} <= set(table)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_every_error_has_an_answer(error: HoldfastError) -> None:
    answer: Any = told(error)

    assert is_error(answer)
    assert set(answer["error"]) == {"type", "message", "next", "field"}
    assert answer["error"]["type"] == answer["error"]["type"].lower()
    json.dumps(answer)


class Failing(RunMemory):
    """A memory whose writes fail for *why*."""

    def __init__(self, why: HoldfastError) -> None:
        super().__init__()
        self._why = why

    def publish(self, *_: object, **__: object) -> Published:
        raise self._why


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_no_error_of_the_memory_below_is_raised(error: HoldfastError) -> None:
    answer: Any = tools.run(Failing(error))[2].call({"key": "a", "value": 1})

    assert answer["error"]["message"] == error.message


def test_a_value_of_a_run_outlives_it() -> None:
    memory = RunMemory()
    memory.set(keys.shared("owner"), {"name": "Ada"}, source="planner")

    with holdfast.open(":memory:") as hf:
        stored = hf.durable("agent_7").promote(memory, "shared:owner", category="core")

    assert (stored.key, stored.content) == ("owner", '{"name":"Ada"}')
