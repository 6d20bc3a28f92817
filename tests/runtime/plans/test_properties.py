"""Plans of any shape, failing and cancelled anywhere."""

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from runtime.plans.workers import Workers, plan, step
from runtime.plans.workers import task as task_of

from holdfast.runtime import ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.runtime.events import ExecutionEvent, RunUpdate, StepResult, TaskUpdate

ENDS = {
    "completed": "_completed",
    "failed": "_failed",
    "blocked": "_blocked",
    "cancelled": "_cancelled",
}


@st.composite
def needs(draw: st.DrawFn, names: Sequence[str]) -> dict[str, list[str]]:
    """Draw which of those before it each of *names* needs."""
    return {
        name: draw(st.lists(st.sampled_from(names[:place]), unique=True, max_size=3))
        if place
        else []
        for place, name in enumerate(names)
    }


@st.composite
def plans(draw: st.DrawFn) -> TaskPlan:
    """Draw a plan of up to four tasks of up to four steps, in any order that may be."""
    names = [f"t{number}" for number in range(draw(st.integers(1, 4)))]
    wanted = draw(needs(names))
    return plan(*(draw(_tasks(name, wanted[name])) for name in draw(st.permutations(names))))


@st.composite
def _tasks(draw: st.DrawFn, name: str, wanted: list[str]) -> Task:
    ids = [f"{name}s{number}" for number in range(draw(st.integers(1, 4)))]
    within = draw(needs(ids))
    # The last step is the finish step: nothing may need it.
    first = draw(st.permutations(ids[:-1]))
    steps = [step(id, *within[id]) for id in [*first, ids[-1]]]
    return task_of(name, *steps, depends_on=wanted)


def above(step: Step, task: Task, plan: TaskPlan) -> set[str]:
    """Return all steps that must be complete before *step* of *task* may begin."""
    direct = {each.id: each for each in task.steps if each.id in step.depends_on}
    if step is task.steps[-1]:
        direct = {each.id: each for each in task.steps[:-1]}
    found = set(direct).union(*(above(each, task, plan) for each in direct.values()))
    for id in task.depends_on:
        needed = plan.task(id)
        found |= {needed.steps[-1].id} | above(needed.steps[-1], needed, plan)
    return found


async def executed(
    run: ParallelTaskExecutor, workers: Workers, order: Sequence[str]
) -> list[ExecutionEvent]:
    """Execute *run*; of the steps that wait, the first in *order* is let go each time."""
    events = list[ExecutionEvent]()

    async def look_on() -> None:
        async for event in run.execute():
            events.append(event)

    work = asyncio.create_task(look_on())
    left = list(order)
    while not work.done():
        await asyncio.sleep(0)
        waiting = [id for id in left if id in workers.began]
        if waiting and len(workers.began) - len(workers.ended) == len(waiting):
            workers.let_go(waiting[0])
            left.remove(waiting[0])
    await work
    return events


def check_ends(run: ParallelTaskExecutor, events: Sequence[ExecutionEvent]) -> None:
    """Each step and task is in one final state, and one event has told so."""
    updates = [event for event in events if isinstance(event, TaskUpdate)]
    for task in run.plan.tasks:
        ends = [e.event for e in updates if e.task_id == task.id and e.step_id is None]
        assert [each for each in ends if each != "task_created"] == [f"task{ENDS[task.state]}"]
        for one in task.steps:
            told = [e.event for e in updates if e.step_id == one.id and e.event != "step_started"]
            assert told == [f"step{ENDS[one.state]}"]
    assert isinstance(events[-1], RunUpdate)


@given(plan=plans(), data=st.data())
def test_nothing_runs_before_what_it_needs_or_after_it_failed(
    plan: TaskPlan, data: st.DataObject
) -> None:
    workers, ids = Workers(), [step.id for step in plan.steps]
    workers.fails = data.draw(st.sets(st.sampled_from(ids), max_size=3))
    workers.wait(*ids)
    order = data.draw(st.permutations(ids))
    most = data.draw(st.integers(1, 6))
    run = ParallelTaskExecutor(plan=plan, context=workers.context(max_concurrency=most))

    events = asyncio.run(executed(run, workers, order))

    check_ends(run, events)
    done = {step.id for step in plan.steps if step.completed}
    failed = {step.id for step in plan.steps if step.failed}
    assert failed == workers.fails & set(workers.began)
    results = [e.step_id for e in events if isinstance(e, StepResult)]
    assert sorted(results) == sorted(done | failed)
    for task in plan.tasks:
        for one in task.steps:
            needed = above(one, task, plan)
            if one.id in workers.began:
                before = workers.ended[: workers.ended.index(one.id)]
                assert needed <= set(before) & done
            else:
                assert needed & failed
        assert run.context.memory.has(f"task:{task.id}") == task.completed


@given(plan=plans(), data=st.data())
def test_same_plan_and_answers_give_the_same_whatever_ends_first(
    plan: TaskPlan, data: st.DataObject
) -> None:
    ids = [step.id for step in plan.steps]
    failing = data.draw(st.sets(st.sampled_from(ids), max_size=2))

    def outcome() -> Any:
        workers = Workers()
        workers.fails = failing
        workers.wait(*ids)
        run = ParallelTaskExecutor(plan=plan, context=workers.context(max_concurrency=9))
        asyncio.run(executed(run, workers, data.draw(st.permutations(ids))))
        states = [(one.id, one.state, one.blocked_by) for one in [*plan.tasks, *plan.steps]]
        return states, run.get_all_results(), run.failed_task_ids(), run.blocked_task_ids()

    assert outcome() == outcome()


@given(plan=plans(), data=st.data())
def test_cancelled_anywhere_it_keeps_what_is_done_and_leaves_nothing_running(
    plan: TaskPlan, data: st.DataObject
) -> None:
    workers, ids = Workers(), [step.id for step in plan.steps]
    moment = data.draw(st.integers(0, 60))
    run = ParallelTaskExecutor(plan=plan, context=workers.context(max_concurrency=3))

    async def cancelled() -> list[ExecutionEvent]:
        before, events = asyncio.all_tasks(), list[ExecutionEvent]()
        async for event in run.execute():
            events.append(event)
            if len(events) == moment:
                run.context.cancel("enough")
        assert asyncio.all_tasks() == before
        return events

    events = asyncio.run(cancelled())

    check_ends(run, events)
    assert workers.began == workers.ended
    done = {step.id for step in plan.steps if step.completed}
    assert {id for id in ids if run.context.memory.has(f"step:{id}")} == done


@given(plan=plans(), moment=st.integers(0, 60))
def test_whoever_stops_looking_anywhere_leaves_nothing_running(plan: TaskPlan, moment: int) -> None:
    workers = Workers()
    run = ParallelTaskExecutor(plan=plan, context=workers.context(max_concurrency=3))

    async def left() -> None:
        before, seen = asyncio.all_tasks(), 0
        events = run.execute()
        async for _ in events:
            seen += 1
            if seen > moment:
                break
        await events.aclose()
        assert asyncio.all_tasks() == before

    asyncio.run(left())

    assert workers.began == workers.ended
    # Left before anything began, all is as it was.
    states = {one.state for one in [*plan.tasks, *plan.steps]}
    assert "running" not in states
    assert states == {"pending"} or "pending" not in states
