"""Records of runs while they are executed: what a follower elsewhere receives."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from stepping import Stepping

import holdfast
from holdfast import Holdfast
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import RunCancelled, RunTaken, StaleRun
from holdfast.memories.run.records.event import ENDS, LIVE
from holdfast.memories.run.records.writer import RunOpening
from holdfast.runtime import (
    Agent,
    Context,
    MemoryCheckpoints,
    Network,
    ParallelTaskExecutor,
    RunEvent,
    Step,
    Task,
    TaskPlan,
    executor,
)
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.testing import ScriptedModel, call
from holdfast.testing.serving import serving

TURNS = [["I look.", call("look")], "Three."]


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as opened:
        yield opened


def look() -> str:
    """Look."""
    return "Ships, " * 1_000


def stepping(hf: Holdfast, **options: Any) -> Stepping:
    """Return a step whose run has a record in *hf*."""
    context = Context(hf=hf, run_id="run_1", **options)
    return Stepping(TURNS, context=context, tools=[look], agent=Agent("ada", instructions=""))


def stored(seen: list[RunEvent]) -> list[RunEvent]:
    """Return those of *seen* that are stored."""
    return [event for event in seen if event.type not in LIVE]


class Work:
    """An executor that does *act*."""

    name, title = "work", "Work"
    parts = ()

    def __init__(self, act: Any, context: Context) -> None:
        self.act, self.context = act, context

    async def perform(self) -> None:
        """Do it."""
        await self.act(self.context)

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        return ExecutionOutcome(state="completed", result=3)


@pytest.mark.anyio
async def test_what_is_stored_of_a_run_is_what_its_reader_received(hf: Holdfast) -> None:
    seen = [event async for event in stepping(hf).executor.stream()]

    followed = list(hf.runs.follow("run_1"))

    assert [event.seq for event in followed] == list(range(1, len(followed) + 1))
    assert followed == stored(seen)
    assert [event.type for event in followed if event.type in ENDS] == ["run.completed"]
    assert followed[-1].data["reason"] == "done"
    run = hf.runs.retrieve("run_1")
    assert (run.status, run.kind, run.reason) == ("completed", "step", "done")


@pytest.mark.anyio
async def test_with_facts_alone_no_text_of_a_run_is_stored(hf: Holdfast) -> None:
    seen = [event async for event in stepping(hf, record="facts").executor.stream()]

    followed = list(hf.runs.follow("run_1"))

    assert [event.type for event in followed] == [event.type for event in stored(seen)]
    told = str([event.to_dict() for event in followed])
    assert "Three." not in told
    assert "Ships" not in told
    assert "I look" not in told
    assert "'tokens'" in told


@pytest.mark.anyio
async def test_the_bus_has_the_events_of_a_run_without_texts(hf: Holdfast) -> None:
    heard: list[Any] = []
    bus: Any = hf.events
    bus.subscribe(heard.append)

    seen = [event async for event in stepping(hf).executor.stream()]

    types = [event.type for event in heard if event.type.startswith("run.")]
    assert types.count("run.tool_called") == 1
    assert types.count("run.entry_written") == 1
    assert (types[0], types[-1]) == ("run.started", "run.completed")
    assert len(types) == len(stored(seen))
    assert "Ships" not in str(heard)
    assert "Three." not in str(heard)


@pytest.mark.anyio
async def test_a_run_that_another_owner_has_is_refused_before_anything_runs(hf: Holdfast) -> None:
    first = Context(hf=hf, run_id="run_1")
    writer = hf.runs.open_run(first.memory, RunOpening(kind="step", name="Other"))
    second = stepping(hf)

    with pytest.raises(RunTaken):
        await second.executor.run()

    assert second.model.asked == []
    writer.end("completed", reason="done")


@pytest.mark.anyio
async def test_a_run_that_is_taken_over_ends_as_stale_and_stores_no_end(hf: Holdfast) -> None:
    other = Context(hf=hf, run_id="run_1")
    opening = RunOpening(kind="step", name="Other", take_over="always")
    with ThreadPoolExecutor(1) as pool:

        async def act(run: Context) -> None:
            # This task may be stopped as soon as the run is taken, before it has the writer.
            takeover.append(pool.submit(hf.runs.open_run, other.memory, opening))
            await asyncio.wrap_future(takeover[0])
            run.memory.set("shared:late", 1)
            await asyncio.wait_for(asyncio.Event().wait(), 60)

        takeover: list[Future[Any]] = []
        with pytest.raises(StaleRun):
            await executor.run(Work(act, Context(hf=hf, run_id="run_1")))

    takeover[0].result().end("completed", reason="done")
    ends = [event.type for event in hf.runs.follow("run_1") if event.type in ENDS]
    assert ends == ["run.completed"]


@pytest.mark.anyio
async def test_a_sub_run_has_a_record_that_names_its_parent(hf: Holdfast) -> None:
    inner: list[str] = []

    async def act(run: Context) -> None:
        within = run.copy()
        inner.append(within.run_id)

        async def nothing(_: Context) -> None:
            pass

        await executor.run(Work(nothing, within))

    await executor.run(Work(act, Context(hf=hf, run_id="run_1")))

    run = hf.runs.retrieve(inner[0])
    assert (run.parent_id, run.status) == ("run_1", "completed")


@pytest.mark.anyio
async def test_a_run_that_is_cancelled_stores_that_with_the_reason(hf: Holdfast) -> None:
    async def act(run: Context) -> None:
        run.cancel("enough")
        await asyncio.wait_for(asyncio.Event().wait(), 60)

    with pytest.raises(RunCancelled):
        await executor.run(Work(act, Context(hf=hf, run_id="run_1")))

    last = list(hf.runs.follow("run_1"))[-1]
    assert (last.type, last.data["detail"]) == ("run.cancelled", "enough")


def test_a_follower_over_http_that_waited_for_the_run_misses_nothing(tmp_path: Path) -> None:
    database = tmp_path / "h.db"
    with (
        holdfast.open(database) as served,
        serving(served, clock=SystemClock()) as url,
        holdfast.open(url) as remote,
    ):
        waits = Event()
        seen: list[RunEvent] = []

        def follow() -> None:
            waits.set()
            for event in remote.runs.follow("run_1", wait=60):
                seen.append(event)
                if event.type == "tool.called":
                    break
            seen.extend(remote.runs.follow("run_1", after=seen[-1].seq))

        follower = Thread(target=follow)
        follower.start()
        assert waits.wait(60)
        with holdfast.open(database) as hf:
            told = asyncio.run(streamed(stepping(hf)))
            follower.join(60)

        assert not follower.is_alive()
        assert seen == stored(told)


async def streamed(step: Stepping) -> list[RunEvent]:
    """Return the events of *step*."""
    return [event async for event in step.executor.stream()]


@pytest.mark.anyio
async def test_a_version_is_kept_before_its_step_is_told_as_completed() -> None:
    plan = TaskPlan(
        title="Count",
        tasks=[Task(id="count", title="Count", steps=[Step(id="look", instructions="Look.")])],
    )
    run = Context(model=ScriptedModel(["Three."]))
    saving = ParallelTaskExecutor(
        plan=plan, context=run, inputs={"harbour": "Kiel"}, checkpoint=MemoryCheckpoints()
    )

    seen = [event async for event in saving.stream()]

    types = [event.type for event in seen]
    kept = seen[types.index("version.kept")]
    at = types.index("version.kept")
    assert types.index("memory.written") < at < types.index("step.completed")
    assert "step:look" in kept.data["changed"]
    assert seen[0].data["inputs"] == ["input:harbour"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["network", "agent"])
async def test_what_is_stored_of_a_run_of_agents_is_what_its_reader_received(
    hf: Holdfast, kind: str
) -> None:
    ada = Agent("ada", instructions="", model=ScriptedModel(TURNS), tools=[look])
    desk = Network("desk", [ada], router=lambda ctx: None if ctx.call_count else "ada")
    runs = desk if kind == "network" else ada

    seen = [event async for event in runs.stream("Go.", run_id="run_1", hf=hf)]

    assert list(hf.runs.follow("run_1")) == stored(seen)
    assert seen[-1].type == "run.completed"
