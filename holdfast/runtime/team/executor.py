"""A team at work: agents that share a board of tasks and write to each other, to one objective."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import ExitStack
from typing import Final, get_args

from holdfast.ground.errors import AgentNameTaken, InvalidInput, NoModel, NotPermitted
from holdfast.runtime import executor
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, TeamUpdate
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.bus import Mailbox, MessageBus
from holdfast.runtime.team.playing import Play
from holdfast.runtime.team.prompts import Strategy, TeamPlan, titled
from holdfast.runtime.team.result import TeamResult, TeamStatus, result_of
from holdfast.runtime.team.tools import Equipment, Seat, TurnToolbox, seat_tools
from holdfast.runtime.team.turn import Member
from holdfast.tools.run import run as memory_tools

MEMORY_BUDGET: Final = 24_000
"""Characters of one answer of a memory tool."""


class TeamExecutor:
    """Lets *agents* work on *objective* until all that they laid out is settled, or no more can be.

    Under the strategy `coordinator` the first agent lays out the tasks, and it alone may add to
    them; under `hybrid` everybody may; under `autonomous` the objective itself is the first task.
    At most *max_turns* turns are taken, *max_concurrency* at once, each of at most *tool_rounds*
    requests. With *keep_open* it waits for what others put on *board* or *bus* where it would end
    as `stalled`.
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
        max_concurrency: int = 5,
        tool_rounds: int = 5,
        board: TaskBoard | None = None,
        bus: MessageBus | None = None,
        keep_open: bool = False,
    ) -> None:
        self._plan = TeamPlan(
            objective=objective,
            strategy=strategy,
            max_turns=max_turns,
            max_concurrency=max_concurrency,
            tool_rounds=tool_rounds,
            keep_open=keep_open,
        )
        _check(self._plan, agents)
        self.context = context
        self.board = board or TaskBoard(
            clock=context.clock,
            ids=context.ids,
            result_bytes=context.memory.limits.value_bytes,
        )
        self.bus = bus or MessageBus(clock=context.clock, ids=context.ids)
        self._status: TeamStatus = "cancelled"
        self._agents, self._model = tuple(agents), model
        self._tools, self._toolsets = tuple(tools), tuple(toolsets)
        for agent in agents:
            self._model_of(agent)
            self._equipment(agent, self._mailbox(agent))

    @property
    def name(self) -> str:
        """What a `RunUpdate` calls it."""
        return "team"

    @property
    def title(self) -> str:
        """What people call it."""
        return titled(self._plan.objective)

    def execute(self) -> AsyncGenerator[ExecutionEvent]:
        """Let it work; give its events as they happen."""
        return executor.events(self)

    async def run(self) -> TeamResult:
        """Let it work; return what it leaves, however it ended, or raise RunCancelled."""
        await executor.run(self)
        return self.get_result()

    def run_sync(self) -> TeamResult:
        """Do as `run` does, without an event loop."""
        executor.run_sync(self)
        return self.get_result()

    def get_result(self) -> TeamResult:
        """Return how it ended and what it leaves; what was not run counts as cancelled."""
        return result_of(self.board.list(), self._status)

    async def perform(self) -> None:
        """Do the work, telling of it."""
        self._status = "cancelled"
        members = [self._member(agent) for agent in self._agents]
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
                self._tell_the_end()

    def ending(self) -> ExecutionOutcome:
        """Return what came of it."""
        ended = self.get_result()
        return ExecutionOutcome(
            state="completed" if ended.status == "completed" else "failed",
            result=ended.result,
            reason=None if ended.status == "completed" else ended.status,
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
        """Let what is said to the running step of that name be a message; return what ends it."""
        inbox = self.context.steering.started(agent.name)

        def deliver(text: str) -> None:
            self.bus.send("user", agent.name, "A word from the user", text, type="request")

        inbox.deliver_to(deliver)
        return inbox.end

    def _member(self, agent: Agent) -> Member:
        mailbox = self._mailbox(agent)
        return Member(
            agent=agent,
            model=self._model_of(agent),
            toolbox=TurnToolbox(self._equipment(agent, mailbox), self.context),
            mailbox=mailbox,
            board=self.board,
        )

    def _mailbox(self, agent: Agent) -> Mailbox:
        return Mailbox(self.bus, agent.name)

    def _model_of(self, agent: Agent) -> AnyModel:
        model = agent.model or self._model or self.context.model
        if model is None:
            raise NoModel(
                f"The agent {agent.name} has no model.",
                agent=agent.name,
                next="Name one for the agent, for the executor, or for the context.",
            )
        return model

    def _equipment(self, agent: Agent, mailbox: Mailbox) -> Equipment:
        """Return all that *agent* may call; ToolNameTaken on a clash."""
        coordinator = self._agents[0].name
        sole = self._plan.strategy == "coordinator" and agent.name != coordinator
        seat = Seat(
            board=self.board,
            bus=self.bus,
            agent=agent.name,
            skills=agent.skills,
            messages=mailbox.show,
            no_creating=_left_to(coordinator) if sole else None,
        )
        memory = memory_tools(
            self.context.memory,
            profile=self.context.profile,
            writer=agent.name,
            budget=MEMORY_BUDGET,
        )
        equipment = Equipment(
            agent,
            own=[*seat_tools(seat), *memory],
            tools=[*self._tools, *agent.tools],
            toolsets=[*self._toolsets, *agent.toolsets],
        )
        equipment.check()
        return equipment


def _left_to(coordinator: str) -> NotPermitted:
    return NotPermitted(
        f"In this team {coordinator} alone creates tasks.",
        needed="coordinator",
        next=f"Send {coordinator} a message, or decompose a task of your own.",
    )


def _check(plan: TeamPlan, agents: Sequence[Agent]) -> None:
    """Raise what is wrong with a team before it does anything."""
    if not plan.objective.strip():
        raise InvalidInput("objective", "must not be blank")
    if plan.strategy not in get_args(Strategy):
        known = ", ".join(get_args(Strategy))
        raise InvalidInput("strategy", f"must be one of {known}", given=plan.strategy)
    least = 1 if plan.strategy == "autonomous" else 2
    if len(agents) < least:
        reason = f"must be at least {least} under the strategy {plan.strategy}"
        raise InvalidInput("agents", reason, given=len(agents))
    for field in ("max_turns", "max_concurrency", "tool_rounds"):
        given: object = getattr(plan, field)
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            raise InvalidInput(field, "must be a whole number from 1", given=given)
    names: set[str] = set()
    for agent in agents:
        if agent.name in names:
            raise AgentNameTaken(agent.name)
        names.add(agent.name)
