"""Routers of networks: `RoutingAgent`, and how a run calls a router."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.history import View
from holdfast.memories.state.result import InferenceResult, result_id
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import (
    AgentHooks,
    AgentStart,
    AnyModel,
    AnyTool,
    Instructions,
)
from holdfast.runtime.concurrency import awaited, contained
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.inference.owner import Interrupted
from holdfast.runtime.inference.request import HookFailed, is_enabled
from holdfast.runtime.inference.run_types import MAX_ITERATIONS, InferenceRun, RunEnd
from holdfast.runtime.networks.route import (
    AgentRoster,
    AnyRoute,
    BadRoute,
    Route,
    bad,
    route_of,
)
from holdfast.runtime.networks.run import NetworkExecution, NetworkRun, Over, cancelled, timed_out
from holdfast.runtime.runs.suspension import AnswerTimeout, PartCall, asking


class RouterContext(Struct, frozen=True, kw_only=True):
    """The facts for a router.

    *network* is the run, *stack* the names of pending agents, `results` those of this run, `agents`
    the enabled ones. `result` is that of a routing agent's own call, for its `on_route`.
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
    """Decides which agents run next: a function, plain or awaitable."""

    def __call__(self, ctx: RouterContext, /) -> AnyRoute | Awaitable[AnyRoute]:
        """Return the decision."""
        ...


OnRoute: TypeAlias = Callable[[RouterContext], AnyRoute | Awaitable[AnyRoute]]

DEFAULT = """\
You coordinate the agents of a network. Look at what the user asked for and at what was done so \
far, and decide which agent is to act next. Call select_agent with its name. When the user's \
request is fulfilled, or no agent can add to it, call done."""
"""System text of the router that a network makes for itself."""


class RoutingAgent:
    """An agent that decides which agents run next, by two tools.

    It sees messages of users and agents, and no tool calls. With *on_route* it has its own *tools*
    alone, and that function decides by the result of its call.
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
    """The decision of a routing agent's call; a reply's first tool call counts.

    For a name that is none of *agents* the model gets the list of names, once.
    """

    def __init__(self, agents: AgentRoster) -> None:
        self.agents = agents
        self.route: Route | None = None
        self.failed: BadRoute | None = None
        self._unknown = 0
        self._reply, self._decided_reply = 0, 0

    @property
    def made(self) -> bool:
        """Whether the decision is made or has failed."""
        return self.route is not None or self.failed is not None

    def ask(self, reply: int) -> None:
        """Record the number of the current *reply*."""
        self._reply = reply

    def decide(self, route: Route) -> str:
        """Make *route* the decision, unless this reply made one; return the tool's result.

        Raise InvalidInput for an unknown agent.
        """
        if self.made or self._decided_reply == self._reply:
            return "Only the first call counts."
        self._decided_reply = self._reply
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
"""The decision of the current run."""


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


AnyRouter: TypeAlias = Router | RoutingAgent

_VIEW = View(tools="drop")


async def routed(run: NetworkExecution, router: AnyRouter) -> Route:
    """Return the decision of *router* in *run*; raise Over if it ends the run."""
    agents = await enabled(run)
    ctx = RouterContext(
        input=run.input,
        network=run.handle,
        stack=run.queue.pending,
        call_count=run.calls,
        last_result=run.handle.last,
        results=run.results,
        state=run.handle.state,
        agents=agents,
    )
    limit = asyncio.timeout(run.left)
    try:
        async with limit:
            with run.interrupting:
                given = await _answer(run, router, ctx)
        return route_of(given, run.network.agents)
    except Over:
        raise
    except Interrupted:
        raise cancelled(run) from None
    except BadRoute as error:
        raise Over(RunEnd("router", error.detail, error.__cause__)) from error
    except AnswerTimeout as error:
        raise Over(RunEnd("answer_timeout", "the router", error)) from error
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise timed_out(run, error) from error
        # A user's code may raise anything; the run ends with it as the cause.
        raise Over(RunEnd("router", "the router raised", error)) from error


async def enabled(run: NetworkExecution) -> AgentRoster:
    """Return the agents that may be called now; raise Over if a hook fails."""
    try:
        return AgentRoster(
            [each for each in run.network.agents if await is_enabled(each, run.handle)]
        )
    except HookFailed as error:
        raise Over(RunEnd("hook", error.hook, error.__cause__)) from error


async def _answer(run: NetworkExecution, router: AnyRouter, ctx: RouterContext) -> object:
    if not isinstance(router, RoutingAgent):
        part = run.logs.of(f"router.{run.calls}")

        async def decide() -> object:
            return await awaited(router(ctx))

        with contained():
            found = await asking(PartCall(part, "router"), decide)
        run.logs.end(part.part)
        return found
    decision = Decision(ctx.agents)
    token = deciding.set(decision)
    try:
        result = await _consulted(run, router)
    finally:
        deciding.reset(token)
    if router.on_route is not None:
        with contained():
            return await awaited(router.on_route(replace(ctx, result=result)))
    if decision.failed is not None:
        raise decision.failed
    # A reply in words has chosen no agent.
    return decision.route or Route.stop(result.text)


async def _consulted(run: NetworkExecution, router: RoutingAgent) -> InferenceResult:
    """Call the agent of *router* and return the result; raise Over if it failed."""
    most = None if run.max_turns is None else 2 * run.max_turns + 2
    requests = sum(each.usage.requests for each in run.router_calls)
    if most is not None and requests >= most:
        raise BadRoute(f"it made {requests} requests, the most allowed")
    bound = MAX_ITERATIONS if most is None else min(MAX_ITERATIONS, most - requests)
    call = AgentCall(
        router.agent, _consulting(run), index=len(run.router_calls), max_iterations=bound
    )
    try:
        await call.made()
    finally:
        if call.result is not None:
            run.router_calls.append(_recorded(run, call.result))
    match call.ending.reason:
        case "done" | "hook_stop":
            return run.router_calls[-1]
        case "budget" | "timeout":
            raise Over(call.ending)
        case "max_iterations" if router.on_route is not None:
            return run.router_calls[-1]
        case "max_iterations":
            raise BadRoute(f"it chose no agent in {bound} requests")
        case _:
            detail = f"the router ended with {call.ending.reason}"
            raise Over(RunEnd("router", detail, call.ending.cause))


def _recorded(run: NetworkExecution, result: InferenceResult) -> InferenceResult:
    index = len(run.router_calls)
    reason = "done" if result.stop_reason == "hook_stop" else result.stop_reason
    return result.replace(id=result_id(f"{run.id}:router", index), index=index, stop_reason=reason)


def _consulting(run: NetworkExecution) -> InferenceRun:
    """Return *run* for the call of its routing agent: without tool calls and events."""
    return InferenceRun(
        id=run.id,
        input=run.input,
        state=run.state,
        clock=run.clock,
        handle=run.handle,
        model=run.model,
        default_model=run.default_model,
        view=_VIEW,
        usage=run.usage,
        usage_limits=run.usage_limits,
        mcp=run.mcp,
    )
