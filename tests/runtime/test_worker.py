"""Workers in processes of their own: killed, stopped, and gone on with."""

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from processes import killed
from runtime.plans.dying import dying_plan
from runtime.plans.workers import Workers

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.runtime import (
    Agent,
    Definition,
    Network,
    ParallelTaskExecutor,
    RunStart,
    Worker,
    definition,
)
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.testing.serving import new_workspace

STEPS = ["list", "e0", "e1", "sum", "b1"]
LONG = timedelta(seconds=61)
"""Longer than a lease."""


def kelp(workers: Workers) -> Definition:
    """Return a definition of a plan that *workers* do."""
    workers.gives["list"] = ["x", "y"]

    @definition("kelp")
    def plan(start: RunStart) -> ParallelTaskExecutor:
        start.context.model = workers.model
        return ParallelTaskExecutor(
            plan=dying_plan(), context=start.context.narrowed(1), inputs=start.input
        )

    return plan


async def worked(worker: Worker, hf: holdfast.Holdfast, run_id: str) -> None:
    """Let *worker* work until the run has ended."""
    working = asyncio.create_task(worker.work())
    async with asyncio.timeout(60):
        await asyncio.to_thread(list, hf.runs.follow(run_id))
    worker.stop()
    await working


def work_until(target: str, where: str) -> None:
    """Work on `run_1`, and kill this process when *where* is begun."""
    workers = Workers()

    def die(id: str) -> None:
        if id == where:
            os.kill(os.getpid(), signal.SIGKILL)

    workers.on_begin = die
    workspace, _, database = target.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        asyncio.run(worked(Worker(hf, kelp(workers)), hf, "run_1"))


REQUESTS = ["ada 0", "sound ada", "ada 1", "bob 0", "sound bob", "bob 1"]
"""What a network of two agents does: their requests, and the tool that each calls."""


def crew(begin: Callable[[str], object]) -> Network:
    """Return the network `crew`; *begin* gets each request and each call of a tool."""

    def agent(name: str) -> Agent:
        def sound() -> str:
            begin(f"sound {name}")
            return "sounded by " + name

        def turn(asked: Asked) -> Any:
            said = f"sounded by {name}" in asked.text
            begin(f"{name} {int(said)}")
            return f"{name} is done." if said else call("sound")

        return Agent(name, instructions="", tools=[sound], model=ScriptedModel(turn))

    names = ["ada", "bob"]
    return Network(
        "crew",
        [agent(name) for name in names],
        router=lambda ctx: names[ctx.call_count] if ctx.call_count < len(names) else None,
    )


def lone(begin: Callable[[str], object]) -> Agent:
    """Return the agent `crew`, which does what the first one of the crew does."""
    return crew(begin).agents["ada"].replace(name="crew")


def crew_until(target: str, where: str, kind: str) -> None:
    """Work on `run_2` of *kind*, and kill this process when *where* is begun."""

    def die(what: str) -> None:
        if what == where:
            os.kill(os.getpid(), signal.SIGKILL)

    workspace, _, database = target.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        hf.runs.start("crew", "Sound.", run_id="run_2")
        made = crew(die) if kind == "network" else lone(die)
        asyncio.run(worked(Worker(hf, made), hf, "run_2"))


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give a workspace and its database, with `run_1` in its queue."""
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    target = f"{new_workspace()}@{url or tmp_path / 'h.db'}"
    workspace, _, database = target.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        hf.runs.start("kelp", {"topic": "kelp"}, run_id="run_1")
    return target


@pytest.mark.parametrize("where", STEPS)
def test_a_worker_that_is_killed_is_followed_by_another(target: str, where: str) -> None:
    killed(work_until, target, where)
    workers = Workers()
    workspace, _, database = target.partition("@")
    later = FrozenClock(SystemClock().now() + LONG)

    with holdfast.open(database, workspace=workspace, clock=later) as hf:
        asyncio.run(worked(Worker(hf, kelp(workers)), hf, "run_1"))
        run = hf.runs.retrieve("run_1")
        types = [each.type for each in hf.runs.follow("run_1")]

    assert (run.status, run.fence, run.definition) == ("completed", 2, "kelp")
    surely = STEPS.index("e0" if where in ("e0", "e1") else where)
    assert workers.began in (STEPS[STEPS.index(where) :], STEPS[surely:])
    told = [each for each in types if each.startswith("run.")]
    assert told == [
        "run.queued",
        "run.started",
        "run.lost",
        "run.queued",
        "run.resumed",
        "run.completed",
    ]


@pytest.mark.parametrize(
    ("kind", "where"),
    [*(("network", each) for each in REQUESTS), *(("agent", each) for each in REQUESTS[:3])],
)
def test_networks_and_agents_go_on_from_their_last_kept_message(
    target: str, kind: str, where: str
) -> None:
    killed(crew_until, target, where, kind)
    begun: list[str] = []
    workspace, _, database = target.partition("@")
    later = FrozenClock(SystemClock().now() + LONG)

    with holdfast.open(database, workspace=workspace, clock=later) as hf:
        made = crew(begun.append) if kind == "network" else lone(begun.append)
        asyncio.run(worked(Worker(hf, made), hf, "run_2"))
        run = hf.runs.retrieve("run_2")

    assert (run.status, run.kind, run.fence) == ("completed", kind, 2)
    does = REQUESTS if kind == "network" else REQUESTS[:3]
    assert begun == does[does.index(where) :]
