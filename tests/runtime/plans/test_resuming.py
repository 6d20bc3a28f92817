"""Plans that are resumed, killed, traced, and of any shape."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from processes import killed
from runtime.plans.dying import run, run_until
from runtime.plans.workers import Workers, moments, plan, step, task, told
from runtime.plans.workers import task as task_of

import holdfast
from holdfast.errors import CheckpointMismatch, CheckpointUnreadable, NotFound
from holdfast.runtime import (
    Checkpoint,
    Context,
    MemoryCheckpoints,
    ParallelTaskExecutor,
    Step,
    Task,
    TaskExecutor,
    TaskPlan,
)
from holdfast.runtime.events import (
    ExecutionEvent,
    LogUpdate,
    MemoryUpdate,
    RunUpdate,
    StepResult,
    TaskUpdate,
)
from holdfast.runtime.runs.checkpoints import CheckpointChange, CheckpointLog
from holdfast.testing.scripted import ScriptedModel
from holdfast.testing.serving import new_workspace


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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_a_complete_run_is_done_again_without_a_request(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    await executor(workers, two_tasks(), checkpoint=kept).run()
    workers.began.clear()

    assert await executor(workers, two_tasks(), checkpoint=kept).run() == "done b2"

    assert workers.began == []


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_items_that_failed_are_tried_again(workers: Workers, kept: MemoryCheckpoints) -> None:
    workers.gives["list"] = ["x", "y", "z"]
    workers.fails = {"e1"}
    await told(executor(workers, fanned(), checkpoint=kept))
    workers.fails = set()
    workers.began.clear()

    await executor(workers, fanned(), checkpoint=kept).run()

    assert workers.began == ["e1", "end"]


class Places:
    """Checkpoints that record how many entries each save stored."""

    def __init__(self) -> None:
        self._place = MemoryCheckpoints()
        self.stored: list[int] = []

    def load(self, run_id: str) -> Checkpoint | None:
        return self._place.load(run_id)

    def save(self, checkpoint: Checkpoint) -> None:
        self.stored.append(len(checkpoint.entries))
        self._place.save(checkpoint)

    def begin(self, checkpoint: Checkpoint) -> CheckpointLog:
        self.stored.append(len(checkpoint.entries))
        return Appending(self._place.begin(checkpoint), self.stored)

    def delete(self, run_id: str) -> None:
        self._place.delete(run_id)


class Appending:
    """The log of one checkpoint, whose changes are counted in *stored*."""

    def __init__(self, log: CheckpointLog, stored: list[int]) -> None:
        self._log, self._stored = log, stored

    def append(self, change: CheckpointChange) -> bool:
        self._stored.append(len(change.entries))
        return self._log.append(change)


class Slow:
    """Checkpoints with nothing but load, save and delete; each save waits until it may end."""

    def __init__(self) -> None:
        self.saved: list[Checkpoint] = []
        self.begun, self.may_end = threading.Semaphore(0), threading.Semaphore(0)

    def load(self, run_id: str) -> Checkpoint | None:
        return next((each for each in self.saved if each.run_id == run_id), None)

    def save(self, checkpoint: Checkpoint) -> None:
        self.begun.release()
        assert self.may_end.acquire(timeout=60)
        self.saved.append(checkpoint)

    def delete(self, run_id: str) -> None:
        self.saved = [each for each in self.saved if each.run_id != run_id]


@pytest.mark.anyio
async def test_a_step_or_item_is_told_as_completed_after_its_checkpoint_was_stored(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    workers.gives["list"] = ["x", "y"]
    seen = list[str]()

    async for event in executor(workers, fanned(), checkpoint=kept).execute():
        if isinstance(event, TaskUpdate) and event.event == "step_completed":
            stored = kept.load("run_1")
            assert stored is not None
            assert event.step_id in stored.completed_steps
            assert f"step:{event.step_id}" in {entry.key for entry in stored.entries}
            seen.append(event.step_id or "")
        if isinstance(event, TaskUpdate) and event.event == "task_completed":
            stored = kept.load("run_1")
            assert stored is not None
            assert stored.completed_tasks == ("t",)

    assert sorted(seen) == ["each", "each.0", "each.1", "end", "list"]


@pytest.mark.anyio
async def test_items_that_end_while_a_save_is_under_way_are_in_the_next_one(
    workers: Workers,
) -> None:
    items, place = [f"e{number}" for number in range(4)], Slow()
    workers.gives["list"] = items
    workers.wait(*items)
    run = executor(workers, fanned(), checkpoint=place)
    work = asyncio.create_task(run.run())

    async def begun() -> None:
        assert await asyncio.to_thread(place.begun.acquire, timeout=60)

    async def all_there() -> None:
        async with asyncio.timeout(60):
            for number in range(4):
                await run.context.wait_for(f"step:each.{number}")

    await begun()
    place.may_end.release()
    workers.let_go("e0")
    await begun()
    workers.let_go(*items[1:])
    await all_there()
    place.may_end.release(20)
    await work

    assert [len(each.completed_steps) for each in place.saved][:3] == [1, 2, 5]


@pytest.mark.anyio
async def test_an_item_begins_while_the_one_before_is_saved(workers: Workers) -> None:
    place = Slow()
    workers.gives["list"] = ["x", "y"]
    context = workers.context(run_id="run_1", max_concurrency=1)
    run = executor(workers, fanned(), checkpoint=place, context=context)
    work = asyncio.create_task(run.run())

    assert await asyncio.to_thread(place.begun.acquire, timeout=60)
    place.may_end.release()
    assert await asyncio.to_thread(place.begun.acquire, timeout=60)
    async with asyncio.timeout(60):
        await context.wait_for("step:each.1")

    place.may_end.release(20)
    assert await work == "done end"


@pytest.mark.anyio
async def test_a_save_stores_what_changed_since_the_last_one(workers: Workers) -> None:
    workers.gives["list"] = list(range(60))
    place = Places()

    await executor(workers, fanned(), checkpoint=place).run()

    # The first and the last are whole; no item is in more than two saves.
    assert sum(place.stored) <= 2 * 64 + 2


@pytest.mark.anyio
async def test_what_is_deleted_during_a_run_is_not_restored(
    workers: Workers, kept: MemoryCheckpoints
) -> None:
    context = workers.context(run_id="run_1")
    context.memory.set("shared:a", 1)
    context.memory.set("shared:b", 2)

    def change(id: str) -> None:
        if id == "a2":
            context.memory.delete("shared:a")
            context.memory.delete("shared:b")
            context.memory.set("shared:b", 3)

    workers.on_begin = change
    run = executor(workers, two_tasks(), checkpoint=kept, context=context)
    events = run.execute()
    async for event in events:
        if moments([event]) == [("step_completed", "b1")]:
            break
    await events.aclose()
    stored = kept.load("run_1")

    assert stored is not None
    keys = [entry.key for entry in stored.entries]
    assert keys == [entry.key for entry in context.memory.snapshot()][: len(keys)]
    assert "shared:a" not in keys
    assert keys.index("shared:b") > keys.index("step:a1")


@pytest.mark.anyio
@pytest.mark.parametrize("moment", range(0, 40, 3))
async def test_cancelled_while_it_saves_each_step_is_told_once_as_what_is_stored(
    workers: Workers, kept: MemoryCheckpoints, moment: int
) -> None:
    workers.gives["list"] = ["x", "y", "z"]
    run = executor(workers, fanned(), checkpoint=kept)
    events, before = list[ExecutionEvent](), asyncio.all_tasks()

    async for event in run.execute():
        events.append(event)
        if len(events) == moment:
            run.context.cancel("enough")

    assert asyncio.all_tasks() == before
    check_ends(run, events)
    stored = kept.load("run_1")
    told = {id for _, id in moments(events, "step_completed")}
    assert told == set(stored.completed_steps if stored else ())


def other_plan() -> TaskPlan:
    changed = two_tasks()
    changed.tasks[1].steps[0].instructions += " Well."
    return changed


def search(query: str) -> str:
    """Search."""
    return query


def other_model() -> Context:
    return Context(run_id="run_1", model=ScriptedModel([], name="other"))


@pytest.mark.anyio
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


@pytest.mark.anyio
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


@pytest.mark.anyio
async def test_an_unreadable_checkpoint_is_never_taken_for_none(workers: Workers) -> None:
    class Torn(MemoryCheckpoints):
        def load(self, run_id: str) -> Checkpoint | None:
            raise CheckpointUnreadable(run_id, "it is torn")

    with pytest.raises(CheckpointUnreadable, match="torn"):
        await executor(workers, two_tasks(), checkpoint=Torn(), on_mismatch="restart").run()

    assert workers.began == []


@pytest.mark.anyio
async def test_a_save_that_fails_is_told_and_the_run_goes_on(workers: Workers) -> None:
    class Full(Places):
        def begin(self, checkpoint: Checkpoint) -> CheckpointLog:
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


@pytest.mark.anyio
async def test_what_a_failed_save_left_out_is_in_the_next_one(workers: Workers) -> None:
    class Flaky(Appending):
        def append(self, change: CheckpointChange) -> bool:
            if "a2" in change.completed_steps:
                raise OSError(28, "No space left on device")
            return super().append(change)

    class Partly(Places):
        def begin(self, checkpoint: Checkpoint) -> CheckpointLog:
            return Flaky(super().begin(checkpoint), self.stored)

    place = Partly()
    events = executor(workers, two_tasks(), checkpoint=place).execute()
    async for event in events:
        if moments([event]) == [("step_completed", "b1")]:
            break
    stored = place.load("run_1")
    await events.aclose()

    assert stored is not None
    assert stored.completed_steps == ("a1", "a2", "b1")
    assert {"step:a2", "task:a"} <= {entry.key for entry in stored.entries}


@pytest.mark.anyio
async def test_a_step_is_kept_before_what_needs_it_is_begun(workers: Workers) -> None:
    class Watched(Slow):
        def save(self, checkpoint: Checkpoint) -> None:
            saved.append((set(checkpoint.completed_steps), list(workers.began)))

    saved = list[tuple[set[str], list[str]]]()

    await executor(workers, two_tasks(), checkpoint=Watched()).run()

    for before, after in (("a1", "a2"), ("a2", "b1"), ("b1", "b2")):
        assert any(before in steps and after not in began for steps, began in saved)
    assert saved[-1][0] == {"a1", "a2", "b1", "b2"}


@pytest.mark.anyio
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


@FEW
@given(stops=st.lists(st.sampled_from(IDS), max_size=5), failing=st.sets(st.sampled_from(IDS)))
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


STEPS = ["list", "e0", "e1", "sum", "b1"]


@pytest.fixture(params=["files", "sqlite", "record in sqlite", "record in postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give where the run is kept."""
    match request.param:
        case "files":
            return f"files:{tmp_path}"
        case "sqlite":
            return f"{new_workspace()}@{tmp_path / 'h.db'}"
        case "record in sqlite":
            return f"record:{new_workspace()}@{tmp_path / 'h.db'}"
        case _:
            return f"record:{new_workspace()}@{request.getfixturevalue('postgres_url')}"


@pytest.mark.anyio
@pytest.mark.parametrize("where", STEPS)
async def test_killed_in_any_step_no_completed_one_is_done_again(target: str, where: str) -> None:
    killed(run_until, target, where)
    workers = Workers()

    assert await run(target, workers) == "done b1"

    # An item of a fan-out is kept as soon as can be, a step before anything that needs it.
    surely = STEPS.index("e0" if where in ("e0", "e1") else where)
    assert workers.began in (STEPS[STEPS.index(where) :], STEPS[surely:])


@pytest.mark.anyio
async def test_killed_twice_it_is_still_gone_on_with(target: str) -> None:
    killed(run_until, target, "e0")
    killed(run_until, target, "b1")
    workers = Workers()

    assert await run(target, workers) == "done b1"

    assert workers.began == ["b1"]


async def traced(workers: Workers) -> dict[str, ReadableSpan]:
    """Return our spans of a plan of two tasks, by what they are of."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tasks = plan(task("a", step("a1"), step("a2", "a1")), task("b", depends_on=["a"]))
    context = workers.context(tracer_provider=provider)
    await told(ParallelTaskExecutor(plan=tasks, context=context))
    found: dict[str, ReadableSpan] = {}
    for span in exporter.get_finished_spans():
        known: Any = span.attributes or {}
        if span.name.startswith("holdfast."):
            name = known.get("holdfast.step_id") or known.get("holdfast.task_id") or "run"
            found[name] = span
    return found


@pytest.mark.anyio
async def test_a_step_is_traced_within_its_task_and_that_within_the_run(workers: Workers) -> None:
    spans = await traced(workers)

    assert {name: span.name for name, span in spans.items()} == {
        "run": "holdfast.run",
        "a": "holdfast.task",
        "b": "holdfast.task",
        "a1": "holdfast.step",
        "a2": "holdfast.step",
        "b1": "holdfast.step",
    }
    for within, around in (("a", "run"), ("b", "run"), ("a1", "a"), ("a2", "a"), ("b1", "b")):
        parent, context = spans[within].parent, spans[around].context
        assert parent is not None
        assert context is not None
        assert parent.span_id == context.span_id


@pytest.mark.anyio
async def test_the_span_of_a_task_says_how_it_ended(workers: Workers) -> None:
    workers.fails = {"a2"}

    spans = await traced(workers)

    known: Any = spans["a"].attributes
    assert (known["holdfast.state"], known["holdfast.reason"]) == ("failed", "steps")
    assert "b" not in spans


@pytest.mark.anyio
async def test_a_step_hears_what_was_said_before_it_started(workers: Workers) -> None:
    run = TaskExecutor(task=task("t", step("a"), step("b", "a")), context=workers.context())
    steered = list[list[str]]()

    def steer(id: str) -> None:
        if id == "a":
            steered.append(run.context.steer("Be brief.", step="b"))

    workers.on_begin = steer
    await run.run()

    assert steered == [["b"]]
    assert "Be brief." in workers.asked["b"].text
    assert "Be brief." not in workers.asked["a"].text


@pytest.mark.anyio
async def test_nobody_speaks_to_a_step_that_never_starts(workers: Workers) -> None:
    workers.fails = {"a"}
    run = TaskExecutor(task=task("t", step("a"), step("b", "a")), context=workers.context())

    await told(run)

    with pytest.raises(NotFound):
        run.context.steer("Hello?", step="b")


@pytest.mark.anyio
async def test_what_is_written_to_memory_is_told_once(workers: Workers) -> None:
    run = ParallelTaskExecutor(plan=plan(task("a")), context=workers.context(), inputs={"k": 1})

    events = await told(run)

    written = [(e.key, e.version) for e in events if isinstance(e, MemoryUpdate)]
    assert written == [("input:k", 1), ("step:a1", 1), ("task:a", 1)]


@pytest.mark.anyio
async def test_a_plan_is_seen_in_the_records_of_runs(workers: Workers) -> None:
    with holdfast.open(":memory:") as hf:
        run = ParallelTaskExecutor(plan=plan(task("a")), context=workers.context(hf=hf))
        await run.run()

        record = hf.runs.retrieve(run.context.run_id)

    assert (record.name, record.status) == ("A plan", "completed")


@pytest.mark.anyio
async def test_a_mismatch_is_told_as_the_reason_of_the_end(workers: Workers) -> None:
    kept = MemoryCheckpoints()

    def again(title: str) -> ParallelTaskExecutor:
        return ParallelTaskExecutor(
            plan=plan(task("a"), title=title),
            context=workers.context(run_id="run_1"),
            checkpoint=kept,
        )

    await again("One").run()
    events = list[Any]()

    async def look_on() -> None:
        async for event in again("Other").execute():
            events.append(event)

    with pytest.raises(CheckpointMismatch):
        await look_on()

    last = events[-1]
    assert isinstance(last, RunUpdate)
    assert last.event == "failed"
    assert last.reason is not None
    assert last.reason.startswith("The checkpoint is of another run: plan.title")
    assert moments(events) == []


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
    for planned in run.plan.tasks:
        ends = [e.event for e in updates if e.task_id == planned.id and e.step_id is None]
        assert [each for each in ends if each != "task_created"] == [f"task{ENDS[planned.state]}"]
        for one in planned.steps:
            told = [e.event for e in updates if e.step_id == one.id and e.event != "step_started"]
            assert told == [f"step{ENDS[one.state]}"]
    assert isinstance(events[-1], RunUpdate)


@FEW
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
    for planned in plan.tasks:
        for one in planned.steps:
            needed = above(one, planned, plan)
            if one.id in workers.began:
                before = workers.ended[: workers.ended.index(one.id)]
                assert needed <= set(before) & done
            else:
                assert needed & failed
        assert run.context.memory.has(f"task:{planned.id}") == planned.completed


@FEW
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
