"""Networks to run in tests."""

from collections.abc import Callable, Sequence
from typing import Any

from holdfast.ground.errors import RunFailed
from holdfast.runtime import Agent, Network, NetworkRun, Route, RouterContext
from holdfast.runtime.networks.route import AnyRoute
from holdfast.testing.scripted import ScriptedModel, Turn

TERMINAL = ("run.completed", "run.failed", "run.cancelled")


def agent(name: str, turns: Sequence[Turn] | None = None, **changes: Any) -> Agent:
    """Return an agent named *name* whose model says *turns*; its name, unless given."""
    model = ScriptedModel(lambda _: f"{name} speaks.") if turns is None else ScriptedModel(turns)
    given: dict[str, Any] = {"instructions": f"You are {name}.", "model": model} | changes
    return Agent(name, **given)


def in_turn(*names: str) -> Callable[[RouterContext], AnyRoute]:
    """Return a router that chooses *names*, one after the other, and then nobody."""

    def choose(ctx: RouterContext) -> AnyRoute:
        return names[ctx.call_count] if ctx.call_count < len(names) else None

    return choose


def once(*names: str) -> Callable[[RouterContext], AnyRoute]:
    """Return a router that adds *names* at first, and later nothing."""
    return lambda ctx: Route.continue_() if ctx.call_count else Route.add(*names)


def network(*agents: Agent, router: Any = None, name: str = "desk", **changes: Any) -> Network:
    """Return a network of *agents*, which runs them in their order unless it has a *router*."""
    chosen = router or once(*(each.name for each in agents))
    return Network(name, agents, router=chosen, **changes)


def who(run: NetworkRun) -> list[str]:
    """Return the names of the agents that *run* called."""
    return [each.agent for each in run.results]


def run_of(error: RunFailed) -> NetworkRun:
    """Return the run that *error* tells of."""
    assert isinstance(error.run, NetworkRun)
    return error.run
