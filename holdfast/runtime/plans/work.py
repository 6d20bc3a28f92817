"""Run the steps of one task, with fan-out over items."""

import asyncio
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import msgspec

from holdfast.ground.errors import (
    Conflict,
    HoldfastError,
    InvalidInput,
    LimitExceeded,
    TaskFailed,
)
from holdfast.ground.json_values import JSON
from holdfast.memories.run import keys
from holdfast.memories.run.records.event import Reason
from holdfast.runtime.concurrency import cause_of
from holdfast.runtime.events import StepError, TaskMoment, TaskUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.plans.item_runs import ItemResult, ItemRuns, runs_of_items
from holdfast.runtime.plans.plan import State, Step, Task
from holdfast.runtime.plans.schedule import Blocked, Crew, Spent, walk
from holdfast.runtime.plans.schema import ResultSchema
from holdfast.runtime.steps.executor import StepExecutor
from holdfast.runtime.steps.record import StepRecord, leave_task_result

_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_NAMES = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "text",
}


class NotAList(ValueError):
    """A process step was given no list of items; the text describes the value."""


def items_of(value: JSON) -> list[JSON]:
    """Return the items in *value*: a list, or the only list among an object's members."""
    if value is None:
        return []
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        lists = {name: each for name, each in value.items() if isinstance(each, list)}
        if len(lists) == 1:
            return next(iter(lists.values()))
        shown = f" ({', '.join(lists)})" if lists else ""
        raise NotAList(f"an object with {len(lists) or 'no'} lists{shown}")
    raise NotAList(_NAMES[type(value)])


def told(template: str, item: JSON, index: int) -> str:
    """Return *template* with its placeholders filled from *item*, in one pass.

    `{item}` and `{index}` stand for the whole and its index, `{field}` for a member of an object.
    Without any placeholder the item follows as JSON, so that the agent always sees it.
    """
    values: dict[str, JSON] = {**item} if isinstance(item, dict) else {}
    values |= {"item": item, "index": index}
    filled = 0

    def fill(found: re.Match[str]) -> str:
        nonlocal filled
        name = found[1]
        if name not in values:
            return found[0]
        filled += 1
        return _text(values[name])

    text = _PLACEHOLDER.sub(fill, template)
    return text if filled else f"{template}\n\n{_compact(item)}"


def item_step(step: Step, item: JSON, index: int) -> Step:
    """Return the step that works on *item* of the process step *step*."""
    return replace(
        step,
        id=f"{step.id}.{index}",
        instructions=told(step.per_item_instructions or step.instructions, item, index),
        output_schema=step.output_schema if step.per_item_schema is None else step.per_item_schema,
        mode=None,
        per_item_instructions=None,
        per_item_schema=None,
        distribute=False,
    )


def output_of(step: Step, result: JSON) -> Any:
    """Return the *result* of *step*, or of its good items, of the type of its schema."""
    given = step.output_schema
    if step.mode != "process":
        return result if given is None else ResultSchema(given).instance(result)
    given = given if step.per_item_schema is None else step.per_item_schema
    if given is None or not isinstance(result, list):
        return result
    schema = ResultSchema(given)
    items = cast("list[dict[str, Any]]", result)
    return [
        {**each, "result": schema.instance(each["result"])} if each["ok"] else each
        for each in items
    ]


def good(index: int, item: JSON, result: JSON) -> JSON:
    """Return the entry of a completed item in the step's result."""
    return {"index": index, "item": item, "ok": True, "result": result}


def bad(index: int, item: JSON, error: str) -> JSON:
    """Return the entry of a failed item in the step's result."""
    return {"index": index, "item": item, "ok": False, "error": error}


def _text(value: JSON) -> str:
    return value if isinstance(value, str) else _compact(value)


def _compact(value: JSON) -> str:
    return msgspec.json.encode(cast("object", value)).decode()


NAMED = 20
"""Failed items named in an error; all are counted."""


class FanOut:
    """The process step *step* of *work*; *finish* if its result is the task's."""

    def __init__(self, work: "TaskWork", step: Step, *, finish: bool) -> None:
        self._work, self._task, self._step, self._finish = work, work.task, step, finish
        self._context = work.context
        self._record = StepRecord(work.context, work.task, step)
        self._failed: dict[int, StepError] = {}
        self._waiting = False

    async def perform(self) -> None:
        """Work on each item; set the state and the entry of the step, and emit its events."""
        # Steering reaches its items, each by its own id, and not the step itself.
        self._context.steering.started(self._step.id).end()
        await self._record.begin()
        try:
            await self._perform()
        except asyncio.CancelledError:
            if not self._step.settled:
                # Its items have emitted their own.
                self._record.end("cancelled")
                why = self._context.cancelled or "cancelled"
                self._context.tell_soon(self._record.update("step_cancelled", cause=why))
            raise

    async def _perform(self) -> None:
        step = self._step
        try:
            items = items_of(self._source())
        except NotAList as error:
            return await self._fail("not_a_list", f"the items must be a list, not {error}")
        if len(items) > step.max_items:
            message = f"there are {len(items)} items, over max_items, which is {step.max_items}"
            return await self._fail("too_many_items", message)
        runs = runs_of_items(self._context) if step.distribute else None
        await (self._here(items) if runs is None else self._distributed(items, runs))
        if self._waiting:
            # What failed is tried again with those that wait.
            step.state = "waiting"
            return None
        if self._failed and (step.on_item_error == "fail" or len(self._failed) == len(items)):
            return await self._fail("items", _named(self._failed, len(items)))
        try:
            return await self._record.complete(self._results(items), finish=self._finish)
        except (InvalidInput, LimitExceeded) as error:
            return await self._fail("memory", str(error))

    async def _here(self, items: Sequence[JSON]) -> None:
        """Work on *items* in this process."""
        # As many at once as there are slots, and as many more as may wait for their save.
        most = self._context.slots.most * (2 if self._context.versions.is_open else 1)
        async with Crew[int, None]() as crew:
            for index, item in enumerate(items):
                crew.start(index, self._one(index, item))
                if len(crew) >= most:
                    await crew.next()
            while crew:
                await crew.next()

    async def _distributed(self, items: Sequence[JSON], runs: ItemRuns) -> None:
        """Have a run of its own do each of *items*; take what ended."""
        steps = [item_step(self._step, item, index) for index, item in enumerate(items)]
        restored = self._context.versions.restored.steps
        left = [step.id for step in steps if step.id not in restored]
        try:
            if left:
                # A run of an item may begin at once, and reads what this one has stored.
                await self._context.versions.keep("step", part=self._step.id)
            over = await asyncio.to_thread(runs.outcomes, left)
        except (InvalidInput, LimitExceeded, Conflict) as error:
            # Of all items alike: an id that is too long, or of a run of something else.
            return self._failed.update(dict.fromkeys(range(len(items)), _refused(error)))
        for index, step in enumerate(steps):
            record = StepRecord(self._context, self._task, step, index)
            if step.id in restored:
                await self._context.tell(record.update("step_restored"))
            elif step.id in over:
                await self._take(index, record, over[step.id])
            else:
                self._waiting = True
        if self._waiting:
            await self._record.wait(())
        return None

    async def _take(self, index: int, record: StepRecord, found: ItemResult | StepError) -> None:
        """Make the outcome of an item, which a run of its own did, one of this run."""
        await record.begin()
        if isinstance(found, ItemResult):
            self._context.spend(found.usage, requests=found.usage.requests, elsewhere=True)
            try:
                return await record.complete(found.value, finish=False)
            except (InvalidInput, LimitExceeded) as error:
                found = StepError("memory", str(error))
        self._failed[index] = found
        return await record.fail(found)

    async def only(self, index: int) -> StepExecutor | None:
        """Work on the item *index* alone; return its executor, None if it was done before."""
        step = item_step(self._step, items_of(self._source())[index], index)
        if step.id in self._context.versions.restored.steps:
            return None
        executor = self._work.executor(step, item_index=index)
        await executor.perform()
        return executor

    async def _fail(self, reason: Reason, message: str) -> None:
        await self._record.fail(StepError(reason, message))

    def _source(self) -> JSON:
        first = self._step.depends_on[0]
        of_step = any(each.id == first for each in self._task.steps)
        return self._context.memory.get_value(keys.step(first) if of_step else keys.input(first))

    async def _one(self, index: int, item: JSON) -> None:
        work, step = self._work, item_step(self._step, item, index)
        if step.id in self._context.versions.restored.steps:
            record = StepRecord(self._context, self._task, step, index)
            return await self._context.tell(record.update("step_restored"))
        executor = work.executor(step, item_index=index)
        await executor.perform()
        work.spent.add(executor)
        self._waiting = self._waiting or executor.step.waiting
        if executor.error is not None:
            self._failed[index] = executor.error
        return None

    def _results(self, items: Sequence[JSON]) -> JSON:
        return [
            bad(index, item, self._failed[index].message)
            if index in self._failed
            else good(
                index, item, self._context.memory.get_value(keys.step(f"{self._step.id}.{index}"))
            )
            for index, item in enumerate(items)
        ]


def _refused(error: HoldfastError) -> StepError:
    return StepError("items", str(error))


def _named(failed: Mapping[int, StepError], count: int) -> str:
    """Return the failed items, and the error of the first one."""
    indexes = sorted(failed)
    shown = ", ".join(map(str, indexes[:NAMED])) + (", …" if len(indexes) > NAMED else "")
    return f"{len(indexes)} of {count} items failed ({shown}); {indexes[0]}: {failed[indexes[0]]}"


log = logging.getLogger(__name__)


def parts_within(task: Task, finish: str) -> dict[str, Any]:
    """Return what *task* depends on, and its steps with what each depends on.

    The step *finish* needs all others.
    """
    ids = [step.id for step in task.steps]
    steps = [
        {
            "id": step.id,
            "depends_on": [
                *step.depends_on,
                *(id for id in ids if step.id == finish != id and id not in step.depends_on),
            ],
        }
        for step in task.steps
    ]
    return {"depends_on": list(task.depends_on), "steps": steps}


class TaskWork:
    """The steps of *task*, whose result is that of *finish*.

    They are executed with the settings of *first* and read the entries *upstream*. At most
    *max_steps* are begun.
    """

    def __init__(
        self,
        task: Task,
        first: StepExecutor,
        *,
        upstream: Sequence[str],
        finish: str,
        max_steps: int,
    ) -> None:
        self.task, self._first, self._upstream, self._finish = task, first, upstream, finish
        self._max_steps, self._begun = max_steps, 0
        self.context = first.context
        self._steps = {step.id: step for step in task.steps}
        self.spent = Spent()
        for step in task.steps:
            # What would prevent its start is refused now.
            self.executor(step)

    @property
    def result(self) -> JSON:
        """The result of the task in the run's memory; None unless it is complete."""
        memory, key = self.context.memory, keys.task(self.task.id)
        return memory.get_value(key) if self.task.completed else None

    @property
    def output(self) -> Any:
        """The result, of the type of its schema; None unless it is complete."""
        return output_of(self._steps[self._finish], self.result) if self.task.completed else None

    def ids(self, state: str) -> tuple[str, ...]:
        """Return the ids of the steps in *state*."""
        return tuple([step.id for step in self.task.steps if step.state == state])

    def reset(self) -> None:
        """Make the task and its steps pending; queue texts for them until they start."""
        self.spent, self._begun = Spent(), 0
        self.task.reset()
        for step in self.task.steps:
            step.reset()
        self.context.steering.expect(self._steps)

    async def perform(self) -> None:
        """Run the steps; set the state and result of the task, and emit its events.

        Failures are never raised. When cancelled, mark all unfinished work as cancelled.
        """
        needs = {step.id: step.depends_on for step in self.task.steps}
        # The finish step needs all others.
        needs[self._finish] = [each for each in needs if each != self._finish]
        with self.context.tracer.start_as_current_span("holdfast.task") as span:
            self.task.begin(self.context.now())
            try:
                update = self._update("task_created")
                await self.context.tell(update, **parts_within(self.task, self._finish))
                await walk(needs, perform=self._one, blocked=self._blocked)
                await self._settle()
            except asyncio.CancelledError:
                self.cancel()
                raise
            except Exception as error:
                # A fault in our code must not stop tasks that do not need this one.
                log.exception("the task %s of the run %s", self.task.id, self.context.run_id)
                await self.fail(StepError("internal", cause_of(error)))
            finally:
                span.set_attribute("holdfast.run_id", self.context.run_id)
                span.set_attribute("holdfast.task_id", self.task.id)
                span.set_attribute("holdfast.state", self.task.state)
                if self.task.error is not None:
                    span.set_attribute("holdfast.reason", self.task.error.reason)

    async def restore(self) -> None:
        """Mark the task as completed by an earlier process."""
        for step in self.task.steps:
            await self._restore(step)
        self.task.end("completed", self.context.now())
        await self._tell("task_restored", result=self.result)

    def cancel(self) -> None:
        """Mark the task and its unfinished steps as cancelled, and emit that."""
        why, now = self.context.cancelled or "cancelled", self.context.now()
        for step in self.task.steps:
            if not step.settled:
                self._end(step, "cancelled")
                self.context.tell_soon(self._update("step_cancelled", step, cause=why))
        if not self.task.settled:
            self.task.end("cancelled", now)
            self.context.tell_soon(self._update("task_cancelled", cause=why))

    async def block(self, by: Sequence[str], cause: str) -> None:
        """Mark the task and its steps as blocked by the failed tasks *by*."""
        for step in self.task.steps:
            await self._block(step, by, cause)
        self.task.end("blocked", self.context.now())
        self.task.blocked_by = list(by)
        await self._tell("task_blocked", cause=cause, blocked_by=tuple(by))

    async def fail(self, error: StepError) -> None:
        """Fail the task with *error*; cancel its unfinished steps."""
        for step in self.task.steps:
            if not step.settled:
                self._end(step, "cancelled")
                await self._tell("step_cancelled", step, cause=str(error))
        self.task.end("failed", self.context.now(), error)
        await self._tell("task_failed", cause=error.message)

    async def _one(self, id: str) -> bool | None:
        """Run the step *id*; return None if no more steps may be begun."""
        step = self._steps[id]
        if id in self.context.versions.restored.steps:
            await self._restore(step)
            return True
        if self._begun == self._max_steps:
            return None
        self._begun += 1
        finish = id == self._finish
        try:
            if step.mode == "process":
                await FanOut(self, step, finish=finish).perform()
            else:
                executor = self.executor(step, finish=finish)
                await executor.perform()
                self.spent.add(executor)
        except Exception as error:
            # A fault in our code must not stop unrelated steps.
            log.exception("the step %s of the run %s", id, self.context.run_id)
            if not step.settled:
                internal = StepError("internal", cause_of(error))
                await StepRecord(self.context, self.task, step).fail(internal)
        # Nothing follows from one that waits, until it is answered.
        return None if step.waiting else step.completed

    def executor(
        self, step: Step, *, finish: bool = False, item_index: int | None = None
    ) -> StepExecutor:
        """Return the executor of *step*."""
        return replace(
            self._first,
            task=self.task,
            step=step,
            upstream_memory_keys=self._upstream,
            finish_task=finish,
            item_index=item_index,
        )

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
        """End *step* before its start; nothing can be sent to it any more."""
        step.end(state, self.context.now())
        self.context.steering.started(step.id).end()

    async def _settle(self) -> None:
        """Set the final state of the task, when no step runs or can start."""
        if self.ids("waiting"):
            self.task.state = "waiting"
            return None
        full = f"max_steps, which is {self._max_steps}, have been begun"
        for step in self.task.steps:
            if not step.settled:
                await self._block(step, (), full)
        if self.ids("completed") != tuple(self._steps):
            return await self.fail(self._error(full))
        try:
            memory, task = self.context.memory, self.task
            if not memory.has(keys.task(task.id)):
                leave_task_result(memory, task, memory.get_value(keys.step(self._finish)))
        except LimitExceeded as error:
            return await self.fail(StepError("memory", str(error)))
        self.task.end("completed", self.context.now())
        return await self._tell("task_completed", result=self.result)

    def _error(self, full: str) -> StepError:
        """Return the error of the task, with every failed step."""
        failed = {step.id: step.error for step in self.task.steps if step.error is not None}
        if not failed:
            return StepError("max_turns", full)
        reasons = {error.reason for error in failed.values()}
        message = "; ".join(f"step {id} failed: {error}" for id, error in failed.items())
        return StepError("internal" if "internal" in reasons else "steps", message)

    async def _tell(self, event: TaskMoment, step: Step | None = None, **fields: Any) -> None:
        await self.context.tell(self._update(event, step, **fields))

    def _update(self, event: TaskMoment, step: Step | None = None, **fields: Any) -> TaskUpdate:
        return TaskUpdate(
            event=event,
            task_id=self.task.id,
            title=self.task.title,
            step_id=step.id if step else None,
            **fields,
        )


class ItemWork:
    """The work of a run that does one item of a process step.

    *item* is the id of the step and the index.

    Raise InvalidInput if none of *works* has that step.
    """

    def __init__(self, works: Iterable[TaskWork], item: tuple[str, int]) -> None:
        id, self._index = item
        found = [(work, step) for work in works for step in work.task.steps if step.id == id]
        if not found or found[0][1].mode != "process":
            raise InvalidInput("definition", "builds a plan without the process step", given=id)
        self._work, self._step = found[0]
        self._done: StepExecutor | None = None

    async def perform(self) -> None:
        """Do the item and emit its events."""
        self._done = await FanOut(self._work, self._step, finish=False).only(self._index)

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        id, done = f"{self._step.id}.{self._index}", self._done
        if done is not None and done.step.waiting:
            return ExecutionOutcome(state="waiting")
        if done is not None and (error := done.error) is not None:
            failure = TaskFailed(self._work.task.id, error.message, failed=(id,), blocked=())
            return ExecutionOutcome(
                state="failed", reason=error.reason, detail=error.message, failure=failure
            )
        result = self._work.context.memory.get_value(keys.step(id))
        return ExecutionOutcome(state="completed", result=result, completed=(id,))
