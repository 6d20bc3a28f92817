"""`TeamExecutor`: agents work until their board is settled."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from operator import attrgetter
from typing import Any, get_args

import msgspec
from pydantic_ai.messages import ModelMessagesTypeAdapter

from holdfast.ground.errors import AgentNameTaken, InvalidInput, NotPermitted
from holdfast.ground.json_values import hashed
from holdfast.ground.validation import check_one_of, check_whole, listed
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.context import Context, model_of
from holdfast.runtime.events import ExecutionEvent, TeamUpdate, parts_ready
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.pages import LIMIT, check_limit
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, observer_of
from holdfast.runtime.runs.version_writer import OnMismatch, RestoredState, checked_mismatch
from holdfast.runtime.steps.executor import MEMORY_BUDGET
from holdfast.runtime.steps.tools import Toolbox
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Mailbox, Message, MessageBus
from holdfast.runtime.team.prompts import Strategy, TeamPlan, occasion_text, titled
from holdfast.runtime.team.result import (
    TeamEvents,
    TeamResult,
    TeamStatus,
    mirrored,
    result_of,
    settled_as,
    team_reason,
    why_undone,
)
from holdfast.runtime.team.task import BoardTask
from holdfast.runtime.team.tools import Seat, member_toolbox, seat_tools
from holdfast.runtime.team.turn import Member, TurnScheduler
from holdfast.tools.run import run as memory_tools


class TeamProgress:
    """What versions hold of a team: board, messages, *members* between turns.

    `begun` is the number of turns that were begun, `repaired` whether a deadlock was to be.
    """

    def __init__(self, board: TaskBoard, bus: MessageBus, members: Sequence[Member]) -> None:
        self._board, self._bus, self._members = board, bus, members
        self._tasks = {task.id: 0 for task in board.list()}
        self._messages = dict.fromkeys([message.id for message in bus.history()])
        self._kept: dict[str, bytes] = {}
        self._turns = {member.name: 0 for member in members}
        self.begun, self.repaired = 0, False

    def note(self, event: TeamUpdate) -> None:
        """Note the task or the message of *event*, from any thread."""
        if event.message_id is not None:
            self._messages[event.message_id] = None
        elif event.task_id is not None:
            self._tasks[event.task_id] = 0

    def changes(self) -> Iterator[StateRow]:
        """Yield what changed since the last call."""
        tasks, self._tasks = self._tasks, {}
        messages, self._messages = self._messages, {}
        for id in tasks:
            yield StateRow("board", id, msgspec.json.encode(self._board.get(id)))
        for id in messages:
            if (message := self._bus.get(id)) is not None:
                yield StateRow("message", id, msgspec.json.encode(message))
        for member in self._members:
            yield from self._new_turns(member)
        states: dict[str, Any] = {f"member:{each.name}": each.state() for each in self._members}
        states["unread"] = self._bus.unread()
        states["team"] = {"begun": self.begun, "repaired": self.repaired}
        for key, state in states.items():
            body = msgspec.json.encode(state)
            if self._kept.get(key) != body:
                self._kept[key] = body
                yield StateRow("state", key, body)

    def _new_turns(self, member: Member) -> Iterator[StateRow]:
        for number, turn in member.history.turns().items():
            if number >= self._turns[member.name]:
                self._turns[member.name] = number + 1
                body = ModelMessagesTypeAdapter.dump_json(turn)
                yield StateRow("state", f"turn:{member.name}:{number:06d}", body)

    def restore(self, found: RestoredState) -> bool:
        """Put back what *found* holds of a team; return whether there is anything."""
        if (team := found.get("state", "team")) is None:
            return False
        bodies = found.rows.items()
        tasks = [body for (kind, _), body in bodies if kind == "board"]
        made = [msgspec.json.decode(body, type=BoardTask) for body in tasks]
        # Ids rise, so this is the order in which they were made.
        self._board.restore(sorted(made, key=attrgetter("id")))
        messages = [body for (kind, _), body in bodies if kind == "message"]
        sent = [msgspec.json.decode(body, type=Message) for body in messages]
        self._bus.restore(sorted(sent, key=attrgetter("id")), found.get("state", "unread") or {})
        for member in self._members:
            if (state := found.get("state", f"member:{member.name}")) is not None:
                within = f"turn:{member.name}:"
                turns = {key: body for (_, key), body in bodies if key.startswith(within)}
                kept = [turns[key] for key in sorted(turns)][state["left_out"] :]
                member.restore(state, map(ModelMessagesTypeAdapter.validate_json, kept))
                self._turns[member.name] = len(turns)
        open_turns = sum(member.turn is not None for member in self._members)
        self.begun, self.repaired = team["begun"] - open_turns, team["repaired"]
        return True


class Play:
    """One execution of a team, from the first turn to its end."""

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
        self._events = TeamEvents(context)
        self._turns = TurnScheduler(
            plan, members, board=board, context=context, events=self._events
        )
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()
        self._progress = TeamProgress(board, bus, members)
        self._restored = self._progress.restore(context.versions.restored)
        self._stirred = False
        self._dead: list[str] = []

    async def played(self) -> TeamStatus:
        """Work until the end; return the status."""
        with ExitStack() as ends:
            ends.callback(mirrored(self._board, self._context, self._events.soon))
            ends.callback(self._board.on_event(self._changed))
            ends.callback(self._bus.on_event(self._changed))
            self._context.versions.collect(self._progress.changes)
            try:
                await self._warn()
                if known := {task.id: task.depends_on for task in self._board.list()}:
                    await self._context.emit(parts_ready("board_task", known))
                is_laid_out = any(not task.settled for task in self._board.list())
                await self._end_open_turns()
                if not is_laid_out:
                    await self._lay_out()
                return await self._to_the_end()
            finally:
                await self._stop()

    def _changed(self, event: TeamUpdate) -> None:
        """Emit a change of the board or the bus, from any thread, and wake the loop."""
        made = event.event == "task_created" and self._board.get(event.task_id or "")
        more = {"depends_on": list(made.depends_on), "parent": made.parent} if made else {}
        self._progress.note(event)
        self._events.soon(event, **more)
        self._stirred = True
        with suppress(RuntimeError):
            # Its event loop may be closed, if this comes while the team already ends.
            self._loop.call_soon_threadsafe(self._news.set)

    async def _warn(self) -> None:
        for member in self._members:
            if not member.agent.description:
                why = f"{member.name} has no description, by which its teammates would know it"
                await self._events.log("warning", why)

    async def _end_open_turns(self) -> None:
        """End the turns that an earlier process began, before others build on them.

        The first one of a team is taken to lay out its tasks.
        """
        for member in self._members:
            if member.turn is not None and self._board.list():
                self._begin(member)
        await self._all_ended()

    async def _all_ended(self) -> None:
        """Return when no turn runs."""
        while self._running:
            self._news.clear()
            self._reap()
            if self._running:
                await self._news.wait()

    async def _lay_out(self) -> None:
        """Ensure that there is a task: laid out by the first agent, or the objective."""
        known = self._board.list()
        if known and (self._restored or any(not task.settled for task in known)):
            return
        if self._plan.strategy != "autonomous":
            first = self._members[0]
            for occasion in ("lay out", "remind"):
                if self._turns_left and first.present:
                    self._begin(first, occasion_text(occasion))
                    await self._all_ended()
                if len(self._board.list()) > len(known):
                    return
            why = f"{first.name} laid out no task, so the objective is made the only one"
            await self._events.log("warning", why)
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
        return self._progress.begun < self._plan.max_turns

    def _begin_turns(self) -> None:
        """Begin the turns of members with work, the longest waiting first."""
        if self._board.is_complete():
            return
        for member in sorted(self._members, key=lambda each: each.last_turn):
            if len(self._running) >= self._plan.max_concurrency or not self._turns_left:
                return
            if member.workable():
                self._begin(member)

    def _begin(self, member: Member, call: str = "") -> None:
        """Begin a turn of *member*, with *call* if it is called upon."""
        member.busy = True
        self._progress.begun += 1
        task = self._loop.create_task(self._turn(member, call))
        self._running.add(task)
        task.add_done_callback(lambda _: self._news.set())

    async def _turn(self, member: Member, call: str) -> None:
        try:
            occasion = call or occasion_text("go on")
            if not await self._turns.take(member, occasion, called=bool(call)):
                self._progress.begun -= 1
        finally:
            member.busy = False

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
        """Return the status at the end, when no turn runs; None if it goes on."""
        if self._board.is_complete():
            return settled_as(self._board.list())
        able = [each for each in self._members if each.workable() or each.uncalled()]
        if able:
            return self._last_call(able)
        if any(each.waits for each in self._members):
            return "waiting"
        if dead := self._board.deadlock():
            return await self._deadlocked(dead)
        if self._plan.keep_open:
            await self._news.wait()
            return None
        content = self._undone()
        unsettled = tuple(task.id for task in self._board.list() if not task.settled)
        await self._events.moment("stalled", content=content, tasks=unsettled)
        return "stalled"

    def _last_call(self, able: Sequence[Member]) -> TeamStatus | None:
        """Call upon those who are *able*; return the status if no turns are left."""
        if not self._turns_left:
            return "max_turns"
        for member in able:
            if self._turns_left:
                member.call()
                self._begin(member, occasion_text("last call"))
        return None

    async def _deadlocked(self, dead: list[str]) -> TeamStatus | None:
        if dead != self._dead:
            self._dead = dead
            content = self._undone()
            await self._events.moment("deadlock_detected", content=content, tasks=tuple(dead))
        first = self._members[0]
        if self._plan.strategy != "autonomous" and not self._progress.repaired:
            self._progress.repaired = True
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

    def _undone(self) -> str:
        tasks = {task.id: task for task in self._board.list()}
        return why_undone(tasks, [member.workforce() for member in self._members])


class TeamExecutor:
    """Lets *agents* work on *objective* until all their tasks are settled.

    It also ends when no task can be worked on. Under the strategy `coordinator` the first agent
    creates the tasks, and it alone may add to them; under `hybrid` each agent may; under
    `autonomous` the objective itself is the first task. At most *max_turns* turns are taken,
    *max_concurrency* at once, each of at most *max_iterations* requests. A tool's result of more
    than *tool_result_limit* characters is read in parts. With *keep_open* it waits for changes from
    outside on *board* or *bus* where it would end as `stalled`. Board, messages and turns are kept
    at *checkpoint* after each turn, and a run of the same `run_id` goes on from there.
    """

    def __init__(
        self,
        *,
        objective: str,
        agents: Sequence[Agent],
        context: Context,
        strategy: Strategy = "coordinator",
        model: AnyModel | None = None,
        tools: Sequence[AnyTool] = (),
        toolsets: Sequence[AnyToolset] = (),
        max_turns: int = 100,
        tool_result_limit: int = LIMIT,
        max_concurrency: int = 5,
        max_iterations: int = 5,
        board: TaskBoard | None = None,
        bus: MessageBus | None = None,
        keep_open: bool = False,
        checkpoint: Checkpoints | None = None,
        on_mismatch: OnMismatch = "refuse",
        on_event: OnEvent | None = None,
    ) -> None:
        self._observer = observer_of(on_event)
        self.checkpoints, self.on_mismatch = checkpoint, checked_mismatch(on_mismatch)
        self._plan = TeamPlan(
            objective=objective,
            strategy=strategy,
            max_turns=max_turns,
            max_concurrency=max_concurrency,
            max_iterations=max_iterations,
            keep_open=keep_open,
        )
        _check(self._plan, agents)
        self.name, self.title = "team", titled(objective)
        self.context = context
        self.board = board or TaskBoard(
            clock=context.clock,
            ids=context.ids,
            result_bytes=context.memory.limits.value_bytes,
        )
        self.bus = bus or MessageBus(clock=context.clock, ids=context.ids)
        self._status: TeamStatus = "cancelled"
        self._waiting: list[Member] = []
        self._limit = check_limit(tool_result_limit)
        self._agents, self._model = tuple(agents), model
        self._tools, self._toolsets = tuple(tools), tuple(toolsets)
        for agent in agents:
            context.root.auto_persist |= agent.auto_persist
            model_of(context, agent=agent, model=model)
            self._toolbox(agent, Mailbox(self.bus, agent.name))

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Execute it; yield its events as they happen."""
        return executor.events(self, self._observer)

    def stream(self) -> AsyncGenerator[RunEvent]:
        """Do as `execute` does, and yield every event of the run."""
        return executor.stream(self, self._observer)

    async def run(self) -> TeamResult:
        """Execute it and return the result, however it ended; raise RunCancelled."""
        await executor.run(self, self._observer)
        return self.get_result()

    def run_sync(self) -> TeamResult:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self, self._observer)
        return self.get_result()

    def get_result(self) -> TeamResult:
        """Return the status and results; before a run the status is cancelled."""
        return result_of(self.board.list(), self._status)

    @property
    def parts(self) -> tuple[str, ...]:
        """No entries: other executors may be at work beside it."""
        return ()

    def begun_with(self) -> dict[str, str]:
        """Return the hash of each part of the run by its name."""
        facts = {
            "objective": self._plan.objective,
            "strategy": self._plan.strategy,
            "agents": [agent.name for agent in self._agents],
        }
        return {name: hashed(fact) for name, fact in facts.items()}

    async def perform(self) -> None:
        """Do the work and emit its events."""
        self._status = "cancelled"
        members = self._waiting or [self._member(agent) for agent in self._agents]
        for member in members:
            member.waits = False
        play = Play(self._plan, members, board=self.board, bus=self.bus, context=self.context)
        with ExitStack() as steered:
            for agent in self._agents:
                steered.callback(self._steered(agent))
            try:
                self._status = await play.played()
            except Exception:
                self._status = "failed"
                raise
            finally:
                self._waiting = members if self._status == "waiting" else []
                if not self._waiting:
                    self._tell_the_end()

    @property
    def objective(self) -> str:
        """What the team works on."""
        return self._plan.objective

    def ending(self) -> ExecutionOutcome:
        """Return the outcome."""
        ended = self.get_result()
        if ended.status == "waiting":
            done = tuple([task.id for task in ended.done])
            return ExecutionOutcome(state="waiting", completed=done)
        return ExecutionOutcome(
            state="completed" if ended.status == "completed" else "failed",
            result=ended.result,
            reason=team_reason(ended.status),
            completed=tuple(task.id for task in ended.done),
        )

    def _tell_the_end(self) -> None:
        ended = self.get_result()
        self.context.tell_soon(
            TeamUpdate(
                event="team_complete",
                content=ended.status,
                result=ended.result,
                tasks=tuple(task.id for task in ended.unfinished),
            )
        )

    def _steered(self, agent: Agent) -> Callable[[], None]:
        """Send texts to the running step of that name as messages; return what ends it."""
        inbox = self.context.steering.started(agent.name)

        def deliver(text: str) -> None:
            self.bus.send("user", agent.name, "A word from the user", text, type="request")

        inbox.deliver_to(deliver)
        return inbox.end

    def _member(self, agent: Agent) -> Member:
        mailbox = Mailbox(self.bus, agent.name)
        return Member(
            agent=agent,
            model=model_of(self.context, agent=agent, model=self._model),
            toolbox=self._toolbox(agent, mailbox),
            mailbox=mailbox,
            board=self.board,
        )

    def _toolbox(self, agent: Agent, mailbox: Mailbox) -> Toolbox:
        """Return all tools of *agent*; raise ToolNameTaken on a clash."""
        coordinator = self._agents[0].name
        sole = self._plan.strategy == "coordinator" and agent.name != coordinator
        seat = Seat(
            board=self.board,
            bus=self.bus,
            agent=agent.name,
            skills=listed(agent.skills),
            messages=mailbox.show,
            no_creating=_left_to(coordinator) if sole else None,
        )
        memory = memory_tools(
            self.context.memory,
            profile=self.context.profile,
            writer=agent.name,
            budget=MEMORY_BUDGET,
        )
        return member_toolbox(
            agent,
            self.context,
            own=[*seat_tools(seat), *memory],
            tools=self._tools,
            toolsets=self._toolsets,
            limit=self._limit,
        )


def _left_to(coordinator: str) -> NotPermitted:
    return NotPermitted(
        f"In this team {coordinator} alone creates tasks.",
        needed="coordinator",
        next=f"Send {coordinator} a message, or decompose a task of your own.",
    )


def _check(plan: TeamPlan, agents: Sequence[Agent]) -> None:
    """Raise the problems of a team before it starts."""
    if not plan.objective.strip():
        raise InvalidInput("objective", "must not be blank")
    check_one_of("strategy", plan.strategy, get_args(Strategy))
    least = 1 if plan.strategy == "autonomous" else 2
    if len(agents) < least:
        reason = f"must be at least {least} under the strategy {plan.strategy}"
        raise InvalidInput("agents", reason, given=len(agents))
    for field in ("max_turns", "max_concurrency", "max_iterations"):
        check_whole(field, getattr(plan, field), "must be a whole number from 1", least=1)
    names: set[str] = set()
    for agent in agents:
        if agent.name in names:
            raise AgentNameTaken(agent.name)
        names.add(agent.name)
