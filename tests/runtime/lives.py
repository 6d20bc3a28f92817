"""Runs of every kind in processes of their own, which are killed and gone on with."""

import asyncio
import os
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from runtime.plans.workers import plan, step, task
from teams import create, leading, opening, work

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    Edge,
    FileCheckpoints,
    FunctionNode,
    MultiModeAgent,
    Network,
    ParallelTaskExecutor,
    StepExecutor,
    TaskExecutor,
    TaskPlanner,
    TeamExecutor,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.testing.scripted import Asked, ScriptedModel, call

Execute = Callable[[Any, "Life"], Any]


class Life:
    """One process of a run: its model writes each reply to *log*, and dies at request *dies_at*.

    With *in_tool* its tool `look` dies instead.
    """

    def __init__(self, log: Path, dies_at: int = 0, *, in_tool: bool = False) -> None:
        self._log, self._dies_at, self._in_tool = log, dies_at, in_tool
        self._requests = 0

    def model(self, act: Callable[[Asked], object]) -> ScriptedModel:
        """Return a model that does *act*."""

        def answer(asked: Asked) -> object:
            self._requests += 1
            if self._requests == self._dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            said = act(asked)
            self.note("reply")
            return said

        return ScriptedModel(answer)

    def look(self) -> str:
        """Look."""
        if self._in_tool:
            os.kill(os.getpid(), signal.SIGKILL)
        self.note("look")
        return "12 seals"

    def note(self, what: str) -> None:
        """Write *what* to the log."""
        with self._log.open("a") as file:
            file.write(f"{what}\n")
            os.fsync(file.fileno())


def worker(asked: Asked) -> object:
    """Look first where there is a tool for it, then finish."""
    if "look" in asked.offered and "12 seals" not in asked.text:
        return call("look")
    return call("finish_step", result="done") if "finish_step" in asked.offered else "done"


def planner(asked: Asked) -> object:
    """Plan a task in two requests, and do its step."""
    if "add_task" not in asked.offered:
        return worker(asked)
    if "task_added" in asked.text:
        return call("finish_plan")
    steps = [{"id": "count", "instructions": "Count."}]
    return call("add_task", id="t", title="Count", steps=steps)


async def step_run(within: Any, life: Life) -> object:
    one, model = step("a"), life.model(worker)
    return await StepExecutor(
        task=task("t", one), step=one, tools=[life.look], **within(model)
    ).run()


async def task_run(within: Any, life: Life) -> object:
    steps = task("t", step("a"), step("b", "a"), step("c", "b"))
    return await TaskExecutor(task=steps, **within(life.model(worker))).run()


async def plan_run(within: Any, life: Life) -> object:
    tasks = [task(f"t{n}", depends_on=[f"t{n - 1}"] if n else []) for n in range(6)]
    return await ParallelTaskExecutor(plan=plan(*tasks), **within(life.model(worker))).run()


async def planner_run(within: Any, life: Life) -> object:
    found = await TaskPlanner(objective="Count the seals.", **within(life.model(planner))).run()
    return [each.id for each in found.tasks]


async def mode_run(within: Any, life: Life) -> object:
    given = within(life.model(planner))
    place = given.pop("checkpoint")
    agent = MultiModeAgent(name="ada", objective="Count.", mode="plan", checkpoint=place)
    return await agent.run(given["context"])


async def workflow_run(within: Any, life: Life) -> object:
    def count(inputs: dict[str, Any], _: Context) -> dict[str, Any]:
        life.note("node")
        return {"n": len(inputs)}

    nodes = [
        FunctionNode("count", count),
        AgentStepNode("say", "Say it."),
        AgentStepNode("check", "Check it."),
    ]
    edges = [Edge("count", "n", "say", "n"), Edge("say", "result", "check", "said")]
    outputs = await WorkflowRunner(Workflow(nodes, edges), **within(life.model(worker))).run()
    return outputs["check"]["result"]


async def team_run(within: Any, life: Life) -> object:
    def lead(asked: Asked) -> object:
        if opening(asked):
            life.note("turn")
        return leading([create("Count"), create("Report")])(asked)

    given = within(life.model(lead))
    bob = Agent("bob", instructions="I am bob.", description="Bob.", model=life.model(work))
    ada = Agent("ada", instructions="I am ada.", description="Ada.")
    team = TeamExecutor(objective="Count the seals.", agents=[ada, bob], max_concurrency=1, **given)
    result = await team.run()
    return [task.title for task in result.done]


async def network_run(within: Any, life: Life) -> object:
    def act(asked: Asked) -> object:
        return worker(asked)

    def route(ctx: Any) -> str | None:
        life.note("route")
        ctx.state.data["calls"] = ctx.call_count
        return "abc"[ctx.call_count] if ctx.call_count < 3 else None

    given = within(life.model(act))
    context, place = given["context"], given["checkpoint"]
    agents = [Agent(name, instructions="Be brief.", model=context.model) for name in "abc"]
    run = await Network("desk", agents, router=route).run(
        "Count.", run_id="run_1", hf=context.hf, checkpoint=place, take_over="always"
    )
    return [[each.agent for each in run.results], run.state.data["calls"]]


async def agent_run(within: Any, life: Life) -> object:
    given = within(life.model(worker))
    context, place = given["context"], given["checkpoint"]
    ada = Agent("ada", instructions="Be brief.", model=context.model, tools=[life.look])
    result = await ada.run(
        "Count.", run_id="run_1", hf=context.hf, checkpoint=place, take_over="always"
    )
    return result.text


KINDS: dict[str, tuple[Execute, object, int]] = {
    "step": (step_run, "done", 2),
    "task": (task_run, "done", 3),
    "plan": (plan_run, "done", 6),
    "planner": (planner_run, ["t"], 2),
    "mode": (mode_run, "done", 3),
    "workflow": (workflow_run, "done", 2),
    "network": (network_run, [["a", "b", "c"], 3], 3),
    "agent": (agent_run, "done", 2),
    "team": (team_run, ["Count", "Report"], 0),
}
"""Each kind with its result, and the number of replies that it takes."""


@contextmanager
def places(target: str) -> Generator[tuple[Holdfast | None, Checkpoints | None]]:
    """Give the handle and the checkpoints at *target*: `files:DIRECTORY`, or a workspace."""
    if target.startswith("files:"):
        yield None, FileCheckpoints(target.removeprefix("files:"))
        return
    workspace, _, database = target.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        yield hf, None


async def lived(kind: str, target: str, life: Life) -> object:
    """Run *kind*, or go on with it; return its result."""
    with places(target) as (hf, kept):

        def within(model: ScriptedModel) -> dict[str, Any]:
            context = Context(run_id="run_1", model=model, hf=hf, take_over="always")
            return {"context": context, "checkpoint": kept}

        return await KINDS[kind][0](within, life)


def live(kind: str, target: str, log: str, dies_at: int, in_tool: bool) -> None:
    """Run *kind* in this process."""
    asyncio.run(lived(kind, target, Life(Path(log), dies_at, in_tool=in_tool)))
