"""`finish_step`: what counts as the result, what is refused, and how it ends the step."""

from typing import Any

import pytest
from pydantic_ai.messages import ToolCallPart
from stepping import NUMBER, Stepping

from holdfast.ground.errors import InvalidInput
from holdfast.runtime import ToolResultUpdate
from holdfast.testing import call

pytestmark = pytest.mark.anyio

SHIP = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "masts": NUMBER,
        "flag": {"enum": ["nl", "dk"]},
        "crew": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
NUMBERS = {"type": "array", "items": NUMBER}


async def result_of(schema: dict[str, Any], **arguments: Any) -> Any:
    stepping = Stepping([call("finish_step", **arguments)], step={"output_schema": schema})
    return await stepping.executor.run()


@pytest.mark.parametrize(
    ("schema", "arguments", "result"),
    [
        (NUMBER, {"result": 3}, 3),
        ({"type": "null"}, {"result": None}, None),
        (SHIP, {"result": {"name": "Vasa"}}, {"name": "Vasa"}),
        (SHIP, {"name": "Vasa", "masts": 3}, {"name": "Vasa", "masts": 3}),
        (NUMBERS, {"result": [1, 2]}, [1, 2]),
        (NUMBERS, {"result": {"items": [1, 2]}}, [1, 2]),
        (NUMBERS, {"items": [1, 2]}, [1, 2]),
        (NUMBER, {"result": "3"}, 3),
        (SHIP, {"result": '{"name": "Vasa"}'}, {"name": "Vasa"}),
        (NUMBERS, {"result": '{"items": [1]}'}, [1]),
        ({"type": "string"}, {"result": "3"}, "3"),
        ({"type": ["string", "integer"]}, {"result": "3"}, "3"),
        ({}, {"result": "3"}, "3"),
        ({"anyOf": [NUMBER, {"type": "null"}]}, {"result": "3"}, 3),
        ({"type": "string", "format": "date"}, {"result": "no date"}, "no date"),
    ],
)
async def test_the_result_is_found_in_what_was_handed_over(
    schema: dict[str, Any], arguments: dict[str, Any], result: Any
) -> None:
    assert await result_of(schema, **arguments) == result


@pytest.mark.parametrize(
    ("schema", "candidate", "says"),
    [
        (NUMBER, "three", ['at ""', "integer", '"three"', "string"]),
        (NUMBER, True, ["integer", "boolean true"]),
        (SHIP, {"name": 3}, ['at "/name"', "string", "integer 3"]),
        (SHIP, {"name": "Vasa", "flag": "se"}, ['at "/flag"', "nl", "dk", '"se"']),
        (SHIP, {"name": "Vasa", "crew": ["a", 2]}, ['at "/crew/1"', "string", "integer 2"]),
        (SHIP, {"name": "Vasa", "sunk": 1628}, ['at ""', "sunk"]),
        (SHIP, {}, ['at ""', "name"]),
        ({"type": "object", "required": ["a/b"]}, {}, ["a/b"]),
    ],
)
async def test_what_breaks_the_schema_goes_back_with_place_expectation_and_what_came(
    schema: dict[str, Any], candidate: Any, says: list[str]
) -> None:
    refused = call("finish_step", result=candidate)
    stepping = Stepping([refused, TimeoutError()], step={"output_schema": schema})

    await stepping.events()

    told = stepping.given[0]
    assert [each for each in says if each not in told] == []


async def test_the_loop_goes_on_after_a_refusal() -> None:
    turns = [call("finish_step", result="three"), call("finish_step", result=3)]
    stepping = Stepping(turns, step={"output_schema": NUMBER})

    assert await stepping.executor.run() == 3
    assert stepping.executor.iterations == 2


async def test_at_most_five_problems_go_back() -> None:
    refused = call("finish_step", result=["a", "b", "c", "d", "e", "f", "g"])
    stepping = Stepping([refused, TimeoutError()], step={"output_schema": NUMBERS})

    await stepping.events()

    assert stepping.given[0].count("\n- at") == 5


async def test_arguments_that_are_no_object_are_refused_as_well() -> None:
    turns = [ToolCallPart("finish_step", "[3]"), call("finish_step", result=3)]
    stepping = Stepping(turns, step={"output_schema": NUMBER})

    assert await stepping.executor.run() == 3


async def test_a_number_that_is_not_finite_is_refused() -> None:
    turns = [
        ToolCallPart("finish_step", '{"result": NaN}'),
        call("finish_step", result=3),
    ]
    stepping = Stepping(turns, step={"output_schema": {"type": "number"}})

    assert await stepping.executor.run() == 3


async def test_a_schema_that_refers_to_itself_is_shown_and_held_to() -> None:
    tree = {
        "$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
        "$ref": "#/$defs/node",
    }
    result: list[Any] = [[], [[]]]
    turns = [call("finish_step", result=[[3]]), call("finish_step", result=result)]
    stepping = Stepping(turns, step={"output_schema": tree})

    assert await stepping.executor.run() == result
    shown = stepping.model.asked[0].tools[-1].parameters_json_schema
    assert shown["$defs"] == tree["$defs"]
    assert shown["properties"]["result"] == {"$ref": "#/$defs/node"}


async def test_a_schema_may_be_json_text() -> None:
    stepping = Stepping(
        [call("finish_step", result=3)], step={"output_schema": '{"type": "integer"}'}
    )

    assert await stepping.executor.run() == 3


async def test_plain_text_asks_for_finish_step_and_counts() -> None:
    stepping = Stepping(["Three.", call("finish_step", result=3)], step={"output_schema": NUMBER})

    assert await stepping.executor.run() == 3
    assert stepping.executor.iterations == 2
    assert "tool" in stepping.model.asked[1].text.rpartition("Three.")[2]


async def test_the_caller_may_refuse_a_result_and_say_why() -> None:
    turns = [call("finish_step", result=3), call("finish_step", result=4)]

    async def even(result: int) -> str | None:
        return "it is odd" if result % 2 else None

    stepping = Stepping(turns, step={"output_schema": NUMBER}, accept_result=even)

    assert await stepping.executor.run() == 4
    assert "it is odd" in stepping.given[0]


async def test_the_third_refusal_fails_the_step() -> None:
    def never(_: object) -> str:
        return "never"

    stepping = Stepping(
        lambda _: call("finish_step", result=3),
        step={"output_schema": NUMBER},
        accept_result=never,
    )

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert (error.reason, stepping.executor.iterations) == ("rejected", 3)
    assert "never" in error.message


async def test_tools_before_the_accepted_call_have_run_and_those_after_have_not() -> None:
    ran: list[str] = []

    def mark(name: str) -> str:
        """Mark."""
        ran.append(name)
        return name

    turn = [
        call("mark", name="before"),
        call("finish_step", result=3),
        call("mark", name="after"),
        call("finish_step", result=4),
    ]
    stepping = Stepping([turn], step={"output_schema": NUMBER}, tools=[mark])

    told = await stepping.told(ToolResultUpdate)

    assert stepping.executor.result == 3
    assert ran == ["before"]
    assert [each.ok for each in told if each.name == "mark"] == [True, False]
    assert "Not run: the step is finished." in stepping.given


async def test_a_mistake_before_it_in_the_turn_does_not_undo_it() -> None:
    def mark(name: str) -> str:
        """Mark."""
        return name

    turn = [call("mark"), call("fly"), call("finish_step", result=3)]
    stepping = Stepping([turn], step={"output_schema": NUMBER}, tools=[mark])

    assert await stepping.executor.run() == 3


async def test_the_answer_in_text_is_the_last_one_without_thoughts() -> None:
    turns = [
        ["Let me look.", call("memory_list")],
        "<think>Hm, three\n or four?</think>\n\nThree ships.",
    ]
    stepping = Stepping(turns)

    assert await stepping.executor.run() == "Three ships."


async def test_a_blank_answer_is_asked_for_again() -> None:
    stepping = Stepping(["<think>Hm.</think>", "", "Three."])

    assert await stepping.executor.run() == "Three."
    assert stepping.executor.iterations == 3


async def test_memory_is_written_before_the_end_is_told() -> None:
    stepping = Stepping([call("finish_step", result=3)], step={"output_schema": NUMBER})
    memory, seen = stepping.context.memory, list[Any]()

    async for event in stepping.executor.execute():
        if getattr(event, "event", "") == "step_completed":
            seen.append(memory.get_value("step:count"))

    assert seen == [3]


async def test_a_broken_schema_is_refused_at_once() -> None:
    with pytest.raises(InvalidInput) as raised:
        Stepping(step={"output_schema": {"type": "ship"}})

    assert raised.value.field == "output_schema"
