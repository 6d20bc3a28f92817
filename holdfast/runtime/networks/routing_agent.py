"""A router that asks a model which agent goes next."""

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, TypeAlias

from holdfast.ground.errors import InvalidInput
from holdfast.runtime.agent import AgentHooks, AgentStart, AnyModel, AnyTool, Instructions
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.networks.queue import AgentRoster
from holdfast.runtime.networks.route import AnyRoute, BadRoute, Route, RouterContext, bad

OnRoute: TypeAlias = Callable[[RouterContext], AnyRoute | Awaitable[AnyRoute]]

DEFAULT = """\
You coordinate the agents of a network. Look at what the user asked for and at what was done so \
far, and decide which agent is to act next. Call select_agent with its name. When the user's \
request is fulfilled, or no agent can add to it, call done."""
"""What the router is told that a network makes for itself."""


class RoutingAgent:
    """An agent that decides which agents go next, by the two tools it has for that.

    It sees what users and agents said, and no calls of tools. With *on_route* it has its own
    *tools* alone, and that function, told what its call came to, decides.
    """

    def __init__(
        self,
        name: str,
        *,
        instructions: Instructions,
        tools: Sequence[AnyTool] | None = None,
        model: AnyModel | None = None,
        on_route: OnRoute | None = None,
    ) -> None:
        if on_route is not None and not callable(on_route):  # pyright: ignore[reportUnnecessaryComparison] - a user's
            raise InvalidInput("on_route", "must be a function", given=on_route)
        self.name, self.on_route = name, on_route
        self._instructions = instructions
        decides = on_route is None
        self.agent = Agent(
            name,
            instructions=self._system_text,
            tools=[*(tools or ()), *((select_agent, done) if decides else ())],
            tool_choice="any" if decides else "auto",
            model=model,
            hooks=AgentHooks(on_start=_until_decided) if decides else None,
        )

    async def _system_text(self, run: Any) -> str:
        given = self._instructions
        text = given if isinstance(given, str) else await awaited(given(run))
        agents = "\n".join(_line(each) for each in deciding.get().agents)
        return f"{text}\n\nThe agents there are:\n{agents}".strip()


class Decision:
    """What a routing agent decides in one call of it; the first call of a tool in a reply counts.

    A name that is none of *agents*' is told those there are, once.
    """

    def __init__(self, agents: AgentRoster) -> None:
        self.agents = agents
        self.route: Route | None = None
        self.failed: BadRoute | None = None
        self._unknown = 0
        self._reply, self._heard = 0, 0

    @property
    def made(self) -> bool:
        """Whether there is nothing more to decide."""
        return self.route is not None or self.failed is not None

    def ask(self, reply: int) -> None:
        """Take note that the *reply*-th is asked for."""
        self._reply = reply

    def decide(self, route: Route) -> str:
        """Take *route* as the decision, unless this reply had one; return what the model is told.

        InvalidInput for an agent that is not there.
        """
        if self.made or self._heard == self._reply:
            return "Only the first call counts."
        self._heard = self._reply
        for name in route.names:
            if name not in self.agents:
                self._refuse(name)
        self.route = route
        return "Decided."

    def _refuse(self, name: str) -> None:
        self._unknown += 1
        reason = f"there is no agent {name}; there are: {', '.join(self.agents.names)}"
        if self._unknown > 1:
            self.failed = bad(reason, name)
        raise InvalidInput("name", reason, given=name)


deciding: ContextVar[Decision] = ContextVar("deciding")
"""The decision that is being made in the run at hand."""


async def select_agent(name: str, reason: str = "") -> str:
    """Let an agent act next.

    Args:
        name: the agent's name, as it was given to you
        reason: why it is this one
    """
    return deciding.get().decide(Route(kind="add", agents=(name,), reason=reason))


async def done(summary: str = "") -> str:
    """End the work: nothing is left to do.

    Args:
        summary: what was done
    """
    return deciding.get().decide(Route.stop(summary))


def _until_decided(start: AgentStart) -> dict[str, bool] | None:
    decision = deciding.get()
    decision.ask(start.step)
    return {"stop": True} if decision.made else None


def _line(agent: Agent) -> str:
    said = " ".join(agent.description.split())
    return f"- {agent.name}: {said}" if said else f"- {agent.name}"
