"""One turn of one agent: requests and tools in turn, until it has nothing more to say."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from msgspec import Struct
from opentelemetry.trace import get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_graph import End

from holdfast.runtime.context import Context
from holdfast.runtime.steps.telling import Teller
from holdfast.runtime.team.member import Member

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


class Turn:
    """A turn of *member*, told *system*, in at most *rounds* requests."""

    def __init__(self, member: Member, *, system: str, rounds: int, context: Context) -> None:
        self._member, self._context, self._rounds = member, context, rounds
        self._teller = Teller(context, member.toolbox.answers, step=member.name)
        self._model_agent = ModelAgent[Any, str](
            member.model,
            name=member.name,
            instructions=system,
            toolsets=[member.toolbox.toolset()],
            model_settings=member.toolbox.settings,
            capabilities=self._instruments(),
            retries={"tools": MOST_RETRIES, "output": MOST_RETRIES},
        )
        self._requests, self._text = 0, ""
        self._given: list[ModelMessage] = []

    async def taken(self, prompt: str) -> Taken:
        """Take it, beginning with *prompt*; whatever goes wrong is in what it returns."""
        run: AgentRun[Any, str] | None = None
        try:
            async with self._model_agent.iter(
                prompt,
                message_history=self._member.history.messages(),
                usage_limits=UsageLimits(request_limit=None),
                infer_name=False,
            ) as run:
                await self._drive(run)
        except Exception as error:  # noqa: BLE001 - providers and their clients raise what they like
            return Taken(run.new_messages() if run else (), self._text, error)
        said = [*run.new_messages(), *self._given]
        return Taken(said, self._text, cut=bool(self._given))

    async def _drive(self, run: AgentRun[Any, str]) -> None:
        node: Any = run.next_node
        while not isinstance(node, End):
            if ModelAgent.is_model_request_node(node):
                if self._requests == self._rounds:
                    # What the last tools answered stands at the head of the next turn.
                    self._given = [node.request]
                    return
                node = await self._asked(run, node)
            elif ModelAgent.is_call_tools_node(node):
                node = await self._worked(run, node)
            else:
                node = await run.next(node)

    async def _asked(self, run: AgentRun[Any, str], node: ToModel) -> Any:
        """Make the request of *node*; what it showed of the mail is taken once it is answered."""
        self._requests += 1
        if self._context.stream:
            async with node.stream(run.ctx) as stream:
                await self._teller.chunks(stream)
        after = await run.next(node)
        self._member.mailbox.answered()
        if isinstance(after, CallToolsNode):
            response = after.model_response
            self._context.spend(response.usage)
            self._text = response.text or ""
        return after

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
