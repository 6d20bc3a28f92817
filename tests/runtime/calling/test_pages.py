"""Long results of tools: pages for the model, the beginning and the size for the record."""

import json
from typing import Any, cast

import msgspec
import pytest
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import ModelRequest, ToolReturnPart
from runtime.calling.asked import Heard, agent, came_back, error_of, model_of
from runtime.networks.played import agent as member
from runtime.networks.played import in_turn, network
from teams import a_team, an_agent, answers, asked_of, create, leading

from holdfast.ground.errors import InvalidInput, ToolNameTaken
from holdfast.memories.state.message import ToolResultMessage
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import Agent
from holdfast.runtime.inference.messages import to_model
from holdfast.runtime.inference.pages import LIMIT, STORED, STORED_LATE, beginning
from holdfast.testing.scripted import Asked, call

pytestmark = pytest.mark.anyio

LONG = "".join(f"{n:06} " for n in range(20_000))
"""140,000 characters."""


def look() -> str:
    """Look."""
    return LONG


def part_of(asked: Asked) -> dict[str, Any]:
    """Return what the last tool gave to the model."""
    found: Any = came_back(asked.messages)[-1].content
    return cast("dict[str, Any]", json.loads(found) if isinstance(found, str) else found)


def read_on(asked: Asked) -> object:
    """Read on until there is nothing left."""
    part = part_of(asked)["part"]
    if part["next_offset"] is None:
        return "Done."
    return call("read_result", result_id=part["result_id"], offset=part["next_offset"])


async def test_an_agent_reads_a_long_result_in_parts_which_together_are_the_whole() -> None:
    ada = agent([call("look"), *[read_on] * 6], tools=[look])

    result = await ada.run("Go.")

    asked = model_of(ada).asked
    assert result.text == "Done."
    assert "".join(part_of(each)["text"] for each in asked[1:]) == LONG
    assert [each.offered for each in asked[:2]] == [["look"], ["look", "read_result"]]


async def test_a_result_keeps_the_first_64_kib_and_the_size() -> None:
    state = NetworkState()

    result = await agent([call("look"), "Done."], tools=[look]).run("Go.", state=state)

    kept = result.tool_calls[0]
    assert kept.content == {"data": LONG[:STORED]}
    assert kept.extras["paged"] == {
        "result_id": "result_1",
        "returned": LIMIT,
        "total": len(LONG),
        "bytes": len(LONG),
    }
    assert NetworkState.from_json(state.to_json()).results == [result]


@pytest.mark.parametrize("size", [LIMIT, LIMIT + 1])
async def test_a_result_is_paged_from_the_limit_on(size: int) -> None:
    def say() -> str:
        """Say."""
        return "x" * size

    result = await agent([call("say"), "Done."], tools=[say]).run("Go.")

    assert ("paged" in result.tool_calls[0].extras) is (size > LIMIT)
    assert result.tool_calls[0].content == {"data": "x" * size}


async def test_agents_of_a_network_and_of_a_team_read_in_parts_too() -> None:
    ada = member("ada", [call("look"), read_on, "Done."], tools=[look])
    turns = [create("Count"), call("look")]
    lead = an_agent("ada", leading(turns), tools=[look])

    run = await network(ada).run("Go.")
    await a_team(lead, an_agent("bob")).run()

    assert run.results[0].tool_calls[0].extras["paged"]
    assert dict(answers(asked_of(lead)[1]))["look"]["part"]["total"] == len(LONG)


async def test_the_limit_is_that_of_the_call_the_network_or_the_team() -> None:
    turns = [call("look"), "Done."]
    agents = [member("ada", turns, tools=[look]), agent(turns, tools=[look])]
    lead = an_agent("ada", leading([create("Count"), call("look")]), tools=[look])

    run = await network(agents[0], tool_result_limit=10).run("Go.")
    alone = await agents[1].run("Go.", tool_result_limit=10)
    await a_team(lead, an_agent("bob"), tool_result_limit=200).run()

    for result in (run.results[0], alone):
        paged: Any = result.tool_calls[0].extras["paged"]
        assert paged["returned"] == 10
    assert dict(answers(asked_of(lead)[1]))["look"]["part"]["returned"] == 200


@pytest.mark.parametrize("limit", [0, True, 2.5, "10"])
async def test_a_limit_that_is_no_number_of_characters_is_refused(limit: Any) -> None:
    for make in (
        lambda: network(agent(["Done."]), tool_result_limit=limit),
        lambda: a_team(an_agent("ada"), an_agent("bob"), tool_result_limit=limit),
    ):
        with pytest.raises(InvalidInput, match="tool_result_limit"):
            make()
    with pytest.raises(InvalidInput, match="tool_result_limit"):
        await agent(["Done."]).run("Go.", tool_result_limit=limit)


async def test_an_agent_that_is_called_again_in_a_run_reads_on() -> None:
    turns = [call("look"), "One.", call("read_result", result_id="result_1", offset=LIMIT), "Two."]
    ada = member("ada", turns, tools=[look])

    run = await network(ada, router=in_turn("ada", "ada")).run("Go.")

    data: Any = run.results[1].tool_calls[0].content["data"]
    assert data["text"] == LONG[LIMIT : 2 * LIMIT]


async def test_no_answer_of_a_tool_makes_a_result_too_large_to_store() -> None:
    def everything() -> list[str]:
        """Return 20 MiB."""
        return ["\u00e9" * 1_048_576] * 10

    async def fails() -> str:
        """Fail with 20 MiB."""
        raise ValueError("y" * 20_971_520)

    def draws() -> ToolReturn[str]:
        """Return a picture of 20 MiB."""
        picture = BinaryContent(b"z" * 20_971_520, media_type="image/png")
        return ToolReturn("drawn", content=["Here:", picture], metadata={"at": object()})

    def shows() -> list[Any]:
        """Return a picture of 20 MiB by itself."""
        return [BinaryContent(b"z" * 20_971_520, media_type="image/png")]

    tools: list[Any] = [everything, fails, draws, shows]
    calls = [call(tool.__name__) for tool in tools]
    state = NetworkState()

    result = await agent([calls, "Done."], tools=tools).run("Go.", state=state)

    assert result.text == "Done."
    assert state.results == [result]
    assert len(msgspec.json.encode(result.export())) < 1_000_000
    assert error_of(result.tool_calls[1])["message"] == "y" * STORED
    assert result.extras["raw_bytes"]


async def test_many_long_answers_make_no_result_too_large_to_store() -> None:
    def say() -> str:
        """Say."""
        return "\u20ac" * 24_000

    def fails() -> str:
        """Fail."""
        raise ValueError("y" * 24_000)

    state = NetworkState()
    calls = [[call("say") for _ in range(300)], [call("fails") for _ in range(15)]]

    result = await agent([*calls, "Done."], tools=[say, fails]).run("Go.", state=state)

    assert state.results == [result]
    assert len(msgspec.json.encode(result.export())) < 6_000_000
    assert result.tool_calls[0].content == {"data": "\u20ac" * 24_000}
    assert result.tool_calls[299].content == {"data": "\u20ac" * (STORED_LATE // 3)}
    assert result.tool_calls[299].extras["paged"] == {"bytes": 72_000}
    assert error_of(result.tool_calls[-1])["message"] == "y" * STORED_LATE


async def test_a_long_error_reaches_the_model_in_part() -> None:
    def fails() -> str:
        """Fail."""
        raise ValueError("y" * 100_000)

    ada = agent([call("fails"), read_on, "Done."], tools=[fails])

    await ada.run("Go.")

    part = part_of(model_of(ada).asked[1])
    assert (part["part"]["total"], part["text"][:13]) == (100_012, "ValueError: y")


async def test_a_later_run_is_sent_what_the_model_got_and_not_what_is_stored() -> None:
    state = NetworkState()
    ada = agent([call("look"), "Done.", "Again."], tools=[look])

    await ada.run("Go.", state=state)
    await ada.run("Go on.", state=state)

    assert part_of(model_of(ada).asked[2])["text"] == LONG[:LIMIT]
    assert part_of(model_of(ada).asked[2])["part"]["next_offset"] == LIMIT


async def test_a_paged_result_is_sent_again_as_it_was_without_the_exchange() -> None:
    result = await agent([call("look"), "Done."], tools=[look]).run("Go.")

    sent = to_model(result.tool_calls)

    assert isinstance(sent[0], ModelRequest)
    part = sent[0].parts[0]
    assert isinstance(part, ToolReturnPart)
    assert cast("dict[str, Any]", part.content)["text"] == LONG[:LIMIT]


@pytest.mark.parametrize(
    "paged", [None, {}, {"bytes": 3}, {"result_id": 1, "returned": "x", "total": []}, "x"]
)
def test_a_size_in_another_form_changes_nothing(paged: Any) -> None:
    tool: Any = {"id": "1", "name": "look", "input": {}}
    message = ToolResultMessage(tool=tool, content={"data": "abc"}, extras={"paged": paged})

    part = to_model([message])[0].parts[0]

    assert isinstance(part, ToolReturnPart)
    assert part.content == "abc"


async def test_what_a_part_says_of_a_wrong_place_is_a_failure() -> None:
    turns = [call("look"), call("read_result", result_id="result_9", offset=0), "Done."]

    result = await agent(turns, tools=[look]).run("Go.")

    assert error_of(result.tool_calls[1])["name"] == "invalid_input"
    assert "result_1" in str(error_of(result.tool_calls[1])["message"])


async def test_the_event_of_a_long_result_has_its_size() -> None:
    heard = Heard()

    await agent([call("look"), "Done."], tools=[look]).run("Go.", on_event=heard)

    assert heard.of("tool.returned")[0].data["paged"]["total"] == len(LONG)


async def test_a_tool_named_as_that_which_reads_on_is_refused() -> None:
    def read_result() -> str:
        """Read."""
        return ""

    with pytest.raises(ToolNameTaken):
        await Agent("ada", instructions="", model="test", tools=[read_result]).run("Go.")


@pytest.mark.parametrize("character", ["x", "\u00e9", "\u20ac", "\U0001f600"])
def test_the_beginning_of_a_text_ends_with_a_whole_character(character: str) -> None:
    found = beginning(character * 100_000)

    assert STORED - 4 < len(found.encode()) <= STORED
    assert found == character * len(found)
