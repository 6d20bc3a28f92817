"""Asking a run's router which agents go next."""

import asyncio
from typing import Any, TypeAlias

from msgspec.structs import replace

from holdfast.memories.state.history import View, Window
from holdfast.memories.state.result import InferenceResult, result_id
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.concurrency import awaited
from holdfast.runtime.inference.agent_loop import AgentCall
from holdfast.runtime.inference.request import HookFailed, is_enabled
from holdfast.runtime.inference.run_types import MAX_ITER, MAX_TOOL_ERRORS, RunEnd
from holdfast.runtime.networks.over import Over, cancelled, timed_out
from holdfast.runtime.networks.queue import AgentRoster, Interrupted
from holdfast.runtime.networks.route import BadRoute, Route, Router, RouterContext, route_of
from holdfast.runtime.networks.routing_agent import Decision, RoutingAgent, deciding
from holdfast.runtime.networks.running import NetworkExecution

AnyRouter: TypeAlias = Router | RoutingAgent

_VIEW = View(tools="drop")


async def routed(run: NetworkExecution, router: AnyRouter) -> Route:
    """Return what *router* decides in *run* now; Over if that is an end, or fails."""
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
        raise Over(RunEnd("router_error", error.detail, error.__cause__)) from error
    except Exception as error:
        if isinstance(error, TimeoutError) and limit.expired():
            raise timed_out(run, error) from error
        # Whatever a user's code raises; it is the cause, by which the run's end is told.
        raise Over(RunEnd("router_error", "the router raised", error)) from error


async def enabled(run: NetworkExecution) -> AgentRoster:
    """Return the agents that may be called now; Over if it cannot be told."""
    try:
        return AgentRoster(
            [each for each in run.network.agents if await is_enabled(each, run.handle)]
        )
    except HookFailed as error:
        raise Over(RunEnd("hook_error", error.hook, error.__cause__)) from error


async def _answer(run: NetworkExecution, router: AnyRouter, ctx: RouterContext) -> object:
    if not isinstance(router, RoutingAgent):
        return await awaited(router(ctx))
    decision = Decision(ctx.agents)
    token = deciding.set(decision)
    try:
        result = await _consulted(run, router)
    finally:
        deciding.reset(token)
    if router.on_route is not None:
        return await awaited(router.on_route(replace(ctx, result=result)))
    if decision.failed is not None:
        raise decision.failed
    # One that answers in words has chosen nobody.
    return decision.route or Route.stop(result.text)


async def _consulted(run: NetworkExecution, router: RoutingAgent) -> InferenceResult:
    """Return what one call of *router*'s agent came to; Over if it failed."""
    most = None if run.max_iter is None else 2 * run.max_iter + 2
    asked = sum(each.usage.requests for each in run.router_calls)
    if most is not None and asked >= most:
        raise BadRoute(f"it made {asked} requests, the most allowed")
    bound = MAX_ITER if most is None else min(MAX_ITER, most - asked)
    call = AgentCall(router.agent, Consulting(run), index=len(run.router_calls), max_iter=bound)
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
        case "max_steps" if router.on_route is not None:
            return run.router_calls[-1]
        case "max_steps":
            raise BadRoute(f"it chose no agent in {bound} requests")
        case _:
            detail = f"the router ended with {call.ending.reason}"
            raise Over(RunEnd("router_error", detail, call.ending.cause))


def _recorded(run: NetworkExecution, result: InferenceResult) -> InferenceResult:
    index = len(run.router_calls)
    reason = "done" if result.stop_reason == "hook_stop" else result.stop_reason
    return result.replace(id=result_id(f"{run.id}:router", index), index=index, stop_reason=reason)


class Consulting:
    """A run as the call of its routing agent needs it: seen without calls of tools, told nobody."""

    watched = False

    def __init__(self, run: NetworkExecution) -> None:
        self._run = run
        self.id, self.input, self.system_prompt = run.id, run.input, ""
        self.state, self.usage, self.usage_limits = run.state, run.usage, run.usage_limits
        self.max_tool_errors, self.mcp, self.clock = MAX_TOOL_ERRORS, run.mcp, run.clock
        self.handle: Any = run.handle

    @property
    def results(self) -> list[InferenceResult]:
        """Return the results of the run so far."""
        return self._run.results

    def model_of(self, agent: AgentSpec) -> AnyModel | None:
        """Return the model *agent* is to ask."""
        return self._run.model_of(agent)

    def view_of(self, agent: AgentSpec) -> View:
        """Return how a router sees what was said before."""
        del agent
        return _VIEW

    def leave_out(self, window: Window) -> None:
        """Take note of nothing: a router's view has no budget."""

    async def tell(self, type: object, data: dict[str, Any], **_: str | None) -> None:
        """Tell nobody: what a router decides is told once it has."""
