"""One attempt of a step in the loop of its agent."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET
from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import (
    CallToolsNode,
    ModelRequestNode,
    RunContext,
    StructuredDict,
    ToolOutput,
    UsageLimits,
)
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import InstructionPart, ModelMessage
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_graph import End

from holdfast.ground.errors import EngineFault, HoldfastError, NotRunnable
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyTool, name_of, named
from holdfast.runtime.concurrency import NOTING, none_left
from holdfast.runtime.context import Context, Deliver, Inbox, Profile, ToolContext
from holdfast.runtime.events import feed
from holdfast.runtime.mcp import kept, reach
from holdfast.runtime.steps.contract import (
    CONCLUDE,
    CONCLUDE_IN_TEXT,
    Acceptance,
    Assignment,
    ResultSchema,
    Sizes,
    Stage,
    Stopped,
    of_model,
    parameters,
)
from holdfast.runtime.steps.hooks import LoopScope, StepHooks
from holdfast.runtime.steps.tools import (
    FINISH,
    READ_RESULT,
    ResultPages,
    StepEvents,
    StepTools,
    ToolCallOutcome,
)
from holdfast.runtime.tools import equipped, in_thread
from holdfast.tools.base import Schema, Tool
from holdfast.tools.run import run as run_tools

Concludes: TypeAlias = Callable[[Sequence[ModelMessage], Sequence[ToolDefinition]], Awaitable[bool]]
"""Returns whether the request with these messages and tools concludes the step."""

ANSWER: Final = 24_000
"""Limit of characters in one result of a memory tool."""

_FINISH: Final = Tool(
    id="step.finish", name=FINISH, description="", parameters={}, work=lambda _: None
)


def memory_tools(memory: RunMemory, *, profile: Profile, writer: str, most: int) -> list[Tool]:
    """Return the three tools of *memory* for a step, *most* characters a result."""
    return run_tools(memory, profile=profile, writer=writer, budget=min(ANSWER, most))


def check_names(tools: Iterable[AnyTool], contract: Iterable[Tool]) -> None:
    """Raise ToolNameTaken for two tools of one name, *tools* or ours."""
    named([*contract, ResultPages(1).tool(), _FINISH], tools)


class Toolbox:
    """The tools of one try of a step: those offered now, and outcomes by call id.

    No tool runs once *acceptance* is finished, none is offered in a request that *concludes*.
    """

    def __init__(
        self,
        assignment: Assignment,
        *,
        answers: dict[str, ToolCallOutcome],
        acceptance: Acceptance,
        concludes: Concludes,
    ) -> None:
        self._assignment, self._acceptance, self._concludes = assignment, acceptance, concludes
        self.pages = ResultPages(assignment.tool_result_limit)
        self._contract: list[Tool] = [*assignment.contract_tools, self.pages.tool()]
        self._ours = {tool.name for tool in self._contract}
        self._allowed = assignment.step.tools
        self._state: NetworkState | None = None
        self.answers = answers
        self.offered: Mapping[str, ToolsetTool[Any]] = {}
        self.threaded = {name_of(tool) for tool in assignment.tools if in_thread(tool)}

    def toolset(self) -> StepTools:
        """Return all tools as one toolset."""
        toolsets = [kept(each) for each in self._assignment.toolsets]
        tools = [*self._assignment.tools, *self._contract]
        return StepTools(equipped(tools, toolsets, context_of=self._context_of), self)

    @property
    def finished(self) -> bool:
        """Whether the step has its result, so that no tool runs any more."""
        return self._acceptance.finished

    async def offer(
        self, tools: Mapping[str, ToolsetTool[Any]], messages: Sequence[ModelMessage]
    ) -> Mapping[str, ToolsetTool[Any]]:
        """Return those of *tools* to offer in the request with *messages*."""
        offered = {name: tool for name, tool in tools.items() if self._allows(name)}
        definitions = [tool.tool_def for tool in offered.values()]
        if await self._concludes(messages, definitions):
            offered = {}
        self.offered = offered
        return offered

    def _allows(self, name: str) -> bool:
        if name == READ_RESULT:
            return len(self.pages) > 0
        return name in self._ours or self._allowed is None or name in self._allowed

    def pages_of(self, name: str) -> ResultPages | None:
        """Return the pages for long results of *name*; None if it pages itself."""
        return None if name in self._ours else self.pages

    @property
    def chooses(self) -> bool:
        """Whether the agent forces its first tool call."""
        return self._assignment.agent.tool_choice != "auto"

    def settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request; only the first one forces the tool choice."""
        agent = self._assignment.agent
        settings = ModelSettings(**(agent.model_settings or {}))
        choice = agent.tool_choice
        named = choice == "any" or choice in self.offered
        if ctx.run_step > 1 or not self.offered or not named:
            return settings
        forced: ToolChoice = "required" if choice == "any" else [choice]
        return settings | ModelSettings(tool_choice=forced)

    async def sleep(self, seconds: float) -> None:
        """Wait, by the run's own clock."""
        await self._assignment.context.sleep(seconds)

    async def left_behind(self, name: str) -> None:
        """Emit that the tool *name* did not stop and is abandoned."""
        message = f"the tool {name} did not stop with the run and is left behind"
        await self._assignment.context.tell(self._assignment.log("warning", message))

    async def reach(self, toolset: AbstractToolset[Any]) -> None:
        """Connect the servers in *toolset*; emit a warning for each unreachable one.

        Raise Stopped, as for an unreachable model, if a required one is unreachable.
        """
        context = self._assignment.context
        try:
            unreached = await reach([toolset], context.servers_down)
        except NotRunnable as error:
            raise Stopped("model_error", str(error)) from error
        for name, error in unreached.items():
            message = f"the MCP server {name} cannot be reached, its tools are not offered: {error}"
            await context.tell(self._assignment.log("warning", message))

    def _context_of(self, ctx: RunContext[Any]) -> ToolContext:
        context = self._assignment.context
        if self._state is None:
            self._state = NetworkState()
        return ToolContext(
            agent=self._assignment.agent,
            state=self._state,
            run_id=context.run_id,
            call_id=ctx.tool_call_id or "",
            tool_name=ctx.tool_name or "",
            usage=ctx.usage,
            context=context,
            memory=context.memory,
        )


# The agents below hold no data of a step; a run gets those in its `deps`, from its try.

FINISH_WORDS: Final = "Hand over the result of this step and end it. Call it once, as the last act."


class StepDeps(msgspec.Struct, frozen=True, kw_only=True):
    """The `deps` of a try's loop: schema for `finish_step`, hooks, acceptance."""

    finish_parameters: Schema
    hooks: StepHooks
    acceptance: Acceptance
    wanted: ResultSchema | None


class StepRequestRewrite(AbstractCapability[Any]):
    """Sets the schema of `finish_step`, and sends the changes of hooks."""

    async def prepare_output_tools(
        self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]
    ) -> list[ToolDefinition]:
        """Return `finish_step` with the schema of this step."""
        deps: StepDeps = ctx.deps
        shown = deps.finish_parameters
        return [replace(each, parameters_json_schema=shown) for each in tool_defs]

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Return the request with a hook's changes to the prompt."""
        deps: StepDeps = ctx.deps
        rewritten = deps.hooks.rewritten
        if rewritten is None:
            return request_context
        instructions = [InstructionPart(rewritten.system)] if rewritten.system else None
        parts = request_context.model_request_parameters
        return replace(
            request_context,
            # The first message is the step's own: the hook's messages replace it.
            messages=[*rewritten.messages, *request_context.messages[1:]],
            model_request_parameters=replace(parts, instruction_parts=instructions),
        )


IN_TEXT: Final = ModelAgent[Any, str](name="step", output_type=str, end_strategy="graceful")


@IN_TEXT.output_validator
async def accept_text(ctx: RunContext[Any], text: str) -> str:
    """Return the answer in *text*; a blank one is retried."""
    deps: StepDeps = ctx.deps
    return await deps.acceptance.of_text(text)


def with_schema(shown: Schema) -> ModelAgent[Any, Any]:
    """Return the agent that ends with `finish_step`, whose parameters are *shown*.

    Making one takes as long as a run of it, so recent ones are cached: the steps of a list share
    one. pydantic-ai cannot take a schema that refers to itself; `StepRequestRewrite` sets it
    instead.
    """
    text = msgspec.json.encode(shown)
    return _with_schema(b"{}" if refers(shown) else text)


def refers(shown: Schema) -> bool:
    """Return whether there may be references in *shown*."""
    return b'"$ref"' in msgspec.json.encode(shown)


@lru_cache(maxsize=256)
def _with_schema(text: bytes) -> ModelAgent[Any, Any]:
    shown = msgspec.json.decode(text) or {"type": "object"}
    output = ToolOutput(StructuredDict(shown), name=FINISH, description=FINISH_WORDS, strict=False)
    made = ModelAgent[Any, Any](name="step", output_type=output, end_strategy="graceful")
    made.output_validator(accept_arguments)
    return made


async def accept_arguments(ctx: RunContext[Any], arguments: Any) -> Any:
    """Return the result in *arguments*; problems are returned to the model."""
    deps: StepDeps = ctx.deps
    if deps.wanted is None:
        raise EngineFault("finish_step was called where it was not offered")
    return await deps.acceptance.of_arguments(deps.wanted, arguments)


Graph: TypeAlias = AgentRun[Any, Any]

_NO_LIMITS: Final = UsageLimits(request_limit=None)

_TRIES_PER_REQUEST: Final = 100
"""Mistakes per request; so many that the limit of requests ends the loop first."""


class StepAttempt:
    """One try of *assignment*, with the *system* text and the first *message*.

    Texts sent to *inbox* meanwhile go before its next request. `messages` and `stage.requests` are
    valid however it ends.
    """

    def __init__(self, assignment: Assignment, *, system: str, message: str, inbox: Inbox) -> None:
        self._assignment, self._system, self._message = assignment, system, message
        self._inbox = inbox
        wanted = assignment.wanted
        self.finish_parameters: Schema = parameters(wanted.schema) if wanted else {}
        self.acceptance = Acceptance(wanted, assignment.accept_result)
        loop = LoopScope(
            agent=assignment.agent,
            context=assignment.context,
            input=assignment.step.instructions,
            contract=assignment.contract.text,
            gives_text=wanted is None,
        )
        self.hooks = StepHooks(loop, system=system, message=message)
        self.stage = Stage(
            most=assignment.max_iterations,
            budget=assignment.token_budget,
            sizes=Sizes(system),
        )
        self.answers: dict[str, ToolCallOutcome] = {}
        self._events = StepEvents(
            assignment.context,
            self.answers,
            step=assignment.step.id,
            task=assignment.task.id,
        )
        self._graph: Graph | None = None
        self._messages: list[ModelMessage] = []

    @property
    def context(self) -> Context:
        """The run of the step."""
        return self._assignment.context

    @property
    def messages(self) -> list[ModelMessage]:
        """The messages so far."""
        return self._graph.all_messages() if self._graph else self._messages

    async def made(self) -> Any:
        """Return the result; raise Stopped when the loop ends without one."""
        assignment = self._assignment
        shown = self.finish_parameters
        below: ModelAgent[Any, Any] = with_schema(shown) if assignment.wanted else IN_TEXT
        most = assignment.max_iterations * _TRIES_PER_REQUEST
        toolbox = Toolbox(
            assignment,
            answers=self.answers,
            acceptance=self.acceptance,
            concludes=self._concludes,
        )
        loop = below.iter(
            self._message,
            instructions=self._system,
            model=assignment.model,
            model_settings=toolbox.settings if toolbox.chooses else assignment.agent.model_settings,
            deps=StepDeps(
                finish_parameters=shown,
                hooks=self.hooks,
                acceptance=self.acceptance,
                wanted=assignment.wanted,
            ),
            toolsets=[toolbox.toolset()],
            capabilities=self._capabilities(),
            usage_limits=_NO_LIMITS,
            retries={"tools": most, "output": most},
            infer_name=False,
        )
        async with none_left(), loop as graph:
            self._graph = graph
            self._inbox.deliver_to(self._deliverer(graph))
            try:
                await self._drive(graph)
            finally:
                self._inbox.wait()
                # The graph refers to this object, so drop the graph to avoid a reference cycle.
                self._messages, self._graph = graph.all_messages(), None
        return await self.hooks.finishing(self.messages, self.acceptance.result, reason="done")

    async def _drive(self, graph: Graph) -> None:
        node = graph.next_node
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                if not await self._may_ask():
                    return
                node = await self._ask(graph, node)
            elif ModelAgent.is_call_tools_node(node):
                node = await self._use_tools(graph, node)
            else:
                node = await graph.next(node)

    async def _may_ask(self) -> bool:
        """Return whether one more request is to be made.

        Raise Stopped if none may be made and there is no result.
        """
        try:
            self.stage.begin_request()
        except Stopped:
            if self.acceptance.result is UNSET:
                raise
            # It was finished, and then steered: its result stands.
            message = "the message to the step came too late for another request"
            await self.context.tell(self._assignment.log("warning", message))
            return False
        self.acceptance.finished = False
        await self.hooks.starting(self.stage.requests)
        return True

    async def _ask(self, graph: Graph, node: ModelRequestNode[Any, Any]) -> Any:
        """Make the request of *node*, emit pieces on arrival, return the next node."""
        try:
            if self.context.stream:
                async with node.stream(graph.ctx) as stream:
                    await self._events.chunks(stream)
            after = await graph.next(node)
        except HoldfastError:
            # Two tools of one name, or a bug of ours: not the model's fault.
            raise
        except Exception as error:
            raise of_model(error) from error
        if isinstance(after, CallToolsNode):
            self.context.spend(after.model_response.usage)
            await self.hooks.on_response(after.model_response, self.messages)
        return after

    async def _use_tools(self, graph: Graph, node: CallToolsNode[Any, Any]) -> Any:
        try:
            if feed.get() is not None:
                async with node.stream(graph.ctx) as stream:
                    await self._events.calls(stream)
            return await graph.next(node)
        except UnexpectedModelBehavior as error:
            # Cut off by its provider, or refused: asking again would give the same.
            raise of_model(error) from error

    async def _concludes(
        self, messages: Sequence[ModelMessage], tools: Sequence[ToolDefinition]
    ) -> bool:
        """Return whether the request with *messages* concludes the step."""
        every = [*tools, self._finish_tool] if self._assignment.wanted else tools
        if self.stage.concludes(messages, every) and self._graph is not None:
            await self.context.tell(self._assignment.update("entered_conclusion_stage"))
            self._graph.enqueue(CONCLUDE if self._assignment.wanted else CONCLUDE_IN_TEXT)
        return self.stage.concluding

    @property
    def _finish_tool(self) -> ToolDefinition:
        return ToolDefinition(
            name=FINISH, description=FINISH_WORDS, parameters_json_schema=self.finish_parameters
        )

    def _deliverer(self, graph: Graph) -> Deliver:
        """Return the function that queues a text for the next request and emits that."""
        events, context = feed.get(), self.context

        def deliver(text: str) -> None:
            graph.enqueue(text, priority="asap")
            if events is not None:
                update = self._assignment.log("info", f"Steered: {text}")
                events.tell_soon(lambda: context.stamped(update))

        return deliver

    def _capabilities(self) -> list[AbstractCapability[Any]]:
        """Return what changes requests and traces them below the step's span.

        pydantic-ai calls each at every turn, so only the needed ones are returned.
        """
        found: list[AbstractCapability[Any]] = [NOTING]
        if self._assignment.agent.hooks is not None or refers(self.finish_parameters):
            found.append(StepRequestRewrite())
        if get_current_span().is_recording():
            context = self.context
            settings = InstrumentationSettings(
                tracer_provider=context.tracer_provider, include_content=context.trace_content
            )
            found.append(Instrumentation(settings=settings))
        return found
