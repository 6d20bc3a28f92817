"""The work of a team: who takes a turn when, and when it is over."""

import asyncio
from collections.abc import Sequence
from contextlib import ExitStack, suppress

from holdfast.runtime.context import Context
from holdfast.runtime.events import TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import MessageBus
from holdfast.runtime.team.mirror import mirrored
from holdfast.runtime.team.prompts import TeamPlan, occasion_text, titled
from holdfast.runtime.team.result import TeamStatus, settled_as, why_undone
from holdfast.runtime.team.telling import TeamEvents
from holdfast.runtime.team.turn import Member, TurnScheduler


class Play:
    """One execution of a team, from the first turn to how it ends."""

    def __init__(
        self,
        plan: TeamPlan,
        members: Sequence[Member],
        *,
        board: TaskBoard,
        bus: MessageBus,
        context: Context,
    ) -> None:
        self._plan, self._members = plan, members
        self._board, self._bus, self._context = board, bus, context
        self._teller = TeamEvents(context)
        self._turns = TurnScheduler(
            plan, members, board=board, context=context, teller=self._teller
        )
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._begun = 0
        self._stirred = self._repaired = False
        self._dead: list[str] = []

    async def played(self) -> TeamStatus:
        """Work until it is over; return how it ended."""
        with ExitStack() as ends:
            ends.callback(mirrored(self._board, self._context, self._teller.soon))
            ends.callback(self._board.on_event(self._changed))
            ends.callback(self._bus.on_event(self._changed))
            try:
                await self._warn()
                await self._lay_out()
                return await self._to_the_end()
            finally:
                await self._stop()

    def _changed(self, event: TeamUpdate) -> None:
        """Hear of a change of the board, or of a message, on whichever thread it was made."""
        self._teller.soon(event)
        self._stirred = True
        with suppress(RuntimeError):
            # Its event loop may be closed, if this comes while the team already ends.
            self._loop.call_soon_threadsafe(self._news.set)

    async def _warn(self) -> None:
        for member in self._members:
            if not member.agent.description:
                why = f"{member.name} has no description, by which its teammates would know it"
                await self._teller.log("warning", why)

    async def _lay_out(self) -> None:
        """See that there is something to do."""
        known = self._board.list()
        if any(not task.settled for task in known):
            return
        if self._plan.strategy != "autonomous":
            first = self._members[0]
            for occasion in ("lay out", "remind"):
                if self._turns_left and first.present:
                    self._begin(first, occasion_text(occasion))
                    await self._end_turns()
                if len(self._board.list()) > len(known):
                    return
            why = f"{first.name} laid out no task, so the objective is made the only one"
            await self._teller.log("warning", why)
        objective = self._plan.objective.strip()
        self._board.create(titled(objective), description=objective, priority=0)

    async def _to_the_end(self) -> TeamStatus:
        while True:
            self._news.clear()
            if self._stirred:
                self._stirred = False
                for member in self._members:
                    member.away = False
            self._begin_turns()
            if self._running:
                await self._news.wait()
                self._reap()
            elif status := await self._verdict():
                return status

    @property
    def _turns_left(self) -> bool:
        return self._begun < self._plan.max_turns

    def _begin_turns(self) -> None:
        """Begin the turns that there is cause for, of those who waited longest first."""
        if self._board.is_complete():
            return
        for member in sorted(self._members, key=lambda each: each.last_turn):
            if len(self._running) >= self._plan.max_concurrency or not self._turns_left:
                return
            if member.workable():
                self._begin(member)

    def _begin(self, member: Member, call: str = "") -> None:
        """Begin a turn of *member*, who is called upon with *call* or comes by itself."""
        member.busy = True
        self._begun += 1
        task = self._loop.create_task(self._turn(member, call))
        self._running.add(task)
        task.add_done_callback(lambda _: self._news.set())

    async def _turn(self, member: Member, call: str) -> None:
        try:
            occasion = call or occasion_text("go on")
            if not await self._turns.take(member, occasion, called=bool(call)):
                self._begun -= 1
        finally:
            member.busy = False

    async def _end_turns(self) -> None:
        while self._running:
            self._news.clear()
            self._reap()
            if self._running:
                await self._news.wait()

    def _reap(self) -> None:
        over = {task for task in self._running if task.done()}
        self._running -= over
        for task in over:
            task.result()

    async def _stop(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        self._running.clear()

    async def _verdict(self) -> TeamStatus | None:
        """Return how it ends, now that nobody is at work; None when it goes on."""
        if self._board.is_complete():
            return settled_as(self._board.list())
        able = [each for each in self._members if each.workable() or each.uncalled()]
        if able and not self._turns_left:
            return "max_turns"
        if able:
            self._call(able)
            return None
        if dead := self._board.deadlock():
            return await self._deadlocked(dead)
        return await self._stalled()

    def _call(self, able: Sequence[Member]) -> None:
        for member in able:
            if self._turns_left:
                member.call()
                self._begin(member, occasion_text("last call"))

    async def _deadlocked(self, dead: list[str]) -> TeamStatus | None:
        if dead != self._dead:
            self._dead = dead
            content = self._undone()
            await self._teller.moment("deadlock_detected", content=content, tasks=tuple(dead))
        first = self._members[0]
        if self._plan.strategy != "autonomous" and not self._repaired:
            self._repaired = True
            if first.present and self._turns_left:
                failed = [
                    f"{each.id} ({each.failure_reason})" for each in self._board.list("failed")
                ]
                values = {"stuck": ", ".join(dead), "failed": "; ".join(failed)}
                self._begin(first, occasion_text("repair", values))
                return None
        if self._plan.keep_open and any(
            not task.settled and task.id not in dead for task in self._board.list()
        ):
            await self._news.wait()
            return None
        return "deadlocked"

    async def _stalled(self) -> TeamStatus | None:
        if self._plan.keep_open:
            await self._news.wait()
            return None
        content = self._undone()
        unsettled = tuple(task.id for task in self._board.list() if not task.settled)
        await self._teller.moment("stalled", content=content, tasks=unsettled)
        return "stalled"

    def _undone(self) -> str:
        tasks = {task.id: task for task in self._board.list()}
        return why_undone(tasks, [member.workforce() for member in self._members])
