"""A process step at work: one agent for each item of a list, and their results in its order."""

import asyncio
from collections.abc import Mapping, Sequence

from holdfast.ground.errors import InvalidInput, LimitExceeded
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.runtime.events import LogUpdate, StepError, StepResult, TaskMoment, TaskUpdate
from holdfast.runtime.metrics import counts
from holdfast.runtime.plans.items import NotAList, bad, good, item_step, items_of
from holdfast.runtime.plans.plan import State, Step, Task
from holdfast.runtime.plans.schedule import Crew, PlanContext, Spent
from holdfast.runtime.steps.leaving import leave_failure, leave_result

NAMED = 20
"""Failed items that an error names; it counts all."""


class FanOut:
    """The process step *step* of *task*; *finish* when its result is the task's.

    What its items cost is added to *spent*.
    """

    def __init__(
        self, task: Task, step: Step, means: PlanContext, *, finish: bool, spent: Spent
    ) -> None:
        self._task, self._step, self._means, self._finish = task, step, means, finish
        self._context = means.context
        self._failed: dict[int, StepError] = {}
        self._spent = spent

    async def perform(self) -> None:
        """Work on each item; the step then has its state, its entry, and its events are told."""
        self._step.begin(self._context.now())
        # Its items can be spoken to, each by its own id; nobody hears what is said to it.
        self._context.steering.started(self._step.id).end()
        await self._tell("step_started")
        try:
            await self._perform()
        except asyncio.CancelledError:
            # Its items have said so of themselves.
            self._end("cancelled")
            why = self._context.cancelled or "cancelled"
            self._context.tell_soon(self._update("step_cancelled", cause=why))
            raise

    async def _perform(self) -> None:
        step = self._step
        try:
            items = items_of(self._source())
        except NotAList as error:
            return await self._fail("not_a_list", f"the items must be a list, not {error}")
        if len(items) > step.max_items:
            told = f"there are {len(items)} items, over max_items, which is {step.max_items}"
            return await self._fail("too_many_items", told)
        await self._work(items)
        if self._failed and (step.on_item_error == "fail" or len(self._failed) == len(items)):
            return await self._fail("items", _named(self._failed, len(items)))
        return await self._complete(items)

    def _source(self) -> JSON:
        first = self._step.depends_on[0]
        of_step = any(each.id == first for each in self._task.steps)
        return self._context.memory.get_value(keys.step(first) if of_step else keys.input(first))

    async def _work(self, items: Sequence[JSON]) -> None:
        """Work on *items*, no more at once than may be, so that others get their turn."""
        waiting = iter(enumerate(items))
        async with Crew[int, None]() as crew:
            for index, item in waiting:
                crew.start(index, self._one(index, item))
                if len(crew) >= self._context.slots.most:
                    await crew.next()
            while crew:
                await crew.next()

    async def _one(self, index: int, item: JSON) -> None:
        means, step = self._means, item_step(self._step, item, index)
        if means.restored(step.id):
            return await self._tell("step_restored", step=step, item_index=index)
        executor = means.executor(self._task, step, item_index=index)
        await executor.perform()
        self._spent.add(executor)
        if executor.error is not None:
            self._failed[index] = executor.error
        elif means.keeper is not None:
            means.keeper.note(step.id)
        return None

    def _results(self, items: Sequence[JSON]) -> JSON:
        return [
            bad(index, item, self._failed[index].message)
            if index in self._failed
            else good(index, item, self._result(index))
            for index, item in enumerate(items)
        ]

    def _result(self, index: int) -> JSON:
        return self._context.memory.get_value(keys.step(f"{self._step.id}.{index}"))

    async def _complete(self, items: Sequence[JSON]) -> None:
        results = self._results(items)
        try:
            memory = self._context.memory
            leave_result(memory, self._task, self._step, results, finish=self._finish)
        except (InvalidInput, LimitExceeded) as error:
            return await self._fail("memory", str(error))
        self._end("completed")
        await self._tell("step_completed")
        told = StepResult(
            task_id=self._task.id,
            step_id=self._step.id,
            result=results,
            is_task_result=self._finish,
        )
        return await self._context.tell(told)

    async def _fail(self, reason: str, message: str) -> None:
        step, error = self._step, StepError(reason, message)
        self._end("failed", error)
        try:
            leave_failure(self._context.memory, step, error)
        except LimitExceeded as full:
            content = f"the failure could not be kept: {full}"
            await self._context.tell(
                LogUpdate(severity="error", content=content, task_id=self._task.id, step_id=step.id)
            )
        await self._tell("step_failed", cause=str(error))
        told = StepResult(task_id=self._task.id, step_id=step.id, error=error)
        await self._context.tell(told)

    def _end(self, state: State, error: StepError | None = None) -> None:
        step, now = self._step, self._context.now()
        step.end(state, now, error)
        seconds = (now - (step.started_at or now)) / 1000
        reason = error.reason if error else ""
        counts.step_ended(state, reason, seconds=seconds, iterations=None)

    async def _tell(
        self,
        event: TaskMoment,
        *,
        step: Step | None = None,
        item_index: int | None = None,
        cause: str | None = None,
    ) -> None:
        await self._context.tell(self._update(event, step, item_index=item_index, cause=cause))

    def _update(
        self,
        event: TaskMoment,
        step: Step | None = None,
        *,
        item_index: int | None = None,
        cause: str | None = None,
    ) -> TaskUpdate:
        return TaskUpdate(
            event=event,
            task_id=self._task.id,
            step_id=(step or self._step).id,
            item_index=item_index,
            cause=cause,
        )


def _named(failed: Mapping[int, StepError], count: int) -> str:
    """Return which items failed, and why the first of them did."""
    indexes = sorted(failed)
    shown = ", ".join(map(str, indexes[:NAMED])) + (", …" if len(indexes) > NAMED else "")
    return f"{len(indexes)} of {count} items failed ({shown}); {indexes[0]}: {failed[indexes[0]]}"
