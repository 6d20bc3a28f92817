"""The record of a step: its state, its entry in run memory, and its events."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from holdfast.ground.errors import LimitExceeded
from holdfast.ground.text import whole
from holdfast.memories.run import keys
from holdfast.memories.run.entry import DESCRIPTION_CHARS, TITLE_CHARS
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.question import Question
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate, StepError, StepResult, TaskMoment, TaskUpdate
from holdfast.runtime.metrics import STEP_ITERATIONS, STEP_SECONDS, STEPS
from holdfast.runtime.plans.plan import State, Step, Task

TITLE: Final = 80
FAILED: Final = 60
"""Characters of a step's instructions in the title of its entry."""


def leave_task_result(memory: RunMemory, task: Task, result: Any) -> None:
    """Store *result* as that of *task*."""
    memory.set(
        keys.task(task.id),
        result,
        source=task.id,
        title=_short(" ".join(task.title.split()), TITLE_CHARS),
        description=task.description and _short(task.description, DESCRIPTION_CHARS),
    )


def _first_line(step: Step, most: int) -> str:
    lines = step.instructions.encode(errors="replace").decode().strip().splitlines()
    return " ".join(lines[0].split())[:most] if lines else step.id


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


Spent: TypeAlias = dict[str, int]
"""The requests and tokens of a step."""


class StepRecord(Struct, frozen=True):
    """A *step* of *task* in a run; *item_index* is that of its list item, if any.

    *agent* and *model* are the names of those that work on it.
    """

    context: Context
    task: Task
    step: Step
    item_index: int | None = None
    agent: str | None = None
    model: str | None = None

    def update(self, event: TaskMoment, **fields: Any) -> TaskUpdate:
        """Return *event* of this step."""
        return TaskUpdate(
            event=event,
            task_id=self.task.id,
            title=self.task.title,
            step_id=self.step.id,
            item_index=self.item_index,
            **fields,
        )

    def log(self, severity: Literal["info", "warning", "error"], content: str) -> LogUpdate:
        """Return a log event of this step."""
        return LogUpdate(
            severity=severity, content=content, task_id=self.task.id, step_id=self.step.id
        )

    async def warn(self, content: str) -> None:
        """Emit a warning."""
        await self.context.tell(self.log("warning", content))

    async def begin(self) -> None:
        """Set the step to running, and emit that."""
        self.step.begin(self.context.now())
        await self.context.tell(self.update("step_started"), **self._who, attempt=1)

    async def wait(self, questions: Iterable[Question]) -> None:
        """Set the step to waiting, and emit that it has asked *questions*."""
        self.step.state = "waiting"
        update = self.update("step_waiting")
        await self.context.tell(update, **self._who, questions=[each.id for each in questions])

    async def retry(self, attempt: int, cause: str) -> None:
        """Emit that the step is tried once more, after *attempt* failed for *cause*."""
        update = self.update("step_retried", cause=cause)
        await self.context.tell(update, **self._who, attempt=attempt)

    @property
    def _who(self) -> dict[str, Any]:
        who = {"agent": self.agent, "model": self.model}
        return {name: each for name, each in who.items() if each is not None}

    async def complete(
        self,
        result: Any,
        *,
        finish: bool,
        iterations: int | None = None,
        usage: Spent | None = None,
    ) -> None:
        """Store *result*, with *finish* also as that of the task, save and emit it.

        Raise InvalidInput or LimitExceeded if the memory does not take it.
        """
        memory, title = self.context.memory, _first_line(self.step, TITLE)
        key, source = keys.step(self.step.id), self.step.id
        memory.set(key, result, source=source, title=title, description=None)
        if finish:
            leave_task_result(memory, self.task, result)
        cancelled = await self._kept(self.task.id if finish else None)
        self.end("completed", iterations=iterations)
        more = self._spent(iterations, usage)
        await self.context.tell(self.update("step_completed"), **more)
        await self._tell_result(result, None, of_task=finish)
        if cancelled is not None:
            raise cancelled

    async def _kept(self, task: str | None) -> asyncio.CancelledError | None:
        """Keep the step and *task*; return a cancellation that came meanwhile."""
        versions, cause = self.context.versions, "step" if self.item_index is None else "item"
        try:
            await versions.complete(self.step.id, task, cause=cause, agent=self.agent)
        except asyncio.CancelledError as error:
            # What is saved is complete, and told as that.
            return error
        return None

    async def fail(
        self, error: StepError, *, iterations: int | None = None, usage: Spent | None = None
    ) -> None:
        """Store *error* as the entry of the step, marked as failed, and emit it."""
        self.end("failed", error, iterations=iterations)
        try:
            self.context.memory.set(
                keys.step(self.step.id),
                {"error": whole(error.message)},
                source=self.step.id,
                title=f"Failed: {_first_line(self.step, FAILED)}",
                description=None,
                failed=True,
            )
        except LimitExceeded as full:
            await self.context.tell(self.log("error", f"the failure could not be kept: {full}"))
        more = self._spent(iterations, usage)
        await self.context.tell(self.update("step_failed", cause=str(error)), **more)
        await self._tell_result(None, error)

    def _spent(self, iterations: int | None, usage: Spent | None) -> dict[str, Any]:
        if iterations is None:
            return self._who
        return {**self._who, "iterations": iterations, "usage": usage}

    def end(
        self, state: State, error: StepError | None = None, *, iterations: int | None = None
    ) -> None:
        """Set and count the end of the step.

        *iterations* is None if its items are counted.
        """
        step, now = self.step, self.context.now()
        step.end(state, now, error)
        seconds = (now - (step.started_at or now)) / 1000
        STEPS.add(state, error.reason if error else "")
        STEP_SECONDS.observe(seconds)
        if iterations is not None:
            STEP_ITERATIONS.observe(iterations)

    async def _tell_result(
        self, result: Any, error: StepError | None, *, of_task: bool = False
    ) -> None:
        await self.context.tell(
            StepResult(
                task_id=self.task.id,
                step_id=self.step.id,
                item_index=self.item_index,
                result=result,
                error=error,
                is_task_result=of_task,
            )
        )
