"""A plan: its tasks side by side, by what they need."""

import asyncio
import json
from typing import Any

import pytest
from runtime.plans.workers import Workers, moments, plan, step, task, told

from holdfast import RunEntry
from holdfast.errors import InvalidInput, InvalidPlan, NotFound, PlanFailed, RunCancelled
from holdfast.runtime import Context, ParallelTaskExecutor, TaskPlan
from holdfast.runtime.events import LogUpdate, RunUpdate, TaskUpdate

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
        async def tell(self, event: Any) -> None:
            if isinstance(event, TaskUpdate) and (event.event, event.task_id) == (
                "task_completed",
                "b",
            ):
                raise ZeroDivisionError("of ours")
            await super().tell(event)

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
