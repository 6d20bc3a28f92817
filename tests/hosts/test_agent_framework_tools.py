"""Our tools in agents of the Agent Framework."""

import pytest
from agent_framework import Content
from hosts.agent_framework_script import ScriptedClient, agent_of, called

from holdfast import tools
from holdfast.doors.adapters.agent_framework import HoldfastContextProvider, tools_for
from holdfast.errors import ToolNameTaken
from holdfast.library.holdfast import Holdfast

pytestmark = pytest.mark.anyio


async def test_the_tools_of_each_named_memory_are_offered(hf: Holdfast) -> None:
    client = ScriptedClient("Ok.", "Ok.")

    for offer in (True, False):
        memory = HoldfastContextProvider(hf, user="a", agent="h", store="notes", tools=offer)
        await agent_of(client, memory).run("Hello.")

    ltm = ["ltm_recall", "ltm_remember", "ltm_forget"]
    durable = ["memory_store", "memory_recall", "memory_list", "memory_forget"]
    assert sorted(client.offered(0)) == sorted([*ltm, *durable, "memory"])
    assert client.offered(1) == []


async def test_what_the_model_stores_by_tools_is_stored(hf: Holdfast) -> None:
    client = ScriptedClient(
        called("ltm_remember", text="Ada prefers tabs"),
        called("memory_store", key="city", category="core", content="Rome"),
        called("memory", command="create", path="/memories/a.md", file_text="tabs"),
        "Ok.",
    )
    memory = HoldfastContextProvider(hf, user="ada", agent="helper", store="notes")

    await agent_of(client, memory).run("Remember.")

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
    (called("ltm_recall"), "query"),
    (called("ltm_recall", query=7), "query"),
    (called("ltm_recall", query="x", depth=3), "depth"),
    (called("ltm_remember", text="x", kind="opinion"), "kind"),
    (called("memory_store", key="", content="x"), "category"),
    (called("memory", command="explode"), "explode"),
    (called("memory", command="view", path="/etc/passwd"), "/etc/passwd"),
    (called("memory", command="create", path="/memories/a", file_text="\ud800"), "surrogates"),
]


@pytest.mark.parametrize("target", ["memory"], indirect=True)
@pytest.mark.parametrize(("call", "named"), MISTAKES)
async def test_the_model_reads_what_was_wrong_and_the_run_goes_on(
    hf: Holdfast, call: Content, named: str
) -> None:
    client = ScriptedClient(call, "Sorry.")
    memory = HoldfastContextProvider(hf, user="ada", agent="h", store="notes", remember=False)

    response = await agent_of(client, memory).run("Go.")

    assert named in client.shown()[-1]
    assert response.text == "Sorry."


async def test_the_schemas_of_tools_are_ours_as_they_stand(hf: Holdfast) -> None:
    ours = tools.durable(hf.durable("helper"))

    theirs = tools_for(ours)

    assert [each.name for each in theirs] == [each.name for each in ours]
    assert [each.parameters() for each in theirs] == [each.parameters for each in ours]
    assert [each.description for each in theirs] == [each.description for each in ours]


async def test_two_tools_of_one_name_are_refused(hf: Holdfast) -> None:
    ours = tools.durable(hf.durable("helper"))

    with pytest.raises(ToolNameTaken):
        tools_for(ours, ours)
