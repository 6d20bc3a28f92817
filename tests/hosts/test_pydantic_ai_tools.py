"""Our tools in agents of pydantic-ai."""

import pytest
from hosts.pydantic_ai_script import Script, agent_of, called
from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from holdfast import tools
from holdfast.doors.adapters.pydantic_ai import HoldfastMemory, tools_for
from holdfast.errors import ToolNameTaken
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio


async def test_the_tools_of_each_named_memory_are_offered(hf: Holdfast) -> None:
    script = Script("Ok.", "Ok.")

    await agent_of(script, HoldfastMemory(hf, user="ada", agent="helper", store="notes")).run("Hi.")
    await agent_of(script, HoldfastMemory(hf, user="ada", agent="helper", tools=False)).run("Hi.")

    ltm = ["ltm_recall", "ltm_remember", "ltm_forget"]
    durable = ["memory_store", "memory_recall", "memory_list", "memory_forget"]
    assert sorted(script.offered(0)) == sorted([*ltm, *durable, "memory"])
    assert script.offered(1) == []


async def test_what_the_model_stores_by_tools_is_stored(hf: Holdfast) -> None:
    script = Script(
        called("ltm_remember", text="Ada prefers tabs"),
        called("memory_store", key="city", category="core", content="Rome"),
        called("memory", command="create", path="/memories/a.md", file_text="tabs"),
        "Ok.",
    )
    memory = HoldfastMemory(hf, user="ada", agent="helper", store="notes")

    await agent_of(script, memory).run("Remember.")

    longterm = hf.longterm("ada", enabled=True)
    assert longterm is not None
    assert [each.text for each in longterm.list().data] == ["Ada prefers tabs"]
    entry = hf.durable("helper").get("city")
    assert entry is not None
    assert entry.content == "Rome"
    [store] = hf.memory_stores.list().data
    assert store.name == "notes"
    assert hf.memory_stores.memories.at(store.id, "/a.md") is not None


MISTAKES = [
    called("ltm_recall"),
    called("ltm_recall", query=7),
    called("ltm_remember", text="x", kind="opinion"),
    called("memory_store", key="", content="x"),
    called("memory", command="explode"),
    called("memory", command="view", path="/etc/passwd"),
]


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.parametrize("call", MISTAKES)
async def test_a_mistake_of_the_model_asks_it_to_try_again_and_never_ends_the_run(
    hf: Holdfast, call: ToolCallPart
) -> None:
    again = [ToolCallPart(call.tool_name, call.args) for _ in range(4)]
    script = Script(*again, "Sorry.")
    memory = HoldfastMemory(hf, user="ada", agent="helper", store="notes", remember=False)

    result = await agent_of(script, memory).run("Go.")

    parts = [part for message in result.all_messages() for part in message.parts]
    failed = [each for each in parts if isinstance(each, ToolReturnPart)]
    assert [each.outcome for each in failed] == ["retried", "failed", "failed", "failed"]
    assert result.output == "Sorry."


async def test_a_mistake_that_the_model_reads_is_corrected(hf: Holdfast) -> None:
    def correct(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart):
            return ModelResponse([called("ltm_remember", text="Ada sails", kind="opinion")])
        if "opinion" in str(getattr(last, "content", "")):
            return ModelResponse([called("ltm_remember", text="Ada sails", kind="fact")])
        return ModelResponse([TextPart("Stored.")])

    memory = HoldfastMemory(hf, user="ada", remember=False)
    result = await Agent(FunctionModel(correct), capabilities=[memory]).run("Remember it.")

    longterm = hf.longterm("ada", enabled=True)
    assert longterm is not None
    assert [each.text for each in longterm.list().data] == ["Ada sails"]
    assert result.output == "Stored."


async def test_the_hosts_test_model_calls_every_tool(hf: Holdfast) -> None:
    memory = HoldfastMemory(hf, user="ada", agent="helper", remember=False)

    result = await Agent(TestModel(), capabilities=[memory]).run("Go.")

    assert result.usage.tool_calls >= 1


async def test_the_schemas_of_tools_are_ours_as_they_stand(hf: Holdfast) -> None:
    ours = tools.durable(hf.durable("helper"))

    theirs = [each.tool_def for each in tools_for(ours)]

    assert [each.name for each in theirs] == [each.name for each in ours]
    assert [each.parameters_json_schema for each in theirs] == [each.parameters for each in ours]
    assert [each.description for each in theirs] == [each.description for each in ours]


async def test_two_tools_of_one_name_are_refused(hf: Holdfast) -> None:
    ours = tools.durable(hf.durable("helper"))

    with pytest.raises(ToolNameTaken):
        tools_for(ours, ours)
