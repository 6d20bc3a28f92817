"""Routes of a network: its agents by name, and the queue of agents."""

from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from holdfast.ground.errors import AgentNameTaken, Conflict, InvalidInput, shortened
from holdfast.runtime.inference.agent import Agent

AgentOrName: TypeAlias = Agent | str


class AgentRoster:
    """Agents with unique names: iterated in order, looked up by name or index.

    >>> from holdfast.runtime import Agent
    >>> agents = AgentRoster([Agent("ada", instructions=""), Agent("bob", instructions="")])
    >>> agents["bob"].name, agents.names, "eve" in agents
    ('bob', ('ada', 'bob'), False)
    """

    def __init__(self, agents: Iterable[Agent]) -> None:
        self._by_name: dict[str, Agent] = {}
        for agent in agents:
            if not isinstance(agent, Agent):  # pyright: ignore[reportUnnecessaryIsInstance] - a user's
                raise InvalidInput("agents", "must hold agents", given=agent)
            if agent.name in self._by_name:
                raise AgentNameTaken(agent.name)
            self._by_name[agent.name] = agent

    @property
    def names(self) -> tuple[str, ...]:
        """The names, in order."""
        return tuple(self._by_name)

    def get(self, name: str) -> Agent | None:
        """Return the agent of that name, or None."""
        return self._by_name.get(name)

    def __getitem__(self, name: str | int) -> Agent:
        return list(self)[name] if isinstance(name, int) else self._by_name[name]

    def __contains__(self, agent: object) -> bool:
        if isinstance(agent, Agent):
            return self._by_name.get(agent.name) is agent
        return agent in self._by_name

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        return f"Agents({', '.join(self.names)})"


RouteKind = Literal["continue", "add", "replace", "stop"]


class Route(Struct, frozen=True, kw_only=True):
    """The decision of a router, made by `continue_`, `add`, `replace` and `stop`."""

    kind: RouteKind
    agents: tuple[AgentOrName, ...] = ()
    reason: str = ""

    @staticmethod
    def continue_() -> "Route":
        """Return the decision to add nothing: the pending agents run."""
        return Route(kind="continue")

    @staticmethod
    def add(*agents: AgentOrName) -> "Route":
        """Return the decision to run *agents* after the pending ones."""
        return Route(kind="add", agents=agents)

    @staticmethod
    def replace(*agents: AgentOrName) -> "Route":
        """Return the decision to run *agents* instead of the pending ones."""
        return Route(kind="replace", agents=agents)

    @staticmethod
    def stop(reason: str = "") -> "Route":
        """Return the decision to end the run now."""
        return Route(kind="stop", reason=reason)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its agents."""
        return tuple(each if isinstance(each, str) else each.name for each in self.agents)


AnyRoute: TypeAlias = Route | Agent | str | Sequence[AgentOrName] | None
"""A decision or a short form: None for `continue_`, agents or names for `add`."""


class BadRoute(Exception):
    """A router made an invalid decision; that is its cause."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail


def route_of(given: object, agents: AgentRoster) -> Route:
    """Return the decision in *given*; raise BadRoute for agents not in *agents*."""
    route = _route(given)
    for each in route.agents:
        known(each, agents)
    return route


def known(given: object, agents: AgentRoster) -> Agent:
    """Return the one of *agents* that *given* is or names; raise BadRoute for others."""
    if given in agents:
        return given if isinstance(given, Agent) else agents[cast("str", given)]
    name = given.name if isinstance(given, Agent) else given
    there = ", ".join(agents.names) or "none"
    if not isinstance(name, str):
        raise bad("must be agents or their names", given)
    if name in agents:
        raise bad(f"the agent {name} is of another network; this one has: {there}", name)
    raise bad(f"there is no agent {name}; there are: {there}", name)


def bad(reason: str, given: object = None) -> BadRoute:
    """Return the error for an invalid decision, with *reason*."""
    error = BadRoute(reason)
    error.__cause__ = InvalidInput("route", reason, given=given)
    return error


def _route(given: object) -> Route:
    if given is None:
        return Route.continue_()
    if isinstance(given, Route):
        return given
    if isinstance(given, Agent | str):
        return Route.add(given)
    if isinstance(given, list | tuple):
        return Route.add(*cast("Sequence[AgentOrName]", given))
    raise bad(
        f"a router must return a Route, agents, names or nothing, not {type(given).__name__}", given
    )


class AgentQueue:
    """The agents to run, in order. Tools on other threads may add to it."""

    def __init__(self) -> None:
        self._waiting: list[AgentOrName] = []
        self._dropped: list[str] = []
        self._closed = False
        self._lock = Lock()

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of the pending agents."""
        with self._lock:
            return tuple(map(_name, self._waiting))

    @property
    def dropped(self) -> list[str]:
        """The names of the agents that were dropped before they ran."""
        with self._lock:
            return list(self._dropped)

    def add(self, agents: tuple[AgentOrName, ...]) -> None:
        """Append *agents*; raise Conflict once the run has ended."""
        with self._lock:
            if self._closed:
                raise Conflict("The run has ended.", reason="ended", next="Start another run.")
            self._waiting.extend(agents)

    def replace(self, agents: tuple[AgentOrName, ...]) -> None:
        """Replace the pending agents by *agents*."""
        self._drop()
        self.add(agents)

    def next(self) -> AgentOrName | None:
        """Remove and return the first agent; None if the queue is empty."""
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """Drop the pending agents, and accept no more."""
        with self._lock:
            self._closed = True
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            self._dropped.extend(map(_name, self._waiting))
            self._waiting.clear()


def _name(given: AgentOrName) -> str:
    # What was scheduled is only checked when its turn comes.
    return given if isinstance(given, str) else getattr(given, "name", shortened(given))
