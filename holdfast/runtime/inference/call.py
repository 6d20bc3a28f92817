"""The loop of requests and tool calls of an agent."""

import asyncio
import logging
import traceback
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, cast
from weakref import WeakKeyDictionary

from msgspec import Struct
from msgspec.json import encode
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, RunContext, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    ToolFailed,
    UsageLimitExceeded,
)
from pydantic_ai.messages import (
    FunctionToolResultEvent,
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolReturn,
    ToolReturnPart,
    is_multi_modal_content,
    repair_messages,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.toolsets import ToolsetTool, WrapperToolset
from pydantic_graph import End

from holdfast.ground.errors import InvalidInput, NotRunnable, ToolNameTaken
from holdfast.memories.state.message import ErrorKind, ToolCall
from holdfast.memories.state.result import InferenceResult
from holdfast.runtime.agent import AgentSpec, AgentStart, AnyModel
from holdfast.runtime.concurrency import NOTING, none_left
from holdfast.runtime.context import ToolContext
from holdfast.runtime.inference.messages import (
    Content,
    NotJSON,
    ToolOutcome,
    calls,
    content_of,
    error_text,
    failure,
    json_form,
    tool_call,
)
from holdfast.runtime.inference.request import (
    AgentRequest,
    DeltaType,
    HookFailed,
    Sent,
    answered,
    can_stream,
    deltas,
    finished,
    retell,
    sending,
    started,
    system_text,
    whole,
)
from holdfast.runtime.inference.run_types import (
    MAX_ITER,
    CallRecord,
    Run,
    RunEnd,
    StopReason,
    check_max_iter,
    no_model,
)
from holdfast.runtime.mcp import connect, is_remote, kept, seen_to
from holdfast.runtime.tools import OURS, equipped
from holdfast.tools.base import Tool

working: ContextVar[tuple[str, str, str] | None] = ContextVar("working", default=None)
"""The run, the name and the call id of the tool at work."""


class ToolContract(Struct, frozen=True):
    """The parts of a tool's definition that the loop overrides."""

    timeout: float | None
    kind: str


class ToolCalls:
    """The tool calls of *agent* in one of its calls in *run*, and their outcomes."""

    def __init__(self, agent: AgentSpec, run: Run) -> None:
        self._agent, self._run = agent, run
        self._requested: dict[str, ToolCall] = {}
        self._offered: Collection[str] = ()
        self._step = 0
        self.answers: dict[tuple[int, str], ToolOutcome] = {}
        self.terms: dict[str, ToolContract] = {}

    @property
    def most_errors(self) -> int:
        """The number of errors that ends the call."""
        return self._run.max_tool_errors

    @property
    def errors(self) -> int:
        """The number of failed calls so far."""
        return sum("error" in each.content for each in self.answers.values())

    def offer(self, names: Mapping[str, object]) -> None:
        """Record the offered *names*; raise InvalidInput if the chosen one is missing."""
        self._offered = names.keys()
        choice = self._agent.tool_choice
        if choice not in ("auto", "any") and choice not in names:
            there = ", ".join(names) or "none"
            raise InvalidInput(
                "tool_choice", f"there is no such tool; there are: {there}", given=choice
            )

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request; only the first one forces the tool choice."""
        settings = ModelSettings(**(self._agent.model_settings or {}))
        choice = self._agent.tool_choice
        if ctx.run_step > 1 or choice == "auto" or not self._offered:
            return settings
        forced: ToolChoice = "required" if choice == "any" else [choice]
        return settings | ModelSettings(tool_choice=forced)

    def ask(self, response: ModelResponse, step: int) -> None:
        """Record the calls in *response*, the reply of *step*."""
        self._step = step
        self._requested = {each.tool_call_id: tool_call(each) for each in calls(response)}

    def context(self, ctx: RunContext[Any]) -> ToolContext:
        """Return the context of one call for its tool."""
        call_id, name = ctx.tool_call_id or "", ctx.tool_name or ""
        return ToolContext(
            agent=self._agent,
            network=self._run.handle,
            state=self._run.state.on_behalf(
                agent=self._agent.name, run_id=self._run.id, tool=name, call_id=call_id
            ),
            run_id=self._run.id,
            call_id=call_id,
            tool_name=name,
            usage=ctx.usage,
        )

    def at_work(self, name: str, call_id: str) -> tuple[str, str, str]:
        """Return the value of `working` for the tool *name*."""
        return self._run.id, name, call_id

    async def called(self, call_id: str) -> datetime:
        """Emit the call of a tool; return the instant."""
        call = self._requested[call_id]
        data = {"name": call.name, "input": call.input}
        await self._run.tell("tool.called", data, agent=self._agent.name, call_id=call_id)
        return self._run.clock.now()

    def since(self, began: datetime) -> int:
        """Return the milliseconds from *began* to now."""
        return (self._run.clock.now() - began) // timedelta(milliseconds=1)

    async def answered(
        self, call_id: str, answer: ToolOutcome, cause: BaseException | None = None
    ) -> None:
        """Store and emit the *answer* of a call; *cause* is the tool's exception."""
        self.answers[self._step, call_id] = answer
        data: dict[str, Any] = {
            "name": self._requested[call_id].name,
            "content": answer.content,
            "duration_ms": answer.duration_ms,
        }
        if cause is not None:
            data["traceback"] = "".join(traceback.format_exception(cause))
        await self._run.tell("tool.returned", data, agent=self._agent.name, call_id=call_id)

    async def came_back(self, part: ToolReturnPart) -> None:
        """Store and emit the result of a call that ran no tool, such as an unknown one."""
        call_id = part.tool_call_id
        if (self._step, call_id) not in self.answers:
            began = await self.called(call_id)
            await self.answered(call_id, ToolOutcome(content_of(part), self.since(began)))


log = logging.getLogger(__name__)


@dataclass
class ToolErrorToolset(WrapperToolset[Any]):
    """Runs tools one after another and returns failures as results.

    The `deps` are `CallDeps`.
    """

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        """Return the tools, without settings that would end the run instead of a result."""
        calls: ToolCalls = ctx.deps.tools
        tools = await super().get_tools(ctx)
        calls.offer(tools)
        for name, tool in tools.items():
            definition = tool.tool_def
            calls.terms[name] = ToolContract(definition.timeout, definition.kind)
            plain = replace(definition, timeout=None, kind="function", sequential=True)
            # The ceiling on errors of all tools together acts before one tool's own could.
            tools[name] = replace(tool, tool_def=plain, max_retries=calls.most_errors + 1)
        return tools

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        """Return the JSON form of the tool's result; raise ToolFailed for each failure."""
        calls: ToolCalls = ctx.deps.tools
        terms = calls.terms[name]
        call_id = ctx.tool_call_id or ""
        began = await calls.called(call_id)
        given, cause = None, None
        token = working.set(calls.at_work(name, call_id))
        try:
            value = await _worked(
                lambda: super(ToolErrorToolset, self).call_tool(name, tool_args, ctx, tool), terms
            )
            content, given = _answer(value, tool)
        except Exception as error:  # noqa: BLE001 - a user's tool may raise anything
            content, cause = _failed(error, name, tool), error
        finally:
            working.reset(token)
        await calls.answered(call_id, ToolOutcome(content, calls.since(began)), cause)
        if "error" in content:
            raise ToolFailed(_shown(content, given))
        return given


class _NotHere(Exception):
    """The tool needs an approval, or runs outside of this process."""


class _TooSlow(Exception):
    """The tool exceeded its timeout."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"it ran past its {seconds:g} s")


async def _worked(work: Callable[[], Awaitable[Any]], terms: ToolContract) -> Any:
    if terms.kind != "function":
        raise _NotHere
    if terms.timeout is None:
        return await work()
    limit = asyncio.timeout(terms.timeout)
    try:
        async with limit:
            return await work()
    except TimeoutError:
        if limit.expired():
            raise _TooSlow(terms.timeout) from None
        raise


def _answer(value: object, tool: ToolsetTool[Any]) -> tuple[Content, Any]:
    """Return the content of a call that returned *value*, and the value for the model."""
    ours = (tool.tool_def.metadata or {}).get(OURS)
    if isinstance(ours, Tool) and ours.refused and ours.refused(cast("Any", value)):
        return _refusal(cast("dict[str, Any]", value)), value
    if isinstance(value, ToolReturn):
        found = cast("ToolReturn[Any]", value)
        return {"data": json_form(found.return_value)}, found
    if _has_files(value):
        return {"data": json_form(value)}, value
    data = json_form(value)
    return {"data": data}, data


def _refusal(answer: dict[str, Any]) -> Content:
    error = answer["error"]
    message = " ".join(filter(None, (error.get("message"), error.get("next"))))
    return failure(error["type"], message, "raised")


def _has_files(value: object) -> bool:
    if isinstance(value, list):
        return any(map(is_multi_modal_content, cast("list[object]", value)))
    return is_multi_modal_content(value)


def _failed(error: Exception, name: str, tool: ToolsetTool[Any]) -> Content:
    kind: ErrorKind = "raised"
    match error:
        case NotJSON():
            return failure("NotJSON", str(error), "not_json")
        case _TooSlow():
            return failure("TimeoutError", str(error), "timeout")
        case _NotHere() | ApprovalRequired() | CallDeferred():
            return failure("Denied", "it needs an approval, and no approver is present", "denied")
        case ModelRetry() if isinstance(error.__context__, TimeoutError):
            return failure("TimeoutError", str(error), "timeout")
        case _ if is_remote(tool.toolset):
            kind = "remote"
        case _:
            log.info("the tool %s raised", name, exc_info=error)
    return failure(type(error).__name__, str(error), kind)


def _shown(content: Content, given: object) -> str:
    """Return the text of an error for the model: the tool's own result if it has one."""
    if given is not None:
        return encode(given).decode()
    return error_text(cast("dict[str, Any]", content["error"]))


_built: WeakKeyDictionary[AgentSpec, ModelAgent[Any, Any]] = WeakKeyDictionary()


class CallDeps:
    """The `deps` of a call's loop: its tools, and a hook's rewritten messages.

    `base` is the number of messages before the loop.
    """

    def __init__(self, tools: ToolCalls) -> None:
        self.tools = tools
        self.rewritten: Sent | None = None
        self.base = 0


def built(agent: AgentSpec) -> ModelAgent[Any, Any]:
    """Return the pydantic-ai agent that runs calls of *agent*; `deps` are `CallDeps`."""
    found = _built.get(agent)
    if found is None:
        toolsets = [kept(each) for each in agent.toolsets]
        tools = equipped(agent.tools, toolsets, context_of=_context_of)
        found = ModelAgent[Any, Any](
            name=agent.name,
            # A reply without a word, or with reasoning alone, is an answer too.
            output_type=[str, type(None)],
            toolsets=[ToolErrorToolset(tools)],
            capabilities=[
                NOTING,
                *([RequestRewrite()] if agent.hooks and agent.hooks.on_start else []),
            ],
        )
        _built[agent] = found
    return found


def _context_of(ctx: RunContext[CallDeps]) -> ToolContext:
    return ctx.deps.tools.context(ctx)


class RequestRewrite(AbstractCapability[Any]):
    """Replaces the messages before the loop, in one request, as a hook returned them."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request as the hook changed it."""
        deps: CallDeps = ctx.deps
        if deps.rewritten is None:
            return request_context
        system, messages = deps.rewritten.system, deps.rewritten.messages
        return replace(
            request_context,
            messages=[*messages, *request_context.messages[deps.base :]],
            model_request_parameters=replace(
                request_context.model_request_parameters,
                instruction_parts=[InstructionPart(system)] if system else None,
            ),
        )


class AgentCall:
    """One call of *agent* in *run*; `made` runs it once.

    Its result is number *index* of the run. At most *max_iter* requests are made, None being no
    limit, within *timeout* seconds. When it is over, `result` is its result and `ending` the
    reason; both exist also after a cancellation.
    """

    def __init__(
        self,
        agent: AgentSpec,
        run: Run,
        *,
        index: int = 0,
        max_iter: int | None = MAX_ITER,
        timeout: float | None = None,
    ) -> None:
        check_max_iter(max_iter)
        self.agent, self.run = agent, run
        self.ending = RunEnd()
        self.result: InferenceResult | None = None
        self._tools = ToolCalls(agent, run)
        self._deps = CallDeps(self._tools)
        self._max_iter, self._timeout = max_iter, timeout
        self._record = CallRecord(agent, run, index=index, answers=self._tools.answers)
        self._graph: AgentRun[Any, Any] | None = None
        self._next: ModelRequest | None = None
        self._steps = 0

    async def made(self) -> InferenceResult:
        """Run the call and return its result, however it ended.

        What prevents its start is raised: NoModel, NotRunnable, ToolNameTaken, InvalidInput for a
        chosen tool that does not exist. So is a cancellation, once `result` is set.
        """
        limit = asyncio.timeout(self._timeout)
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
        self.result = await self._finished()
        return self.result

    @property
    def kept(self) -> bool:
        """Whether the result belongs in the state: complete, or cut short with content."""
        result = self.result
        if result is None:
            return False
        return self.ending.status == "completed" or bool(result.output or result.tool_calls)

    def _end(
        self, reason: StopReason, cause: BaseException | None = None, *, detail: str = ""
    ) -> None:
        self.ending = RunEnd(reason, detail, cause)

    async def _work(self) -> None:
        model = self.run.model_of(self.agent)
        if model is None:
            raise no_model(self.agent)
        for unavailable in await connect(self.agent, self.run):
            await self.run.tell("mcp.unavailable", unavailable, agent=self.agent.name)
        try:
            await self._exchange(model)
        except HookFailed as error:
            self._end("hook_error", error.__cause__, detail=error.hook)
        except UsageLimitExceeded as error:
            self._end("budget", error)
        except (NotRunnable, ToolNameTaken):
            raise
        except Exception as error:
            if isinstance(error, InvalidInput) and error.field == "tool_choice":
                raise
            # Providers, their clients and custom models raise what they like.
            self._end("model_error", error)

    async def _exchange(self, model: AnyModel) -> None:
        system = await system_text(self.agent, self.run.handle)
        if self.run.system_prompt:
            system = "\n\n".join(filter(None, (system, self.run.system_prompt)))
        begin = await sending(self.agent, self.run, system)
        sent = begin.sent(begin.prompt, begin.history)
        seen = seen_to.set(True)
        try:
            with ModelAgent.parallel_tool_call_execution_mode("sequential"):
                run = built(self.agent).iter(**self._options(model, sent))
                async with none_left(), run as self._graph:
                    await self._drive(self._graph, begin)
        finally:
            seen_to.reset(seen)

    def _options(self, model: AnyModel, sent: Sent) -> dict[str, Any]:
        """Return the arguments for pydantic-ai's loop."""
        most = self._tools.most_errors + 1
        return {
            "message_history": sent.messages,
            "instructions": sent.system or None,
            "model": model,
            "model_settings": self._tools.settings,
            "deps": self._deps,
            "usage": self.run.usage,
            "usage_limits": self.run.usage_limits or UsageLimits(request_limit=None),
            "retries": {"tools": most, "output": most},
            "infer_name": False,
        }

    async def _drive(self, graph: AgentRun[Any, Any], begin: AgentRequest) -> None:
        node = graph.next_node
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                self._next = node.request if self._steps else None
                if not self._steps:
                    self._deps.base = len(graph.all_messages()) + 1
                if not await self._may_ask(begin):
                    return
                node = await self._ask(graph, node)
            elif ModelAgent.is_call_tools_node(node):
                await self._on_response(node)
                node = await self._use_tools(graph, node)
                if self._tools.errors >= self._tools.most_errors:
                    self._next = node.request if ModelAgent.is_model_request_node(node) else None
                    self._end("tool_error", detail=f"{self._tools.errors} errors of tools")
                    return
            else:
                node = await graph.next(node)

    async def _may_ask(self, begin: AgentRequest) -> bool:
        """Return whether one more request is to be made; set the ending if not."""
        if self._steps == self._max_iter:
            self._end("max_steps", detail=f"{self._steps} requests")
            return False
        start = AgentStart(
            agent=self.agent,
            run=self.run.handle,
            input=self.run.input,
            prompt=begin.prompt,
            history=begin.history,
            step=self._steps + 1,
        )
        if not self._steps:
            self._record.prompt, self._record.history = start.prompt, start.history
        changed = await started(start)
        if changed.stop:
            self._end("hook_stop")
            return False
        same = changed.prompt == begin.prompt and changed.history == begin.history
        self._deps.rewritten = None if same else begin.sent(changed.prompt, changed.history)
        if not self._steps:
            self._record.prompt, self._record.history = changed.prompt, changed.history
        return True

    async def _ask(self, graph: AgentRun[Any, Any], node: ModelRequestNode[Any, Any]) -> Any:
        """Make the request of *node*, emit pieces on arrival, return the next node."""
        self._steps += 1
        watched = self.run.watched
        if watched and can_stream(graph.ctx.deps.model):
            async with node.stream(graph.ctx) as stream:
                async for kind, delta in deltas(stream):
                    await self._tell(kind, delta)
            return await graph.next(node)
        after = await graph.next(node)
        if watched and isinstance(after, CallToolsNode):
            for kind, delta in whole(after.model_response):
                await self._tell(kind, delta)
        return after

    async def _tell(self, kind: DeltaType, delta: str) -> None:
        data = {"delta": delta, "step": self._steps}
        await self.run.tell(kind, data, agent=self.agent.name)

    async def _on_response(self, node: CallToolsNode[Any, Any]) -> None:
        """Let the agent's hook change the reply of *node* before its tools run."""
        if self.agent.hooks and self.agent.hooks.on_response:
            before = self._record.result(self._exchanged(), stop_reason="done")
            after = await answered(self.agent, before, self.run.handle)
            retell(node.model_response, before, after)
        self._tools.ask(node.model_response, self._steps)

    async def _use_tools(self, graph: AgentRun[Any, Any], node: CallToolsNode[Any, Any]) -> Any:
        async with node.stream(graph.ctx) as stream:
            async for event in stream:
                if isinstance(event, FunctionToolResultEvent):
                    await self._tools.came_back(event.part)
        return await graph.next(node)

    def _exchanged(self) -> list[ModelMessage]:
        """Return the messages of the call's own loop so far."""
        if self._graph is None or not self._steps:
            return []
        found = self._graph.all_messages()[self._deps.base :]
        if self._next is not None and not any(each is self._next for each in found):
            # The tool results for a request that will not be made.
            found.append(self._next)
        return found

    def _result(self) -> InferenceResult:
        exchanged = self._exchanged()
        if exchanged:
            exchanged = repair_messages(exchanged)
        ending = self.ending
        return self._record.result(exchanged, stop_reason=ending.reason, error=ending.error())

    async def _finished(self) -> InferenceResult:
        """Return the result as changed by the agent's hook."""
        result = self._result()
        if self.ending.reason == "hook_error":
            return result
        try:
            return await finished(self.agent, result, self.run.handle)
        except HookFailed as error:
            self._end("hook_error", error.__cause__, detail=error.hook)
            return self._result()
