"""Runs that rest while people think, and go on once they are answered."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime.plans.workers import plan, step, task
from teams import claimable, complete

import holdfast
from holdfast.errors import RunWaiting
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    Edge,
    FileCheckpoints,
    MemoryCheckpoints,
    Network,
    ParallelTaskExecutor,
    StepExecutor,
    TeamExecutor,
    Workflow,
    WorkflowRunner,
    ask_human,
)
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.testing.scripted import Asked, ScriptedModel, call

pytestmark = pytest.mark.anyio


def berth() -> str:
    """Ask for a berth."""
    return f"berth {ask_human('Which berth?')}"


def act(asked: Asked) -> object:
    """Ask in the step that is to, and finish."""
    if "Work on a1." in asked.text and "berth" not in asked.text:
        return call("berth")
    return "moored" if "Work on a1." in asked.text else "done"


class Port:
    """A plan of which one task asks a person, another does not, and a third needs the first."""

    def __init__(self, hf: Holdfast | None = None, place: Checkpoints | None = None) -> None:
        self.model, self._hf, self._place = ScriptedModel(act), hf, place
        self.context = self._context()

    def _context(self) -> Context:
        return Context(run_id="run_1", model=self.model, hf=self._hf)

    def executor(self, *, anew: bool = False) -> ParallelTaskExecutor:
        """Return an executor of the plan, in a context of its own if *anew*."""
        if anew:
            self.context = self._context()
        tasks = [task("a"), task("b"), task("c", depends_on=["a"])]
        return ParallelTaskExecutor(
            plan=plan(*tasks, final_task="a"),
            context=self.context,
            tools=[berth],
            checkpoint=self._place,
        )


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as handle:
        yield handle


async def test_a_plan_rests_when_nothing_can_go_on_and_its_record_says_so(hf: Holdfast) -> None:
    port = Port(hf)
    run = port.executor()

    with pytest.raises(RunWaiting) as caught:
        await run.run()

    question: Any = caught.value.questions[0]
    assert caught.value.run_id == "run_1"
    assert {each.id: each.state for each in run.plan.tasks} == {
        "a": "waiting",
        "b": "completed",
        "c": "pending",
    }
    record = hf.runs.retrieve("run_1")
    assert (record.status, record.place) == ("waiting", record.place)
    assert [each.id for each in hf.runs.questions().data] == [question.id]
    told = [event.type for event in hf.runs.follow("run_1", rest=True)]
    assert told[-1] == "run.waiting"
    assert "question.asked" in told
    assert "run.completed" not in told


async def test_answered_it_goes_on_in_another_context_and_repeats_nothing(hf: Holdfast) -> None:
    port = Port(hf)
    with pytest.raises(RunWaiting):
        await port.executor().run()
    before = len(port.model.asked)

    hf.runs.answer("run_1", "7")
    result = await port.executor(anew=True).run()

    assert result == "moored"
    # One request of the step that asked, and one of the task that needed it.
    assert len(port.model.asked) == before + 2
    assert hf.runs.retrieve("run_1").status == "completed"


async def test_a_run_without_a_place_goes_on_in_its_context() -> None:
    port = Port()
    run = port.executor()
    with pytest.raises(RunWaiting):
        await run.run()

    port.context.answer("7")

    assert await run.run() == "moored"


@pytest.mark.parametrize("place", ["memory", "files"])
async def test_a_run_at_a_place_of_checkpoints_rests_there(place: str, tmp_path: Path) -> None:
    kept = MemoryCheckpoints() if place == "memory" else FileCheckpoints(tmp_path)
    port = Port(place=kept)
    with pytest.raises(RunWaiting):
        await port.executor().run()

    saved = kept.load("run_1")
    assert saved is not None
    assert [each.text for each in saved.questions] == ["Which berth?"]
    before = len(port.model.asked)
    with pytest.raises(RunWaiting):
        await port.executor(anew=True).run()
    port.context.answer("7")

    assert await port.executor().run() == "moored"
    assert len(port.model.asked) == before + 2


async def test_execute_and_stream_end_without_raising_as_waiting(hf: Holdfast) -> None:
    updates = [update async for update in Port(hf).executor().execute()]
    events = [event async for event in Port(hf).executor().stream()]

    last: Any = updates[-1]
    assert (last.type, last.event) == ("run_update", "waiting")
    assert events[-1].type == "run.waiting"
    assert events[-1].data["questions"]


async def test_a_single_step_rests(hf: Holdfast) -> None:
    port, one = Port(hf), step("a1")
    run = StepExecutor(task=task("t", one), step=one, context=port.context, tools=[berth])
    with pytest.raises(RunWaiting):
        await run.run()
    assert one.state == "waiting"

    hf.runs.answer("run_1", "7")

    assert await run.run() == "moored"


async def test_a_workflow_rests_and_its_other_nodes_are_not_done_again(hf: Holdfast) -> None:
    def runner(model: ScriptedModel) -> WorkflowRunner:
        nodes = [
            AgentStepNode("ask", "Work on a1."),
            AgentStepNode("other", "Look."),
            AgentStepNode("end", "End."),
        ]
        context = Context(run_id="run_1", model=model, hf=hf)
        workflow = Workflow(nodes, [Edge("ask", "result", "end", "berth")])
        return WorkflowRunner(workflow, context, tools=[berth])

    model = ScriptedModel(act)
    first = runner(model)
    with pytest.raises(RunWaiting):
        await first.run()
    assert first.states == {"ask": "waiting", "other": "completed", "end": "pending"}
    before = len(model.asked)

    hf.runs.answer("run_1", "7")
    outputs = await runner(model).run()

    assert outputs["ask"]["result"] == "moored"
    assert len(model.asked) == before + 2


async def test_a_team_rests_while_a_member_waits(hf: Holdfast) -> None:
    held: list[str] = []

    def asking(asked: Asked) -> object:
        text = str(asked.messages)
        if "claim_task" in text and "berth 7" not in text:
            return call("berth")
        if "berth 7" in text:
            return complete({"id": held[0], "title": "Moor"}, "berth 7")
        free = claimable(asked)
        held.append(free[0]["id"])
        return call("claim_task", task_id=free[0]["id"])

    def team() -> TeamExecutor:
        model = ScriptedModel(asking)
        ada = Agent("ada", instructions="I am ada.", description="Ada.", model=model)
        context = Context(run_id="run_1", hf=hf)
        return TeamExecutor(
            objective="Moor the ship.",
            agents=[ada],
            context=context,
            strategy="autonomous",
            tools=[berth],
        )

    with pytest.raises(RunWaiting):
        await team().run()
    assert hf.runs.retrieve("run_1").status == "waiting"

    hf.runs.answer("run_1", "7")
    result = await team().run()

    assert (result.status, result.result) == ("completed", "berth 7")


async def test_a_network_rests_and_returns_the_run(hf: Holdfast) -> None:
    def answer(asked: Asked) -> object:
        return "moored" if "berth 7" in asked.text else call("berth")

    model, other = ScriptedModel(answer), ScriptedModel(["Hello."])

    def desk() -> Network:
        ada = Agent("ada", instructions="Greet.", model=other)
        bob = Agent("bob", instructions="Moor.", model=model, tools=[berth])
        names = ["ada", "bob"]
        return Network(
            "desk",
            [ada, bob],
            router=lambda ctx: names[ctx.call_count] if ctx.call_count < 2 else None,
            hf=hf,
        )

    run = await desk().run("Moor.", run_id="run_1")
    assert (run.status, run.stop_reason) == ("waiting", "waiting")
    assert hf.runs.retrieve("run_1").status == "waiting"

    hf.runs.answer("run_1", "7")
    run = await desk().run("Moor.", run_id="run_1")

    assert [each.text for each in run.results] == ["Hello.", "moored"]
    assert (run.status, len(model.asked), len(other.asked)) == ("completed", 2, 1)
    assert hf.runs.retrieve("run_1").status == "completed"


async def test_an_agent_alone_rests_and_returns_its_result(hf: Holdfast) -> None:
    model = ScriptedModel([call("berth"), "moored"])
    ada = Agent("ada", instructions="Moor.", model=model, tools=[berth], hf=hf)

    result = await ada.run("Moor.", run_id="run_1")
    assert result.stop_reason == "waiting"
    assert hf.runs.retrieve("run_1").status == "waiting"

    hf.runs.answer("run_1", "7")
    result = await ada.run("Moor.", run_id="run_1")

    assert (result.text, len(model.asked)) == ("moored", 2)
    assert hf.runs.retrieve("run_1").status == "completed"


async def test_of_a_network_and_an_agent_facts_alone_are_stored_if_that_is_wanted(
    hf: Holdfast,
) -> None:
    ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Secret.", "Secret."]))
    desk = Network("desk", [ada], router=lambda ctx: None if ctx.call_count else "ada")

    await desk.run("Go.", run_id="run_1", hf=hf, record="facts")
    await ada.run("Go.", run_id="run_2", hf=hf, record="facts")

    for run_id in ("run_1", "run_2"):
        told = list(hf.runs.follow(run_id))
        assert told[-1].type == "run.completed"
        assert "Secret." not in repr(told)
