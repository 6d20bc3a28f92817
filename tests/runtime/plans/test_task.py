"""A task: its steps by what they need, and what came of them together."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from runtime.plans.workers import Workers, moments, step, task, told

from holdfast.errors import InvalidInput, InvalidPlan, NoModel, RunCancelled, TaskFailed
from holdfast.runtime import Context, Task, TaskExecutor
from holdfast.runtime.events import RunUpdate, StepResult, TaskUpdate

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    return Workers()


def executor(workers: Workers, task: Task, **given: Any) -> TaskExecutor:
    context: dict[str, Any] = {} if "context" in given else {"context": workers.context()}
    return TaskExecutor(task=task, **context | given)


def diamond() -> Task:
    return task("t", step("a"), step("b", "a"), step("c", "a"), step("d", "b", "c"))


def states(task: Task) -> dict[str, str]:
    return {step.id: step.state for step in task.steps}


async def test_the_result_is_that_of_the_last_step(workers: Workers) -> None:
    run = executor(workers, diamond())

    assert await run.run() == "done d"

    assert run.result == "done d"
    assert run.error is None
    assert run.task.completed
    memory = run.context.memory
    assert [entry.key for entry in memory.list()][:1] == ["step:a"]
    assert memory.get_value("task:t") == "done d"
    assert memory.get_value("step:b") == "done b"


async def test_a_step_starts_as_soon_as_what_it_needs_is_done(workers: Workers) -> None:
    workers.wait("slow")
    workers.on_begin = lambda id: workers.let_go("slow") if id == "b" else None
    run = executor(workers, task("t", step("a"), step("b", "a"), step("slow"), step("end")))

    await run.run()

    assert workers.began == ["a", "slow", "b", "end"]


async def test_the_finish_step_waits_for_all_others_whatever_it_says(workers: Workers) -> None:
    workers.wait("late")
    workers.on_begin = lambda id: workers.let_go("late") if id == "early" else None

    await executor(workers, task("t", step("late"), step("early"), step("end"))).run()

    assert workers.began[-1] == "end"
    assert set(workers.ended[:2]) == {"early", "late"}


async def test_another_step_may_be_the_finish_step(workers: Workers) -> None:
    run = executor(workers, task("t", step("end"), step("a"), step("b")), final_step_id="end")

    assert await run.run() == "done end"
    assert workers.began[-1] == "end"


async def test_inputs_are_set_over_what_an_earlier_run_left(workers: Workers) -> None:
    context = workers.context()
    context.memory.set("input:topic", "old", title="Old")

    await executor(workers, diamond(), context=context, inputs={"topic": ["new"]}).run()

    entry = context.memory.get("input:topic")
    assert entry is not None
    assert (entry.value, entry.kind, entry.title) == (["new"], "input", "topic")


async def test_a_step_is_told_the_keys_it_may_read_and_no_value(workers: Workers) -> None:
    context = workers.context()
    context.memory.set("task:before", "SECRET", title="What was before")
    told = task("t", step("a", "topic"), step("b", "a"))

    await executor(
        workers,
        told,
        context=context,
        inputs={"topic": "SECRET"},
        upstream_memory_keys=["task:before"],
    ).run()

    said = workers.asked["a"].text
    assert "- input:topic" in said
    assert "- task:before — What was before" in said
    assert "- step:a" in workers.asked["b"].text
    assert "- task:before" in workers.asked["b"].text
    assert "SECRET" not in said


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ("a", {"a": "failed", "b": "blocked", "c": "blocked", "d": "blocked"}),
        ("b", {"a": "completed", "b": "failed", "c": "completed", "d": "blocked"}),
        ("c", {"a": "completed", "b": "completed", "c": "failed", "d": "blocked"}),
        ("d", {"a": "completed", "b": "completed", "c": "completed", "d": "failed"}),
    ],
)
async def test_a_failure_blocks_what_needs_it_and_nothing_else(
    workers: Workers, failing: str, expected: dict[str, str]
) -> None:
    workers.fails = {failing}
    run = executor(workers, diamond())

    events = await told(run)

    assert states(run.task) == expected
    blocked = [step for step in run.task.steps if step.state == "blocked"]
    assert all(step.blocked_by == [failing] for step in blocked)
    assert not {step.id for step in blocked} & set(workers.began)
    assert [each[1] for each in moments(events, "step_blocked")] == [step.id for step in blocked]
    assert run.task.failed
    assert run.error is not None
    assert f"step {failing} failed: model_error" in run.error.message
    assert not run.context.memory.has("task:t")
    assert run.result is None
    assert moments(events)[-1] == ("task_failed", "t")


async def test_what_failed_is_told_and_run_raises_it(workers: Workers) -> None:
    workers.fails = {"b", "c"}
    run = executor(workers, diamond())

    with pytest.raises(TaskFailed) as caught:
        await run.run()

    assert caught.value.task_id == "t"
    assert caught.value.failed == ("b", "c")
    assert caught.value.blocked == ("d",)
    assert run.task.steps[3].blocked_by == ["b", "c"]


async def test_steps_that_do_not_need_the_failed_one_still_run(workers: Workers) -> None:
    workers.fails = {"bad"}
    run = executor(workers, task("t", step("bad"), step("x"), step("y", "x"), step("end")))

    await told(run)

    assert states(run.task) == {
        "bad": "failed",
        "x": "completed",
        "y": "completed",
        "end": "blocked",
    }


async def test_no_more_than_max_steps_are_begun(workers: Workers) -> None:
    run = executor(workers, task("t", step("a"), step("b", "a"), step("c", "b")), max_steps=2)

    events = await told(run)

    assert workers.began == ["a", "b"]
    assert states(run.task)["c"] == "blocked"
    (blocked,) = [e for e in events if isinstance(e, TaskUpdate) and e.event == "step_blocked"]
    assert blocked.cause == "max_steps, which is 2, have been begun"
    assert run.error is not None
    assert run.error.reason == "max_turns"


async def test_events_come_in_order_and_say_whose_they_are(workers: Workers) -> None:
    events = await told(executor(workers, task("t", step("a"), step("b", "a"))))

    assert moments(events) == [
        ("task_created", "t"),
        ("step_started", "a"),
        ("step_completed", "a"),
        ("step_started", "b"),
        ("step_completed", "b"),
        ("task_completed", "t"),
    ]
    order = [
        (each.type, getattr(each, "step_id", None))
        for each in events
        if isinstance(each, StepResult | TaskUpdate)
    ]
    completed = [i for i, e in enumerate(events) if getattr(e, "event", "") == "step_completed"]
    results = [i for i, e in enumerate(events) if isinstance(e, StepResult)]
    assert all(one < other for one, other in zip(completed, results, strict=True)), order
    assert [e.is_task_result for e in events if isinstance(e, StepResult)] == [False, True]
    last = events[-2]
    assert isinstance(last, TaskUpdate)
    assert last.result == "done b"
    assert [e.seq for e in events] == sorted({e.seq for e in events})


async def test_run_updates_come_first_and_last_and_once(workers: Workers) -> None:
    events = await told(executor(workers, diamond()))

    updates = [(i, e.event) for i, e in enumerate(events) if isinstance(e, RunUpdate)]
    assert updates == [(0, "started"), (len(events) - 1, "completed")]


async def test_when_nobody_looks_on_any_more_all_of_it_has_ended(workers: Workers) -> None:
    workers.wait("a", "b")
    run = executor(workers, task("t", step("a"), step("b"), step("end")))
    before = asyncio.all_tasks()

    async with aclosing(run.execute()) as events:
        async for event in events:
            if moments([event]) == [("step_started", "b")]:
                break

    assert asyncio.all_tasks() == before
    assert workers.ended == workers.began
    assert set(states(run.task).values()) == {"cancelled"}


async def test_cancelling_keeps_what_is_done_and_says_of_the_rest_that_it_was(
    workers: Workers,
) -> None:
    run = executor(workers, task("t", step("a"), step("b", "a"), step("c", "b"), step("d")))
    workers.wait("b")
    workers.on_begin = lambda id: run.context.cancel("enough") if id == "b" else None

    events = await told(run)

    assert states(run.task) == {
        "a": "completed",
        "b": "cancelled",
        "c": "cancelled",
        "d": "cancelled",
    }
    cancelled = [e for e in events if isinstance(e, TaskUpdate) and e.event.endswith("_cancelled")]
    assert {(e.event, e.step_id) for e in cancelled} == {
        ("step_cancelled", "b"),
        ("step_cancelled", "c"),
        ("step_cancelled", "d"),
        ("task_cancelled", None),
    }
    assert {e.cause for e in cancelled} == {"enough"}
    last = events[-1]
    assert isinstance(last, RunUpdate)
    assert (last.event, last.reason) == ("cancelled", "enough")
    assert run.context.memory.get_value("step:a") == "done a"


@pytest.mark.parametrize("moment", range(1, 12))
async def test_cancelled_at_any_event_all_that_began_ends(workers: Workers, moment: int) -> None:
    run = executor(workers, diamond())
    before, seen = asyncio.all_tasks(), 0

    async for _ in run.execute():
        seen += 1
        if seen == moment:
            run.context.cancel()

    assert asyncio.all_tasks() == before
    ends = {run.task.state, *states(run.task).values()}
    assert ends <= {"completed", "cancelled"} or ends == {"pending"}


async def test_run_raises_that_it_was_cancelled(workers: Workers) -> None:
    run = executor(workers, task("t", step("a"), step("b", "a")))
    workers.on_begin = lambda id: run.context.cancel("enough") if id == "b" else None
    workers.wait("b")

    with pytest.raises(RunCancelled, match="enough") as caught:
        await run.run()

    assert caught.value.completed == ("a",)


async def test_in_a_cancelled_run_nothing_starts(workers: Workers) -> None:
    run = executor(workers, diamond())
    run.context.cancel("before")

    events = await told(run)

    assert [getattr(each, "event", None) for each in events] == ["started", "cancelled"]
    assert workers.began == []


async def test_a_bug_fails_its_step_alone_and_is_called_internal(
    workers: Workers, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(Context):
        def spend(self, usage: Any, **more: Any) -> None:
            if workers.ended[-1] == "bad":
                raise ZeroDivisionError("of ours")
            super().spend(usage, **more)

    run = executor(
        workers,
        task("t", step("bad"), step("x", "bad"), step("y"), step("end")),
        context=Broken(model=workers.model, max_concurrency=1),
    )

    events = await told(run)

    assert states(run.task) == {"bad": "failed", "x": "blocked", "y": "completed", "end": "blocked"}
    assert run.error is not None
    assert run.error.reason == "internal"
    assert "ZeroDivisionError: of ours" in run.error.message
    assert "Traceback" in caplog.text
    failed = [e for e in events if isinstance(e, StepResult) and e.error is not None]
    assert [e.step_id for e in failed] == ["bad"]


def test_a_bad_task_is_refused_with_all_its_problems(workers: Workers) -> None:
    bad = task("t", step("a", "nothing"), step("b", tools=["fly"]))

    with pytest.raises(InvalidPlan) as caught:
        executor(workers, bad, final_step_id="z")

    assert {getattr(each, "code", "") for each in caught.value.problems} == {
        "unknown_dependency",
        "unknown_tool",
        "final_step",
    }


def test_it_must_know_whom_to_ask(workers: Workers) -> None:
    with pytest.raises(NoModel):
        executor(workers, diamond(), context=Context())


def test_inputs_that_are_not_json_are_refused_at_once(workers: Workers) -> None:
    with pytest.raises(InvalidInput, match=r"inputs\.x: \$\[0\]"):
        executor(workers, diamond(), inputs={"x": [set()]})


def test_it_runs_without_an_event_loop(workers: Workers) -> None:
    assert executor(workers, diamond()).run_sync() == "done d"
