"""`AgentCall`: one call of an agent in a run, and the outcomes of its tool calls."""

import asyncio
import logging
import traceback
from collections.abc import AsyncIterable, Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary

from msgspec import to_builtins
from msgspec.json import encode
from msgspec.structs import replace as replaced
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UsageLimitExceeded,
)
from pydantic_ai.messages import FunctionToolResultEvent, ModelResponse, repair_messages
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset

from holdfast.ground.errors import InvalidInput, NotRunnable, ToolNameTaken
from holdfast.memories.run.records.event import Reason
from holdfast.memories.state.history import Window
from holdfast.memories.state.message import ErrorKind, Message, ToolCall
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.concurrency import Suspended, apart, class_of, described
from holdfast.runtime.context import Inbox
from holdfast.runtime.events import shortened
from holdfast.runtime.inference.agent_loop import (
    NO_LIMITS,
    RETRIES,
    AgentLoop,
    LoopScope,
    capabilities,
    settings_of,
)
from holdfast.runtime.inference.messages import (
    Content,
    ToolOutcome,
    calls,
    content_of,
    error_text,
    failure,
    limited,
    reduced,
    tool_call,
)
from holdfast.runtime.inference.pages import (
    READ_RESULT,
    ROOM,
    ResultPages,
    ToolAnswer,
    answer,
    as_text,
    our_tool,
    shown_again,
)
from holdfast.runtime.inference.request import (
    AgentRequest,
    Delta,
    HookFailed,
    Sent,
    finished,
    sending,
    system_text,
)
from holdfast.runtime.inference.run_types import (
    MAX_ITERATIONS,
    InferenceRun,
    RunEnd,
    check_most,
    no_model,
    working,
)
from holdfast.runtime.inference.validation import NotJSON
from holdfast.runtime.inference.values import VALUE_TOOLS, values_section
from holdfast.runtime.mcp import connect, is_remote, kept, seen_to
from holdfast.runtime.runs.part_log import KeptAnswer, MessageSizes, PartLog
from holdfast.runtime.runs.suspension import (
    WAITS,
    AnswerTimeout,
    Consent,
    Denied,
    PartCall,
    PartWaits,
    asking,
    current_part,
)
from holdfast.runtime.tools import CutOff, ToolContext, begin_call, equipped, tool_context


class CallPolicy:
    """The policy of one call of *agent* in *run*, and the outcomes of its tool calls.

    `answers` are the outcomes by request and call id. At most *max_iterations* requests are made.
    """

    def __init__(self, agent: AgentSpec, run: InferenceRun, *, max_iterations: int | None) -> None:
        self.agent, self.run = agent, run
        self.answers: dict[tuple[int, str], ToolOutcome] = {}
        self.definitions: dict[str, ToolDefinition] = {}
        self.pages, self._room = run.pages_of(agent), ROOM
        self.offered: Collection[str] = ()
        self.begin: AgentRequest | None = None
        self._max_iterations = max_iterations
        self.requested: dict[str, ToolCall] = {}
        self._step = 0
        self._omitted = len(run.omitted)

    @property
    def errors(self) -> int:
        """The number of failed tool calls so far."""
        return sum("error" in each.content for each in self.answers.values())

    async def may_request(self) -> Reason | None:
        """Return the reason to end before the next request, or None."""
        if self.errors >= self.run.max_tool_errors:
            return "tool_error"
        return "max_iterations" if self._step == self._max_iterations else None

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return the messages to send for a hook's *prompt* and *history*."""
        return cast("AgentRequest", self.begin).sent(prompt, history)

    def replied(self, response: ModelResponse) -> None:
        """Record the calls in *response*."""
        self._step += 1
        self.requested = {each.tool_call_id: tool_call(each) for each in calls(response)}

    def resumed(self, kept: PartLog) -> None:
        """Count the replies that *kept* has, of which the last one's tools run next."""
        self._step = kept.replies - 1
        self.replied(kept.responses[-1])
        for key, each in kept.answers.items():
            outcome = self.answers[key] = ToolOutcome(**cast("dict[str, Any]", each.facts))
            self._room -= len(encode(outcome.content))

    def offer(self, names: Mapping[str, object]) -> None:
        """Record the offered *names*; raise InvalidInput if the chosen one is missing."""
        self.offered = names.keys()
        choice = self.agent.tool_choice
        if choice not in ("auto", "any") and choice not in names:
            there = ", ".join(names) or "none"
            raise InvalidInput(
                "tool_choice", f"there is no such tool; there are: {there}", given=choice
            )

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request; reading values is never forced."""
        given = {each.__name__ for each in VALUE_TOOLS} if self.run.names_values else set[str]()
        offered = set(self.offered) - given if self.agent.tool_choice == "any" else self.offered
        return settings_of(self.agent, ctx, offered)

    async def called(self, call_id: str) -> datetime:
        """Emit the call of a tool; return the instant."""
        call = self.requested[call_id]
        data = {"name": call.name, "input": shortened(call.input)}
        await self.run.tell("tool.called", data, agent=self.agent.name, call_id=call_id)
        return self.run.clock.now()

    async def answered(
        self,
        call_id: str,
        outcome: ToolOutcome,
        began: datetime,
        cause: BaseException | None = None,
    ) -> None:
        """Store and emit the *outcome* of a call; *cause* is the tool's exception."""
        self._room -= len(encode(outcome.content))
        if self._room < 0:
            outcome = reduced(outcome)
        elapsed = (self.run.clock.now() - began) // timedelta(milliseconds=1)
        self.answers[self._step, call_id] = replaced(outcome, duration_ms=elapsed)
        data: dict[str, Any] = {
            "name": self.requested[call_id].name,
            "content": shortened(outcome.content),
            "ok": "error" not in outcome.content,
            "kind": _kind(outcome.content),
            "ms": elapsed,
            **outcome.extras,
        }
        if cause is not None:
            data["traceback"] = shortened("".join(traceback.format_exception(cause)))
        await self.run.tell("tool.returned", data, agent=self.agent.name, call_id=call_id)

    async def tell(self, type: str, data: dict[str, Any]) -> None:
        """Emit a request, with what it leaves out, or a response."""
        windows = self.run.omitted[self._omitted :]
        if type == "model.requested" and windows:
            count = sum(len(each.omitted) for each in windows)
            size = sum(each.omitted.size for each in windows)
            data["omitted"] = {"count": count, "size": size, "reason": "budget"}
        await self.run.tell(type, data, agent=self.agent.name)

    async def emit(self, pieces: AsyncIterable[Delta]) -> None:
        """Emit a reply in pieces."""
        async for kind, delta in pieces:
            data = {"delta": delta, "step": self._step + 1}
            await self.run.tell(kind, data, agent=self.agent.name)

    async def calls(self, stream: AsyncIterable[Any]) -> None:
        """Store and emit the results of calls that ran no tool, such as unknown ones."""
        async for event in stream:
            if not isinstance(event, FunctionToolResultEvent):
                continue
            call_id = event.part.tool_call_id
            if event.part.content != WAITS and (self._step, call_id) not in self.answers:
                began = await self.called(call_id)
                await self.answered(call_id, limited(content_of(event.part)), began)


log = logging.getLogger(__name__)


@dataclass
class ToolErrorToolset(WrapperToolset[Any]):
    """Runs tools one after another and returns failures as results.

    The `deps` are an `AgentLoop` with a `CallPolicy`.
    """

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, without settings that would end the run instead of a result."""
        call = _policy(ctx)
        tools = await super().get_tools(ctx)
        if not call.pages.results:
            del tools[READ_RESULT]
        call.offer(tools)
        for name, tool in tools.items():
            definition = tool.tool_def
            call.definitions[name] = definition
            plain = replace(definition, timeout=None, kind="function", sequential=True)
            # The ceiling on errors of all tools together acts before one tool's own could.
            tools[name] = replace(tool, tool_def=plain, max_retries=RETRIES)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the JSON form of the tool's result; raise ToolFailed for each failure."""
        call, call_id = _policy(ctx), ctx.tool_call_id or ""
        kept: PartLog = ctx.deps.scope.kept
        if (known := kept.answer_of(call_id)) is not None:
            if known.failed:
                raise ToolFailed(known.shown)
            return known.shown
        made = PartCall(kept, call_id, name, call.requested[call_id].input)
        # One that is made again was emitted before.
        again = bool(kept.questions_of(call_id))
        began = call.run.clock.now() if again else await call.called(call_id)
        token = working.set((call.run, name, call_id))
        try:
            value = await asking(made, lambda: self._made(made, tool_args, ctx, tool))
            found = answer(value, tool, None if name == READ_RESULT else call.pages)
        except Suspended:
            return WAITS
        except AnswerTimeout:
            raise
        except Exception as error:
            outcome = limited(_failed(error, name, tool), call.pages)
            await call.answered(call_id, outcome, began, error)
            await _keep(ctx, _shown(outcome), failed=True)
            raise ToolFailed(_shown(outcome)) from error
        finally:
            working.reset(token)
        if found.repaired:
            ctx.deps.repaired.append(f"result of {name}")
        outcome = _outcome(found, tool)
        await call.answered(call_id, outcome, began)
        if "error" in outcome.content:
            await _keep(ctx, as_text(found.shown), failed=True)
            raise ToolFailed(as_text(found.shown))
        await _keep(ctx, found.shown)
        return found.shown

    async def _made(
        self,
        call: PartCall,
        given: dict[str, Any],
        ctx: RunContext[AgentLoop],
        tool: ToolsetTool[Any],
    ) -> Any:
        """Return the value of *call* with the arguments *given*, if a person consents."""
        name = tool.tool_def.name
        asks = replace(tool, tool_def=_policy(ctx).definitions[name])

        async def make(arguments: dict[str, Any], ctx: RunContext[Any]) -> Any:
            await begin_call(tool, call.call_id, call.log)
            return await self._value(name, arguments, ctx, tool)

        async def check(arguments: dict[str, Any]) -> dict[str, Any]:
            return tool.args_validator.validate_python(arguments)

        return await Consent(call, asks, ctx, check, make).made(given)

    async def _value(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the value of the tool; its own cancellation is an error of its own."""
        call = _policy(ctx)
        if name == READ_RESULT:
            return call.pages.part(**tool_args)
        timeout = call.definitions[name].timeout
        return await _timed(apart(super().call_tool(name, tool_args, ctx, tool)), timeout)


async def _keep(ctx: RunContext[AgentLoop], shown: Any, *, failed: bool = False) -> None:
    """Keep what is *shown* of an answered call, and its outcome."""
    call, kept, call_id = _policy(ctx), ctx.deps.scope.kept, ctx.tool_call_id or ""
    facts = to_builtins(call.answers[kept.replies, call_id])
    answered = KeptAnswer(shown=shown, failed=failed, facts=facts)
    await kept.keep_answer(call_id, answered, call.pages.results)


def _kind(content: Content) -> str | None:
    error = content.get("error")
    return str(error["kind"]) if isinstance(error, dict) else None


class _TooSlow(Exception):
    """The tool exceeded its timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it ran past its {seconds:g} s")


async def _timed(work: Awaitable[Any], seconds: float | None) -> Any:
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return await work
    except TimeoutError:
        if seconds is not None and limit.expired():
            raise _TooSlow(seconds) from None
        raise


def _outcome(found: ToolAnswer, tool: ToolsetTool[Any]) -> ToolOutcome:
    """Return the outcome of a call of *tool*; an error result of ours is a failure."""
    if found.ok or our_tool(tool) is None or not isinstance(found.stored, dict):
        return ToolOutcome({"data": found.stored}, extras=found.extras)
    error = cast("dict[str, Any]", found.stored["error"])
    message = " ".join(filter(None, (error.get("message"), error.get("next"))))
    return ToolOutcome(failure(error["type"], message, "raised"))


def _failed(error: Exception, name: str, tool: ToolsetTool[Any]) -> Content:
    kind: ErrorKind = "raised"
    message = described(error)
    match error:
        case NotJSON():
            return failure("NotJSON", message, "not_json")
        case _TooSlow():
            return failure("TimeoutError", message, "timeout")
        case CutOff():
            return failure("Interrupted", message, "interrupted")
        case Denied() | ApprovalRequired() | CallDeferred():
            return failure("Denied", message or "it needs a second approval", "denied")
        case ModelRetry() if isinstance(error.__context__, TimeoutError):
            return failure("TimeoutError", message, "timeout")
        case _ if is_remote(tool.toolset):
            kind = "remote"
        case _:
            log.info("the tool %s raised", name, exc_info=error)
    return failure(class_of(error), message, kind)


def _shown(outcome: ToolOutcome) -> str:
    """Return the text of a failed call for the model."""
    text = error_text(cast("dict[str, Any]", outcome.content["error"]))
    return as_text(shown_again(text, outcome.extras))


_built: WeakKeyDictionary[AgentSpec, dict[bool, ModelAgent[Any, Any]]] = WeakKeyDictionary()


def built(agent: AgentSpec, *, reads_values: bool = False) -> ModelAgent[Any, Any]:
    """Return the pydantic-ai agent that runs calls of *agent* by a `CallPolicy`.

    With *reads_values* it has the tools for the values of a network.
    """
    made = _built.setdefault(agent, {})
    found = made.get(reads_values)
    if found is None:
        # Each call has pages of its own; this one stands for their tool.
        shared = [*(VALUE_TOOLS if reads_values else ()), ResultPages(1).tool()]
        tools = [*agent.tools, *shared]
        toolsets = [kept(each) for each in agent.toolsets]
        found = made[reads_values] = ModelAgent[Any, Any](
            name=agent.name,
            # A reply without a word, or with reasoning alone, is an answer too.
            output_type=[str, type(None)],
            toolsets=[ToolErrorToolset(equipped(tools, toolsets, context_of=_context_of))],
            capabilities=capabilities(agent),
        )
    return found


def _context_of(ctx: RunContext[AgentLoop]) -> ToolContext:
    call = _policy(ctx)
    run = call.run
    return tool_context(ctx, call.agent, run.state, run_id=run.id, network=run.handle)


def _policy(ctx: RunContext[AgentLoop]) -> CallPolicy:
    return cast("CallPolicy", ctx.deps.policy)


class AgentCall:
    """One call of *agent* in *run*, its `part`; `made` runs it once.

    Its result is number *index* of the run. At most *max_iterations* requests are made, None
    being no limit, within *timeout* seconds. When it is over, `result` is its result and `ending`
    the reason; both exist also after a cancellation. If it `waits` for a person it is not over.
    """

    def __init__(
        self,
        agent: AgentSpec,
        run: InferenceRun,
        *,
        index: int = 0,
        max_iterations: int | None = MAX_ITERATIONS,
        timeout: float | None = None,
    ) -> None:
        check_most("max_iterations", max_iterations)
        self.agent, self.run = agent, run
        self.ending = RunEnd()
        self.waits = False
        self.result: InferenceResult | None = None
        self._timeout, self._omitted = timeout, len(run.omitted)
        self._policy = CallPolicy(agent, run, max_iterations=max_iterations)
        self.part = f"{agent.name}.{index}"
        self._kept = run.logs.of(self.part, agent.name)
        self._kept.share(self._policy.pages.results)
        scope = LoopScope(
            agent=agent,
            run=run.handle,
            run_id=run.id,
            input=run.input,
            clock=run.clock,
            index=index,
            emit=self._policy.emit if run.watched else None,
            calls=self._policy.calls,
            tell=self._policy.tell if run.heard else None,
            answers=self._policy.answers,
            kept=self._kept,
            sizes=run.sizes.setdefault(agent.name, MessageSizes()),
        )
        self._loop = AgentLoop(scope, self._policy, usage=run.usage)

    async def made(self) -> InferenceResult:
        """Run the call and return its result, however it ended.

        What prevents its start is raised: NoModel, NotRunnable, ToolNameTaken, InvalidInput for a
        chosen tool that does not exist. So is a cancellation, once `result` is set.
        """
        limit = asyncio.timeout(self._timeout)
        token = current_part.set(self._kept)
        try:
            await self._timed(limit)
            self.result = await self._finished()
            if not self.waits and self.ending.status == "failed":
                await self._kept.fail()
        finally:
            current_part.reset(token)
            if not self.waits:
                self.run.logs.end(self._kept.part)
        return self.result

    async def _timed(self, limit: asyncio.Timeout) -> None:
        try:
            async with limit:
                await self._work()
        except TimeoutError as error:
            if not limit.expired():
                raise
            self._end("timeout", error, detail=f"it ran past its {self._timeout:g} s")
        except asyncio.CancelledError:
            self._end("cancelled")
            self.result = self._result()
            raise

    @property
    def omitted(self) -> list[Window]:
        """The windows that left something out of its view."""
        return self.run.omitted[self._omitted :]

    @property
    def kept(self) -> bool:
        """Whether the result belongs in the state: complete, or cut short with content."""
        result = self.result
        if result is None or self.waits:
            return False
        return self.ending.status == "completed" or bool(result.output or result.tool_calls)

    def _end(self, reason: Reason, cause: BaseException | None = None, *, detail: str = "") -> None:
        self.ending = RunEnd(reason, detail, cause)

    async def _work(self) -> None:
        model = self.run.model_of(self.agent)
        if model is None:
            raise no_model(self.agent)
        for unavailable in await connect(self.agent, self.run):
            await self.run.tell("mcp.unavailable", unavailable, agent=self.agent.name)
        try:
            reason = await self._exchange(model)
            details = {
                "max_iterations": f"{self._loop.replies} requests",
                "tool_error": f"{self._policy.errors} errors of tools",
            }
            self._end(reason, detail=details.get(reason, ""))
        except PartWaits:
            self.waits = True
        except AnswerTimeout as error:
            self._end("answer_timeout", error)
        except HookFailed as error:
            self._end("hook", error.__cause__, detail=error.hook)
        except UsageLimitExceeded as error:
            self._end("budget", error)
        except (NotRunnable, ToolNameTaken):
            raise
        except Exception as error:
            if isinstance(error, InvalidInput) and error.field == "tool_choice":
                raise
            # Providers, their clients and custom models raise what they like.
            self._end("model_error", error)

    async def _exchange(self, model: AnyModel) -> Reason:
        run, policy = self.run, self._policy
        system = await system_text(self.agent, run.handle)
        if run.system_prompt:
            system = "\n\n".join(filter(None, (system, run.system_prompt)))
        values = values_section(run.state) if run.names_values else ""
        begin = policy.begin = await sending(self.agent, run, system, values)
        sent = begin.sent(begin.prompt, begin.history)
        inbox: Inbox | None = run.inbox_of(self.agent.name) if run.inbox_of else None
        seen = seen_to.set(True)
        try:
            with ModelAgent.parallel_tool_call_execution_mode("sequential"):
                return await self._loop.run(
                    built(self.agent, reads_values=run.names_values),
                    begin.prompt,
                    begin.history,
                    inbox=inbox,
                    message_history=sent.messages,
                    instructions=sent.instructions() or None,
                    model=model,
                    model_settings=policy.settings,
                    usage_limits=run.usage_limits or NO_LIMITS,
                )
        finally:
            if inbox is not None:
                inbox.end()
            seen_to.reset(seen)

    def _result(self) -> InferenceResult:
        exchanged = self._loop.exchanged()
        ending, begin = self.ending, self._policy.begin
        return self._loop.result(
            "waiting" if self.waits else ending.reason,
            error=ending.error(),
            # The calls of one that waits have their answers still to come.
            exchanged=repair_messages(exchanged) if exchanged and not self.waits else exchanged,
            seen=begin and begin.seen(*self._loop.sent),
        )

    async def _finished(self) -> InferenceResult:
        """Return the result as changed by the agent's hook."""
        result = self._result()
        if self.waits or self.ending.reason == "hook":
            return result
        try:
            return await finished(self.agent, result, self.run.handle)
        except Suspended:
            await self._loop.keep_rest(self._loop.messages)
            self.waits = True
            return self._result()
        except HookFailed as error:
            self._end("hook", error.__cause__, detail=error.hook)
            return self._result()
