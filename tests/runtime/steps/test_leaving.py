"""What a step leaves in the run's memory."""

import pytest
from stepping import NUMBER, Stepping

from holdfast import RunLimits, RunMemory
from holdfast.runtime import Context
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


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
