"""The events of runs: one stream for whatever runs, observers, and one end."""

import asyncio
import re
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread, Timer
from typing import Any, cast

import pytest
from stepping import NUMBER, Stepping

from holdfast.ground.errors import LimitExceeded, PlanningFailed, RunCancelled, RunFailed
from holdfast.memories.run.records.event import ENDS, LIVE, TYPES
from holdfast.memories.state.history import View
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    Edge,
    FunctionNode,
    LogUpdate,
    McpServer,
    MemoryCheckpoints,
    MessageBus,
    MultiModeAgent,
    Network,
    ParallelTaskExecutor,
    RunEvent,
    Step,
    Task,
    TaskBoard,
    TaskExecutor,
    TaskPlan,
    TaskPlanner,
    TeamExecutor,
    TeamUpdate,
    ToolContext,
    Workflow,
    WorkflowRunner,
    events,
    executor,
)
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.runs.run_events import Observer, audience
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked, thought

PLAN = call("finish_plan", title="Count")
TASK = call("add_task", id="count", title="Count", steps=[{"id": "look", "instructions": "Look."}])


def context(*turns: Any) -> Context:
    """Return a run with a model of *turns*."""
    return Context(model=ScriptedModel(list(turns)), clock=FrozenClock())


def task(id: str = "count") -> Task:
    """Return a task of one step."""
    return Task(id=id, title="Count", steps=[Step(id=f"{id}_look", instructions="Look.")])


def executors(observed: list[RunEvent]) -> dict[str, Any]:
    """Return an executor of each kind, observed by *observed*, and its events."""
    plan = TaskPlan(title="Count", tasks=[task("one"), task("two")])
    double = FunctionNode("double", lambda inputs, _: {"n": inputs["n"] * 2})
    flow = Workflow([double, FunctionNode("again", lambda inputs, _: inputs)], EDGES)
    agents = [Agent("ada", description="Counts.", instructions="Count.")]
    on_event = observed.append
    one = task()
    team = TeamExecutor(
        objective="Count.",
        agents=agents,
        strategy="autonomous",
        context=context(call("list_tasks"), *["I see."] * 6),
        on_event=on_event,
    )
    return {
        "step": Stepping(["Three."], on_event=on_event).executor,
        "task": TaskExecutor(task=one, context=context("Three."), on_event=on_event),
        "plan": ParallelTaskExecutor(plan=plan, context=context("1.", "2."), on_event=on_event),
        "planner": TaskPlanner(objective="Count.", context=context(TASK, PLAN), on_event=on_event),
        "team": team,
        "workflow": Given(WorkflowRunner(flow, context(), on_event=on_event)),
        "loop": Begun(MultiModeAgent(name="ada", objective="Count.", on_event=on_event)),
    }


EDGES = [Edge("double", "n", "again", "n")]


class Given:
    """A workflow with its inputs."""

    def __init__(self, runner: WorkflowRunner) -> None:
        self.runner, self.inputs = runner, {"double": {"n": 2}}

    def stream(self) -> Any:
        """Return its events."""
        return self.runner.stream(self.inputs)

    def execute(self) -> Any:
        """Return its updates."""
        return self.runner.execute(self.inputs)


class Begun:
    """An agent of a mode with its run."""

    def __init__(self, agent: MultiModeAgent) -> None:
        self.agent = agent

    def stream(self) -> Any:
        """Return its events."""
        return self.agent.stream(context("Three."))

    def execute(self) -> Any:
        """Return its updates."""
        return self.agent.execute(context("Three."))


KINDS = tuple(executors([]))


class Work:
    """An executor that does *act*."""

    name, title, parts = "work", "Work", ()

    def __init__(self, act: Any, context: Context | None = None) -> None:
        self.act, self.context = act, context or Context(clock=FrozenClock())

    async def perform(self) -> None:
        """Do it."""
        await self.act(self.context)

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        return ExecutionOutcome(state="completed", result=3)


class FullDisk:
    """A handle whose records of runs cannot be ended."""

    seq, opened, stale = 0, (), None

    def __init__(self) -> None:
        self.runs, self.tried = self, list[str]()

    def open_run(self, *_: Any, **__: Any) -> Any:
        """Begin the record of a run."""
        return self

    def emit(self, event: RunEvent) -> None:
        """Take an event."""

    def end(self, status: str, **_: Any) -> None:
        """Fail to end it."""
        self.tried.append(status)
        raise OSError("no space")


async def streamed(work: Work) -> list[RunEvent]:
    """Return the events of *work*, which may fail."""
    seen: list[RunEvent] = []
    with pytest.raises((RunFailed, ArithmeticError, asyncio.CancelledError)):
        await executor.run(work, Observer(seen.append))
    return seen


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_every_executor_streams_the_events_of_its_run_from_start_to_one_end(
    kind: str,
) -> None:
    observed: list[RunEvent] = []

    seen = [event async for event in executors(observed)[kind].stream()]

    numbers = [event.seq for event in seen if event.type not in LIVE]
    assert numbers == list(range(1, len(numbers) + 1))
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    assert seen[0].type == "run.started"
    assert [event.type for event in seen if event.type in ENDS] == [seen[-1].type]
    assert {event.type for event in seen} <= TYPES
    assert observed == seen


@pytest.mark.anyio
@pytest.mark.parametrize("kind", KINDS)
async def test_what_execute_yields_has_the_event_it_was_computed_from(kind: str) -> None:
    observed: list[RunEvent] = []

    updates = [update async for update in executors(observed)[kind].execute()]

    assert len(updates) > 2
    for update in updates:
        assert update.origin in observed
        assert (update.seq, update.at) == (update.origin.seq, update.origin.at)


@pytest.mark.anyio
async def test_an_observer_may_be_awaitable_and_one_that_raises_is_counted() -> None:
    seen: list[str] = []

    async def observe(event: RunEvent) -> None:
        await asyncio.sleep(0)
        seen.append(event.type)
        raise ValueError(event.type)

    stepping = Stepping(["Three."], on_event=observe)

    assert await stepping.executor.run() == "Three."
    assert seen[0] == "run.started"
    assert seen[-1] == "run.completed"
    assert stepping.context.event_errors == len(seen)


@pytest.mark.anyio
async def test_the_end_of_a_run_says_why_and_what_it_used() -> None:
    seen: list[RunEvent] = []
    number = {"output_schema": NUMBER}
    stepping = Stepping(["Three."], max_iterations=1, step=number, on_event=seen.append)

    with pytest.raises(RunFailed):
        await stepping.executor.run()

    data = seen[-1].data
    assert (seen[-1].type, data["reason"]) == ("run.failed", "max_iterations")
    assert "max_iterations" in data["detail"]
    assert data["usage"]["requests"] == 1
    assert data["error"]["name"] == "StepFailed"


@pytest.mark.anyio
async def test_an_unforeseen_exception_ends_the_run_as_internal_with_its_class() -> None:
    async def act(_: Context) -> None:
        raise ArithmeticError("x" * 1_000)

    seen = await streamed(Work(act))

    assert [event.type for event in seen] == ["run.started", "run.failed"]
    assert seen[-1].data["reason"] == "internal"
    assert seen[-1].data["detail"].startswith("ArithmeticError: xxx")
    assert len(seen[-1].data["detail"]) == len("ArithmeticError: ") + 500


@pytest.mark.anyio
async def test_a_cancellation_that_nothing_asked_for_is_a_failure() -> None:
    async def act(_: Context) -> None:
        raise asyncio.CancelledError

    seen = await streamed(Work(act))

    assert (seen[-1].type, seen[-1].data["reason"]) == ("run.failed", "internal")


@pytest.mark.anyio
async def test_nothing_is_emitted_after_the_end_of_a_run() -> None:
    async def act(_: Context) -> None:
        pass

    work = Work(act)
    seen: list[RunEvent] = []
    work.context.events.tap(seen.append)

    await executor.run(work)
    work.context.tell_soon(LogUpdate(severity="info", content="late"))

    assert [event.type for event in seen] == ["run.started", "run.completed"]


@pytest.mark.anyio
async def test_a_record_that_fails_at_the_end_does_not_keep_the_end_from_being_emitted() -> None:
    async def act(_: Context) -> None:
        pass

    full = FullDisk()
    work = Work(act, Context(clock=FrozenClock(), hf=cast("Any", full)))

    seen = [event async for event in executor.stream(work)]

    assert full.tried == ["completed"]
    assert seen[-1].type == "run.completed"


@pytest.mark.anyio
async def test_a_sub_run_has_events_of_its_own_among_those_of_the_run() -> None:
    async def act(run: Context) -> None:
        async def inner(_: Context) -> None:
            pass

        await executor.run(Work(inner, run.copy()))

    seen = [event async for event in executor.stream(Work(act))]

    assert [event.type for event in seen] == [
        "run.started",
        "run.started",
        "run.completed",
        "run.completed",
    ]
    assert [event.seq for event in seen] == [1, 1, 2, 2]


@pytest.mark.anyio
async def test_what_happens_to_the_memory_of_a_run_is_among_its_events() -> None:
    async def act(run: Context) -> None:
        run.memory.set("shared:a", 1)
        run.memory.set("shared:b", 1)
        run.memory.note_read("shared:a", reader="ada", part=False)
        run.memory.delete("shared:a")
        run.memory.clear()
        run.memory.restore(run.memory.snapshot())
        with pytest.raises(Exception, match="bytes"):
            run.memory.set("shared:c", "x" * 5_000_000)

    seen = [event async for event in executor.stream(Work(act))]

    assert [event.type for event in seen[1:-1]] == [
        "memory.written",
        "memory.written",
        "memory.read",
        "memory.deleted",
        "memory.cleared",
        "memory.restored",
        "memory.refused",
    ]


@pytest.mark.anyio
async def test_a_step_emits_its_requests_responses_and_the_calls_of_its_tools() -> None:
    def look(where: str) -> str:
        """Look."""
        return where * 5_000

    turns = ["I look.", call("look", where="x")], call("finish_step", result=3)
    ada = Agent("ada", instructions="Count.")
    number = {"output_schema": NUMBER}
    stepping = Stepping(turns, step=number, tools=[look], agent=ada)

    seen = [event async for event in stepping.executor.stream()]

    told = [event.type for event in seen if event.type not in LIVE]
    assert told == [
        "run.started",
        "step.started",
        "model.requested",
        "model.responded",
        "tool.called",
        "tool.returned",
        "model.requested",
        "model.responded",
        "tool.called",
        "tool.returned",
        "memory.written",
        "step.completed",
        "step.result",
        "run.completed",
    ]
    asked, said, called, answered = of(seen, "model.", "tool.")[:4]
    assert (asked.data["messages"], asked.data["tools"][-1]) == (1, "finish_step")
    assert asked.data["bytes"] > 0
    assert (said.data["text"], said.data["calls"]) == ("I look.", ["look"])
    assert said.data["tokens"]["output"] > 0
    assert (called.data["name"], called.data["input"]) == ("look", {"where": "x"})
    assert answered.data["content"] == {"part": "x" * 4_096, "value_bytes": 5_002}
    assert answered.data["ok"] is True
    assert {each.part for each in (asked, said, called, answered)} == {"count"}
    assert {each.agent for each in (asked, said, called, answered)} == {"ada"}
    assert called.call_id == answered.call_id
    completed = of(seen, "step.completed")[0].data
    assert (completed["iterations"], completed["usage"]["requests"]) == (2, 2)
    assert of(seen, "step.started")[0].data["model"] == "scripted"


@pytest.mark.anyio
async def test_a_failed_call_has_the_kind_of_its_error() -> None:
    def look() -> str:
        """Look."""
        raise OSError("no light")

    stepping = Stepping([call("look"), "Three."], tools=[look])

    seen = [event async for event in stepping.executor.stream()]

    answered = of(seen, "tool.returned")[0].data
    assert (answered["ok"], answered["kind"]) == (False, "raised")


@pytest.mark.anyio
async def test_a_step_that_is_tried_again_says_which_try_failed_and_why() -> None:
    async def sleep(_: float) -> None:
        pass

    def failing(_: Asked) -> Any:
        raise OSError("no route")

    run = Context(clock=FrozenClock(), sleep=sleep)
    stepping = Stepping([failing, "Three."], context=run, step={"retries": 1})

    seen = [event async for event in stepping.executor.stream()]

    retried = of(seen, "step.retried")[0]
    assert (retried.part, retried.data["attempt"]) == ("count", 1)
    assert "no route" in retried.data["cause"]


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["team", "planner"])
async def test_teams_and_planners_emit_their_requests_and_responses(kind: str) -> None:
    seen = [event async for event in executors([])[kind].stream()]

    asked, said = of(seen, "model.requested"), of(seen, "model.responded")
    assert len(asked) == len(said) > 0
    assert all(each.data["messages"] and each.data["bytes"] for each in asked)
    if kind == "team":
        assert {each.agent for each in asked} == {"ada"}
        assert of(seen, "tool.called")[0].agent == "ada"


@pytest.mark.anyio
async def test_an_agent_alone_emits_its_requests_and_responses() -> None:
    ada = Agent("ada", instructions="Count.", model=ScriptedModel(["Three."]))

    seen = [event async for event in ada.stream("Go.")]

    assert [event.type for event in seen if event.type not in LIVE] == [
        "run.started",
        "agent.started",
        "model.requested",
        "model.responded",
        "agent.finished",
        "run.completed",
    ]


def of(seen: list[RunEvent], *types: str) -> list[RunEvent]:
    """Return the events of *seen* of *types*, or of those that begin so."""
    return [event for event in seen if event.type.startswith(types)]


def test_the_page_of_events_lists_every_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "events.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]

    listed = [name for row in rows for name in re.findall(r"`([a-z_.]+)`", row.split("|")[1])]

    assert sorted(listed) == sorted(TYPES)


@pytest.mark.anyio
async def test_the_end_waits_for_a_thread_that_passes_on_an_earlier_event() -> None:
    passing, goes_on = Event(), Event()

    def slow(event: RunEvent) -> None:
        if event.type == "log":
            passing.set()
            assert goes_on.wait(60)

    async def act(run: Context) -> None:
        to = audience.get()

        def speak() -> None:
            run.tell_soon(LogUpdate(severity="info", content="from a thread"), to=to)

        Thread(target=speak).start()
        await asyncio.to_thread(passing.wait, 60)
        Timer(0.05, goes_on.set).start()

    work = Work(act)
    work.context.events.tap(slow)

    seen = [event.type async for event in executor.stream(work)]

    assert seen == ["run.started", "log", "run.completed"]


RECORDED = {
    *("run.queued", "run.waiting", "run.forked", "run.resumed", "run.taken_over", "run.lost"),
    *("question.asked", "question.answered", "question.expired", "question.withdrawn"),
    *("step.waiting", "version.folded"),
}
"""Types that runs with a record send, in `test_told_once`; a `gap` is for a late follower."""


async def heard_of(*works: Any) -> set[str]:
    """Return the types of the events of *works*, which may fail."""
    seen: set[str] = set()
    for work in works:
        with suppress(RunFailed, PlanningFailed, RunCancelled):
            async for event in work.stream() if hasattr(work, "stream") else executor.stream(work):
                seen.add(event.type)
    return seen


def plan_of(*turns: Any, checkpoint: Any = None, **options: Any) -> ParallelTaskExecutor:
    """Return a plan of two tasks, of which the second needs the first."""
    one, two = task("one"), task("two")
    two.depends_on = ["one"]
    one.steps[0].output_schema = NUMBER
    plan = TaskPlan(title="Count", tasks=[one, two])
    run = Context(run_id="run_1", model=ScriptedModel(list(turns)), clock=FrozenClock())
    return ParallelTaskExecutor(
        plan=plan, context=run, checkpoint=checkpoint, max_iterations=1, **options
    )


async def of_a_board(run: Context) -> None:
    """Let everything happen to tasks of a board, and to a team."""
    board, bus = TaskBoard(), MessageBus()
    board.on_event(run.tell_soon)
    bus.on_event(run.tell_soon)
    one, two = board.create("One").id, board.create("Two").id
    board.claim(one, "ada")
    board.release(one, "ada")
    board.claim(one, "ada")
    board.start(one, "ada")
    board.block(one, "ada", "no light")
    board.unblock(one, "ada")
    board.complete(one, "ada", 3)
    board.fail(two, "system", "no time")
    bus.register("ada")
    bus.register("bob")
    bus.send("ada", "bob", "Hello", "How many?")
    for moment in ("agent_idle", "agent_benched", "deadlock_detected", "stalled", "team_complete"):
        await run.tell(TeamUpdate(event=moment))


async def of_a_memory(run: Context) -> None:
    """Let everything happen to entries of run memory."""
    run.memory.set("shared:a", 1)
    run.memory.note_read("shared:a", reader="ada", part=False)
    run.memory.delete("shared:a")
    run.memory.set("shared:b", 1)
    run.memory.clear()
    run.memory.restore(run.memory.snapshot())
    await run.tell(LogUpdate(severity="info", content="cleared"))
    with pytest.raises(LimitExceeded):
        run.memory.set("shared:c", "x" * 5_000_000)


async def of_a_network() -> set[str]:
    """Return the types of the events of networks."""

    def keep(ctx: ToolContext, word: str) -> str:
        """Keep a word."""
        ctx.state.kv.set("word", word)
        return word

    turns = [[call("keep", word="it")], [call("value_read", keys=["word"])], *["Done."] * 9]
    ada = Agent("ada", instructions="", model=ScriptedModel(turns), tools=[keep])
    off = Agent("bob", instructions="", hooks=AgentHooks(enabled=False))
    far = McpServer("far", url="http://127.0.0.1:9/mcp", timeout=60)
    eve = Agent("eve", instructions="", model=ScriptedModel(["I see. " * 90] * 9), toolsets=[far])
    desk = Network(
        "desk",
        [ada, off, eve],
        router=lambda ctx: None if ctx.call_count else ["bob", "ada", "eve"],
        view=View(budget=60),
    )
    state = NetworkState()
    seen: set[str] = set()
    for _ in range(3):
        async for event in desk.stream("Go.", state=state):
            seen.add(event.type)
    return seen


@pytest.mark.anyio
async def test_every_type_of_event_is_sent() -> None:
    async def sleep(_: float) -> None:
        pass

    def fails(_: Asked) -> Any:
        raise OSError("no route")

    def stop(_: Asked) -> Any:
        stopped.context.cancel("enough")
        return "Late."

    stopped, kept = plan_of(stop), MemoryCheckpoints()
    tried = Context(clock=FrozenClock(), sleep=sleep)
    three = call("finish_step", result=3)
    unknown = call("add_task", id="count", title="Count", steps=[])
    remove = call("remove_task", id="count")
    planner = TaskPlanner(objective="Count.", context=context(unknown, TASK, remove, TASK, PLAN))

    seen = await heard_of(
        *executors([]).values(),
        plan_of("No number."),
        plan_of(three, "Two.", checkpoint=kept),
        plan_of(three, "Two.", checkpoint=kept),
        stopped,
        Stepping([fails, [thought("Hm."), "Three."]], context=tried, step={"retries": 1}).executor,
        planner,
        Work(of_a_board),
        Work(of_a_memory),
    )

    assert seen | await of_a_network() | RECORDED | {"gap"} == TYPES


@pytest.mark.anyio
async def test_every_class_that_execute_yields_has_its_origin() -> None:
    stepping = Stepping([["I look.", call("memory_list")], "Three."])
    yielding = [*executors([]).values(), stepping.executor]

    updates = [update for each in yielding async for update in each.execute()]
    updates += [update async for update in executor.events(Work(of_a_memory))]

    assert {update.type for update in updates} == set(events.KINDS)
    assert all(update.origin is not None for update in updates)
