"""A process step: one agent for each item of a list, and their results in its order."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.plans.workers import Workers, step, task, told

from holdfast.ground.json_values import JSON
from holdfast.runtime import Agent, AgentHooks, AgentStart, Context, Step, TaskExecutor
from holdfast.runtime.events import StepResult, TaskUpdate

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    return Workers()


def each(**fields: Any) -> Step:
    """Return a process step over what `list` found, whose items are known by their place."""
    told: dict[str, Any] = {"mode": "process", "per_item_instructions": "Work on e{index}. {item}"}
    return step("each", "list", **told | fields)


def fanned(workers: Workers, items: JSON, process: Step, **given: Any) -> TaskExecutor:
    """Return a task of which a step gives *items*, *process* works on each, and one ends."""
    workers.gives["list"] = items
    shaped = step("list", output_schema={})
    return TaskExecutor(
        task=task("t", shaped, process, step("end", "each")),
        context=given.pop("context", None) or workers.context(),
        **given,
    )


def good(index: int, item: JSON) -> JSON:
    return {"index": index, "item": item, "ok": True, "result": f"done e{index}"}


async def test_each_item_is_worked_on_and_the_results_are_in_its_order(workers: Workers) -> None:
    run = fanned(workers, ["x", {"y": 1}, None], each())

    await run.run()

    memory = run.context.memory
    assert memory.get_value("step:each") == [good(0, "x"), good(1, {"y": 1}), good(2, None)]
    assert memory.get_value("step:each.1") == "done e1"
    assert 'Work on e1. {"y":1}' in workers.asked["e1"].text
    assert not memory.has("step:each.3")


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_ends_first_the_order_is_that_of_the_items(data: st.DataObject) -> None:
    workers, count = Workers(), data.draw(st.integers(1, 8))
    order = data.draw(st.permutations(range(count)))
    workers.wait(*(f"e{index}" for index in order))
    most = data.draw(st.integers(1, 8))
    run = fanned(workers, list(range(count)), each(), context=workers.context(max_concurrency=most))

    async def run_it() -> None:
        work = asyncio.create_task(run.run())
        left = list(order)
        while left:
            await asyncio.sleep(0)
            ready = [index for index in left if f"e{index}" in workers.began]
            if ready:
                workers.let_go(f"e{ready[0]}")
                left.remove(ready[0])
        await work

    asyncio.run(run_it())

    result = run.context.memory.get_value("step:each")
    assert result == [good(index, index) for index in range(count)]
    assert workers.most_at_once <= most


@pytest.mark.parametrize("items", [None, [], {"found": []}])
async def test_an_empty_list_is_done_at_once(workers: Workers, items: JSON) -> None:
    run = fanned(workers, items, each())

    await run.run()

    assert run.context.memory.get_value("step:each") == []
    assert workers.began == ["list", "end"]


async def test_what_is_no_list_fails_the_step_and_is_named(workers: Workers) -> None:
    run = fanned(workers, {"a": [1], "b": [2]}, each())

    await told(run)

    error = run.task.steps[1].error
    assert error is not None
    assert error.reason == "not_a_list"
    assert "an object with 2 lists (a, b)" in error.message
    entry = run.context.memory.get("step:each")
    assert entry is not None
    assert entry.failed
    assert entry.value == {"error": error.message}
    assert entry.title == "Failed: Work on each."


async def test_too_many_items_fail_the_step_and_none_is_begun(workers: Workers) -> None:
    run = fanned(workers, [1, 2, 3], each(max_items=2))

    await told(run)

    error = run.task.steps[1].error
    assert error is not None
    assert (error.reason, error.message) == (
        "too_many_items",
        "there are 3 items, over max_items, which is 2",
    )
    assert workers.began == ["list"]


async def test_when_items_fail_all_run_and_the_good_ones_stay_readable(workers: Workers) -> None:
    workers.fails = {"e0", "e2"}
    run = fanned(workers, ["a", "b", "c", "d"], each())

    await told(run)

    error = run.task.steps[1].error
    assert error is not None
    assert error.reason == "items"
    assert "2 of 4 items failed (0, 2)" in error.message
    memory = run.context.memory
    assert [memory.get_value(f"step:each.{index}") for index in (1, 3)] == ["done e1", "done e3"]
    failed = memory.get("step:each.0")
    assert failed is not None
    assert failed.failed
    assert run.task.failed


async def test_failed_items_may_be_skipped_and_are_said_to_have_failed(workers: Workers) -> None:
    workers.fails = {"e1"}
    run = fanned(workers, ["a", "b"], each(on_item_error="skip"))

    await run.run()

    result: Any = run.context.memory.get_value("step:each")
    assert result[0] == good(0, "a")
    assert (result[1]["index"], result[1]["item"], result[1]["ok"]) == (1, "b", False)
    assert "no e1" in result[1]["error"]


async def test_when_all_items_fail_skipping_does_not_help(workers: Workers) -> None:
    workers.fails = {"e0", "e1"}
    run = fanned(workers, ["a", "b"], each(on_item_error="skip"))

    await told(run)

    error = run.task.steps[1].error
    assert error is not None
    assert error.reason == "items"


async def test_items_have_the_schema_that_is_theirs(workers: Workers) -> None:
    schema = {"type": "object", "required": ["n"]}
    workers.gives |= {"e0": {"n": 0}, "e1": {"n": 1}}
    run = fanned(workers, [1, 1], each(per_item_schema=schema))

    await run.run()

    result: Any = run.context.memory.get_value("step:each")
    assert [one["result"] for one in result] == [{"n": 0}, {"n": 1}]


async def test_as_the_finish_step_it_gives_the_tasks_result(workers: Workers) -> None:
    workers.gives["list"] = [1]
    run = TaskExecutor(
        task=task("t", step("list", output_schema={}), each()), context=workers.context()
    )

    events = await told(run)

    assert run.result == [good(0, 1)]
    entry = run.context.memory.get("task:t")
    assert entry is not None
    assert (entry.source, entry.title) == ("t", "Task t")
    results = [e for e in events if isinstance(e, StepResult)]
    assert [(e.step_id, e.is_task_result) for e in results] == [
        ("list", False),
        ("each.0", False),
        ("each", True),
    ]


async def test_its_items_may_be_an_input(workers: Workers) -> None:
    process = step(
        "each", "urls", mode="process", per_item_instructions="Work on e{index}. Read {item}."
    )
    run = TaskExecutor(
        task=task("t", process), context=workers.context(), inputs={"urls": ["h/1", "h/2"]}
    )

    assert await run.run() == [good(0, "h/1"), good(1, "h/2")]


async def test_events_tell_the_item_they_are_of(workers: Workers) -> None:
    events = await told(fanned(workers, ["a", "b"], each()))

    ours = [
        (e.event, e.step_id, e.item_index)
        for e in events
        if isinstance(e, TaskUpdate) and (e.step_id or "").startswith("each")
    ]
    assert ours[0] == ("step_started", "each", None)
    assert ours[-1] == ("step_completed", "each", None)
    assert sorted(ours[1:-1]) == [
        ("step_completed", "each.0", 0),
        ("step_completed", "each.1", 1),
        ("step_started", "each.0", 0),
        ("step_started", "each.1", 1),
    ]
    results = [(e.step_id, e.item_index) for e in events if isinstance(e, StepResult)]
    assert results.count(("each", None)) == 1
    assert {("each.0", 0), ("each.1", 1)} <= set(results)


async def test_items_do_not_count_as_steps_begun(workers: Workers) -> None:
    run = fanned(workers, [1, 2, 3, 4], each(), max_steps=3)

    await run.run()

    assert run.task.completed


async def test_a_result_over_the_limit_fails_the_step(workers: Workers) -> None:
    from holdfast import RunLimits, RunMemory

    memory = RunMemory(limits=RunLimits(value_bytes=60))
    run = fanned(workers, [1, 2], each(), context=workers.context(memory=memory))

    await told(run)

    error = run.task.steps[1].error
    assert error is not None
    assert error.reason == "memory"


async def test_cancelled_its_items_and_it_say_so(workers: Workers) -> None:
    run = fanned(workers, [1, 2, 3], each(), context=workers.context(max_concurrency=2))
    workers.wait("e1")
    workers.on_begin = lambda id: run.context.cancel() if id == "e1" else None

    events = await told(run)

    cancelled = {
        e.step_id for e in events if isinstance(e, TaskUpdate) and e.event == "step_cancelled"
    }
    assert {"each", "each.1", "end"} <= cancelled
    assert run.task.steps[1].state == "cancelled"
    assert not run.context.memory.has("step:each")


async def test_a_bug_at_an_item_leaves_the_step_marked_as_failed(workers: Workers) -> None:
    class Broken(Context):
        def spend(self, usage: Any) -> None:
            if workers.ended[-1] == "e1":
                raise ZeroDivisionError("of ours")
            super().spend(usage)

    run = fanned(workers, [1, 2], each(), context=Broken(model=workers.model, max_concurrency=1))

    await told(run)

    entry = run.context.memory.get("step:each")
    assert entry is not None
    assert entry.failed
    assert entry.value == {"error": "ZeroDivisionError: of ours"}
    assert run.context.memory.get_value("step:each.0") == "done e0"
    assert run.task.steps[1].state == "failed"
    assert "end" not in workers.began


async def test_each_item_asks_the_hooks_of_the_agent(workers: Workers) -> None:
    inputs = list[str]()

    def on_start(start: AgentStart) -> None:
        inputs.append(start.input)

    agent = Agent("ada", instructions="Be kind.", hooks=AgentHooks(on_start=on_start))
    run = fanned(workers, ["x", "y"], each(), agent=agent)

    await run.run()

    assert sorted(inputs) == ["Work on e0. x", "Work on e1. y", "Work on end.", "Work on list."]
    assert all(asked.instructions.startswith("Be kind.") for asked in workers.asked.values())


async def test_an_agent_that_is_off_works_on_no_item(workers: Workers) -> None:
    agent = Agent("ada", instructions="", hooks=AgentHooks(enabled=False))
    process = step("each", "list", mode="process")
    run = TaskExecutor(
        task=task("t", process), context=workers.context(), agent=agent, inputs={"list": [1, 2]}
    )

    await told(run)

    assert workers.began == []
    error = run.task.steps[0].error
    assert error is not None
    assert error.reason == "items"
    assert "2 of 2 items failed (0, 1); 0: disabled: the agent ada is off" in error.message
