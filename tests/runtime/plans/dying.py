"""A run in a process of its own that is killed when a step is begun."""

import asyncio
import os
import signal
from collections.abc import Generator
from contextlib import contextmanager

from runtime.plans.workers import Workers, plan, step, task

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import EngineCheckpoints, FileCheckpoints, ParallelTaskExecutor, TaskPlan
from holdfast.runtime.runs.checkpoints import Checkpoints


def dying_plan() -> TaskPlan:
    """Return a plan with a chain, a fan-out and a task that needs another."""
    each = step("each", "list", mode="process", per_item_instructions="Work on e{index}. {item}")
    return plan(
        task("a", step("list", output_schema={}), each, step("sum", "each")),
        task("b", step("b1"), depends_on=["a"]),
    )


@contextmanager
def places(target: str) -> Generator[tuple[Holdfast | None, Checkpoints | None]]:
    """Give the handle and the checkpoints of a run at *target*.

    That is `files:DIRECTORY`, or a workspace at a database, for the run's record after `record:`.
    """
    if target.startswith("files:"):
        yield None, FileCheckpoints(target.removeprefix("files:"))
        return
    workspace, _, database = target.removeprefix("record:").partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        yield (hf, None) if target.startswith("record:") else (None, EngineCheckpoints(hf))


async def run(target: str, workers: Workers) -> object:
    """Run the plan, or go on with it, one step at a time."""
    workers.gives["list"] = ["x", "y"]
    with places(target) as (hf, kept):
        context = workers.context(run_id="run_1", max_concurrency=1, take_over="always", hf=hf)
        return await ParallelTaskExecutor(
            plan=dying_plan(), context=context, inputs={"topic": "kelp"}, checkpoint=kept
        ).run()


def run_until(target: str, where: str) -> None:
    """Run the plan, and kill this process when *where* is begun."""
    workers = Workers()

    def die(id: str) -> None:
        if id == where:
            os.kill(os.getpid(), signal.SIGKILL)

    workers.on_begin = die
    asyncio.run(run(target, workers))
