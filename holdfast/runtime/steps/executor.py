"""`StepExecutor`: an agent works on one instruction."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field
from itertools import count
from typing import Any, Final

import msgspec
from opentelemetry.trace import Link, Span
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage, ModelResponse

from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    InvalidPlan,
    LimitExceeded,
    NoModel,
    NotRunnable,
    StepFailed,
)
from holdfast.ground.json_values import hashed
from holdfast.ground.validation import listed
from holdfast.memories.run import keys
from holdfast.memories.run.listeners import working
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset, model_name
from holdfast.runtime.concurrency import Suspended, cause_of
from holdfast.runtime.context import Context, Inbox
from holdfast.runtime.events import ExecutionEvent, StepError
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference import request
from holdfast.runtime.inference.agent import Agent, indexed
from holdfast.runtime.inference.agent_loop import AgentLoop
from holdfast.runtime.plans.plan import Resources, Step, Task
from holdfast.runtime.plans.wire import plain
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.part_log import PartLog
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.suspension import (
    AnswerTimeout,
    PartCall,
    PartWaits,
    ask_human,
    asking,
    current_part,
)
from holdfast.runtime.runs.version_writer import OnMismatch, checked_mismatch
from holdfast.runtime.steps.contract import (
    RETRIED,
    Acceptance,
    AcceptResult,
    Contract,
    Stage,
    Stopped,
    of_model,
    result_schema,
    system_text,
    upstream_keys,
    wait_after,
)
from holdfast.runtime.steps.policy import StepPolicy, check_names
from holdfast.runtime.steps.record import StepRecord
from holdfast.runtime.steps.tools import Toolbox
from holdfast.tools.run import run as memory_tools
from holdfast.tools.run import run_hint

MEMORY_BUDGET: Final = 24_000
"""Limit of characters in one result of a memory tool."""


def span_of(record: StepRecord) -> AbstractContextManager[Span]:
    """Return the span of the step of *record*, to be the current one in a block."""
    context, step = record.context, record.step
    needed = [context.spans[each] for each in step.depends_on if each in context.spans]
    attributes: dict[str, str | int] = {
        "holdfast.run_id": context.run_id,
        "holdfast.task_id": record.task.id,
        "holdfast.step_id": step.id,
    }
    if record.item_index is not None:
        attributes["holdfast.item_index"] = record.item_index
    return context.tracer.start_as_current_span(
        "holdfast.step", attributes=attributes, links=[Link(each) for each in needed]
    )


@dataclass(eq=False)
class StepExecutor:
    """Executes *step* of *task*: an agent's loop with one result in run memory.

    It may name one of *agents*. The model is the first of: the step's, its agent's, the task's, its
    agent's, that of *agent*, *model*, the context's. *accept_result* may reject a result by
    returning the reason. *finish_task* makes the result the task's as well; *item_index* is the
    index of the list item that the step is for. *on_event* is called with each event of the run.
    The step and its messages are kept at *checkpoint*. Afterwards `result`, and `output` of the
    type of the schema, or `error` is set.
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
    on_event: OnEvent | None = None
    agents: Sequence[Agent] = ()
    checkpoint: Checkpoints | None = None
    on_mismatch: OnMismatch = "refuse"
    name: str = field(default="step", init=False)
    result: Any = field(default=None, init=False)
    error: StepError | None = field(default=None, init=False)
    iterations: int = field(default=0, init=False)
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage], init=False)

    def __post_init__(self) -> None:
        for limit in ("max_iterations", "token_budget", "tool_result_limit"):
            if getattr(self, limit) < 1:
                raise InvalidInput(limit, "must be at least 1", given=getattr(self, limit))
        self._observer = observer_of(self.on_event)
        checked_mismatch(self.on_mismatch)
        context, step = self.context, self.step
        self.upstream_memory_keys = listed(self.upstream_memory_keys)
        self._record = StepRecord(context, self.task, step, self.item_index)
        self._agent, self._model = self._assigned()
        context.root.auto_persist |= self._agent.auto_persist
        self._wanted = result_schema(step.output_schema)
        schema = None if self._wanted is None else self._wanted.schema
        self._contract = Contract(schema=schema, finish=self.finish_task, profile=context.profile)
        self._own = memory_tools(
            context.memory,
            profile=context.profile,
            writer=self._agent.name,
            budget=min(MEMORY_BUDGET, self.tool_result_limit),
        )
        check_names([*self._agent.tools, *self.tools], self._own)
        self._record = msgspec.structs.replace(
            self._record,
            agent=None if self.agent is None else self.agent.name,
            model=model_name(self._model) or None,
        )

    def _assigned(self) -> tuple[Agent, AnyModel]:
        """Return agent and model of the step, or raise InvalidPlan or NoModel."""
        step, task, by_name = self.step, self.task, indexed(self.agents)
        if self.agent:
            by_name.setdefault(self.agent.name, self.agent)
        known = Resources(agents=by_name)
        if problems := [*known.problem(step.agent, "step"), *known.problem(task.agent, "task")]:
            raise InvalidPlan(problems)
        own, of_task = (
            by_name[each.agent] if isinstance(each.agent, str) else each.agent
            for each in (step, task)
        )
        models = (
            *(step.model, own and own.model, task.model, of_task and of_task.model),
            *(self.agent and self.agent.model, self.model, self.context.model),
        )
        agent = own or of_task or self.agent or Agent(step.id, instructions="")
        if (model := next(filter(None, models), None)) is not None or step.mode == "ask":
            return agent, model or ""
        raise NoModel(
            f"The step {step.id} has no model.",
            agent=agent.name,
            next="Name one for it, its task, its agent, its executor, or the context.",
        )

    @property
    def output(self) -> Any:
        """The result as an instance of the type of its schema."""
        if self._wanted is None or not self.step.completed:
            return self.result
        return self._wanted.instance(self.result)

    @property
    def parts(self) -> list[str]:
        """The keys of its entries."""
        own = [keys.step(self.step.id)]
        return [*own, keys.task(self.task.id)] if self.finish_task else own

    @property
    def title(self) -> str:
        """The title for people."""
        return self.step.id

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The place of its checkpoint."""
        return self.checkpoint

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        step = plain(self.step)
        facts = {"step": step, "model": model_name(self._model), "prompt": self.system_prompt}
        return {name: hashed(fact) for name, fact in facts.items()}

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute the step; yield its events as they happen."""
        return executor.events(self, self._observer)

    def stream(self) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer)

    async def run(self) -> Any:
        """Execute the step and return its `output`; raise StepFailed or RunCancelled."""
        await executor.run(self, self._observer)
        return self.output

    def run_sync(self) -> Any:
        """Do as `run` does, for a script without an event loop."""
        executor.run_sync(self, self._observer)
        return self.output

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        if self.step.state == "completed":
            return ExecutionOutcome(
                state="completed", result=self.result, completed=(self.step.id,)
            )
        error = self.error
        if error is None:
            return ExecutionOutcome(state="waiting" if self.step.waiting else "failed")
        failure = StepFailed(self.step.id, error, run=self.context)
        return ExecutionOutcome(
            state="failed", reason=error.reason, detail=str(error), failure=failure
        )

    async def perform(self) -> None:
        """Execute the step and emit its events."""
        self.result, self.error, self.iterations = None, None, 0
        if self.step.id in self.context.versions.restored.steps:
            return await self._restore()
        inbox = self.context.steering.started(self.step.id)
        kept = self.context.logs.of(self.step.id, self._record.agent)
        token = current_part.set(kept)
        with span_of(self._record) as span, working(self.step.id):
            self.context.spans[self.step.id] = span.get_span_context()
            try:
                asks = self.step.mode == "ask"
                await self._store(await (self._answer(kept) if asks else self._tried(inbox)))
            except PartWaits:
                await self._record.wait(kept.open)
            except Stopped as stopped:
                self.error = stopped.error
                await kept.fail()
                await self._record.fail(self.error, iterations=self.iterations, usage=self._spent)
            except Exception as error:
                # A bug, ours or in the user's code: emitted like any failure, and raised.
                self.error = StepError("internal", cause_of(error))
                await self._record.fail(self.error, iterations=self.iterations, usage=self._spent)
                raise
            except asyncio.CancelledError:
                if not self.step.settled:
                    self._record.end("cancelled", iterations=self.iterations)
                    reason = self.context.cancelled or "cancelled"
                    update = self._record.update("step_cancelled", cause=reason)
                    await self.context.tell(update)
                raise
            finally:
                inbox.end()
                current_part.reset(token)
                if self.step.state != "waiting":
                    self.context.logs.end(self.step.id)
                if span.is_recording():
                    self._describe(span)

    async def _restore(self) -> None:
        """Mark the step as completed by an earlier process."""
        self.result = self.context.memory.get_value(keys.step(self.step.id))
        self._record.end("completed")
        self.context.steering.started(self.step.id).end()
        await self.context.tell(self._record.update("step_restored"))

    def _describe(self, span: Span) -> None:
        """Set the end of the step, and the usage of its last try, in *span*."""
        spent = self._spent
        span.set_attribute("holdfast.state", self.step.state)
        span.set_attribute("holdfast.iterations", self.iterations)
        span.set_attribute("gen_ai.usage.input_tokens", spent["input_tokens"])
        span.set_attribute("gen_ai.usage.output_tokens", spent["output_tokens"])
        if self.error is not None:
            span.set_attribute("holdfast.reason", self.error.reason)

    @property
    def _spent(self) -> dict[str, int]:
        """The requests and tokens of the last try."""
        usages = [each.usage for each in self.messages if isinstance(each, ModelResponse)]
        return {
            "requests": len(usages),
            "input_tokens": sum(each.input_tokens for each in usages),
            "output_tokens": sum(each.output_tokens for each in usages),
        }

    async def _answer(self, kept: PartLog) -> Any:
        """Return a person's answer as the result, of a step that no model works on."""
        step, schema = self.step, None if self._wanted is None else self._wanted.schema
        await self._record.begin()

        async def ask() -> Any:
            return ask_human(
                step.instructions,
                schema,
                timeout=step.timeout,
                default=step.default,
                who=step.who,
            )

        try:
            answer = await asking(PartCall(kept, "ask"), ask)
        except AnswerTimeout as error:
            raise Stopped("answer_timeout", str(error)) from error
        except Suspended as suspended:
            raise PartWaits from suspended
        # A type may refuse what fits its JSON Schema, and a default is any value.
        if self._wanted is not None and (problems := self._wanted.problems(answer)):
            raise Stopped("schema", f"the answer does not fit: {'; '.join(problems)}")
        return answer

    async def _tried(self, inbox: Inbox) -> Any:
        """Return the first result of a try; raise Stopped when the last try has none."""
        for tries in count(1):
            async with self.context.slots.taken():
                if tries == 1:
                    await self._record.begin()
                try:
                    return await self._try(inbox)
                except Stopped as stopped:
                    error = stopped.error
                    if error.reason not in RETRIED or tries > self.step.retries:
                        raise
            self.context.logs.of(self.step.id).reset()
            seconds = wait_after(tries)
            why = f"try {tries} failed, the next is in {seconds:g} s: {error}"
            await self._record.retry(tries, why)
            await self.context.sleep(seconds)
        raise AssertionError

    async def _try(self, inbox: Inbox) -> Any:
        """Return the result of one try; raise Stopped if it has none."""
        seconds = self.step.timeout
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                if not await request.is_enabled(self._agent, self.context):
                    raise Stopped("disabled", f"the agent {self._agent.name} is off")
                return await self._attempted(inbox)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise Stopped("timeout", f"it took more than {seconds:g} s") from error
        except AnswerTimeout as error:
            raise Stopped("answer_timeout", str(error)) from error
        except Suspended as suspended:
            raise PartWaits from suspended
        except request.HookFailed as failed:
            cause = failed.__cause__
            why = cause_of(cause or failed)
            message = f"the hook {failed.hook} raised {why}"
            raise Stopped("hook", message) from failed

    async def _attempted(self, inbox: Inbox) -> Any:
        system, message = await self._system_text(), await self._message()
        step, context = self.step, self.context
        policy = StepPolicy(
            record=self._record,
            model=self._model,
            contract=self._contract,
            acceptance=Acceptance(self._wanted, self.accept_result),
            stage=Stage(
                system,
                most=step.max_iterations or self.max_iterations,
                budget=step.token_budget or self.token_budget,
            ),
            toolbox=Toolbox(
                self._agent,
                context,
                own=self._own,
                tools=[*self._agent.tools, *self.tools],
                toolsets=[*self._agent.toolsets, *self.toolsets],
                limit=self.tool_result_limit,
                log=self._record.log,
                allowed=step.tools,
            ),
            system=system,
        )
        loop = AgentLoop(policy.scope, policy)
        try:
            return await policy.run(loop, message, inbox)
        except NotRunnable as error:
            raise Stopped("model_error", str(error)) from error
        except (HoldfastError, request.HookFailed, Stopped, PartWaits, AnswerTimeout):
            # Two tools of one name, or a bug of ours: not the model's fault.
            raise
        except Exception as error:
            # A reply cut off by its provider, or refused, shows only after the request.
            if loop.requesting or isinstance(error, UnexpectedModelBehavior):
                raise of_model(error) from error
            raise
        finally:
            self.messages = loop.messages
            self.iterations += policy.stage.requests

    async def _system_text(self) -> str:
        agent = self._agent
        try:
            instructions = await request.system_text(agent, self.context)
        except Exception as error:
            # The user's function may raise anything.
            raise request.HookFailed("instructions") from error
        preamble = [instructions, self.system_prompt]
        return system_text(preamble, self._contract, now=self.context.clock.now())

    async def _message(self) -> str:
        memory = self.context.memory
        named = upstream_keys(self.task, self.step, self.upstream_memory_keys, memory)
        for key in named:
            if (entry := memory.get(key)) is None or entry.failed:
                await self._record.warn(f"{key} is an input of this step, and cannot be read")
        hint = run_hint(memory, named, profile=self.context.profile)
        return "\n\n".join(filter(None, (self.step.instructions, hint)))

    async def _store(self, result: Any) -> None:
        """Store *result* in the run's memory, and emit it."""
        try:
            await self._record.complete(
                result, finish=self.finish_task, iterations=self.iterations, usage=self._spent
            )
        except (InvalidInput, LimitExceeded) as error:
            raise Stopped("memory", str(error)) from error
        self.result = result
