"""A plan as it is seen from outside: traced, spoken to, and in the records of runs."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from runtime.plans.workers import Workers, moments, plan, step, task, told

import holdfast
from holdfast.errors import CheckpointMismatch, NotFound
from holdfast.runtime import MemoryCheckpoints, ParallelTaskExecutor, TaskExecutor
from holdfast.runtime.events import MemoryUpdate, RunUpdate

pytestmark = pytest.mark.anyio


@pytest.fixture
def workers() -> Workers:
    return Workers()


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


async def test_the_span_of_a_task_says_how_it_ended(workers: Workers) -> None:
    workers.fails = {"a2"}

    spans = await traced(workers)

    known: Any = spans["a"].attributes
    assert (known["holdfast.state"], known["holdfast.reason"]) == ("failed", "steps")
    assert "b" not in spans


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


async def test_nobody_speaks_to_a_step_that_never_starts(workers: Workers) -> None:
    workers.fails = {"a"}
    run = TaskExecutor(task=task("t", step("a"), step("b", "a")), context=workers.context())

    await told(run)

    with pytest.raises(NotFound):
        run.context.steer("Hello?", step="b")


async def test_what_is_written_to_memory_is_told_once(workers: Workers) -> None:
    run = ParallelTaskExecutor(plan=plan(task("a")), context=workers.context(), inputs={"k": 1})

    events = await told(run)

    written = [(e.key, e.version) for e in events if isinstance(e, MemoryUpdate)]
    assert written == [("input:k", 1), ("step:a1", 1), ("task:a", 1)]


async def test_a_plan_is_seen_in_the_records_of_runs(workers: Workers) -> None:
    with holdfast.open(":memory:") as hf:
        run = ParallelTaskExecutor(plan=plan(task("a")), context=workers.context(hf=hf))
        await run.run()

        record = hf.runs.retrieve(run.context.run_id)

    assert (record.name, record.state) == ("A plan", "completed")


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
