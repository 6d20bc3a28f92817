"""The loop of requests and tool calls of an agent, by the policy of its user."""

import logging
from collections.abc import AsyncIterable, Awaitable, Callable, Container, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeAlias, cast

from msgspec import Struct, field
from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, RunContext, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RunUsage
from pydantic_core import PydanticSerializationError
from pydantic_graph import End

from holdfast.ground.clock import Clock
from holdfast.ground.json_values import JSON
from holdfast.memories.run.records.event import Reason
from holdfast.memories.state.message import Message
from holdfast.memories.state.references import Seen
from holdfast.memories.state.result import InferenceResult, bound, result_id, text_of
from holdfast.memories.state.sources import OfCall
from holdfast.runtime.agent import AgentSpec, AgentStart, AnyRun
from holdfast.runtime.concurrency import (
    NOTING,
    Suspended,
    at_work,
    contained,
    none_left,
    wait_to_request,
)
from holdfast.runtime.context import Context, Inbox
from holdfast.runtime.events import shortened
from holdfast.runtime.inference.messages import Answers, texts, tool_results
from holdfast.runtime.inference.request import (
    Delta,
    Sent,
    answered,
    can_stream,
    deltas,
    finished,
    retell,
    started,
    streaming,
    whole,
)
from holdfast.runtime.inference.run_types import usage_of
from holdfast.runtime.inference.validation import repair
from holdfast.runtime.runs.part_log import MessageSizes, PartLog, messages_json
from holdfast.runtime.runs.suspension import AnswerTimeout, PartWaits
from holdfast.tools.base import Schema

NO_LIMITS: Final = UsageLimits(request_limit=None)
RETRIES: Final = 1_000_000
"""Mistakes of a model; so many that the limit of requests ends the loop first."""

RAW: Final = 4_194_304
"""Bytes of an exchange that a result keeps; its messages are kept without it, too."""

log = logging.getLogger(__name__)

Emit: TypeAlias = Callable[[AsyncIterable[Delta]], Awaitable[None]]
EmitCalls: TypeAlias = Callable[[AsyncIterable[Any]], Awaitable[None]]
Tell: TypeAlias = Callable[[str, dict[str, Any]], Awaitable[None]]
"""Emits an event of a type with its data."""


class LoopScope(Struct, frozen=True, kw_only=True):
    """The facts of one loop: that of *agent* in *run*, as hooks and results have them.

    *emit* receives a reply in pieces, *calls* the events of its tool calls, *tell* requests and
    responses; None if they reach no reader, observer or record.
    *index* is the number of the result in the run. *result_schema* are the parameters of the tool
    that ends the loop, if there is one. *answers* has facts of tool calls for results. *kept* has
    what an earlier stay kept of the loop, and keeps what this one says. *sizes* are those of the
    messages that the agent has sent in the run.
    """

    agent: AgentSpec
    run: AnyRun
    run_id: str
    input: str
    clock: Clock
    kept: PartLog
    index: int | None = None
    emit: Emit | None = None
    calls: EmitCalls | None = None
    tell: Tell | None = None
    result_schema: Schema | None = None
    answers: Answers = {}
    sizes: MessageSizes = field(default_factory=MessageSizes)


class LoopPolicy(Protocol):
    """The rules of one loop: its budget, its end, and the form of its requests."""

    async def may_request(self) -> Reason | None:
        """Return the reason to end before the next request, or None. It may raise instead."""
        ...

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return the messages to send for a hook's *prompt* and *history*."""
        ...

    def replied(self, response: ModelResponse) -> None:
        """Record a reply, before hooks see it and its tools run."""
        ...

    def resumed(self, kept: PartLog) -> None:
        """Count the replies that *kept* has, of which the last one's tools run next."""
        ...


class AgentLoop:
    """The requests and tool calls of *scope*, as long as *policy* allows.

    It is the `deps` of its tools. *usage* is added to in place. `requests` counts those that were
    begun, `replies` those that were answered; `requesting` is true while one is at work. `repaired`
    names what was brought within the limits of JSON and text.
    """

    def __init__(
        self, scope: LoopScope, policy: LoopPolicy, *, usage: RunUsage | None = None
    ) -> None:
        self.scope, self.policy = scope, policy
        self.requests = self.replies = 0
        self.requesting = self.streams = False
        self.model: object = None
        self.repaired: list[str] = []
        self.rewritten: Sent | None = None
        self.base = 0
        self.unsent: ModelRequest | None = None
        self._usage = RunUsage() if usage is None else usage
        self._before = RunUsage() if usage is None else deepcopy(usage)
        self._created_at = scope.clock.now()
        self._prompt: tuple[Message, ...] = ()
        self._history: tuple[Message, ...] = ()
        self._graph: AgentRun[Any, Any] | None = None
        self._messages: list[ModelMessage] = []
        self._requested_at = self._created_at
        self._kept, self._hearing = 0, False

    @property
    def sent(self) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
        """The prompt and the history of the first request."""
        return self._prompt, self._history

    @property
    def messages(self) -> list[ModelMessage]:
        """The messages so far, with those before the loop."""
        return self._graph.all_messages() if self._graph else self._messages

    def exchanged(self) -> list[ModelMessage]:
        """Return the messages after the prompt, with tool results that are not sent yet."""
        if not self.requests:
            return []
        found = self.messages[self.base :]
        if self.unsent is not None and not any(each is self.unsent for each in found):
            found.append(self.unsent)
        return found

    def enqueue(self, text: str) -> None:
        """Put *text* before the next request."""
        if self._graph is not None:
            self._graph.enqueue(text)

    async def run(
        self,
        runner: ModelAgent[Any, Any],
        prompt: Sequence[Message],
        history: Sequence[Message] = (),
        *,
        inbox: Inbox | None = None,
        steered: Callable[[str], None] | None = None,
        usage_limits: UsageLimits = NO_LIMITS,
        **options: Any,
    ) -> Reason:
        """Run to the end, by *runner* with *options* of pydantic-ai; return the reason.

        *prompt* and *history* are what hooks see of the first request. Texts sent to *inbox* go
        before the next request; *steered* emits them. Raise PartWaits when the loop cannot go on
        before a person has answered, AnswerTimeout if a question of it has expired.
        """
        self._prompt, self._history = tuple(prompt), tuple(history)
        if self.scope.tell is not None:
            options["capabilities"] = [*options.get("capabilities", ()), REQUEST_EVENTS]
        self.model = options.get("model") or runner.model
        if self.scope.emit is not None and streaming.get(self.model) is None:
            options["capabilities"] = [*options.get("capabilities", ()), WHOLE]
        if (late := self.scope.kept.late()) is not None:
            raise AnswerTimeout(late)
        if self.scope.kept.messages:
            options = self._resumed(self.scope.kept, options)
        started = runner.iter(
            deps=self,
            usage=self._usage,
            usage_limits=usage_limits,
            retries={"tools": RETRIES, "output": RETRIES},
            infer_name=False,
            **options,
        )
        with contained():
            async with none_left(), started as graph:
                self._graph = graph
                if inbox is not None:
                    inbox.deliver_to(partial(_deliver, graph, steered))
                try:
                    with contained(), at_work():
                        return await self._drive(graph)
                except Suspended as suspended:
                    await self.keep_rest(graph.all_messages())
                    raise PartWaits from suspended
                finally:
                    if inbox is not None:
                        inbox.wait()
                    # The graph refers to this object: drop it to avoid a reference cycle.
                    self._messages, self._graph = graph.all_messages(), None

    def _resumed(self, kept: PartLog, options: dict[str, Any]) -> dict[str, Any]:
        """Count what *kept* has; return *options* for a loop that goes on from it."""
        before = list[ModelMessage](options.get("message_history") or ())
        if options.pop("user_prompt", None) is None:
            # The last one is the request of the part, which is kept.
            before = before[:-1]
        self.base, self._kept = len(before) + 1, len(before) + len(kept.messages)
        self.requests = self.replies = kept.point = kept.replies
        for response in kept.responses:
            self._usage.incr(RunUsage(requests=1))
            self._usage.incr(response.usage)
        self.policy.resumed(kept)
        return options | {"message_history": [*before, *kept.messages]}

    async def _keep(self, graph: AgentRun[Any, Any], response: ModelResponse) -> None:
        """Keep the messages up to *response*: now, if any of its calls runs a tool.

        The result of an agent's call has the others.
        """
        tools, store = graph.ctx.deps.tool_manager, self.scope.kept.run.store
        known = [tools.get_tool_def(each.tool_name) for each in response.tool_calls]
        if any(each is None or each.kind != "output" for each in known):
            await self.keep_rest(graph.all_messages())
        elif self.scope.index is None and store is not None and store.last is not None:
            self.scope.kept.note_last(self._rest(graph.all_messages()))

    def _rest(self, messages: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return those of *messages* that are not kept yet, up to the last response."""
        rest = [*messages[self._kept :]]
        while rest and not isinstance(rest[-1], ModelResponse):
            del rest[-1]
        return rest

    async def keep_rest(self, messages: Sequence[ModelMessage]) -> None:
        """Keep those of *messages* that are not kept yet, up to the last response."""
        rest = self._rest(messages)
        self._kept += len(rest)
        if rest:
            await self.scope.kept.keep(rest, unheard=self._hearing)

    async def _drive(self, graph: AgentRun[Any, Any]) -> Reason:
        opening, hooks = (self._prompt, self._history), self.scope.agent.hooks
        node = await self._first(graph)
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                if self.requests:
                    self.unsent = node.request
                else:
                    self._kept = len(graph.all_messages())
                    self.base = self._kept + 1
                if reason := await self.policy.may_request():
                    return reason
                if hooks and hooks.on_start and not await self._starts(*opening):
                    return "hook_stop"
                await wait_to_request()
                node = await self._request(graph, node)
            elif ModelAgent.is_call_tools_node(node):
                if self.scope.calls is not None:
                    async with node.stream(graph.ctx) as stream:
                        await self.scope.calls(stream)
                node = await graph.next(node)
                if self.scope.kept.open:
                    raise PartWaits
            else:
                node = await graph.next(node)
        return "done"

    async def _first(self, graph: AgentRun[Any, Any]) -> Any:
        """Return the first node, which runs the calls of the last kept response."""
        kept = self.scope.kept
        if not kept.messages:
            return graph.next_node
        node = await graph.next(cast("Any", graph.next_node))
        if not isinstance(node, CallToolsNode):
            node = CallToolsNode[Any, Any](kept.responses[-1])
        if kept.unheard:
            await self._hear(node.model_response)
            kept.unheard = False
        return node

    async def _starts(self, prompt: tuple[Message, ...], history: tuple[Message, ...]) -> bool:
        """Run `on_start` before a request; return False if it stops the loop."""
        scope = self.scope
        changed = await started(
            AgentStart(
                agent=scope.agent,
                run=scope.run,
                input=scope.input,
                prompt=prompt,
                history=history,
                step=self.requests + 1,
            )
        )
        if changed.stop:
            return False
        same = changed.prompt == prompt and changed.history == history
        self.rewritten = None if same else self.policy.sent(changed.prompt, changed.history)
        if not self.requests:
            self._prompt, self._history = changed.prompt, changed.history
        return True

    async def _request(self, graph: AgentRun[Any, Any], node: ModelRequestNode[Any, Any]) -> Any:
        """Make the request of *node*, emit pieces on arrival, return the next node."""
        self.requests, self.requesting = self.requests + 1, True
        emit = self.scope.emit
        can = streaming.get(self.model) is not False and can_stream(graph.ctx.deps.model)
        streams = self.streams = emit is not None and can
        if emit is not None and streams:
            async with node.stream(graph.ctx) as stream:
                await emit(deltas(stream))
            if streaming.get(self.model) is None:
                streaming.set(self.model, streams=True)
        after = await graph.next(node)
        self.requesting = False
        if isinstance(after, CallToolsNode):
            self.replies += 1
            response = after.model_response
            self.repaired += repair(response)
            if emit is not None and not streams:
                await emit(whole(response))
            if self.scope.tell is not None:
                ms = (self.scope.clock.now() - self._requested_at) // timedelta(milliseconds=1)
                await self.scope.tell("model.responded", response_facts(response, ms=ms))
            self.policy.replied(response)
            self.scope.kept.point = self.replies
            await self._hear(response)
            await self._keep(graph, response)
        return after

    async def _hear(self, response: ModelResponse) -> None:
        """Let `on_response` change *response*."""
        agent = self.scope.agent
        if agent.hooks and agent.hooks.on_response:
            self._hearing = True
            before = self.result("done")
            retell(response, before, await answered(agent, before, self.scope.run))
            self._hearing = False

    def request_facts(self, request: ModelRequestContext) -> dict[str, Any]:
        """Return the facts of *request*, which is made now, for an event."""
        self._requested_at = self.scope.clock.now()
        parameters = request.model_request_parameters
        return {
            "model": request.model.model_name,
            "messages": len(request.messages),
            "bytes": self.scope.sizes.total(request.messages),
            "tools": [each.name for each in (*parameters.function_tools, *parameters.output_tools)],
        }

    async def finished(self, text: str) -> str:
        """Return the final *text* as changed by `on_finish`; raise PartWaits if that asks."""
        agent = self.scope.agent
        if agent.hooks is None or agent.hooks.on_finish is None:
            return text
        before = self.result("done")
        try:
            after = await finished(agent, before, self.scope.run)
        except Suspended as suspended:
            await self.keep_rest(self._messages)
            raise PartWaits from suspended
        said = text_of(after.output[-1]) if after.output else text
        return text if before.output and said == text_of(before.output[-1]) else said

    def result(
        self,
        reason: str,
        *,
        error: dict[str, JSON] | None = None,
        exchanged: Sequence[ModelMessage] | None = None,
        seen: Seen | None = None,
    ) -> InferenceResult:
        """Return the result of the *exchanged* messages, or of those so far, at *reason*.

        *seen* refers to what was sent before them.
        """
        scope, name = self.scope, self.scope.agent.name
        bare = [_bare(each) for each in (self.exchanged() if exchanged is None else exchanged)]
        identity: dict[str, Any] = {}
        extras: dict[str, JSON] = {"repaired": [*self.repaired]} if self.repaired else {}
        if scope.index is not None:
            raw = _exchange(bare)
            if len(raw) > RAW:
                extras["raw_bytes"], raw = len(raw), b""
            identity = {"id": result_id(scope.run_id, scope.index), "raw": raw.decode()}
        names = [each.model_name for each in bare if isinstance(each, ModelResponse)]
        result = InferenceResult(
            agent=name,
            input=scope.input,
            seen=seen,
            output=texts(bare, name),
            tool_calls=tool_results(bare, name, scope.answers),
            created_at=self._created_at,
            stop_reason=reason,
            usage=usage_of(self._usage - self._before),
            run_id=scope.run_id,
            index=scope.index,
            model=names[-1] if names else None,
            error=error,
            extras=extras,
            **identity,
        )
        return bound(result, OfCall(*self.sent))


def _deliver(graph: AgentRun[Any, Any], steered: Callable[[str], None] | None, text: str) -> None:
    """Put *text* before the next request of *graph*, and tell *steered* of it."""
    graph.enqueue(text, priority="asap")
    if steered is not None:
        steered(text)


def _exchange(messages: list[ModelMessage]) -> bytes:
    """Return *messages* as JSON in pydantic-ai's form; b"" if there is none."""
    if not messages:
        return b""
    try:
        return messages_json(messages)
    except (PydanticSerializationError, ValueError) as error:
        # A provider may put anything in the details of a part; the messages have their own form.
        log.info("an exchange has no JSON form: %s", error)
        return b""


def _bare(message: ModelMessage) -> ModelMessage:
    """Return *message* without the system text, which each result has in its prompt."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


class RequestRewrite(AbstractCapability[Any]):
    """Sends the changes of a hook, and the schema of the result, in a request."""

    async def prepare_output_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Return the tool that ends the loop with the schema of this loop."""
        loop: AgentLoop = ctx.deps
        shown = loop.scope.result_schema
        if shown is None:
            return tool_defs
        return [replace(each, parameters_json_schema=shown) for each in tool_defs]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request as the hook changed it."""
        loop: AgentLoop = ctx.deps
        if loop.rewritten is None:
            return request_context
        rewritten = loop.rewritten
        return replace(
            request_context,
            messages=[*rewritten.messages, *request_context.messages[loop.base :]],
            model_request_parameters=replace(
                request_context.model_request_parameters,
                instruction_parts=rewritten.instructions() or None,
            ),
        )


class RequestEvents(AbstractCapability[Any]):
    """Emits each request, as it is sent."""

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Emit the request and return it."""
        loop: AgentLoop = ctx.deps
        if loop.scope.tell is not None:
            await loop.scope.tell("model.requested", loop.request_facts(request_context))
        return request_context


REQUEST_EVENTS: Final = RequestEvents()


def response_facts(response: ModelResponse, *, ms: int) -> dict[str, Any]:
    """Return the facts of *response*, which came after *ms*, for an event."""
    usage = response.usage
    return {
        "model": response.model_name,
        "text": shortened(response.text or ""),
        "calls": [each.tool_name for each in response.tool_calls],
        "tokens": {"input": usage.input_tokens, "output": usage.output_tokens},
        "ms": ms,
        "finish_reason": response.finish_reason,
    }


class WholeRequest(AbstractCapability[Any]):
    """Makes a request whole if its model turns out not to stream."""

    async def on_model_request_error(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, error: Exception
    ) -> ModelResponse:
        """Return the whole response where a stream ended before its first event.

        Raise *error* if that was not the cause.
        """
        loop: AgentLoop = ctx.deps
        if not loop.streams or not isinstance(error, NotImplementedError | AssertionError):
            raise error
        # pydantic-ai runs this in a task of its own, where an exit would end the event loop.
        with contained():
            response = await request_context.model.request(
                request_context.messages,
                request_context.model_settings,
                request_context.model_request_parameters,
            )
        streaming.set(loop.model, streams=False)
        return response


WHOLE: Final = WholeRequest()


def capabilities(agent: AgentSpec, *, rewrite: bool = False) -> list[AbstractCapability[Any]]:
    """Return what changes the requests of *agent*; with *rewrite* also without hooks.

    pydantic-ai calls each at every request, so only the needed ones are returned.
    """
    rewrite = rewrite or bool(agent.hooks and agent.hooks.on_start)
    return [NOTING, RequestRewrite()] if rewrite else [NOTING]


def instruments(context: Context) -> list[AbstractCapability[Any]]:
    """Return the tracing of requests and tools below the current span, if recorded."""
    if not get_current_span().is_recording():
        return []
    settings = InstrumentationSettings(
        tracer_provider=context.tracer_provider, include_content=context.trace_content
    )
    return [Instrumentation(settings=settings)]


def settings_of(
    agent: AgentSpec, ctx: RunContext[Any], offered: Container[str] | None
) -> ModelSettings:
    """Return the settings of a request; only the first one forces the tool choice."""
    settings = ModelSettings(**(agent.model_settings or {}))
    choice = agent.tool_choice
    if ctx.deps.requests > 1 or not offered or choice == "auto":
        return settings
    if choice != "any" and choice not in offered:
        return settings
    forced: ToolChoice = "required" if choice == "any" else [choice]
    return settings | ModelSettings(tool_choice=forced)
