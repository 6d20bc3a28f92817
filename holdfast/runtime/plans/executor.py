"""A plan, executed: its tasks side by side, by what they need, gone on with where it was left."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Literal

from holdfast.ground.errors import CheckpointMismatch, InvalidInput, InvalidPlan, NotFound
from holdfast.ground.errors import PlanFailed as Failed
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.memories.run.entry import RunEntry
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.checkpoints import (
    Checkpoint,
    Checkpoints,
    CheckpointWriter,
    differing,
    hashed,
)
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.parts import parts_of
from holdfast.runtime.plans.plan import TaskPlan
from holdfast.runtime.plans.report import Report, reported
from holdfast.runtime.plans.schedule import Blocked, PlanContext, supply, taken, walk
from holdfast.runtime.plans.work import TaskWork

OnMismatch = Literal["refuse", "restart"]
"""What becomes of a checkpoint of another run under the same id: it stands, or is given up."""

SPARE = 5
"""Steps that a task may begin beyond those it has, unless told otherwise."""


class ParallelTaskExecutor:
    """Executes *plan*; its problems are all raised here, as InvalidPlan, before anything runs.

    With *checkpoint* every completed step is kept there, and a run of the same `run_id` goes on
    from what is kept; when that was begun with something else, CheckpointMismatch names it,
    unless *on_mismatch* is "restart". *max_concurrency* narrows that of the context.
    """

    def __init__(
        self,
        *,
        plan: TaskPlan,
        context: Context,
        model: AnyModel | None = None,
        agent: Agent | None = None,
        tools: Sequence[AnyTool] = (),
        toolsets: Sequence[AnyToolset] = (),
        inputs: Mapping[str, JSON] | None = None,
        system_prompt: str | None = None,
        max_step_iterations: int = 10,
        max_steps: int | None = None,
        max_concurrency: int | None = None,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
    ) -> None:
        within = context if max_concurrency is None else context.narrowed(max_concurrency)
        means = PlanContext(
            within,
            model=model,
            agent=agent,
            tools=tools,
            toolsets=toolsets,
            system_prompt=system_prompt,
            max_iterations=max_step_iterations,
        )
        self.name, self.title = "plan", plan.title
        self.context, self.plan, self._inputs = context, plan, taken(inputs)
        if problems := plan.problems(self._inputs, means.tool_names()):
            raise InvalidPlan(problems)
        means.check(plan.tasks[0])
        if on_mismatch not in ("refuse", "restart"):
            raise InvalidInput("on_mismatch", "must be refuse or restart", given=on_mismatch)
        self._means, self._max_steps = means, max_steps
        self._checkpoints, self._on_mismatch = checkpoint, on_mismatch
        self._keeper: CheckpointWriter | None = None
        self._works = self._made(means)

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; give its events as they happen."""
        return executor.events(self)

    async def run(self) -> JSON:
        """Execute it; return the final result, or raise PlanFailed or RunCancelled."""
        return await executor.run(self)

    def run_sync(self) -> JSON:
        """Do as `run` does, without an event loop."""
        return executor.run_sync(self)

    async def perform(self) -> None:
        """Do the work, telling of it."""
        for work in self._works.values():
            work.reset()
        try:
            await self._perform()
        except asyncio.CancelledError:
            for work in self._works.values():
                work.cancel()
            raise
        finally:
            if self._keeper:
                await self._keeper.close()

    def ending(self) -> ExecutionOutcome:
        """Return what came of it."""
        completed = tuple(task.id for task in self.plan.tasks if task.completed)
        failed = {task.id: task.error for task in self.plan.tasks if task.failed}
        if not failed:
            return ExecutionOutcome(
                state="completed", result=self.get_final_result(), completed=completed
            )
        cause = "; ".join(
            f"task {id}: {error.message if error else ''}" for id, error in failed.items()
        )
        failure = Failed(
            cause, failed=tuple(failed), blocked=self.blocked_task_ids(), report=self.report()
        )
        return ExecutionOutcome(state="failed", reason=cause, failure=failure, completed=completed)

    def get_final_result(self) -> JSON:
        """Return the result of the final task; None unless it is complete."""
        return self.get_task_result(self.plan.final.id)

    def get_task_result(self, id: str) -> JSON:
        """Return the result of the task *id*, None unless it is complete; NotFound for no task."""
        if id not in self._works:
            raise NotFound("task", id, next="Pass the id of a task of this plan.")
        return self._works[id].result

    def get_all_results(self, scope: Literal["run", "plan"] = "run") -> dict[str, JSON]:
        """Return every unfailed result of a task by its id: of the whole run, or of this plan."""
        found = self.context.memory.list(kind="task_result")
        results = {keys.split(entry.key)[1]: entry.value for entry in found if not entry.failed}
        if scope == "run":
            return results
        return {id: value for id, value in results.items() if id in self._works}

    def failed_task_ids(self) -> list[str]:
        """Return the tasks that failed, in the order of the plan."""
        return [task.id for task in self.plan.tasks if task.failed]

    def blocked_task_ids(self) -> list[str]:
        """Return the tasks that never started because others failed, in the order of the plan."""
        return [task.id for task in self.plan.tasks if task.state == "blocked"]

    def report(self) -> Report:
        """Return what came of each task."""
        return Report(
            title=self.plan.title,
            run_id=self.context.run_id,
            tasks=tuple(
                reported(work.task, iterations=work.spent.iterations, tokens=work.spent.tokens)
                for work in self._works.values()
            ),
            checkpoint_failed=self._keeper.failed if self._keeper else None,
        )

    async def _perform(self) -> None:
        before = self.context.memory.snapshot()
        kept = await self._loaded()
        self._works = self._made(self._means.keeping(self._keeper))
        supply(self.context, self._inputs)
        await self._warn(before, kept)
        needs = {task.id: task.depends_on for task in self.plan.tasks}
        await walk(needs, perform=self._one, blocked=self._blocked)
        if self._keeper:
            await self._keeper.keep()

    def _made(self, means: PlanContext) -> dict[str, TaskWork]:
        """Return the work on each task; it may read what its task needs."""
        return {
            task.id: TaskWork(
                task,
                means.reading(map(keys.task, task.depends_on)),
                finish=task.steps[-1].id,
                max_steps=self._max_steps or len(task.steps) + SPARE,
            )
            for task in self.plan.tasks
        }

    async def _loaded(self) -> Checkpoint | None:
        """Go on from what is kept of the run, if anything is; return it."""
        if self._checkpoints is None:
            return None
        parts = parts_of(self.plan, self._inputs, self._means)
        self._keeper = CheckpointWriter(self._checkpoints, self.context, parts)
        kept = await asyncio.to_thread(self._checkpoints.load, self.context.run_id)
        if kept is None:
            return None
        if kept.plan_hash != hashed(parts):
            other = differing(kept.parts, parts)
            if self._on_mismatch == "refuse":
                raise CheckpointMismatch(other)
            await self._log(
                f"Started again: the checkpoint is of another run ({', '.join(other)})."
            )
            return None
        self._keeper.go_on(kept)
        return kept

    async def _warn(self, before: Sequence[RunEntry], kept: Checkpoint | None) -> None:
        """Warn of results of this plan that somebody else has put into memory."""
        ours = {keys.task(task.id) for task in self.plan.tasks}
        ours |= {keys.step(step.id) for step in self.plan.steps}
        known = {entry.key for entry in kept.entries} if kept else set[str]()
        for entry in before:
            if entry.key in ours - known:
                await self._log(f"{entry.key} was in memory before the plan began.")

    async def _log(self, warning: str) -> None:
        await self.context.tell(LogUpdate(severity="warning", content=warning))

    async def _one(self, id: str) -> bool:
        work = self._works[id]
        if self._keeper and id in self._keeper.restored_tasks:
            await work.restore()
            return True
        await work.perform()
        return work.done

    async def _blocked(self, blocked: Blocked) -> None:
        cause = f"needs {', '.join(blocked.by)}, which failed"
        await self._works[blocked.id].block(blocked.by, cause)
