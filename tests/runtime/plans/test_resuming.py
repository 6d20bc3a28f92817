"""A plan that is gone on with: what is complete is kept, all else is done."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from runtime.plans.workers import Workers, moments, plan, step, task, told

from holdfast.errors import CheckpointMismatch, CheckpointUnreadable
from holdfast.runtime import (
    Checkpoint,
    Context,
    MemoryCheckpoints,
    ParallelTaskExecutor,
    TaskPlan,
)
from holdfast.runtime.events import LogUpdate
from holdfast.testing.scripted import ScriptedModel

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    return Workers()


@pytest.fixture
def kept() -> MemoryCheckpoints:
    return MemoryCheckpoints()


def two_tasks() -> TaskPlan:
    """Return a plan of two tasks, of which the second needs the first."""
    return plan(
        task("a", step("a1"), step("a2", "a1")),
        task("b", step("b1"), step("b2", "b1"), depends_on=["a"]),
    )


def executor(workers: Workers, plan: TaskPlan, **given: Any) -> ParallelTaskExecutor:
    context: dict[str, Any] = (
        {} if "context" in given else {"context": workers.context(run_id="run_1")}
    )
    return ParallelTaskExecutor(plan=plan, **context | given)


async def stopped_at(workers: Workers, plan: TaskPlan, where: str, **given: Any) -> None:
    """Run *plan* until *where* is begun, as if the process ended there."""
    run = executor(workers, plan, **given)
    workers.wait(where)
    workers.on_begin = lambda id: run.context.cancel() if id == where else None
    await told(run)
    workers.waits.clear()
    workers.on_begin = lambda _: None
    workers.began.clear()
    workers.ended.clear()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("a1", ["a1", "a2", "b1", "b2"]),
        ("a2", ["a2", "b1", "b2"]),
        ("b1", ["b1", "b2"]),
        ("b2", ["b2"]),
    ],
)
async def test_stopped_after_any_step_only_the_rest_is_done(
    workers: Workers, kept: MemoryCheckpoints, where: str, expected: list[str]
) -> None:
    await stopped_at(workers, two_tasks(), where, checkpoint=kept)
    run = executor(workers, two_tasks(), checkpoint=kept)

    assert await run.run() == "done b2"

    assert workers.began == expected
    assert run.get_all_results() == {"a": "done a2", "b": "done b2"}
    assert {task.state for task in run.plan.tasks} == {"completed"}
    assert {step.state for step in run.plan.steps} == {"completed"}


async def test_what_was_complete_is_told_as_restored(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    await stopped_at(workers, two_tasks(), "b2", checkpoint=kept)

    events = await told(executor(workers, two_tasks(), checkpoint=kept))

    assert moments(events) == [
        ("step_restored", "a1"),
        ("step_restored", "a2"),
        ("task_restored", "a"),
        ("task_created", "b"),
        ("step_restored", "b1"),
        ("step_started", "b2"),
        ("step_completed", "b2"),
        ("task_completed", "b"),
    ]
    assert not [e for e in events if isinstance(e, LogUpdate)]


async def test_the_whole_memory_comes_back(workers: Workers, kept: MemoryCheckpoints) -> None:
    context = workers.context(run_id="run_1")
    context.memory.set("shared:note", {"by": "a1"}, title="A note")
    await stopped_at(
        workers, two_tasks(), "b1", checkpoint=kept, context=context, inputs={"topic": 7}
    )
    run = executor(workers, two_tasks(), checkpoint=kept, inputs={"topic": 7})

    await run.run()

    note = run.context.memory.get("shared:note")
    assert note == context.memory.get("shared:note")
    assert run.context.memory.get_value("input:topic") == 7
    assert run.context.memory.get("step:a1") == context.memory.get("step:a1")


async def test_a_complete_run_is_done_again_without_a_request(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    await executor(workers, two_tasks(), checkpoint=kept).run()
    workers.began.clear()

    assert await executor(workers, two_tasks(), checkpoint=kept).run() == "done b2"

    assert workers.began == []


async def test_what_failed_is_tried_again(workers: Workers, kept: MemoryCheckpoints) -> None:
    workers.fails = {"a2"}
    await told(executor(workers, two_tasks(), checkpoint=kept))
    workers.fails = set()
    workers.began.clear()

    run = executor(workers, two_tasks(), checkpoint=kept)

    assert await run.run() == "done b2"
    assert workers.began == ["a2", "b1", "b2"]
    entry = run.context.memory.get("step:a2")
    assert entry is not None
    assert not entry.failed


def fanned() -> TaskPlan:
    each = step("each", "list", mode="process", per_item_instructions="Work on e{index}. {item}")
    return plan(task("t", step("list", output_schema={}), each, step("end", "each")))


async def test_items_that_were_done_are_kept(workers: Workers, kept: MemoryCheckpoints) -> None:
    workers.gives["list"] = ["x", "y", "z"]
    context = workers.context(run_id="run_1", max_concurrency=1)
    await stopped_at(workers, fanned(), "e2", checkpoint=kept, context=context)
    run = executor(workers, fanned(), checkpoint=kept)

    events = await told(run)

    assert workers.began == ["e2", "end"]
    assert [id for _, id in moments(events, "step_restored")] == ["list", "each.0", "each.1"]
    result: Any = run.context.memory.get_value("step:each")
    assert [one["result"] for one in result] == ["done e0", "done e1", "done e2"]


async def test_items_that_failed_are_tried_again(workers: Workers, kept: MemoryCheckpoints) -> None:
    workers.gives["list"] = ["x", "y", "z"]
    workers.fails = {"e1"}
    await told(executor(workers, fanned(), checkpoint=kept))
    workers.fails = set()
    workers.began.clear()

    await executor(workers, fanned(), checkpoint=kept).run()

    assert workers.began == ["e1", "end"]


def other_plan() -> TaskPlan:
    changed = two_tasks()
    changed.tasks[1].steps[0].instructions += " Well."
    return changed


def search(query: str) -> str:
    """Search."""
    return query


def other_model() -> Context:
    return Context(run_id="run_1", model=ScriptedModel([], name="other"))


@pytest.mark.parametrize(
    ("differently", "parts"),
    [
        ({"plan": other_plan()}, ("plan.tasks[1]",)),
        ({"plan": plan(*two_tasks().tasks, title="Z")}, ("plan.title",)),
        ({"plan": plan(*two_tasks().tasks, task("c"))}, ("plan.tasks[2]",)),
        ({"plan": plan(two_tasks().tasks[0])}, ("plan.tasks[1]",)),
        ({"inputs": {"topic": 2}}, ("inputs",)),
        ({"tools": [search]}, ("tools",)),
        ({"system_prompt": "Be brief."}, ("system_prompt",)),
        ({"context": other_model()}, ("model",)),
        (
            {"inputs": {}, "system_prompt": "Be brief."},
            ("inputs", "system_prompt"),
        ),
    ],
)
async def test_a_run_is_not_gone_on_with_as_another(
    workers: Workers,
    kept: MemoryCheckpoints,
    differently: dict[str, Any],
    parts: tuple[str, ...],
) -> None:
    await stopped_at(workers, two_tasks(), "b1", checkpoint=kept, inputs={"topic": 1})
    same: dict[str, Any] = {"plan": two_tasks(), "inputs": {"topic": 1}, "checkpoint": kept}
    run = executor(workers, **same | differently)

    with pytest.raises(CheckpointMismatch) as caught:
        await run.run()

    assert caught.value.parts == parts
    assert workers.began == []


async def test_it_may_be_begun_anew_instead(workers: Workers, kept: MemoryCheckpoints) -> None:
    await stopped_at(workers, two_tasks(), "b1", checkpoint=kept)
    run = executor(workers, other_plan(), checkpoint=kept, on_mismatch="restart")

    events = await told(run)

    assert workers.began == ["a1", "a2", "b1", "b2"]
    warned = [e.content for e in events if isinstance(e, LogUpdate)]
    assert warned == ["Started again: the checkpoint is of another run (plan.tasks[1])."]
    saved = kept.load("run_1")
    assert saved is not None
    assert saved.completed_steps == ("a1", "a2", "b1", "b2")


async def test_an_unreadable_checkpoint_is_never_taken_for_none(workers: Workers) -> None:
    class Torn(MemoryCheckpoints):
        def load(self, run_id: str) -> Checkpoint | None:
            raise CheckpointUnreadable(run_id, "it is torn")

    with pytest.raises(CheckpointUnreadable, match="torn"):
        await executor(workers, two_tasks(), checkpoint=Torn(), on_mismatch="restart").run()

    assert workers.began == []


async def test_a_save_that_fails_is_told_and_the_run_goes_on(workers: Workers) -> None:
    class Full(MemoryCheckpoints):
        def save(self, checkpoint: Checkpoint) -> None:
            raise OSError(28, "No space left on device", checkpoint.run_id)

    run = executor(workers, two_tasks(), checkpoint=Full())

    events = await told(run)

    assert run.get_final_result() == "done b2"
    errors = [e.content for e in events if isinstance(e, LogUpdate) and e.severity == "error"]
    assert errors
    assert all("No space left on device" in each for each in errors)
    failed = run.report().checkpoint_failed
    assert failed is not None
    assert "No space left on device" in failed


async def test_a_step_is_kept_before_what_needs_it_is_begun(workers: Workers) -> None:
    class Watched(MemoryCheckpoints):
        def save(self, checkpoint: Checkpoint) -> None:
            super().save(checkpoint)
            saved.append((set(checkpoint.completed_steps), list(workers.began)))

    saved = list[tuple[set[str], list[str]]]()

    await executor(workers, two_tasks(), checkpoint=Watched()).run()

    for before, after in (("a1", "a2"), ("a2", "b1"), ("b1", "b2")):
        assert any(before in steps and after not in began for steps, began in saved)
    assert saved[-1][0] == {"a1", "a2", "b1", "b2"}


async def test_a_checkpoint_says_what_the_run_was_begun_with(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    await executor(workers, two_tasks(), checkpoint=kept, inputs={"k": 1}).run()

    saved = kept.load("run_1")

    assert saved is not None
    assert saved.completed_tasks == ("a", "b")
    assert {"inputs", "model", "tools", "plan.tasks[0]", "plan.tasks[1]"} <= set(saved.parts)
    assert {entry.key for entry in saved.entries} >= {"input:k", "task:a", "step:b2"}


IDS = ["a1", "a2", "b1", "b2", "c1", "d1", "d2"]


def wide() -> TaskPlan:
    return plan(
        task("a", step("a1"), step("a2")),
        task("b", step("b1"), step("b2", "b1")),
        task("c", step("c1"), depends_on=["a"]),
        task("d", step("d1"), step("d2", "d1"), depends_on=["b", "c"]),
    )


@given(stops=st.lists(st.sampled_from(IDS), max_size=5), failing=st.sets(st.sampled_from(IDS)))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_however_often_it_is_stopped_each_step_is_done_once(
    stops: list[str], failing: set[str]
) -> None:
    workers, kept, answered = Workers(), MemoryCheckpoints(), list[str]()

    async def stop_and_go_on() -> None:
        for where in stops:
            workers.fails = failing - {where}
            await stopped_at(workers, wide(), where, checkpoint=kept)
            saved = kept.load("run_1")
            answered[:] = saved.completed_steps if saved else []
        workers.fails = set()
        run = executor(workers, wide(), checkpoint=kept)
        await run.run()
        assert set(workers.began) == set(IDS) - set(answered)
        assert run.get_all_results() == {
            "a": "done a2",
            "b": "done b2",
            "c": "done c1",
            "d": "done d2",
        }

    asyncio.run(stop_and_go_on())
