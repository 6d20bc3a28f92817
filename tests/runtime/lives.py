"""Runs of every kind in processes of their own, which are killed and gone on with."""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from signal import SIGKILL, Signals, pthread_kill
from threading import RLock, get_ident
from typing import Any, Literal, TypeAlias

import processes
from msgspec import Struct
from msgspec.structs import replace
from pydantic_ai.messages import ModelMessage, ToolReturnPart, UserPromptPart
from runtime.plans.workers import plan, step, task
from teams import create, leading, opening, work

import holdfast
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.engines.sqlite.database import Database
from holdfast.errors import RunFailed, StaleRun
from holdfast.ground.clock import Clock, SystemClock
from holdfast.ground.json_values import JSON
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.record import TakeOver
from holdfast.memories.run.records.writer import InEngine
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
from holdfast.runtime.runs.checkpoints import Checkpoints, FileLog
from holdfast.runtime.runs.run_record import Recorded
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.tools import Tool, durable

Execute = Callable[[Any, "Life"], Any]


Point: TypeAlias = Literal["request", "tool", "version", "end"]
"""Where a process dies.

That is before a reply, inside a tool, once it has stored a version or messages, or the end.
"""

NEVER = 0

STORING = RLock()
"""Held while a process stores something of its run: one that is stopped holds no row then."""

WRITTEN: dict[int, Database] = {}
"""The files that this process wrote to, by their identity."""


@contextmanager
def at_rest() -> Generator[None]:
    """Keep this process from writing: one that is stopped holds no lock of a file then.

    A writer's thread goes on with a file after the write that it answered: it shortens its log.
    """
    with STORING, ExitStack() as stack:
        for database in WRITTEN.values():
            stack.enter_context(database.turn)
        yield


class Death(Struct, frozen=True):
    """The *number*th *point* in a process, at which it gets *sent*."""

    point: Point = "request"
    number: int = NEVER
    sent: Signals = SIGKILL


class Ahead(SystemClock):
    """A clock by which the leases of now have run out."""

    def now(self) -> datetime:
        """Return the instant in 61 s."""
        return super().now() + timedelta(seconds=61)


class Life:
    """One process of a run, which writes what it does to *log*, until its *death*.

    Its tools are `look` and, with *stores*, one that writes to our memories.
    """

    def __init__(
        self,
        log: Path,
        death: Death = Death(),  # noqa: B008 - frozen
        *,
        stores: bool = False,
        record: Recorded = "content",
    ) -> None:
        self._log, self._death, self.stores = log, death, stores
        self.record: Recorded = record
        self._met: Counter[Point] = Counter()
        self.tools: Sequence[Tool] = ()

    def pass_by(self, point: Point) -> None:
        """Die here, if it is the point to die at."""
        self._met[point] += 1
        if (point, self._met[point]) == (self._death.point, self._death.number):
            with at_rest():
                self.note("dies")
                # Sent to the process, another thread may take it, while this one goes on.
                pthread_kill(get_ident(), self._death.sent)

    def model(self, act: Callable[[Asked], object]) -> ScriptedModel:
        """Return a model that does *act*, once it has stored something if it can."""

        def answer(asked: Asked) -> object:
            self.pass_by("request")
            if "memory_store" in asked.offered and "memory_store" not in answered(asked):
                said: object = call("memory_store", key="berth", content="7", category="custom")
            else:
                said = act(unstored(asked))
            self.note("reply")
            return said

        return ScriptedModel(answer)

    def look(self) -> str:
        """Look."""
        self.pass_by("tool")
        self.note("look")
        return "12 seals"

    def store_in(self, hf: Holdfast | None) -> None:
        """Give it the tool that writes to a memory of *hf*."""
        if hf is None or not self.stores:
            return
        (store,) = (each for each in durable(hf.durable("ada")) if each.name == "memory_store")

        def work(arguments: object) -> JSON:
            self.pass_by("tool")
            done = store.work(arguments)
            self.pass_by("tool")
            return done

        self.tools = (replace(store, work=work),)

    def note(self, what: str) -> None:
        """Write *what* to the log."""
        with self._log.open("a") as file:
            file.write(f"{what}\n")
            os.fsync(file.fileno())


def answered(asked: Asked) -> set[str]:
    """Return the names of the tools that answered since the last text of a user."""
    names: set[str] = set()
    for part in (part for message in asked.messages for part in message.parts):
        if isinstance(part, UserPromptPart):
            names.clear()
        elif isinstance(part, ToolReturnPart):
            names.add(part.tool_name)
    return names


def unstored(asked: Asked) -> Asked:
    """Return *asked* without calls of the tool that stores."""

    def stores(message: ModelMessage) -> bool:
        return any(getattr(part, "tool_name", None) == "memory_store" for part in message.parts)

    messages = [message for message in asked.messages if not stores(message)]
    return replace(asked, messages=messages)


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
        task=task("t", one), step=one, tools=[life.look, *life.tools], **within(model)
    ).run()


async def task_run(within: Any, life: Life) -> object:
    steps = task("t", step("a"), step("b", "a"), step("c", "b"))
    given = within(life.model(worker))
    return await TaskExecutor(task=steps, tools=life.tools, **given).run()


async def plan_run(within: Any, life: Life) -> object:
    tasks = [task(f"t{n}", depends_on=[f"t{n - 1}"] if n else []) for n in range(6)]
    given = within(life.model(worker))
    return await ParallelTaskExecutor(plan=plan(*tasks), tools=life.tools, **given).run()


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
        AgentStepNode("say", "Say it.", tools=life.tools),
        AgentStepNode("check", "Check it.", tools=life.tools),
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
    bob = Agent(
        "bob",
        instructions="I am bob.",
        description="Bob.",
        model=life.model(work),
        tools=life.tools,
    )
    ada = Agent("ada", instructions="I am ada.", description="Ada.", tools=life.tools)
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
    agents = [
        Agent(name, instructions="Be brief.", model=context.model, tools=life.tools)
        for name in "abc"
    ]
    run = await Network("desk", agents, router=route).run(
        "Count.",
        run_id="run_1",
        hf=context.hf,
        checkpoint=place,
        take_over=context.take_over,
        record=life.record,
    )
    return [[each.agent for each in run.results], run.state.data["calls"]]


async def agent_run(within: Any, life: Life) -> object:
    given = within(life.model(worker))
    context, place = given["context"], given["checkpoint"]
    tools = [life.look, *life.tools]
    ada = Agent("ada", instructions="Be brief.", model=context.model, tools=tools)
    result = await ada.run(
        "Count.",
        run_id="run_1",
        hf=context.hf,
        checkpoint=place,
        take_over=context.take_over,
        record=life.record,
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
def places(
    target: str, clock: Clock | None = None
) -> Generator[tuple[Holdfast | None, Checkpoints | None]]:
    """Give the handle and the checkpoints at *target*: `files:DIRECTORY`, or a workspace."""
    if target.startswith("files:"):
        yield None, FileCheckpoints(target.removeprefix("files:"), clock=clock)
        return
    workspace, _, database = target.partition("@")
    with holdfast.open(database, workspace=workspace, clock=clock) as hf:
        yield hf, None


async def lived(
    kind: str,
    target: str,
    life: Life,
    *,
    clock: Clock | None = None,
    take_over: TakeOver = "always",
) -> object:
    """Run *kind*, or go on with it; return its result."""
    with places(target, clock) as (hf, kept):
        life.store_in(hf)

        def within(model: ScriptedModel) -> dict[str, Any]:
            context = Context(
                run_id="run_1",
                model=model,
                hf=hf,
                take_over=take_over,
                record=life.record,
                max_concurrency=1,
                clock=clock,
            )
            return {"context": context, "checkpoint": kept}

        return await KINDS[kind][0](within, life)


def live(kind: str, target: str, life: Life) -> None:
    """Run *kind* in this process, and pass by each version once it is stored."""
    # A process of its own session is not let go by the end of another one.
    os.setsid()
    watch(life)
    try:
        asyncio.run(lived(kind, target, life))
    except StaleRun:
        life.note("stale")
    except RunFailed as error:
        if error.stop_reason != "taken_over":
            raise
        life.note("stale")


def watch(life: Life) -> None:
    """Let *life* pass by what this process stores of its run from now on."""

    def passing(owner: type, name: str, point: Point | None = "version") -> None:
        stores = getattr(owner, name)

        def stored(*given: Any, **more: Any) -> Any:
            with STORING:
                if isinstance(given[0], SQLiteEngine):
                    database = given[0].core.database
                    WRITTEN[id(database)] = database
                found = stores(*given, **more)
                if point == "version" or (point == "end" and given[-1].ended is not None):
                    life.pass_by(point)
                return found

        setattr(owner, name, stored)

    passing(InEngine, "keep")
    passing(InEngine, "take", "end")
    for engine in (SQLiteEngine, PostgresEngine):
        passing(engine, "write", None)
    passing(FileCheckpoints, "begin")
    passing(FileLog, "append")


def begun(kind: str, target: str, life: Life) -> ForkServerProcess:
    """Begin *life* of *kind* in another process."""
    return processes.begun(live, kind, target, life)


def killed(kind: str, target: str, life: Life) -> None:
    """Let *life* of *kind* be lived in another process, which kills itself."""
    process = begun(kind, target, life)
    process.join(120)
    assert process.exitcode == -SIGKILL
