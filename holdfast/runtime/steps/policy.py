"""One try of a step: an agent's loop of requests and tools, to the result it hands over."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec import UNSET
from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_graph import End

from holdfast.ground.errors import HoldfastError
from holdfast.runtime.concurrency import NOTING, none_left
from holdfast.runtime.context import Context, Deliver, Inbox
from holdfast.runtime.events import feed
from holdfast.runtime.steps.contract import (
    CONCLUDE,
    CONCLUDE_IN_TEXT,
    Acceptance,
    Assignment,
    Sizes,
    Stage,
    Stopped,
    of_model,
    parameters,
)
from holdfast.runtime.steps.hooks import LoopScope, StepHooks
from holdfast.runtime.steps.running import (
    FINISH_WORDS,
    IN_TEXT,
    StepDeps,
    StepRequestRewrite,
    refers,
    with_schema,
)
from holdfast.runtime.steps.toolbox import Toolbox
from holdfast.runtime.steps.tools import FINISH, StepEvents, ToolCallOutcome
from holdfast.tools.base import Schema

Graph: TypeAlias = AgentRun[Any, Any]

_NO_LIMITS: Final = UsageLimits(request_limit=None)

_TRIES_PER_REQUEST: Final = 100
"""Mistakes of one reply that never end the loop before its requests do."""


class StepAttempt:
    """One try of what *assignment* says, under the *system* text, beginning with *message*.

    What is said to *inbox* meanwhile goes before its next request. `messages` and `requests` are
    what was exchanged, however it ends.
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
        self._teller = StepEvents(
            assignment.context,
            self.answers,
            step=assignment.step.id,
            task=assignment.task.id,
        )
        self._graph: Graph | None = None
        self._said: list[ModelMessage] = []

    @property
    def context(self) -> Context:
        """The run it is in."""
        return self._assignment.context

    @property
    def messages(self) -> list[ModelMessage]:
        """What was said so far."""
        return self._graph.all_messages() if self._graph else self._said

    async def made(self) -> Any:
        """Return the result; Stopped when the loop ends without one."""
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
                # What ran holds on to this, so that this is not to hold on to what ran.
                self._said, self._graph = graph.all_messages(), None
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
        """Tell whether one more request is to be made; Stopped if it may not, with no result."""
        try:
            self.stage.begin_request()
        except Stopped:
            if self.acceptance.result is UNSET:
                raise
            # It was finished, and then spoken to: what it had handed over counts.
            told = "the message to the step came too late for another request"
            await self.context.tell(self._assignment.log("warning", told))
            return False
        self.acceptance.finished = False
        await self.hooks.starting(self.stage.requests)
        return True

    async def _ask(self, graph: Graph, node: ModelRequestNode[Any, Any]) -> Any:
        """Make the request of *node*, telling what comes as it comes; return what is next."""
        try:
            if self.context.stream:
                async with node.stream(graph.ctx) as stream:
                    await self._teller.chunks(stream)
            after = await graph.next(node)
        except HoldfastError:
            # Two tools of one name, or a bug of ours: nothing the model did.
            raise
        except Exception as error:
            raise of_model(error) from error
        if isinstance(after, CallToolsNode):
            self.context.spend(after.model_response.usage)
            await self.hooks.heard(after.model_response, self.messages)
        return after

    async def _use_tools(self, graph: Graph, node: CallToolsNode[Any, Any]) -> Any:
        try:
            if feed.get() is not None:
                async with node.stream(graph.ctx) as stream:
                    await self._teller.calls(stream)
            return await graph.next(node)
        except UnexpectedModelBehavior as error:
            # Cut off by its provider, or refused: asking again would give the same.
            raise of_model(error) from error

    async def _concludes(
        self, messages: Sequence[ModelMessage], tools: Sequence[ToolDefinition]
    ) -> bool:
        """Tell whether the request that sends *messages* is one of those the step concludes in."""
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
        """Return what says a text to the model before its next request, and tells that it did."""
        looking, context = feed.get(), self.context

        def deliver(text: str) -> None:
            graph.enqueue(text, priority="asap")
            if looking is not None:
                told = self._assignment.log("info", f"Steered: {text}")
                looking.tell_soon(lambda: context.stamped(told))

        return deliver

    def _capabilities(self) -> list[AbstractCapability[Any]]:
        """Return what changes requests, and what traces them below the step's span, if anything.

        pydantic-ai asks each at every turn, so that there are none that are not needed.
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
