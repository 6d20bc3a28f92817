"""Which agents go next: what a router is told, and what it may answer."""

from collections.abc import Awaitable, Sequence
from typing import Literal, Protocol, TypeAlias, cast

from msgspec import Struct

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.networks.queue import AgentOrName, AgentRoster
from holdfast.runtime.networks.run import NetworkRun

RouteKind = Literal["continue", "add", "replace", "stop"]


class Route(Struct, frozen=True, kw_only=True):
    """What a router decides: made by `continue_`, `add`, `replace` and `stop`."""

    kind: RouteKind
    agents: tuple[AgentOrName, ...] = ()
    reason: str = ""

    @staticmethod
    def continue_() -> "Route":
        """Return the decision to add nothing: what is pending goes on."""
        return Route(kind="continue")

    @staticmethod
    def add(*agents: AgentOrName) -> "Route":
        """Return the decision to run *agents* after what is pending."""
        return Route(kind="add", agents=agents)

    @staticmethod
    def replace(*agents: AgentOrName) -> "Route":
        """Return the decision to run *agents* in place of what is pending."""
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
"""A decision, or what stands for one: nothing to go on, an agent, a name, or several to add."""


class RouterContext(Struct, frozen=True, kw_only=True):
    """What a router may know: the *network* is the run, the *stack* the names that are pending.

    `results` are this run's, `agents` those that are enabled. `result` is what a routing agent's
    own call came to, for its `on_route`.
    """

    input: str
    network: NetworkRun
    stack: tuple[str, ...]
    call_count: int
    last_result: InferenceResult | None
    results: list[InferenceResult]
    state: NetworkState
    agents: AgentRoster
    result: InferenceResult | None = None


class Router(Protocol):
    """Decides which agents go next: a function, plain or awaitable."""

    def __call__(self, ctx: RouterContext, /) -> AnyRoute | Awaitable[AnyRoute]:
        """Return the decision."""
        ...


class BadRoute(Exception):
    """A router decided what cannot be; that is its cause."""

    def __init__(self, detail: str = "") -> None:
        super().__init__(detail)
        self.detail = detail


def route_of(given: object, agents: AgentRoster) -> Route:
    """Return the decision that *given* stands for; BadRoute if *agents* cannot follow it."""
    route = _route(given)
    for each in route.agents:
        known(each, agents)
    return route


def known(given: object, agents: AgentRoster) -> Agent:
    """Return the one of *agents* that *given* is or names; BadRoute if it is none of them."""
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
    """Return the error that a router decided what cannot be, for *reason*."""
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
