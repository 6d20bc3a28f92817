"""One turn of one agent: requests and tools in turn, until it has nothing more to say."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_graph import End

from holdfast.runtime.concurrency import NOTING, none_left
from holdfast.runtime.context import Context
from holdfast.runtime.steps.contract import Stopped
from holdfast.runtime.steps.hooks import LoopScope, StepHooks
from holdfast.runtime.steps.tools import StepEvents
from holdfast.runtime.team.member import Member
from holdfast.runtime.team.rewriting import TurnRewrite

ToModel: TypeAlias = ModelRequestNode[Any, str]
ToTools: TypeAlias = CallToolsNode[Any, str]

MOST_RETRIES: Final = 1_000
"""So that the number of replies governs a turn, and no count of a tool's own does."""


class Taken(Struct, frozen=True):
    """A turn that was taken: what was said in it, how it closed, and why it failed if it did.

    One that was *cut* ended with its last request, not with what the agent had to say.
    """

    messages: Sequence[ModelMessage] = ()
    text: str = ""
    failure: Exception | None = None
    cut: bool = False


class Beginning(Struct, frozen=True):
    """With what a turn begins: the agent's *own* words and the team's *contract*, then a *prompt*.

    The first two are its system text.
    """

    own: str
    contract: str
    prompt: str

    @property
    def system(self) -> str:
        """The system text."""
        return "\n\n".join(filter(None, (self.own, self.contract)))


class MemberTurn:
    """A turn of *member*, which begins with *beginning*, in at most *rounds* requests."""

    def __init__(
        self, member: Member, beginning: Beginning, *, rounds: int, context: Context
    ) -> None:
        self._member, self._beginning = member, beginning
        self._context, self._rounds = context, rounds
        self._teller = StepEvents(context, member.toolbox.answers, step=member.name)
        loop = LoopScope(
            agent=member.agent,
            context=context,
            input=beginning.prompt,
            contract=beginning.contract,
            gives_text=True,
        )
        self._hooks = StepHooks(loop, system=beginning.system, message=beginning.prompt)
        self._requests, self._replies, self._text = 0, 0, ""
        self._given: list[ModelMessage] = []

    async def taken(self) -> Taken:
        """Take it; whatever goes wrong is in what it returns."""
        run: AgentRun[Any, str] | None = None
        try:
            loop = self._model_agent().iter(
                self._beginning.prompt,
                message_history=self._member.history.messages(),
                usage_limits=UsageLimits(request_limit=None),
                infer_name=False,
            )
            async with none_left(), loop as run:
                await self._drive(run)
                said = run.new_messages()
                text = await self._hooks.finishing(said, self._text, reason="done")
        except Exception as error:  # noqa: BLE001 - providers and their clients raise what they like
            return Taken(self._whole(run.new_messages()) if run else (), self._text, error)
        return Taken([*said, *self._given], text, cut=bool(self._given))

    def _model_agent(self) -> ModelAgent[Any, str]:
        member = self._member
        return ModelAgent[Any, str](
            member.model,
            name=member.name,
            instructions=self._beginning.system,
            toolsets=[member.toolbox.toolset()],
            model_settings=member.toolbox.settings,
            capabilities=[
                NOTING,
                TurnRewrite(self._hooks, self._beginning.prompt),
                *self._instruments(),
            ],
            retries={"tools": MOST_RETRIES, "output": MOST_RETRIES},
        )

    async def _drive(self, run: AgentRun[Any, str]) -> None:
        node: Any = run.next_node
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                if not await self._may_ask():
                    # What the last tools answered stands at the head of the next turn.
                    self._given = [node.request]
                    return
                node = await self._asked(run, node)
            elif ModelAgent.is_call_tools_node(node):
                node = await self._worked(run, node)
            else:
                node = await run.next(node)

    async def _may_ask(self) -> bool:
        """Tell whether one more request is to be made; Stopped when there is not even one."""
        if self._requests == self._rounds:
            return False
        try:
            await self._hooks.starting(self._requests + 1)
        except Stopped:
            if not self._requests:
                raise
            return False
        return True

    async def _asked(self, run: AgentRun[Any, str], node: ToModel) -> Any:
        """Make the request of *node*; what it showed of the mail is taken once it is answered."""
        self._requests += 1
        if self._context.stream:
            async with node.stream(run.ctx) as stream:
                await self._teller.chunks(stream)
        after = await run.next(node)
        self._replies += 1
        self._member.mailbox.answered()
        if isinstance(after, CallToolsNode):
            response = after.model_response
            self._context.spend(response.usage)
            await self._hooks.heard(response, run.new_messages())
            self._text = response.text or ""
        return after

    def _whole(self, said: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return *said* without the reply that never came whole, where a request failed."""
        replies = [each for each in said if isinstance(each, ModelResponse)][self._replies :]
        return [each for each in said if not any(each is reply for reply in replies)]

    async def _worked(self, run: AgentRun[Any, str], node: ToTools) -> Any:
        """Run the tools that *node* calls, telling of each."""
        async with node.stream(run.ctx) as stream:
            await self._teller.calls(stream)
        return await run.next(node)

    def _instruments(self) -> list[Instrumentation]:
        """Return what traces the requests and tools below the turn's span, if anything is."""
        if not get_current_span().is_recording():
            return []
        context = self._context
        settings = InstrumentationSettings(
            tracer_provider=context.tracer_provider, include_content=context.trace_content
        )
        return [Instrumentation(settings=settings)]
