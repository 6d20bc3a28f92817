"""A turn from both sides: whether there is cause for it, and what follows from how it went."""

from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.trace import Span
from pydantic_ai.messages import ModelResponse

from holdfast.ground.errors import Conflict
from holdfast.runtime.context import Context
from holdfast.runtime.inference.request import HookFailed, is_enabled, system_text
from holdfast.runtime.metrics import counts
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.member import PATIENCE, Member, Sight
from holdfast.runtime.team.prompts import TeamPlan, member_text, turn_text
from holdfast.runtime.team.telling import TeamEvents
from holdfast.runtime.team.turn import Beginning, MemberTurn, Taken


class TurnScheduler:
    """The turns of *members*, who work as *plan* says, each within a slot of the run."""

    def __init__(
        self,
        plan: TeamPlan,
        members: Sequence[Member],
        *,
        board: TaskBoard,
        context: Context,
        teller: TeamEvents,
    ) -> None:
        self._plan, self._members, self._board = plan, members, board
        self._context, self._teller = context, teller
        self._slots = context.slots.narrowed(plan.max_concurrency)
        self._number = 0

    async def take(self, member: Member, occasion: str, *, called: bool = False) -> bool:
        """Let *member* take a turn on *occasion*; False when there was no cause for one.

        What it could do may be gone when a slot is free at last, unless it is *called* upon.
        """
        async with self._slots.taken():
            if not (called or member.has_work()):
                return False
            failure = await self._kept_out(member)
            if member.away:
                return False
            self._number += 1
            member.last_turn = self._number
            await self._teller.moment("agent_started", agent=member.name)
            counts.turn_taken(member.name)
            seen = member.sight()
            taken = Taken(failure=failure) if failure else await self._taken(member, seen, occasion)
            await self._follow(member, seen, taken)
            return True

    async def _kept_out(self, member: Member) -> Exception | None:
        """See whether the agent's hook keeps it out; return why that cannot be told."""
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
            await self._teller.log("info", why)
        if taken.failure is not None:
            await self._failed(member, taken.failure)
            return
        for task in member.took_a_turn(seen, cut=taken.cut):
            why = f"no progress: {PATIENCE} turns of {member.name} changed nothing on it"
            # Whoever settled it meanwhile was faster, which is progress.
            with suppress(Conflict):
                self._board.fail(task.id, member.name, why)
        await self._teller.moment("agent_finished", agent=member.name, content=taken.text)
        if not member.has_work():
            await self._teller.moment("agent_idle", agent=member.name)

    async def _failed(self, member: Member, failure: Exception) -> None:
        cause = failure.__cause__ if isinstance(failure, HookFailed) else None
        why = f"{failure}: {cause}" if cause else f"{type(failure).__name__}: {failure}"
        await self._teller.log("error", f"a turn of {member.name} failed: {why}")
        out = member.failed_a_turn()
        await self._teller.moment(
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
        await self._teller.moment(
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
