"""A task at work: its steps, each as soon as it may start, and what came of them together."""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.trace import Span

from holdfast.ground.errors import LimitExceeded
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.runtime.events import StepError, StepResult, TaskMoment, TaskUpdate
from holdfast.runtime.plans.fanout import FanOut
from holdfast.runtime.plans.plan import State, Step, Task
from holdfast.runtime.plans.schedule import Blocked, PlanContext, Spent, walk
from holdfast.runtime.steps.leaving import leave_failure, leave_task_result

log = logging.getLogger(__name__)


class TaskWork:
    """The steps of *task*, of which *finish* gives its result; at most *max_steps* are begun."""

    def __init__(self, task: Task, means: PlanContext, *, finish: str, max_steps: int) -> None:
        self.task, self._means, self._finish = task, means, finish
        self._max_steps, self._begun = max_steps, 0
        self._context = means.context
        self._steps = {step.id: step for step in task.steps}
        self.spent = Spent()

    @property
    def result(self) -> JSON:
        """The result of the task as it stands in the run's memory; None unless it is complete."""
        return self._context.memory.get_value(keys.task(self.task.id)) if self.done else None

    @property
    def done(self) -> bool:
        """Whether the task is complete."""
        return self.task.completed

    def ids(self, state: str) -> tuple[str, ...]:
        """Return the steps that are in *state*."""
        return tuple(step.id for step in self.task.steps if step.state == state)

    def reset(self) -> None:
        """Make the task and all its steps pending; words for them wait until they start."""
        self.task.reset()
        for step in self.task.steps:
            step.reset()
        self._context.steering.expect(self._steps)

    async def perform(self) -> None:
        """Run the steps; the task then has its state and result, and its events are told.

        What it fails with is never raised; cancelled, it says so of all that was not done.
        """
        with self._context.tracer.start_as_current_span("holdfast.task") as span:
            self.task.begin(self._context.now())
            try:
                await self._tell("task_created")
                await walk(self._needs(), perform=self._one, blocked=self._blocked)
                await self._settle()
            except asyncio.CancelledError:
                self.cancel()
                raise
            except Exception as error:
                # Not the model's doing but ours: it must not stop tasks that do not need this one.
                log.exception("the task %s of the run %s", self.task.id, self._context.run_id)
                await self.fail(StepError("internal", f"{type(error).__name__}: {error}"))
            finally:
                self._describe(span)

    async def restore(self) -> None:
        """Take the task as complete: it was, in an earlier process."""
        for step in self.task.steps:
            await self._restore(step)
        self.task.end("completed", self._context.now())
        await self._tell("task_restored", result=self.result)

    def cancel(self) -> None:
        """Say of the task, and of all its steps that have not ended, that they were cancelled."""
        why, now = self._context.cancelled or "cancelled", self._context.now()
        for step in self.task.steps:
            if not step.settled:
                self._end(step, "cancelled")
                self._context.tell_soon(self._update("step_cancelled", step, cause=why))
        if not self.task.settled:
            self.task.end("cancelled", now)
            self._context.tell_soon(self._update("task_cancelled", cause=why))

    async def block(self, by: Sequence[str], cause: str) -> None:
        """Say that neither the task nor any of its steps will start, for the tasks *by* failed."""
        for step in self.task.steps:
            await self._block(step, by, cause)
        self.task.end("blocked", self._context.now())
        self.task.blocked_by = list(by)
        await self._tell("task_blocked", cause=cause, blocked_by=tuple(by))

    async def fail(self, error: StepError) -> None:
        """Let the task fail with *error*; steps that have not ended are cancelled."""
        for step in self.task.steps:
            if not step.settled:
                self._end(step, "cancelled")
                await self._tell("step_cancelled", step, cause=str(error))
        self.task.end("failed", self._context.now(), error)
        await self._tell("task_failed", cause=error.message)

    def _needs(self) -> dict[str, list[str]]:
        """Return what each step waits for: the finish step for all others, whatever it says."""
        needs = {step.id: list(step.depends_on) for step in self.task.steps}
        return needs | {self._finish: [each for each in needs if each != self._finish]}

    async def _one(self, id: str) -> bool | None:
        """Do the step *id*; None when no more steps may be begun."""
        step = self._steps[id]
        if self._means.restored(id):
            await self._restore(step)
            return True
        if self._begun == self._max_steps:
            return None
        self._begun += 1
        try:
            await self._work_on(step)
        except Exception as error:
            # Not the model's doing but ours: it must not stop what has nothing to do with it.
            log.exception("the step %s of the run %s", id, self._context.run_id)
            if not step.settled:
                await self._fail(step, StepError("internal", f"{type(error).__name__}: {error}"))
        return step.completed

    async def _work_on(self, step: Step) -> None:
        means, finish = self._means, step.id == self._finish
        if step.mode == "process":
            await FanOut(self.task, step, means, finish=finish, spent=self.spent).perform()
        else:
            executor = means.executor(self.task, step, finish=finish)
            await executor.perform()
            self.spent.add(executor)
        if step.completed and means.keeper is not None:
            means.keeper.note(step.id, task=self.task.id if finish else None)
            # Nothing that needs it starts before it is kept.
            await means.keeper.keep()

    async def _restore(self, step: Step) -> None:
        self._end(step, "completed")
        await self._tell("step_restored", step)

    async def _blocked(self, blocked: Blocked) -> None:
        cause = f"needs {', '.join(blocked.by)}, which failed"
        await self._block(self._steps[blocked.id], blocked.by, cause)

    async def _block(self, step: Step, by: Sequence[str], cause: str) -> None:
        self._end(step, "blocked")
        step.blocked_by = list(by)
        await self._tell("step_blocked", step, cause=cause, blocked_by=tuple(by))

    def _end(self, step: Step, state: State) -> None:
        """Let *step* be over without having been begun; nobody can speak to it any more."""
        step.end(state, self._context.now())
        self._context.steering.started(step.id).end()

    async def _fail(self, step: Step, error: StepError) -> None:
        step.end("failed", self._context.now(), error)
        # It is told as failed even where the memory is too full to say so.
        with suppress(LimitExceeded):
            leave_failure(self._context.memory, step, error)
        await self._tell("step_failed", step, cause=str(error))
        told = StepResult(task_id=self.task.id, step_id=step.id, error=error)
        await self._context.tell(told)

    async def _settle(self) -> None:
        """Say what came of the task, now that no step runs or can start."""
        full = f"max_steps, which is {self._max_steps}, have been begun"
        for step in self.task.steps:
            if not step.settled:
                await self._block(step, (), full)
        if self.ids("completed") != tuple(self._steps):
            return await self.fail(self._error(full))
        try:
            self._fill()
        except LimitExceeded as error:
            return await self.fail(StepError("memory", str(error)))
        self.task.end("completed", self._context.now())
        return await self._tell("task_completed", result=self.result)

    def _fill(self) -> None:
        """Set the task's result from that of its finish step, if nothing has set it."""
        memory, task = self._context.memory, self.task
        if not memory.has(keys.task(task.id)):
            leave_task_result(memory, task, memory.get_value(keys.step(self._finish)))

    def _error(self, full: str) -> StepError:
        """Return why the task failed, naming every step that did."""
        failed = {step.id: step.error for step in self.task.steps if step.error is not None}
        if not failed:
            return StepError("max_steps", full)
        reasons = {error.reason for error in failed.values()}
        told = "; ".join(f"step {id} failed: {error}" for id, error in failed.items())
        return StepError("internal" if "internal" in reasons else "steps", told)

    def _describe(self, span: Span) -> None:
        span.set_attribute("holdfast.run_id", self._context.run_id)
        span.set_attribute("holdfast.task_id", self.task.id)
        span.set_attribute("holdfast.state", self.task.state)
        if self.task.error is not None:
            span.set_attribute("holdfast.reason", self.task.error.reason)

    async def _tell(
        self,
        event: TaskMoment,
        step: Step | None = None,
        *,
        cause: str | None = None,
        blocked_by: tuple[str, ...] = (),
        result: JSON = None,
    ) -> None:
        update = self._update(event, step, cause=cause, blocked_by=blocked_by, result=result)
        await self._context.tell(update)

    def _update(
        self,
        event: TaskMoment,
        step: Step | None = None,
        *,
        cause: str | None = None,
        blocked_by: tuple[str, ...] = (),
        result: JSON = None,
    ) -> TaskUpdate:
        return TaskUpdate(
            event=event,
            task_id=self.task.id,
            title=self.task.title,
            step_id=step.id if step else None,
            cause=cause,
            blocked_by=blocked_by,
            result=result,
        )
