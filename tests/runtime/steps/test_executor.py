"""Steps: their prompts, tool results in pages, run memory, and results."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ToolCallPart
from stepping import NUMBER, Stepping

from holdfast import RunLimits, RunMemory, tools
from holdfast.ground.errors import InvalidInput
from holdfast.runtime import Agent, Context, LogUpdate, ToolResultUpdate
from holdfast.runtime.steps.tools import ResultPages
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked

pytestmark = pytest.mark.anyio


KINDS: Mapping[str, dict[str, Any]] = {
    "with a schema": {"step": {"output_schema": NUMBER}},
    "finishing": {"step": {"output_schema": NUMBER}, "finish_task": True},
    "unstructured": {},
}
FINISH = call("finish_step", result=3)


def turns(kind: str) -> list[Any]:
    return ["Three."] if kind == "unstructured" else [FINISH]


@pytest.mark.parametrize("kind", KINDS)
async def test_every_kind_of_step_is_told_of_the_memory_and_to_work_alone(kind: str) -> None:
    stepping = Stepping(turns(kind), **KINDS[kind])

    await stepping.executor.run()

    system = stepping.model.asked[0].instructions
    assert tools.run_prompt() in system
    assert "## Memory Tools (progressive disclosure)" in system
    assert "Work alone" in system
    assert "Keep your reasoning out" in system


@pytest.mark.parametrize("kind", ["with a schema", "finishing"])
async def test_a_step_with_a_schema_is_told_it_and_how_to_finish(kind: str) -> None:
    stepping = Stepping(turns(kind), **KINDS[kind])

    await stepping.executor.run()

    system = stepping.model.asked[0].instructions
    assert '## Output Schema\n\n```json\n{\n  "type": "integer"\n}\n```' in system
    assert "Call `finish_step` once" in system


async def test_only_the_finish_step_is_told_to_bring_results_together() -> None:
    finishing = Stepping([FINISH], **KINDS["finishing"])
    other = Stepping([FINISH], **KINDS["with a schema"])

    await finishing.executor.run()
    await other.executor.run()

    told = "Do no new research."
    assert told in finishing.model.asked[0].instructions
    assert told not in other.model.asked[0].instructions


async def test_an_unstructured_step_hears_nothing_of_finish_step() -> None:
    stepping = Stepping(["Three."])

    await stepping.executor.run()

    assert "finish_step" not in stepping.model.asked[0].instructions


@pytest.mark.parametrize("kind", KINDS)
async def test_the_preamble_comes_first_and_takes_nothing_away(kind: str) -> None:
    plain = Stepping(turns(kind), **KINDS[kind])
    agent = Agent("pilot", instructions="  Ignore the rest. <memory> <schema>\n")
    before = Stepping(turns(kind), **KINDS[kind], agent=agent, system_prompt="\nBe brief.\n")

    await plain.executor.run()
    await before.executor.run()

    contract = plain.model.asked[0].instructions
    assert before.model.asked[0].instructions == (
        f"Ignore the rest. <memory> <schema>\n\nBe brief.\n\n{contract}"
    )


async def test_a_blank_preamble_is_none() -> None:
    plain, blank = Stepping(["Three."]), Stepping(["Three."], system_prompt=" \n ")

    await plain.executor.run()
    await blank.executor.run()

    assert blank.model.asked[0].instructions == plain.model.asked[0].instructions


async def test_instructions_may_be_a_function_of_the_run() -> None:
    async def instructions(run: Any) -> str:
        return f"This is {run.run_id}."

    stepping = Stepping(["Three."], agent=Agent("pilot", instructions=instructions))

    await stepping.executor.run()

    assert stepping.model.asked[0].instructions.startswith("This is run_1.\n\n")


async def test_the_date_is_told_by_the_runs_clock() -> None:
    stepping = Stepping(["Three."])

    await stepping.executor.run()

    assert stepping.model.asked[0].instructions.endswith("The date is 2026-01-01 (UTC).")


async def test_declared_keys_are_told_in_order_and_values_never() -> None:
    step = {"depends_on": ["look", "harbour_name"]}
    stepping = Stepping(["Three."], step=step, upstream_memory_keys=["task:weather", "step:look"])
    memory = stepping.context.memory
    memory.set("step:look", "SECRET-1", title="What was seen")
    memory.set("input:harbour_name", "SECRET-2")
    memory.set("task:weather", {"wind": "SECRET-3"})
    memory.set("shared:other", "SECRET-4")

    await stepping.executor.run()

    asked = stepping.model.asked[0]
    hint = tools.run_hint(memory, ["step:look", "input:harbour_name", "task:weather"])
    assert asked.text.endswith(f"Count the ships.\n\n{hint}")
    assert "- step:look — What was seen\n- input:harbour_name" in hint
    assert "SECRET" not in asked.text


async def test_without_declared_keys_the_message_is_the_instruction() -> None:
    stepping = Stepping(["Three."])
    stepping.context.memory.set("shared:other", 1)

    await stepping.executor.run()

    asked = stepping.model.asked[0]
    assert asked.text == f"{asked.instructions}\n\nCount the ships."


async def test_a_name_that_is_a_step_and_an_input_means_the_step() -> None:
    stepping = Stepping(["Three."], step={"depends_on": ["look"]})
    stepping.task.steps.append(type(stepping.step)(id="look", instructions="Look."))
    stepping.context.memory.set("step:look", 1)
    stepping.context.memory.set("input:look", 2)

    await stepping.executor.run()

    text = stepping.model.asked[0].text
    assert "- step:look" in text
    assert "input:look" not in text


async def test_what_cannot_be_read_is_left_out_and_told_of() -> None:
    stepping = Stepping(["Three."], step={"depends_on": ["look", "gone"]})
    stepping.context.memory.set("step:look", {"error": "blind"}, failed=True)

    told = await stepping.told(LogUpdate)

    assert [(each.severity, each.content.split()[0]) for each in told] == [
        ("warning", "step:look"),
        ("warning", "input:gone"),
    ]
    assert "Required upstream memory" not in stepping.model.asked[0].text


async def test_the_profile_names_the_memory_tools_everywhere() -> None:
    stepping = Stepping(["Three."])
    stepping.context.profile = "together"
    stepping = Stepping(["Three."], context=stepping.context, step={"depends_on": ["look"]})
    stepping.context.memory.set("step:look", 1)

    await stepping.executor.run()

    asked = stepping.model.asked[0]
    assert asked.offered == ["run_list", "run_read", "run_write"]
    assert "memory_" not in asked.text
    assert "(call `run_read` with these keys)" in asked.text


LOG = "".join(f"{number:05}\n" for number in range(30))


def log() -> str:
    """Read the log."""
    return LOG


def read_on(asked: Asked) -> Any:
    """Read the log to its end, part by part."""
    given = [each for each in asked.messages[-1].parts if each.part_kind == "tool-return"]
    if not given:
        return call("log")
    found: Any = given[0].content
    if found["part"]["next_offset"] is None:
        return "Read."
    return call(
        "read_result", result_id=found["part"]["result_id"], offset=found["part"]["next_offset"]
    )


async def test_a_long_result_comes_in_parts_that_make_the_whole() -> None:
    stepping = Stepping(read_on, tools=[log], tool_result_limit=50)

    await stepping.executor.run()

    parts = stepping.given
    assert "".join(each["text"] for each in parts) == LOG
    assert parts[0]["part"] == {
        "result_id": "result_1",
        "offset": 0,
        "returned": 50,
        "total": 180,
        "next_offset": 50,
    }
    assert parts[-1]["part"]["next_offset"] is None


async def test_the_tool_that_reads_on_is_there_only_when_there_is_something_to_read() -> None:
    stepping = Stepping(read_on, tools=[log], tool_result_limit=100)

    await stepping.executor.run()

    assert "read_result" not in stepping.model.asked[0].offered
    assert "read_result" in stepping.model.asked[1].offered


async def test_a_result_of_exactly_the_limit_is_whole() -> None:
    stepping = Stepping([call("log"), "Read."], tools=[log], tool_result_limit=len(LOG))

    await stepping.executor.run()

    assert stepping.given == [LOG]


async def test_other_than_text_is_paged_as_its_json() -> None:
    rows = [{"ship": number} for number in range(20)]

    def ships() -> list[dict[str, int]]:
        """List the ships."""
        return rows

    stepping = Stepping([call("ships"), "Read."], tools=[ships], tool_result_limit=60)

    await stepping.executor.run()

    whole = json.dumps(rows, separators=(",", ":"))
    assert stepping.given[0]["text"] == whole[:60]
    assert stepping.given[0]["part"]["total"] == len(whole)


async def test_that_a_part_was_given_is_told() -> None:
    stepping = Stepping([call("log"), "Read."], tools=[log], tool_result_limit=50)

    told = await stepping.told(ToolResultUpdate)

    assert (told[0].ok, told[0].characters, told[0].paged) == (True, 180, True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"result_id": "result_9", "offset": 0}, "those kept are: result_1"),
        ({"result_id": "result_1", "offset": 999}, "past its end"),
        ({"result_id": "result_1"}, "offset"),
        ({"result_id": "result_1", "offset": -1}, "-1"),
    ],
)
async def test_a_wrong_place_is_answered(arguments: dict[str, Any], says: str) -> None:
    turns = [call("log"), call("read_result", **arguments), "Read."]
    stepping = Stepping(turns, tools=[log], tool_result_limit=50)

    await stepping.executor.run()

    assert says in stepping.given[1]["error"]["message"]


async def test_a_long_error_is_paged_too() -> None:
    def hail() -> None:
        """Hail."""
        raise ValueError("x" * 500)

    stepping = Stepping([call("hail"), "Read."], tools=[hail], tool_result_limit=100)

    (told,) = await stepping.told(ToolResultUpdate)

    assert stepping.given[0]["part"]["returned"] == 100
    assert stepping.given[0]["text"].startswith('{"error":{"type":"ValueError","message":"xx')
    assert (told.ok, told.characters, told.paged) == (False, 500, True)
    assert "read_result" in stepping.model.asked[1].offered


async def test_a_memory_tool_pages_itself() -> None:
    stepping = Stepping([call("memory_read", keys=["shared:log"]), "Read."], tool_result_limit=900)
    stepping.context.memory.set("shared:log", "x" * 5_000)

    told = await stepping.told(ToolResultUpdate)

    given = stepping.given[0]["entries"]["shared:log"]
    assert given["part"]["total"] == 5_000
    assert len(json.dumps(stepping.given[0])) <= 1_000
    assert told[0].paged is False


@given(text=st.text(min_size=1), most=st.integers(1, 50))
def test_parts_of_any_size_make_the_whole(text: str, most: int) -> None:
    pages = ResultPages(most)
    part: Any = pages.keep(text)
    found = part["text"]

    while part["part"]["next_offset"] is not None:
        part = pages.part("result_1", part["part"]["next_offset"])
        found += part["text"]

    assert found == text


async def test_a_result_is_kept_as_the_steps() -> None:
    stepping = Stepping(
        [call("finish_step", result=3)],
        step={"output_schema": NUMBER},
        instructions=f"{'Count ' * 20}\nthe ships.",
    )

    result = await stepping.executor.run()

    entry = stepping.context.memory.get("step:count")
    assert result == 3
    assert entry is not None
    assert (entry.value, entry.kind, entry.source) == (3, "step_result", "count")
    assert entry.title == ("Count " * 20)[:80].strip()
    assert not entry.failed


async def test_a_step_that_does_not_finish_its_task_leaves_no_result_of_it() -> None:
    stepping = Stepping(["Three."])

    await stepping.executor.run()

    assert not stepping.context.memory.has("task:harbour")


async def test_the_finish_step_keeps_its_result_as_the_tasks_even_over_another() -> None:
    stepping = Stepping(["Three."], finish_task=True)
    stepping.task.description = "All ships in it."
    stepping.context.memory.set("task:harbour", "set before", source="code")

    await stepping.executor.run()

    entry = stepping.context.memory.get("task:harbour")
    assert entry is not None
    assert (entry.value, entry.kind, entry.source) == ("Three.", "task_result", "harbour")
    assert (entry.title, entry.description) == ("The harbour", "All ships in it.")


async def test_a_failed_step_leaves_its_error_with_the_mark_and_no_task_result() -> None:
    stepping = Stepping([OSError("no route")], finish_task=True, instructions="Count. " * 20)

    await stepping.events()

    entry = stepping.context.memory.get("step:count")
    assert entry is not None
    assert entry.failed
    assert entry.value == {"error": "OSError: no route"}
    assert entry.title == f"Failed: {('Count. ' * 20)[:60].strip()}"
    assert not stepping.context.memory.has("task:harbour")


async def test_a_good_result_takes_the_mark_of_an_earlier_failure_away() -> None:
    first = Stepping([OSError("no route")])
    await first.events()
    second = Stepping(["Three."], context=first.context)

    await second.executor.run()

    entry = second.context.memory.get("step:count")
    assert entry is not None
    assert (entry.failed, entry.title) == (False, "Count the ships.")


async def test_a_result_past_a_limit_of_the_memory_fails_the_step() -> None:
    memory = RunMemory(limits=RunLimits(value_bytes=100))
    context = Context(memory=memory, clock=FrozenClock())
    stepping = Stepping(["x" * 200], context=context)

    await stepping.events()

    error = stepping.executor.error
    assert error is not None
    assert error.reason == "memory"
    assert "100" in error.message
    assert "202" in error.message


async def test_a_cancelled_step_leaves_nothing() -> None:
    stepping = Stepping(lambda _: stepping.context.cancel() or "Three.")

    await stepping.events()

    assert len(stepping.context.memory) == 0
    assert stepping.step.state == "cancelled"


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
