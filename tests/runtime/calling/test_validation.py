"""What models and tools say passes one border: nesting, numbers, text, ids of calls."""

import json
from typing import Any, cast

import msgspec
import pytest
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_ai.usage import RequestUsage
from runtime.calling.asked import Heard, agent, came_back, error_of, model_of
from runtime.networks.played import agent as member
from runtime.networks.played import network
from stepping import Stepping
from teams import a_team, an_agent, answers, asked_of, create, work

from holdfast.ground.text import whole
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.inference.validation import DEPTH, JsonForm, NotJSON, repair
from holdfast.testing.scripted import call
from holdfast.tools.base import Tool

pytestmark = pytest.mark.anyio


def nested(depth: int) -> Any:
    """Return a list nested *depth* deep."""
    found: Any = []
    for _ in range(depth - 1):
        found = [found]
    return found


def reply(*parts: ModelResponsePart) -> ModelResponse:
    """Return *parts* as a provider sends them; without usage the model of the tests reads them."""
    return ModelResponse([*parts], usage=RequestUsage(input_tokens=1, output_tokens=1))


DEEP = '{"value": ' + "[" * 5_000 + "]" * 5_000 + "}"
BROKEN = {
    "deep text": DEEP,
    "deep": {"value": nested(DEPTH)},
    "deeper": {"value": nested(900)},
    "NaN": {"value": float("nan")},
    "NaN text": '{"value": NaN}',
    "Infinity text": '{"value": [-Infinity]}',
    "too large": '{"value": 1e999}',
    "no JSON": {"value": object()},
}
broken = pytest.mark.parametrize("arguments", BROKEN.values(), ids=BROKEN)

CALLED: list[object] = []


def take(value: Any) -> str:
    """Take a value."""
    CALLED.append(value)
    return "taken"


TAKE = Tool(
    id="own.take",
    name="take",
    description="Take a value.",
    parameters={"type": "object", "properties": {"value": {}}, "required": ["value"]},
    work=lambda arguments: take(cast("dict[str, Any]", arguments)["value"]),
)
ways = pytest.mark.parametrize("tool", [take, TAKE], ids=["function", "tool of ours"])


@broken
@ways
async def test_arguments_past_the_limits_never_reach_an_agents_tool(
    tool: Any, arguments: Any
) -> None:
    CALLED.clear()
    state = NetworkState()

    result = await agent([reply(ToolCallPart("take", arguments)), "Done."], tools=[tool]).run(
        "Go.", state=state
    )

    assert CALLED == []
    assert (error_of(result)["kind"], result.text) == ("bad_arguments", "Done.")
    assert NetworkState.from_json(state.to_json()).results[0].text == "Done."


@broken
@ways
async def test_arguments_past_the_limits_never_reach_a_steps_tool(
    tool: Any, arguments: Any
) -> None:
    CALLED.clear()
    stepping = Stepping([reply(ToolCallPart("take", arguments)), "Three."], tools=[tool])

    assert await stepping.executor.run() == "Three."
    assert CALLED == []
    assert stepping.given[0]["error"]["type"] == "bad_arguments"


@broken
async def test_arguments_past_the_limits_end_neither_a_network_nor_a_team(arguments: Any) -> None:
    CALLED.clear()
    odd = reply(ToolCallPart("take", arguments))
    ada = member("ada", [odd, "Done."], tools=[take])
    turns = iter([odd, create("Count")])
    lead = an_agent("ada", lambda asked: next(turns, None) or work(asked), tools=[take])

    run = await network(ada, member("bob")).run("Go.")
    played = await a_team(lead, an_agent("bob")).run()

    assert (run.status, run.calls, played.status) == ("completed", 2, "completed")
    assert CALLED == []
    told = dict(answers(asked_of(lead)[1]))["take"]
    assert told["error"]["type"] == "bad_arguments"


@broken
async def test_a_result_past_the_limits_is_handed_back(arguments: Any) -> None:
    stepping = Stepping(
        [reply(ToolCallPart("finish_step", arguments)), call("finish_step", value=3)],
        step={"output_schema": {"type": "object"}},
    )

    assert await stepping.executor.run() == {"value": 3}


VALUES = {
    "deep": nested(DEPTH + 1),
    "deeper": nested(50_000),
    "NaN": {"a": float("nan")},
    "Infinity": float("inf"),
    "no JSON": {1, 2},
}


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
async def test_a_value_past_the_limits_is_not_json(value: Any) -> None:
    def look() -> Any:
        """Look."""
        return value

    stepping = Stepping([call("look"), "Three."], tools=[look])
    result = await agent([call("look"), "Done."], tools=[look]).run("Go.")

    assert await stepping.executor.run() == "Three."
    assert stepping.given[0]["error"]["type"] == "not_json"
    assert error_of(result)["kind"] == "not_json"


async def test_a_value_as_deep_as_allowed_is_stored_and_read_again() -> None:
    value, state = nested(DEPTH), NetworkState()

    def look() -> Any:
        """Look."""
        return value

    result = await agent([call("look"), "Done."], tools=[look]).run("Go.", state=state)

    assert result.tool_calls[0].content == {"data": value}
    assert NetworkState.from_json(state.to_json()).results == [result]


@pytest.mark.parametrize("stream", [True, False])
async def test_half_a_character_of_a_model_is_repaired_and_that_is_stored(stream: bool) -> None:
    state = NetworkState()
    odd = reply(ThinkingPart("hm \udc00"), TextPart("a\ud800b"), call("take", value="c\udfff"))
    ada = agent([odd, "Done \ud83d\ude00."], tools=[take])
    CALLED.clear()

    heard = Heard()

    result = await ada.run("Go.", state=state, on_event=heard if stream else None)

    assert CALLED == ["c\ufffd"]
    assert result.text == "a\ufffdb\n\nDone \U0001f600."
    assert result.tool_calls[0].tool.input == {"value": "c\ufffd"}
    assert result.extras["repaired"] == ["reasoning", "text", "arguments of take", "text"]
    assert NetworkState.from_json(state.to_json()).results == [result]
    assert not stream or heard.of("text.delta")[0].data["delta"] == "a\ufffdb"
    sent = model_of(ada).asked[1].messages[-2]
    assert isinstance(sent, ModelResponse)
    assert [getattr(each, "content", None) for each in sent.parts][:2] == ["hm \ufffd", "a\ufffdb"]


async def test_half_a_character_in_the_text_of_arguments_is_repaired() -> None:
    CALLED.clear()
    odd = ToolCallPart("take", '{"value": "a\\ud800", "value2": 1}'.replace(', "value2": 1', ""))

    result = await agent([odd, "Done."], tools=[take]).run("Go.")

    assert CALLED == ["a\ufffd"]
    assert result.extras["repaired"] == ["arguments of take"]


async def test_half_a_character_of_a_tool_is_repaired() -> None:
    def look() -> Any:
        """Look."""
        return {"a\ud800": ["\udfff"]}

    ada = agent([call("look"), "Done."], tools=[look])
    stepping = Stepping([call("look"), "Three."], tools=[look])

    result = await ada.run("Go.")
    await stepping.executor.run()

    assert result.tool_calls[0].content == {"data": {"a\ufffd": ["\ufffd"]}}
    assert result.extras["repaired"] == ["result of look"]
    assert came_back(model_of(ada).asked[1].messages)[0].content == {"a\ufffd": ["\ufffd"]}
    assert stepping.given == [{"a\ufffd": ["\ufffd"]}]


async def test_calls_of_one_id_or_of_none_are_told_apart() -> None:
    CALLED.clear()
    odd = [call("take", call_id=id, value=n) for n, id in enumerate(["one", "one", "x\ud800"])]
    last = call("take", value=3)
    last.tool_call_id = ""

    result = await agent([reply(*odd, last), "Done."], tools=[take]).run("Go.")

    assert CALLED == [0, 1, 2, 3]
    assert len({each.tool.id for each in result.tool_calls}) == 4
    assert result.extras["repaired"] == ["id of a call of take"] * 3


async def test_what_needs_no_repair_stays_the_same_object() -> None:
    response = ModelResponse([TextPart("A \U0001f600."), call("take", value=[1, None])])
    parts = response.parts

    assert repair(response) == []
    assert response.parts is parts


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("plain", "plain"),
        ("\U0001f600", "\U0001f600"),
        ("\ud83d\ude00", "\U0001f600"),
        ("a\ud83d", "a\ufffd"),
        ("\ufeff\udc00", "\ufeff\ufffd"),
    ],
)
def test_pairs_of_surrogates_are_joined_and_lone_ones_replaced(text: str, found: str) -> None:
    assert whole(text) == found


def test_two_names_that_become_one_are_not_json() -> None:
    with pytest.raises(NotJSON, match="two names"):
        JsonForm(dict.fromkeys(map(chr, (0xD800, 0xD801))))


def test_a_repaired_form_is_json_and_says_so() -> None:
    form = JsonForm([{"a": "\ud800"}, "b"])

    assert form.repaired
    assert json.loads(msgspec.json.encode(form.value)) == [{"a": "\ufffd"}, "b"]
