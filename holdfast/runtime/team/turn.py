"""One turn of a member in the loop of its agent."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from opentelemetry.trace import Span
from pydantic_ai import Agent as ModelAgent
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    UserPromptPart,
    repair_messages,
)

from holdfast.ground.errors import Conflict
from holdfast.memories.run.listeners import working
from holdfast.memories.run.records.event import Reason
from holdfast.memories.state import history as messages
from holdfast.memories.state.message import Message
from holdfast.runtime.agent import AnyModel
from holdfast.runtime.concurrency import Suspended, cause_of, class_of
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.agent_loop import AgentLoop, LoopScope, capabilities, instruments
from holdfast.runtime.inference.request import HookFailed, Sent, is_enabled, system_text
from holdfast.runtime.metrics import TEAM_TURNS
from holdfast.runtime.runs.part_log import PartLog
from holdfast.runtime.runs.suspension import PartWaits, current_part
from holdfast.runtime.steps.contract import CHARACTERS, Stopped, characters
from holdfast.runtime.steps.policy import with_contract
from holdfast.runtime.steps.tools import StepEvents, Toolbox
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Mailbox
from holdfast.runtime.team.prompts import TeamPlan, member_text, turn_text
from holdfast.runtime.team.result import TeamEvents, Workforce
from holdfast.runtime.team.task import HELD, BoardTask

TOKENS: Final = 60_000
"""Limit of tokens in stored turns; beyond it the oldest are dropped."""


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
            self._turns.append((sum(map(characters, kept)), kept))
        gone = 0
        while len(self._turns) > 1 and sum(size for size, _ in self._turns) > self._most:
            del self._turns[0]
            gone += 1
        self.left_out += gone
        return gone

    def turns(self) -> dict[int, list[ModelMessage]]:
        """Return the stored turns by their numbers, from 0."""
        return {self.left_out + n: turn for n, (_, turn) in enumerate(self._turns)}

    def restore(self, turns: Iterable[list[ModelMessage]], left_out: int) -> None:
        """Put *turns* back, of which *left_out* were dropped before."""
        self._turns = [(sum(map(characters, turn)), turn) for turn in turns]
        self.left_out = left_out

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
    no more turns; one that is `away` is disabled for now. `turn` is the number of a turn that has
    not ended, which an earlier process may have begun.
    """

    agent: Agent
    model: AnyModel
    toolbox: Toolbox
    mailbox: Mailbox
    board: TaskBoard
    history: TurnHistory = field(default_factory=TurnHistory)
    passed: dict[str, int] = field(default_factory=dict[str, int])
    called: dict[str, int] = field(default_factory=dict[str, int])
    fruitless: dict[str, int] = field(default_factory=dict[str, int])
    failures: int = 0
    cuts: int = 0
    last_turn: int = 0
    turn: int | None = None
    waits: bool = False
    benched: bool = False
    away: bool = False
    busy: bool = False

    @property
    def name(self) -> str:
        """The agent's name."""
        return self.agent.name

    @property
    def part(self) -> str:
        """Its last turn, as a part of the run."""
        return f"{self.name}.{self.last_turn}"

    @property
    def present(self) -> bool:
        """Whether it is free to take a turn."""
        return not (self.benched or self.away or self.busy or self.waits)

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
        if self.turn is not None or len(self.mailbox):
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

    def state(self) -> dict[str, Any]:
        """Return its state between turns as JSON, without its turns."""
        found = {name: getattr(self, name) for name in _MEMBER}
        return found | {"left_out": self.history.left_out}

    def restore(self, state: Mapping[str, Any], turns: Iterable[list[ModelMessage]]) -> None:
        """Put back what `state` returned, and its stored *turns*."""
        for name in _MEMBER:
            setattr(self, name, state[name])
        self.history.restore(turns, state["left_out"])

    def workforce(self) -> Workforce:
        """Return its part in the team's workforce."""
        out = "benched" if self.benched else "switched off" if self.away else None
        return Workforce(self.name, tuple(self.agent.skills), out)


_MEMBER: Final = (
    *("passed", "called", "fruitless", "failures", "cuts"),
    *("last_turn", "turn", "benched"),
)
"""The fields of a member that it has between turns."""


def _versions(tasks: tuple[BoardTask, ...]) -> dict[str, int]:
    return {task.id: task.version for task in tasks}


def _is_new(tasks: tuple[BoardTask, ...], known: Versions) -> bool:
    """Return whether *tasks* is not empty and differs from *known*."""
    return bool(tasks) and _versions(tasks) != known


class Taken(Struct, frozen=True):
    """A finished turn: its messages, its last text, and its failure, if any.

    One that was *cut* ended at its limit of requests, before the agent had finished; one that
    *waits* has asked a person, and goes on once that has answered.
    """

    messages: Sequence[ModelMessage] = ()
    text: str = ""
    failure: Exception | None = None
    cut: bool = False
    waits: bool = False


class TurnPolicy:
    """The rules of a turn of *member*: its *contract*, and at most *rounds* requests."""

    def __init__(
        self, member: Member, contract: str, *, rounds: int, context: Context, part: str
    ) -> None:
        self._member, self._contract = member, contract
        self._left, self._context = rounds, context
        self._history = member.history.messages()
        self._kept = context.logs.of(part, member.name)
        self._kept.share(member.toolbox.pages.results)

    async def may_request(self) -> Reason | None:
        """Count one more request; return a reason if none is left."""
        if not self._left:
            return "max_iterations"
        self._left -= 1
        return None

    def sent(self, prompt: Sequence[Message], history: Sequence[Message]) -> Sent:
        """Return the earlier turns, and then a hook's *history* and *prompt*."""
        sent = with_contract(prompt, history, self._contract)
        return Sent(sent.system, [*self._history, *sent.messages])

    def replied(self, response: ModelResponse) -> None:
        """Acknowledge the messages that the request showed."""
        self._member.mailbox.answered()
        self._context.spend(response.usage)

    def resumed(self, kept: PartLog) -> None:
        """Count the replies that *kept* has, of which the last one's tools run next."""
        self._left -= kept.replies
        self._member.mailbox.answered()

    async def taken(self, own: str, prompt: str) -> Taken:
        """Take the turn that begins with *prompt*; a failure is part of the result.

        The system text is the agent's *own* text, and then the contract.
        """
        member, context = self._member, self._context
        events = StepEvents(
            context, member.toolbox, self._kept, agent=member.name, step=member.name
        )
        scope = LoopScope(
            agent=member.agent,
            run=context,
            run_id=context.run_id,
            input=prompt,
            clock=context.clock,
            emit=events.chunks if context.stream else None,
            calls=events.calls if context.watched else None,
            tell=events.tell if context.watched else None,
            kept=self._kept,
        )
        loop = AgentLoop(scope, self)
        system = "\n\n".join(filter(None, (own, self._contract)))
        try:
            reason = await loop.run(
                ModelAgent[Any, str](member.model, name=member.name),
                (messages.system(system), messages.user(prompt)),
                user_prompt=prompt,
                message_history=self._history,
                instructions=system,
                toolsets=[member.toolbox.toolset()],
                model_settings=member.toolbox.settings,
                capabilities=[*capabilities(member.agent), *instruments(context)],
            )
            if reason == "hook_stop" and not loop.requests:
                return Taken(failure=Stopped("hook", "the hook on_start stopped it"))
            text = await loop.finished(_text(_said(loop)))
        except PartWaits:
            return Taken(waits=True)
        except Exception as error:  # noqa: BLE001 - providers and their clients raise what they like
            said = _said(loop)
            return Taken(said, _text(said), error)
        # At the limit, the last tool results stand at the head of the next turn.
        given = [loop.unsent] if reason == "max_iterations" and loop.unsent else []
        return Taken([*_said(loop), *given], text, cut=bool(given))


def _said(loop: AgentLoop) -> list[ModelMessage]:
    """Return the messages of a turn, without an incomplete reply of a failed request."""
    said = loop.messages[loop.base - 1 :] if loop.base else []
    replies = [each for each in said if isinstance(each, ModelResponse)][loop.replies :]
    return [each for each in said if not any(each is reply for reply in replies)]


def _text(said: Sequence[ModelMessage]) -> str:
    """Return the text of the last reply in *said*."""
    replies = [each for each in said if isinstance(each, ModelResponse)]
    return (replies[-1].text or "") if replies else ""


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
            if member.turn is None:
                member.turn = 1 + max(each.last_turn for each in self._members)
            member.last_turn = member.turn
            await self._events.moment("agent_started", agent=member.name, part=member.part)
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
        span_of = self._context.tracer.start_as_current_span
        with span_of("holdfast.team.turn") as span, working(member.part):
            span.set_attribute("holdfast.run_id", self._context.run_id)
            span.set_attribute("gen_ai.agent.name", member.name)
            token = current_part.set(self._context.logs.of(member.part, member.name))
            try:
                taken = await self._said(member, seen, occasion)
            finally:
                current_part.reset(token)
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
        except Suspended:
            return Taken(waits=True)
        except Exception as error:  # noqa: BLE001 - instructions may be a function of the user's
            return Taken(failure=error)
        prompt = turn_text(member.mailbox.show(), seen.held, seen.claimable, occasion)
        part = member.part
        rounds = self._plan.max_iterations
        policy = TurnPolicy(member, contract, rounds=rounds, context=self._context, part=part)
        taken = Taken()
        try:
            taken = await policy.taken(said.strip(), prompt)
        finally:
            if not taken.waits:
                self._context.logs.end(part)
        return taken

    async def _follow(self, member: Member, seen: Sight, taken: Taken) -> None:
        gone = member.history.add(taken.messages)
        if gone:
            why = f"{gone} of the oldest turns of {member.name} are no longer sent"
            await self._events.log("info", why)
        if taken.waits:
            # The turn goes on once its questions are answered.
            member.waits = True
            return
        part, member.turn = f"{member.name}.{member.turn}", None
        if taken.failure is not None:
            await self._failed(member, taken.failure, part)
            return
        for task in member.took_a_turn(seen, cut=taken.cut):
            why = f"no progress: {PATIENCE} turns of {member.name} changed nothing on it"
            # Another agent may have settled it meanwhile, which is progress.
            with suppress(Conflict):
                self._board.fail(task.id, member.name, why)
        await self._context.versions.complete(part, cause="turn", agent=member.name)
        await self._events.moment(
            "agent_finished", agent=member.name, part=part, content=taken.text
        )
        if not member.has_work():
            await self._events.moment("agent_idle", agent=member.name)

    async def _failed(self, member: Member, failure: Exception, part: str) -> None:
        cause = failure.__cause__ if isinstance(failure, HookFailed) else None
        why = cause_of(cause or failure)
        if cause is not None:
            why = f"{failure}: {why}"
        await self._events.log("error", f"a turn of {member.name} failed: {why}")
        out = member.failed_a_turn()
        await self._context.versions.complete(part, cause="turn", agent=member.name)
        await self._events.moment(
            "agent_finished",
            agent=member.name,
            part=part,
            stop_reason="hook" if isinstance(failure, HookFailed) else "model_error",
            content=f"The turn failed: {why}",
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
        span.set_attribute("holdfast.reason", class_of(taken.failure))
