"""Plans at work: parallel tasks, and process steps for each item of a list."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.plans.workers import Workers, moments, plan, step, task, told

from holdfast import RunEntry
from holdfast.errors import InvalidInput, InvalidPlan, NotFound, PlanFailed, RunCancelled
from holdfast.ground.json_values import JSON
from holdfast.runtime import (
    Agent,
    AgentHooks,
    AgentStart,
    Context,
    ParallelTaskExecutor,
    Step,
    TaskExecutor,
    TaskPlan,
)
from holdfast.runtime.events import LogUpdate, RunUpdate, StepResult, TaskUpdate

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    return Workers()


def executor(workers: Workers, plan: TaskPlan, **given: Any) -> ParallelTaskExecutor:
    context: dict[str, Any] = {} if "context" in given else {"context": workers.context()}
    return ParallelTaskExecutor(plan=plan, **context | given)


def diamond() -> TaskPlan:
    return plan(
        task("a"),
        task("b", depends_on=["a"]),
        task("c", depends_on=["a"]),
        task("d", depends_on=["b", "c"]),
    )


def states(plan: TaskPlan) -> dict[str, str]:
    return {task.id: task.state for task in plan.tasks}


async def test_the_result_is_that_of_the_final_task(workers: Workers) -> None:
    run = executor(workers, diamond())

    assert await run.run() == "done d1"

    assert run.get_final_result() == "done d1"
    assert run.get_task_result("b") == "done b1"
    assert run.get_all_results() == {id: f"done {id}1" for id in "abcd"}
    assert set(states(run.plan).values()) == {"completed"}


async def test_the_final_task_may_be_named(workers: Workers) -> None:
    run = executor(workers, plan(task("a"), task("b"), final_task="a"))

    assert await run.run() == "done a1"


async def test_a_task_is_told_the_keys_of_the_tasks_it_needs(workers: Workers) -> None:
    await executor(workers, diamond()).run()

    said = workers.asked["d1"].text
    assert "- task:b — Task b\n- task:c — Task c" in said
    assert "task:a" not in said


async def test_a_task_starts_as_soon_as_what_it_needs_is_done(workers: Workers) -> None:
    workers.wait("slow1")
    workers.on_begin = lambda id: workers.let_go("slow1") if id == "b1" else None

    await executor(workers, plan(task("a"), task("b", depends_on=["a"]), task("slow"))).run()

    assert workers.ended[-1] == "slow1"


async def test_events_of_a_task_come_in_order(workers: Workers) -> None:
    events = await told(executor(workers, plan(task("a"), task("b", depends_on=["a"]))))

    assert moments(events, "task_created", "task_completed", "step_started") == [
        ("task_created", "a"),
        ("step_started", "a1"),
        ("task_completed", "a"),
        ("task_created", "b"),
        ("step_started", "b1"),
        ("task_completed", "b"),
    ]
    updates = [e.event for e in events if isinstance(e, RunUpdate)]
    assert updates == ["started", "completed"]


async def test_a_task_result_that_is_missing_is_set_from_the_last_step(workers: Workers) -> None:
    run = executor(workers, plan(task("a")))
    memory, taken = run.context.memory, list[bool]()

    def take_once(entry: RunEntry) -> None:
        if entry.key == "task:a" and not taken:
            taken.append(memory.delete("task:a"))

    memory.subscribe(take_once)
    assert await run.run() == "done a1"

    assert taken == [True]
    entry = memory.get("task:a")
    assert entry is not None
    assert (entry.value, entry.source, entry.title) == ("done a1", "a", "Task a")


async def test_a_long_title_is_shortened_in_memory(workers: Workers) -> None:
    workers.gives["list"] = []
    each = step("each", "list", mode="process")
    long = task("a", step("list", output_schema={}), each, title="a" * 400, description="b" * 5_000)
    run = executor(workers, plan(long))

    assert await run.run() == []

    entry = run.context.memory.get("task:a")
    assert entry is not None
    assert entry.title == "a" * 299 + "…"


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("a", {"a": "failed", "b": "blocked", "c": "blocked", "d": "blocked"}),
        ("b", {"a": "completed", "b": "failed", "c": "completed", "d": "blocked"}),
        ("c", {"a": "completed", "b": "completed", "c": "failed", "d": "blocked"}),
        ("d", {"a": "completed", "b": "completed", "c": "completed", "d": "failed"}),
    ],
)
async def test_a_failed_task_blocks_what_needs_it_and_nothing_else(
    workers: Workers, failing: str, expected: dict[str, str]
) -> None:
    workers.fails = {f"{failing}1"}
    run = executor(workers, diamond())

    events = await told(run)

    assert states(run.plan) == expected
    blocked = [id for id, state in expected.items() if state == "blocked"]
    assert run.failed_task_ids() == [failing]
    assert run.blocked_task_ids() == blocked
    assert all(run.plan.task(id).blocked_by == [failing] for id in blocked)
    assert [each[1] for each in moments(events, "task_blocked")] == blocked
    assert [each[1] for each in moments(events, "step_blocked")] == [f"{id}1" for id in blocked]
    assert not {f"{id}1" for id in blocked} & set(workers.began)
    assert run.get_final_result() is None
    assert not run.context.memory.has(f"task:{failing}")


async def test_run_raises_what_failed_and_why(workers: Workers) -> None:
    workers.fails = {"b1"}
    run = executor(workers, diamond())

    with pytest.raises(PlanFailed, match="task b: step b1 failed: model_error") as caught:
        await run.run()

    assert caught.value.failed == ("b",)
    assert tuple(caught.value.blocked) == ("d",)
    assert caught.value.report == run.report()


async def test_the_report_tells_of_each_task(workers: Workers) -> None:
    workers.fails = {"b1"}
    run = executor(workers, diamond())
    await told(run)

    report = run.report()

    first, failed, _, blocked = report.tasks
    assert (first.state, first.iterations, first.cause) == ("completed", 1, None)
    assert first.tokens > 0
    assert (failed.state, failed.failing_steps) == ("failed", ("b1",))
    assert (blocked.state, blocked.blocked_by, blocked.iterations) == ("blocked", ("b",), 0)
    assert json.loads(report.to_json())["tasks"][1]["id"] == "b"
    assert "b  failed: step b1 failed: model_error" in str(report)
    assert "d  blocked: needs b" in str(report)


async def test_results_of_the_run_are_not_only_the_plans(workers: Workers) -> None:
    context = workers.context()
    context.memory.set("task:before", 1)
    run = executor(workers, plan(task("a")), context=context)

    await run.run()

    assert run.get_all_results() == {"before": 1, "a": "done a1"}
    assert run.get_all_results(scope="plan") == {"a": "done a1"}


async def test_results_that_were_there_before_are_warned_of(workers: Workers) -> None:
    context = workers.context()
    context.memory.set("task:a", "old")
    context.memory.set("step:a1", "old")
    context.memory.set("task:other", "fine")

    events = await told(executor(workers, plan(task("a")), context=context))

    warned = [e.content for e in events if isinstance(e, LogUpdate) and e.severity == "warning"]
    assert warned == [
        "task:a was in memory before the plan began.",
        "step:a1 was in memory before the plan began.",
    ]
    assert context.memory.get_value("task:a") == "done a1"


async def test_no_more_than_max_concurrency_are_at_work(workers: Workers) -> None:
    tasks = [task(f"t{number}") for number in range(6)]
    workers.wait("t01", "t11")
    workers.on_begin = lambda id: workers.let_go("t01", "t11") if id == "t11" else None

    await executor(
        workers, plan(*tasks), context=workers.context(max_concurrency=6), max_concurrency=2
    ).run()

    assert workers.most_at_once == 2


async def test_a_task_may_begin_its_steps_and_five_more(workers: Workers) -> None:
    run = executor(workers, plan(task("a", step("x"), step("y"), step("z"))), max_steps=2)

    await told(run)

    assert run.plan.tasks[0].failed
    assert [each.state for each in run.plan.steps] == ["completed", "completed", "blocked"]


async def test_cancelling_ends_all_and_keeps_what_is_done(workers: Workers) -> None:
    run = executor(workers, diamond())
    workers.wait("b1", "c1")
    workers.on_begin = lambda id: run.context.cancel("enough") if id == "c1" else None

    events = await told(run)

    assert states(run.plan) == {
        "a": "completed",
        "b": "cancelled",
        "c": "cancelled",
        "d": "cancelled",
    }
    assert {id for _, id in moments(events, "task_cancelled")} == {"b", "c", "d"}
    assert {id for _, id in moments(events, "step_cancelled")} == {"b1", "c1", "d1"}
    assert ("task_created", "d") not in moments(events)
    last = events[-1]
    assert isinstance(last, RunUpdate)
    assert (last.event, last.reason) == ("cancelled", "enough")
    assert run.get_task_result("a") == "done a1"


async def test_a_cancelled_run_raises_with_what_is_complete(workers: Workers) -> None:
    run = executor(workers, diamond())
    workers.wait("b1", "c1")
    workers.on_begin = lambda id: run.context.cancel("enough") if id == "c1" else None

    with pytest.raises(RunCancelled) as caught:
        await run.run()

    assert caught.value.completed == ("a",)


async def test_cancelled_from_outside_it_leaves_nothing_running(workers: Workers) -> None:
    workers.wait("b1", "c1")
    run = executor(workers, diamond())
    before = asyncio.all_tasks()
    work = asyncio.create_task(run.run())
    workers.on_begin = lambda id: work.cancel() if id == "c1" else None
    with pytest.raises(asyncio.CancelledError):
        await work

    assert asyncio.all_tasks() == before
    assert states(run.plan)["d"] == "cancelled"


async def test_a_bug_fails_its_task_and_no_other(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Context):
        async def tell(self, update: Any, **more: Any) -> None:
            if isinstance(update, TaskUpdate) and (update.event, update.task_id) == (
                "task_completed",
                "b",
            ):
                raise ZeroDivisionError("of ours")
            await super().tell(update, **more)

    run = executor(workers, diamond(), context=Broken(model=workers.model))

    await told(run)

    assert states(run.plan) == {
        "a": "completed",
        "b": "failed",
        "c": "completed",
        "d": "blocked",
    }
    error = run.plan.task("b").error
    assert error is not None
    assert error.reason == "internal"
    assert "Traceback" in caplog.text


async def test_a_plan_may_be_run_again_from_the_start(workers: Workers) -> None:
    workers.fails = {"b1"}
    shared = diamond()
    await told(executor(workers, shared))
    workers.fails = set()

    await executor(workers, shared).run()

    assert set(states(shared).values()) == {"completed"}
    assert shared.task("b").error is None


def test_a_bad_plan_is_refused_with_all_its_problems(workers: Workers) -> None:
    bad = plan(task("a", step("s", "nothing")), task("b", depends_on=["z"]), title="")

    with pytest.raises(InvalidPlan) as caught:
        executor(workers, bad)

    assert {getattr(each, "code", "") for each in caught.value.problems} == {
        "blank",
        "unknown_dependency",
    }


def test_nobody_is_asked_for_the_result_of_no_task(workers: Workers) -> None:
    with pytest.raises(NotFound):
        executor(workers, diamond()).get_task_result("z")


def test_on_mismatch_is_one_of_two(workers: Workers) -> None:
    with pytest.raises(InvalidInput, match="on_mismatch"):
        executor(workers, diamond(), on_mismatch="maybe")


async def test_no_value_is_in_any_prompt_unless_a_model_asks_for_it(workers: Workers) -> None:
    ids = ("a1", "a2", "b1", "b2")
    workers.gives = {id: f"SECRET of {id}" for id in ids}
    tasks = plan(
        task("a", step("a1", "topic"), step("a2", "a1")),
        task("b", step("b1", "topic", output_schema={}), step("b2", "b1"), depends_on=["a"]),
    )
    context = workers.context()
    context.memory.set("shared:found", "SECRET of another")
    run = ParallelTaskExecutor(plan=tasks, context=context, inputs={"topic": "SECRET topic"})

    await run.run()

    assert set(workers.asked) == set(ids)
    assert not [id for id, asked in workers.asked.items() if "SECRET" in asked.text]
    for asked in workers.asked.values():
        assert "## Memory Tools (progressive disclosure)" in asked.instructions
        assert asked.offered[:3] == ["memory_list", "memory_read", "memory_write"]


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
        def spend(self, usage: Any, **more: Any) -> None:
            if workers.ended[-1] == "e1":
                raise ZeroDivisionError("of ours")
            super().spend(usage, **more)

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
