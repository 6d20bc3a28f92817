"""A run has one start and one end, however many executors, readers and people are in it."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from runtime.networks.played import agent, network
from runtime.test_run_events import RECORDED

import holdfast
from holdfast import Holdfast
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import RunTaken
from holdfast.memories.run.history.versions import VersionSave
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import ENDS
from holdfast.memories.run.records.lease import sweep_lost
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.writer import RunOpening
from holdfast.runtime import (
    Context,
    FunctionNode,
    ParallelTaskExecutor,
    RunEvent,
    RunStart,
    Step,
    StepExecutor,
    Task,
    TaskPlan,
    Worker,
    Workflow,
    WorkflowRunner,
    ask_human,
    definition,
    resume,
)
from holdfast.runtime.runs.run_events import leave
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import ScriptedModel, call

pytestmark = pytest.mark.anyio


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


def a_step(id: str, context: Context, turns: Any, **fields: Any) -> StepExecutor:
    step = Step(id=id, instructions=f"Do {id}.")
    task = Task(id=f"task_{id}", title=id, steps=[step])
    return StepExecutor(task=task, step=step, context=context, model=ScriptedModel(turns), **fields)


def berth() -> str:
    """Ask for a berth."""
    return f"moored at {ask_human('Which berth?')}"


async def of_run(events: AsyncGenerator[RunEvent]) -> list[str]:
    """Return the types of *events* that are of the run or of its questions."""
    seen = [event.type async for event in events]
    return [each for each in seen if each.startswith(("run.", "question."))]


class Pair:
    """Two steps of one run, of which `slow` works until `free` is set."""

    def __init__(self, hf: Holdfast | None, *, asks: bool = False) -> None:
        self.began, self.free = asyncio.Event(), asyncio.Event()
        self.context = Context(hf=hf, run_id="run_1")
        turns = [call("berth"), "Moored."] if asks else ["Moored."]
        self.fast = a_step("fast", self.context, turns, tools=[berth])
        self.slow = a_step("slow", self.context, self.reply)

    async def reply(self, _: object) -> str:
        self.began.set()
        await self.free.wait()
        return "Done."

    async def seen(self) -> tuple[list[str], list[str]]:
        """Execute both at once; return what a reader of each gets."""
        working = asyncio.create_task(of_run(self.slow.stream()))
        await asyncio.wait_for(self.began.wait(), 60)
        fast = await of_run(self.fast.stream())
        self.free.set()
        return fast, await working


def stored(hf: Holdfast) -> list[str]:
    events = hf.runs.follow("run_1", rest=True)
    return [each.type for each in events if each.type.startswith(("run.", "question."))]


async def test_two_executors_at_once_are_one_run_with_one_end(hf: Holdfast) -> None:
    fast, slow = await Pair(hf).seen()

    assert fast == slow == ["run.started", "run.completed"]
    assert stored(hf) == ["run.started", "run.completed"]
    assert [each.seq for each in hf.runs.follow("run_1")] == list(
        range(1, len(list(hf.runs.follow("run_1"))) + 1)
    )


async def test_a_run_waits_if_one_of_two_executors_does(hf: Holdfast) -> None:
    pair = Pair(hf, asks=True)

    fast, slow = await pair.seen()

    assert fast == ["run.started", "question.asked", "run.waiting"]
    assert slow == ["run.started", "question.asked", "run.waiting"]
    assert pair.slow.result == "Done."
    run = hf.runs.retrieve("run_1")
    assert (run.status, len(run.questions)) == ("waiting", 1)

    pair.context.answer("7")
    assert await pair.fast.run() == "Moored."
    assert hf.runs.retrieve("run_1").status == "completed"
    ends = [each for each in stored(hf) if each in ENDS]
    assert ends == ["run.completed"] == stored(hf)[-1:]


@pytest.mark.parametrize("kind", ["step", "network"])
async def test_questions_are_emitted_without_a_place_that_keeps_them(kind: str) -> None:
    if kind == "network":
        ada = agent("ada", [call("berth"), "Moored."], tools=[berth])
        first: list[str] = []
        run = await network(ada).run("Go.", on_event=lambda event: first.append(event.type))
        assert [each for each in first if each.startswith("question.")] == ["question.asked"]
        assert run.status == "waiting"
        return
    context = Context()
    waiting = a_step("only", context, [call("berth"), "Moored."], tools=[berth])

    assert await of_run(waiting.stream()) == ["run.started", "question.asked", "run.waiting"]
    context.answer("7")
    assert await of_run(waiting.stream()) == ["run.started", "question.answered", "run.completed"]


@pytest.mark.parametrize("place", ["context", "database"])
async def test_a_question_that_is_answered_in_the_process_is_emitted(
    hf: Holdfast, place: str
) -> None:
    asked: list[Question] = []

    def answer(question: Question) -> str:
        asked.append(question)
        return "7"

    context = Context(run_id="run_1", on_question=answer, hf=hf if place == "database" else None)
    working = a_step("only", context, [call("berth"), "Moored."], tools=[berth])

    seen = await of_run(working.stream())

    assert seen == ["run.started", "question.asked", "question.answered", "run.completed"]
    assert len(asked) == 1
    if place == "database":
        assert stored(hf) == seen


async def test_of_two_executions_begun_before_either_is_read_the_second_is_refused() -> None:
    pair = Pair(None)
    first, second = pair.slow.execute(), pair.slow.execute()
    await anext(first)

    with pytest.raises(RunTaken):
        await anext(second)

    pair.free.set()
    rest = [event async for event in first]
    assert rest[-1].type == "run_update"
    assert len(pair.slow.messages) == 2


async def test_each_execution_of_a_workflow_has_its_own_inputs() -> None:
    def double(inputs: dict[str, Any], _: Context) -> dict[str, Any]:
        return {"n": inputs["n"] * 2}

    runner = WorkflowRunner(Workflow([FunctionNode("double", double)]), Context())
    first, second = runner.stream({"double": {"n": 1}}), runner.stream({"double": {"n": 5}})
    await of_run(first)

    assert runner.outputs == {"double": {"n": 2}}
    await of_run(second)
    assert runner.outputs == {"double": {"n": 10}}


@pytest.mark.parametrize("failing", range(4))
@pytest.mark.parametrize("error", [OSError, asyncio.CancelledError])
async def test_an_act_at_the_end_that_fails_keeps_no_other_from_happening(
    failing: int, error: type[BaseException]
) -> None:
    done: list[int] = []

    def act(number: int) -> None:
        done.append(number)
        if number == failing:
            raise error

    ending = leave("run_1", *((str(each), lambda each=each: act(each)) for each in range(4)))
    if error is OSError:
        await ending
    else:
        with pytest.raises(asyncio.CancelledError):
            await ending

    assert done == [0, 1, 2, 3]


@definition("moor")
def moor(start: RunStart) -> ParallelTaskExecutor:
    asks: dict[str, Any] = {"mode": "ask", "instructions": "Which?"}
    steps = [Step(id="one", **asks), Step(id="two", timeout=60, **asks), Step(id="three", **asks)]
    # Each is a task of its own: the last step of a task waits for all others.
    tasks = [Task(id=f"task_{each.id}", title="Moor", steps=[each]) for each in steps]
    plan = TaskPlan(title="Moor", tasks=tasks)
    return ParallelTaskExecutor(plan=plan, context=start.context)


async def test_every_type_that_only_a_record_sends_is_sent() -> None:
    clock = FrozenClock(SystemClock().now())
    with holdfast.open(":memory:", clock=clock) as hf:
        hf.configure_runs(versions=10)
        hf.runs.start("moor", run_id="run_1")
        waiting = await resume(hf, "run_1", [moor])
        hf.runs.answer("run_1", "7", question=waiting.questions[0])
        hf.runs.fork("run_1", run_id="run_2", start=True)
        await resume(hf, "run_2", [moor])
        # The context of the run has the clock of the system.
        clock.tick(3_600)
        await Worker(hf, [moor]).turn()
        hf.runs.cancel("run_1", "enough")
        hf.runs.cancel("run_2", "enough")
        for take_over in ("expired", "always"):
            opening = RunOpening(kind="plan", name="moor", take_over=take_over)
            writer = hf.runs.open_run(RunMemory(run_id="run_3"), opening)
        for _ in range(12):
            writer.keep(VersionSave(run_id="run_3", at=1, cause="step", fence=writer.fence))
        writer._mirror.over = True  # pyright: ignore[reportPrivateUsage] - as if its process died
        clock.tick(61)
        sweep_lost(hf.engine, clock)

        runs = ("run_1", "run_2", "run_3")
        seen = {event.type for run in runs for event in hf.runs.follow(run, rest=True)}

    assert seen >= RECORDED
