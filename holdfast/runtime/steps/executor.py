"""`StepExecutor`: an agent works on one instruction."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, Final

from opentelemetry.trace import Link, Span
from pydantic_ai.messages import ModelMessage, ModelResponse

from holdfast.ground.errors import InvalidInput, LimitExceeded, NoModel, StepFailed
from holdfast.memories.run import keys
from holdfast.memories.run.entry import DESCRIPTION_CHARS, TITLE_CHARS
from holdfast.memories.run.memory import RunMemory
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.context import Context, Inbox
from holdfast.runtime.events import ExecutionEvent, StepError, StepResult
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference import request
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.messages import whole
from holdfast.runtime.metrics import count_step
from holdfast.runtime.plans.plan import State, Step, Task
from holdfast.runtime.steps.contract import (
    RETRIED,
    AcceptResult,
    Assignment,
    Contract,
    ResultSchema,
    Stopped,
    absent,
    checked_schema,
    system_text,
    upstream_keys,
    wait_after,
)
from holdfast.runtime.steps.policy import StepPolicy, check_names
from holdfast.tools.run import run as memory_tools
from holdfast.tools.run import run_hint

MEMORY_BUDGET: Final = 24_000
"""Limit of characters in one result of a memory tool."""
TITLE: Final = 80
FAILED: Final = 60
"""Characters of a step's instructions in the title of its entry."""


def leave_result(memory: RunMemory, task: Task, step: Step, result: Any, *, finish: bool) -> None:
    """Store *result* as that of *step*, with *finish* also as that of *task*."""
    memory.set(
        keys.step(step.id),
        result,
        source=step.id,
        title=_first_line(step, TITLE),
        description=None,
    )
    if finish:
        leave_task_result(memory, task, result)


def leave_task_result(memory: RunMemory, task: Task, result: Any) -> None:
    """Store *result* as that of *task*."""
    memory.set(
        keys.task(task.id),
        result,
        source=task.id,
        title=_short(" ".join(task.title.split()), TITLE_CHARS),
        description=task.description and _short(task.description, DESCRIPTION_CHARS),
    )


def leave_failure(memory: RunMemory, step: Step, error: StepError) -> None:
    """Store the *error* of *step* as its entry, marked as failed."""
    memory.set(
        keys.step(step.id),
        {"error": whole(error.message)},
        source=step.id,
        title=f"Failed: {_first_line(step, FAILED)}",
        description=None,
        failed=True,
    )


def _first_line(step: Step, most: int) -> str:
    lines = step.instructions.encode(errors="replace").decode().strip().splitlines()
    return " ".join(lines[0].split())[:most] if lines else step.id


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def span_of(assignment: Assignment) -> AbstractContextManager[Span]:
    """Return the span of the step of *assignment*, to be the current one in a block."""
    context, step = assignment.context, assignment.step
    needed = [context.spans[each] for each in step.depends_on if each in context.spans]
    attributes: dict[str, str | int] = {
        "holdfast.run_id": context.run_id,
        "holdfast.task_id": assignment.task.id,
        "holdfast.step_id": step.id,
    }
    if assignment.item_index is not None:
        attributes["holdfast.item_index"] = assignment.item_index
    return context.tracer.start_as_current_span(
        "holdfast.step", attributes=attributes, links=[Link(each) for each in needed]
    )


@dataclass(eq=False)
class StepExecutor:
    """Executes *step* of *task*: an agent's loop with one result in run memory.

    The model is that of *agent*, else *model*, else the context's. *accept_result* may reject a
    result by returning the reason. *finish_task* makes the result the task's as well; *item_index*
    is the index of the list item that the step is for. Afterwards `result` or `error` is set.
    """

    _: KW_ONLY
    task: Task
    step: Step
    context: Context
    model: AnyModel | None = None
    agent: Agent | None = None
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    system_prompt: str | None = None
    upstream_memory_keys: Sequence[str] = ()
    finish_task: bool = False
    max_iterations: int = 30
    token_budget: int = 120_000
    tool_result_limit: int = 25_000
    accept_result: AcceptResult | None = None
    item_index: int | None = None
    result: Any = field(default=None, init=False)
    error: StepError | None = field(default=None, init=False)
    iterations: int = field(default=0, init=False)
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False)

    def __post_init__(self) -> None:
        for limit in ("max_iterations", "token_budget", "tool_result_limit"):
            if getattr(self, limit) < 1:
                raise InvalidInput(limit, "must be at least 1", given=getattr(self, limit))
        self._assignment = self._assigned()

    @property
    def name(self) -> str:
        """The kind for a `RunUpdate`."""
        return "step"

    @property
    def title(self) -> str:
        """The title for people."""
        return self.step.id

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute the step; yield its events as they happen."""
        return executor.events(self)

    async def run(self) -> Any:
        """Execute the step and return its result; raise StepFailed or RunCancelled."""
        return await executor.run(self)

    def run_sync(self) -> Any:
        """Do as `run` does, for a script without an event loop."""
        return executor.run_sync(self)

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        if self.step.state == "completed":
            return ExecutionOutcome(
                state="completed", result=self.result, completed=(self.step.id,)
            )
        error = self.error
        if error is None:
            return ExecutionOutcome(state="failed")
        failure = StepFailed(self.step.id, error, run=self.context)
        return ExecutionOutcome(state="failed", reason=str(error), failure=failure)

    async def perform(self) -> None:
        """Execute the step and emit its events."""
        self.result, self.error, self.iterations = None, None, 0
        inbox = self.context.steering.started(self.step.id)
        with span_of(self._assignment) as span:
            self.context.spans[self.step.id] = span.get_span_context()
            try:
                await self._store(await self._tried(inbox))
            except Stopped as stopped:
                await self._failed(stopped.error)
            except Exception as error:
                # A bug, ours or in the user's code: emitted like any failure, and raised.
                await self._failed(StepError("internal", f"{type(error).__name__}: {error}"))
                raise
            except asyncio.CancelledError:
                await self._cancelled()
                raise
            finally:
                inbox.end()
                if span.is_recording():
                    self._describe(span)

    def _describe(self, span: Span) -> None:
        """Set the end of the step, and the usage of its last try, in *span*."""
        usages = [each.usage for each in self.messages if isinstance(each, ModelResponse)]
        span.set_attribute("holdfast.state", self.step.state)
        span.set_attribute("holdfast.iterations", self.iterations)
        span.set_attribute("gen_ai.usage.input_tokens", sum(u.input_tokens for u in usages))
        span.set_attribute("gen_ai.usage.output_tokens", sum(u.output_tokens for u in usages))
        if self.error is not None:
            span.set_attribute("holdfast.reason", self.error.reason)

    async def _tried(self, inbox: Inbox) -> Any:
        """Return the first result of a try; raise Stopped when the last try has none."""
        for tries in count(1):
            async with self.context.slots.taken():
                if tries == 1:
                    await self._begin()
                try:
                    return await self._try(inbox)
                except Stopped as stopped:
                    error = stopped.error
                    if error.reason not in RETRIED or tries > self.step.retries:
                        raise
            seconds = wait_after(tries)
            message = f"try {tries} failed, the next is in {seconds:g} s: {error}"
            await self.context.tell(self._assignment.log("warning", message))
            await self.context.sleep(seconds)
        raise AssertionError

    async def _try(self, inbox: Inbox) -> Any:
        """Return the result of one try; raise Stopped if it has none."""
        seconds = self.step.timeout_s
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if not await request.is_enabled(self._assignment.agent, self.context):
                    raise Stopped("disabled", f"the agent {self._assignment.agent.name} is off")
                return await self._attempted(inbox)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Stopped("timeout", f"it took more than {seconds:g} s") from error
        except request.HookFailed as failed:
            cause = failed.__cause__
            message = f"the hook {failed.hook} raised {type(cause).__name__}: {cause}"
            raise Stopped("hook", message) from failed

    async def _attempted(self, inbox: Inbox) -> Any:
        policy = StepPolicy(self._assignment, await self._system_text())
        message = await self._message()
        loop, toolbox = policy.loop()
        try:
            return await policy.run(loop, toolbox, message, inbox)
        finally:
            self.messages = loop.messages
            self.iterations += policy.stage.requests

    async def _system_text(self) -> str:
        agent = self._assignment.agent
        try:
            instructions = await request.system_text(agent, self.context)
        except Exception as error:
            # The user's function may raise anything.
            raise request.HookFailed("instructions") from error
        preamble = [instructions, self.system_prompt]
        return system_text(preamble, self._assignment.contract, now=self.context.clock.now())

    async def _message(self) -> str:
        memory = self.context.memory
        named = upstream_keys(self.task, self.step, self.upstream_memory_keys, memory)
        for key in absent(memory, named):
            message = f"{key} is an input of this step, and cannot be read"
            await self.context.tell(self._assignment.log("warning", message))
        hint = run_hint(memory, named, profile=self.context.profile)
        return "\n\n".join(filter(None, (self.step.instructions, hint)))

    async def _begin(self) -> None:
        self.step.state, self.step.started_at = "running", self.context.now()
        await self.context.tell(self._assignment.update("step_started"))

    def _end(self, state: State, error: StepError | None = None) -> None:
        self.step.state, self.step.error, self.step.ended_at = state, error, self.context.now()
        self.error = error
        began = self.step.started_at or self.step.ended_at
        count_step(
            state,
            error.reason if error else "",
            seconds=(self.step.ended_at - began) / 1000,
            iterations=self.iterations,
        )

    async def _store(self, result: Any) -> None:
        """Store *result* in the run's memory, and emit it."""
        try:
            memory = self.context.memory
            leave_result(memory, self.task, self.step, result, finish=self.finish_task)
        except (InvalidInput, LimitExceeded) as error:
            raise Stopped("memory", str(error)) from error
        self.result = result
        self._end("completed")
        await self.context.tell(self._assignment.update("step_completed"))
        await self._tell_result(result, None, of_task=self.finish_task)

    async def _failed(self, error: StepError) -> None:
        self._end("failed", error)
        try:
            leave_failure(self.context.memory, self.step, error)
        except LimitExceeded as full:
            message = f"the failure could not be kept: {full}"
            await self.context.tell(self._assignment.log("error", message))
        await self.context.tell(self._assignment.update("step_failed", cause=str(error)))
        await self._tell_result(None, error)

    async def _cancelled(self) -> None:
        if not self.step.settled:
            self._end("cancelled")
            reason = self.context.cancelled or "cancelled"
            await self.context.tell(self._assignment.update("step_cancelled", cause=reason))

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

    def _assigned(self) -> Assignment:
        context, step = self.context, self.step
        agent = self.agent or Agent(step.id, instructions="")
        model = agent.model or self.model or context.model
        if model is None:
            raise NoModel(
                f"The step {step.id} has no model.",
                agent=agent.name,
                next="Name one for its agent, for its executor, or for the context.",
            )
        schema = checked_schema(step.output_schema)
        limit = self.tool_result_limit
        contract_tools = memory_tools(
            context.memory,
            profile=context.profile,
            writer=agent.name,
            budget=min(MEMORY_BUDGET, limit),
        )
        tools = [*agent.tools, *self.tools]
        check_names(tools, contract_tools)
        return Assignment(
            context=context,
            task=self.task,
            step=step,
            item_index=self.item_index,
            model=model,
            agent=agent,
            tools=tools,
            toolsets=[*agent.toolsets, *self.toolsets],
            contract_tools=contract_tools,
            contract=Contract(schema=schema, finish=self.finish_task, profile=context.profile),
            wanted=None if schema is None else ResultSchema(schema),
            max_iterations=step.max_iterations or self.max_iterations,
            token_budget=step.token_budget or self.token_budget,
            tool_result_limit=limit,
            accept_result=self.accept_result,
        )
