"""One turn of one agent: requests and tools in turn, until it has nothing more to say."""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias, cast

from msgspec import Struct
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, RunContext, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_graph import End

from holdfast.runtime.calling.streaming import can_stream, deltas
from holdfast.runtime.context import Context
from holdfast.runtime.events import Chunk, ToolCallUpdate, ToolResultUpdate
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
        self._model_agent = ModelAgent[Any, str](
            member.model,
            name=member.name,
            instructions=system,
            toolsets=[member.toolset],
            model_settings=self._settings,
            capabilities=[_errors_are_answers()],
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
        if self._context.stream and can_stream(run.ctx.deps.model):
            async with node.stream(run.ctx) as stream:
                async for kind, piece in deltas(stream):
                    await self._said(piece, thinking=kind == "reasoning.delta")
            await self._context.tell(Chunk(step_id=self._member.name, done=True))
        after = await run.next(node)
        self._member.mailbox.answered()
        if isinstance(after, CallToolsNode):
            response = after.model_response
            self._context.spend(response.usage)
            self._text = response.text or ""
        return after

    async def _said(self, piece: str, *, thinking: bool) -> None:
        update = Chunk(step_id=self._member.name, content=piece, thinking=thinking)
        await self._context.tell(update)

    async def _worked(self, run: AgentRun[Any, str], node: ToTools) -> Any:
        """Run the tools that *node* calls, telling of each."""
        async with node.stream(run.ctx) as stream:
            async for event in stream:
                if isinstance(event, FunctionToolCallEvent):
                    await self._context.tell(_called(event.part, self._member.name))
                elif isinstance(event, FunctionToolResultEvent):
                    await self._answered(event.part)
        return await run.next(node)

    async def _answered(self, part: Any) -> None:
        said = part.model_response_str() if isinstance(part, ToolReturnPart) else str(part.content)
        update = ToolResultUpdate(
            step_id=self._member.name,
            tool_call_id=part.tool_call_id,
            name=part.tool_name or "",
            ok=_is_fine(part),
            characters=len(said),
        )
        await self._context.tell(update)

    def _settings(self, ctx: RunContext[Any]) -> ModelSettings:
        """Return the settings of a request: a tool is forced on the first of a turn only."""
        agent = self._member.agent
        settings = ModelSettings(**(agent.model_settings or {}))
        if ctx.run_step > 1 or agent.tool_choice == "auto":
            return settings
        choice = agent.tool_choice
        forced = ModelSettings(tool_choice="required" if choice == "any" else [choice])
        return settings | forced


def _errors_are_answers() -> Hooks[Any]:
    async def answered(
        ctx: RunContext[Any],  # noqa: ARG001
        *,
        call: ToolCallPart,  # noqa: ARG001
        tool_def: ToolDefinition,  # noqa: ARG001
        args: Any,  # noqa: ARG001
        error: Exception,
    ) -> Any:
        return {"error": {"type": type(error).__name__, "message": str(error)}}

    return Hooks(tool_execute_error=answered)


def _called(part: ToolCallPart, agent: str) -> ToolCallUpdate:
    return ToolCallUpdate(
        step_id=agent,
        tool_call_id=part.tool_call_id,
        name=part.tool_name,
        args=part.args,
        message=f"{agent} calls {part.tool_name}",
    )


def _is_fine(part: Any) -> bool:
    if not isinstance(part, ToolReturnPart) or part.outcome != "success":
        return False
    # As a mistake is told: see `holdfast.tools.mistakes`.
    content: Any = part.content
    error: Any = cast("Any", content).get("error") if isinstance(content, dict) else None
    return not (isinstance(error, dict) and {"type", "message"} <= error.keys())
