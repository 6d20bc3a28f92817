"""One turn of a member in the loop of its agent."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from msgspec import Struct
from opentelemetry.trace import Span, get_current_span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import CallToolsNode, ModelRequestNode, RunContext, UsageLimits
from pydantic_ai.agent import AgentRun
from pydantic_ai.capabilities import AbstractCapability, Instrumentation
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.models.instrumented import InstrumentationSettings
from pydantic_graph import End

from holdfast.ground.errors import Conflict
from holdfast.runtime.agent import AnyModel
from holdfast.runtime.concurrency import NOTING, none_left
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.request import HookFailed, is_enabled, system_text
from holdfast.runtime.metrics import TEAM_TURNS
from holdfast.runtime.steps.contract import Stopped
from holdfast.runtime.steps.hooks import LoopScope, Rewritten, StepHooks
from holdfast.runtime.steps.tools import StepEvents
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Mailbox
from holdfast.runtime.team.prompts import TeamPlan, member_text, turn_text
from holdfast.runtime.team.result import TeamEvents, Workforce
from holdfast.runtime.team.task import HELD, BoardTask
from holdfast.runtime.team.tools import TurnToolbox


@dataclass
class TurnRewrite(AbstractCapability[Any]):
    """Replaces the *prompt* and system text of a turn by those of *hooks*."""

    hooks: StepHooks
    prompt: str

    async def before_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002
        request_context: ModelRequestContext,
    ) -> ModelRequestContext:
        """Return the request as the hook changed it; earlier turns stay as they are."""
        rewritten = self.hooks.rewritten
        if rewritten is None:
            return request_context
        instructions = [InstructionPart(rewritten.system)] if rewritten.system else None
        return replace(
            request_context,
            messages=list(self._sent(request_context.messages, rewritten)),
            model_request_parameters=replace(
                request_context.model_request_parameters, instruction_parts=instructions
            ),
        )

    def _sent(
        self, messages: Sequence[ModelMessage], rewritten: Rewritten
    ) -> Iterator[ModelMessage]:
        for message in messages:
            before = [part for part in message.parts if not self._opens(part)]
            if len(before) == len(message.parts):
                yield message
                continue
            # Parts beside the prompt are results of the turn before, and go first.
            if before and isinstance(message, ModelRequest):
                yield replace(message, parts=before)
            yield from rewritten.messages

    def _opens(self, part: object) -> bool:
        return isinstance(part, UserPromptPart) and part.content == self.prompt


TOKENS: Final = 60_000
"""Limit of tokens in stored turns; beyond it the oldest are dropped."""
CHARACTERS: Final = 4
"""Characters per token."""


class TurnHistory:
    """The turns of one agent, of at most *tokens*; the newest is always stored whole."""

    def __init__(self, tokens: int = TOKENS) -> None:
        self._most = tokens * CHARACTERS
        self._turns: list[tuple[int, list[ModelMessage]]] = []
        self.left_out = 0
        """The number of dropped turns."""

    def add(self, turn: Sequence[ModelMessage]) -> int:
        """Store the messages of one more *turn*; return the number of dropped old turns."""
        kept = _answered(turn)
        if kept:
            self._turns.append((sum(map(_characters, kept)), kept))
        gone = 0
        while len(self._turns) > 1 and sum(size for size, _ in self._turns) > self._most:
            del self._turns[0]
            gone += 1
        self.left_out += gone
        return gone

    def messages(self) -> list[ModelMessage]:
        """Return the messages before the next turn, with a note on dropped turns."""
        said = [message for _, turn in self._turns for message in turn]
        if not self.left_out:
            return said
        note = (
            f"[{self.left_out} earlier turns of yours are left out here for their length. "
            "What you published in memory and did on the board is still there.]"
        )
        return [ModelRequest([UserPromptPart(note)]), *said]


def _answered(turn: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Return *turn* ready to be sent again, each call answered; [] without a reply."""
    if not any(isinstance(message, ModelResponse) for message in turn):
        return []
    return repair_messages(turn)


def _characters(message: ModelMessage) -> int:
    return sum(map(_of_part, message.parts))


def _of_part(part: ModelRequestPart | ModelResponsePart) -> int:
    if isinstance(part, ToolCallPart):
        return len(part.tool_name) + len(part.args_as_json_str())
    if isinstance(part, ToolReturnPart):
        return len(part.model_response_str())
    content: Any = getattr(part, "content", None)
    return len(content) if isinstance(content, str) else 0


PATIENCE = 3
"""Limit of consecutive turns that fail, or that leave a task unchanged."""

Versions = Mapping[str, int]
"""Versions of tasks by their ids."""


class Sight(Struct, frozen=True):
    """The tasks that an agent can act on at one moment."""

    held: tuple[BoardTask, ...]
    claimable: tuple[BoardTask, ...]

    @property
    def mine(self) -> tuple[BoardTask, ...]:
        """The claimed tasks that can be continued."""
        return tuple(task for task in self.held if task.status in HELD)


@dataclass(eq=False)
class Member:
    """A member of a team: its *agent*, *model*, *toolbox*, and state between turns.

    `passed` are the tasks it could claim when its last turn began, `called` those of a last call.
    `fruitless` counts turns that changed nothing on a task of its own. One that is `benched` takes
    no more turns; one that is `away` is disabled for now.
    """

    agent: Agent
    model: AnyModel
    toolbox: TurnToolbox
    mailbox: Mailbox
    board: TaskBoard
    history: TurnHistory = field(default_factory=TurnHistory)
    passed: dict[str, int] = field(default_factory=dict[str, int])
    called: dict[str, int] = field(default_factory=dict[str, int])
    fruitless: dict[str, int] = field(default_factory=dict[str, int])
    failures: int = 0
    cuts: int = 0
    last_turn: int = 0
    benched: bool = False
    away: bool = False
    busy: bool = False

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name

    @property
    def present(self) -> bool:
        """Whether it is free to take a turn."""
        return not (self.benched or self.away or self.busy)

    def sight(self) -> Sight:
        """Return the tasks it can act on now."""
        held = [task for task in self.board.list() if task.claimed_by == self.name]
        return Sight(
            tuple(task for task in held if not task.settled),
            tuple(self.board.available(self.agent.skills)),
        )

    def workable(self) -> bool:
        """Return whether it is free to take a turn and has work."""
        return self.present and self.has_work()

    def has_work(self) -> bool:
        """Return whether there are messages or tasks that it has not passed over."""
        if len(self.mailbox):
            return True
        seen = self.sight()
        return bool(seen.mine or _is_new(seen.claimable, self.passed))

    def uncalled(self) -> bool:
        """Return whether there are claimable tasks it was not called for yet."""
        return self.present and _is_new(self.sight().claimable, self.called)

    def call(self) -> None:
        """Record a last call for the tasks it passed over."""
        self.called = _versions(self.sight().claimable)

    def took_a_turn(self, seen: Sight, *, cut: bool) -> list[BoardTask]:
        """Record a turn that began with *seen*; return its tasks without progress.

        A turn that was *cut* may be continued, a limited number of times.
        """
        self.failures = 0
        self.cuts = self.cuts + 1 if cut else 0
        self.passed = {} if cut and self.cuts < PATIENCE else _versions(seen.claimable)
        versions = _versions(self.sight().mine)
        same = [task for task in seen.mine if versions.get(task.id) == task.version]
        # A member with several tasks works on one at a time; that is progress for all.
        stood_still = len(same) == len(seen.mine)
        self.fruitless = {task.id: self.fruitless.get(task.id, 0) + stood_still for task in same}
        return [task for task in same if self.fruitless[task.id] >= PATIENCE]

    def failed_a_turn(self) -> bool:
        """Record a failed turn; return whether it is benched now."""
        self.mailbox.unanswered()
        # It did not respond to what it was shown, so all of that is new again.
        self.passed, self.called = {}, {}
        self.failures += 1
        self.benched = self.failures >= PATIENCE
        return self.benched

    def workforce(self) -> Workforce:
        """Return its part in the team's workforce."""
        out = "benched" if self.benched else "switched off" if self.away else None
        return Workforce(self.name, self.agent.skills, out)


def _versions(tasks: tuple[BoardTask, ...]) -> dict[str, int]:
    return {task.id: task.version for task in tasks}


def _is_new(tasks: tuple[BoardTask, ...], known: Versions) -> bool:
    """Return whether *tasks* is not empty and differs from *known*."""
    return bool(tasks) and _versions(tasks) != known


ToModel: TypeAlias = ModelRequestNode[Any, str]
ToTools: TypeAlias = CallToolsNode[Any, str]

MOST_RETRIES: Final = 1_000
"""High enough that the number of replies limits a turn, not retries of a tool."""


class Taken(Struct, frozen=True):
    """A finished turn: its messages, its last text, and its failure, if any.

    One that was *cut* ended at its limit of requests, before the agent had finished.
    """

    messages: Sequence[ModelMessage] = ()
    text: str = ""
    failure: Exception | None = None
    cut: bool = False


class Beginning(Struct, frozen=True):
    """The start of a turn: the agent's *own* text, the *contract*, and the *prompt*.

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
    """A turn of *member*, which starts with *beginning*, in at most *rounds* requests."""

    def __init__(
        self, member: Member, beginning: Beginning, *, rounds: int, context: Context
    ) -> None:
        self._member, self._beginning = member, beginning
        self._context, self._rounds = context, rounds
        self._events = StepEvents(context, member.toolbox.answers, step=member.name)
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
        """Take the turn; a failure is part of the result."""
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
                    # The last tool results stand at the head of the next turn.
                    self._given = [node.request]
                    return
                node = await self._request(run, node)
            elif ModelAgent.is_call_tools_node(node):
                node = await self._worked(run, node)
            else:
                node = await run.next(node)

    async def _may_ask(self) -> bool:
        """Return whether one more request is to be made; raise Stopped before the first."""
        if self._requests == self._rounds:
            return False
        try:
            await self._hooks.starting(self._requests + 1)
        except Stopped:
            if not self._requests:
                raise
            return False
        return True

    async def _request(self, run: AgentRun[Any, str], node: ToModel) -> Any:
        """Make the request of *node*; acknowledge the shown messages after the reply."""
        self._requests += 1
        if self._context.stream:
            async with node.stream(run.ctx) as stream:
                await self._events.chunks(stream)
        after = await run.next(node)
        self._replies += 1
        self._member.mailbox.answered()
        if isinstance(after, CallToolsNode):
            response = after.model_response
            self._context.spend(response.usage)
            await self._hooks.on_response(response, run.new_messages())
            self._text = response.text or ""
        return after

    def _whole(self, said: Sequence[ModelMessage]) -> list[ModelMessage]:
        """Return *said* without an incomplete reply of a failed request."""
        replies = [each for each in said if isinstance(each, ModelResponse)][self._replies :]
        return [each for each in said if not any(each is reply for reply in replies)]

    async def _worked(self, run: AgentRun[Any, str], node: ToTools) -> Any:
        """Run the tools that *node* calls, and emit each call."""
        async with node.stream(run.ctx) as stream:
            await self._events.calls(stream)
        return await run.next(node)

    def _instruments(self) -> list[Instrumentation]:
        """Return the tracing of requests and tools below the turn's span, if any."""
        if not get_current_span().is_recording():
            return []
        context = self._context
        settings = InstrumentationSettings(
            tracer_provider=context.tracer_provider, include_content=context.trace_content
        )
        return [Instrumentation(settings=settings)]


class TurnScheduler:
    """The turns of *members* by *plan*, each within a slot of the run."""

    def __init__(
        self,
        plan: TeamPlan,
        members: Sequence[Member],
        *,
        board: TaskBoard,
        context: Context,
        events: TeamEvents,
    ) -> None:
        self._plan, self._members, self._board = plan, members, board
        self._context, self._events = context, events
        self._slots = context.slots.narrowed(plan.max_concurrency)
        self._number = 0

    async def take(self, member: Member, occasion: str, *, called: bool = False) -> bool:
        """Let *member* take a turn on *occasion*; return False without cause for one.

        Its work may be gone when a slot is free, unless it is *called* upon.
        """
        async with self._slots.taken():
            if not (called or member.has_work()):
                return False
            failure = await self._kept_out(member)
            if member.away:
                return False
            self._number += 1
            member.last_turn = self._number
            await self._events.moment("agent_started", agent=member.name)
            TEAM_TURNS.add(member.name)
            seen = member.sight()
            taken = Taken(failure=failure) if failure else await self._taken(member, seen, occasion)
            await self._follow(member, seen, taken)
            return True

    async def _kept_out(self, member: Member) -> Exception | None:
        """Set whether the agent's hook disables it; return the error of the hook."""
        try:
            member.away = not await is_enabled(member.agent, self._context)
        except HookFailed as error:
            return error
        return None

    async def _taken(self, member: Member, seen: Sight, occasion: str) -> Taken:
        with self._context.tracer.start_as_current_span("holdfast.team.turn") as span:
            span.set_attribute("holdfast.run_id", self._context.run_id)
            span.set_attribute("gen_ai.agent.name", member.name)
            taken = await self._said(member, seen, occasion)
            _measure(span, taken)
            return taken

    async def _said(self, member: Member, seen: Sight, occasion: str) -> Taken:
        try:
            said = await system_text(member.agent, self._context)
            contract = member_text(
                member.agent,
                team=[each.agent for each in self._members],
                plan=self._plan,
                profile=self._context.profile,
            )
        except Exception as error:  # noqa: BLE001 - instructions may be a function of the user's
            return Taken(failure=error)
        prompt = turn_text(member.mailbox.show(), seen.held, seen.claimable, occasion)
        beginning = Beginning(said.strip(), contract, prompt)
        turn = MemberTurn(member, beginning, rounds=self._plan.tool_rounds, context=self._context)
        return await turn.taken()

    async def _follow(self, member: Member, seen: Sight, taken: Taken) -> None:
        gone = member.history.add(taken.messages)
        if gone:
            why = f"{gone} of the oldest turns of {member.name} are no longer sent"
            await self._events.log("info", why)
        if taken.failure is not None:
            await self._failed(member, taken.failure)
            return
        for task in member.took_a_turn(seen, cut=taken.cut):
            why = f"no progress: {PATIENCE} turns of {member.name} changed nothing on it"
            # Another agent may have settled it meanwhile, which is progress.
            with suppress(Conflict):
                self._board.fail(task.id, member.name, why)
        await self._events.moment("agent_finished", agent=member.name, content=taken.text)
        if not member.has_work():
            await self._events.moment("agent_idle", agent=member.name)

    async def _failed(self, member: Member, failure: Exception) -> None:
        cause = failure.__cause__ if isinstance(failure, HookFailed) else None
        why = f"{failure}: {cause}" if cause else f"{type(failure).__name__}: {failure}"
        await self._events.log("error", f"a turn of {member.name} failed: {why}")
        out = member.failed_a_turn()
        await self._events.moment(
            "agent_finished", agent=member.name, content=f"The turn failed: {why}"
        )
        if not out:
            return
        released: list[str] = []
        for task in member.sight().held:
            with suppress(Conflict):
                self._board.release(task.id, member.name)
                released.append(task.id)
        content = f"{PATIENCE} turns in a row failed"
        await self._events.moment(
            "agent_benched", agent=member.name, content=content, tasks=tuple(released)
        )


def _measure(span: Span, taken: Taken) -> None:
    usages = [each.usage for each in taken.messages if isinstance(each, ModelResponse)]
    span.set_attribute("gen_ai.usage.input_tokens", sum(each.input_tokens for each in usages))
    span.set_attribute("gen_ai.usage.output_tokens", sum(each.output_tokens for each in usages))
    span.set_attribute("holdfast.iterations", len(usages))
    span.set_attribute("holdfast.state", "failed" if taken.failure else "completed")
    if taken.failure:
        span.set_attribute("holdfast.reason", type(taken.failure).__name__)
