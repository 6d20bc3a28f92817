"""What a step's model is told: the contract always, values never."""

from collections.abc import Mapping
from typing import Any

import pytest
from stepping import NUMBER, Stepping

from holdfast import tools
from holdfast.runtime import Agent, LogUpdate
from holdfast.testing import call

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
