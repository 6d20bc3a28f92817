"""The loop of a network run: call the router, call an agent, until the end."""

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import cast

import msgspec

from holdfast.ground.errors import HoldfastError, NoAgentEnabled, NoRouter
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.event import REASONS, Reason
from holdfast.memories.run.records.run import Run
from holdfast.runtime.concurrency import Suspended
from holdfast.runtime.inference.agent import Agent, keep, run_end
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.inference.owner import HistoryFailed, Interrupted, user_of
from holdfast.runtime.inference.request import HookFailed, is_enabled
from holdfast.runtime.inference.run_types import RunEnd, internal, no_model
from holdfast.runtime.mcp import require
from holdfast.runtime.metrics import ROUTER_CALLS
from holdfast.runtime.networks.route import BadRoute, known
from holdfast.runtime.networks.router import (
    AnyRouter,
    RoutingAgent,
    enabled,
    routed,
)
from holdfast.runtime.networks.run import (
    NetworkExecution,
    NetworkRun,
    Over,
    cancelled,
    count_call,
    count_run,
    failed,
    finished,
    timed_out,
)
from holdfast.runtime.persistence import FinishedRun, persist
from holdfast.runtime.runs.run_events import leave
from holdfast.runtime.runs.run_record import record_name

IDLE_MOST = 16
"""Limit of consecutive decisions for disabled agents only."""


async def made(run: NetworkExecution, router: AnyRouter | None) -> NetworkRun:
    """Return *run* once it has ended, with *router* deciding.

    Raise RunFailed if the run failed and *raises* is set. What prevents its start is raised before
    anything is stored or emitted.
    """
    await _ended(run, router)
    if run.options.raises and run.handle.status == "failed":
        raise failed(run)
    return run.handle


async def _ended(run: NetworkExecution, given: AnyRouter | None) -> None:
    """Run to the end; raise what prevents its start, and a cancellation of its task."""
    run.begin_time()
    try:
        await _worked(run, given)
    except Over as over:
        await _finish(run, over.ending)
    except HistoryFailed as error:
        await _finish(run, error.ending)
    except (CallWaits, Suspended):
        run.waits = True
        run.queue.close()
        await leave(run.id, ("it rests", lambda: run.owner.rest(run, run.events)))
        if run.owner.stale is not None:
            run.waits = False
            await _finish(run, run.owner.ending())
    except GeneratorExit:
        raise
    except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
        await _finish(run, RunEnd("cancelled", "its task was cancelled"))
        raise
    except BaseException as error:
        if isinstance(error, HoldfastError) and not run.begun:
            raise
        await _finish(run, internal(error))


async def _worked(run: NetworkExecution, given: AnyRouter | None) -> None:
    """Start the run and do its rounds; return if it has ended before."""
    router = await _checked(run, given)
    if run.options.data:
        run.state.data.update(run.options.data)
    if await _over_before(run):
        return
    await run.acquire()
    await run.remembering.begin(run.started_at, "network", record_name(run.network.name, "network"))
    run.begun = True
    await run.owner.begin(run.events)
    unwatch = run.events.watch(run.state)
    try:
        await run.resume()
        await _rounds(run, router)
    finally:
        unwatch()


async def _checked(run: NetworkExecution, router: AnyRouter | None) -> AnyRouter:
    """Return *router* once the run can start.

    Raise NotRunnable without a router, a model for it, an enabled agent, or a required server.
    """
    network = run.network
    chosen = await enabled(run)
    if not chosen:
        why = "has no agents" if not network.agents else "has no agent that is switched on"
        raise NoAgentEnabled(f"The network {network.name} {why}.", network=network.name)
    if router is None:
        raise NoRouter(
            f"The network {network.name} has no router.",
            network=network.name,
            next="Give it a router, or a default_model for the router it makes for itself.",
        )
    if isinstance(router, RoutingAgent) and run.model_of(router.agent) is None:
        raise no_model(router.agent)
    await require(chosen)
    return router


async def _over_before(run: NetworkExecution) -> bool:
    """Join the run's thread; return whether the run has ended before.

    If so, emit that end again.
    """
    record = await run.remembering.open(run.options.thread_id, again=run.options.run_id is not None)
    run.events.thread_id = run.state.thread_id
    run.take_up(run.results)
    if record is None:
        return False
    cause = None if record.error is None else _Before(record.error)
    run.started_at, run.ended_at, run.recorded_usage = (
        record.started_at,
        record.ended_at,
        record.usage,
    )
    run.ending = RunEnd(_reason_of(record), record.detail or "", cause)
    run.queue.close()
    await run.tell_end(run.ending, run.used(), run.queue.dropped)
    return True


def _reason_of(record: Run) -> Reason:
    """Return the reason of *record*; an unknown one follows its status."""
    if record.reason in REASONS:
        return cast("Reason", record.reason)
    ends: dict[str, Reason] = {"completed": "done", "cancelled": "cancelled"}
    return ends.get(record.status, "internal")


class _Before(HoldfastError):
    """The exception of a run that ended earlier or in another process."""

    def __init__(self, error: Mapping[str, object]) -> None:
        super().__init__(f"{error['name']}: {error['message']}")


async def _rounds(run: NetworkExecution, router: AnyRouter) -> None:
    """Call the router and the agents in turn; end by raising Over."""
    idle = 0
    while True:
        if run.max_turns is not None and run.calls >= run.max_turns:
            raise Over(RunEnd("max_turns", f"{run.calls} calls of agents"))
        _heed(run)
        run.part = None
        if not (run.resumes and run.queue.pending):
            await _route(run, router)
            await run.keep_queue("router")
        run.resumes = False
        _heed(run)
        agent = await _next(run)
        if agent is None:
            idle += 1
            if idle == IDLE_MOST:
                why = f"{idle} times in a row it chose only agents that are switched off"
                raise Over(RunEnd("router", why))
            continue
        idle = 0
        await _call(run, agent)
        _heed(run)


class CallWaits(Exception):
    """A call of an agent waits for a person."""


def _heed(run: NetworkExecution) -> None:
    """Raise Over if the run is to stop or its time is over."""
    if run.interrupting.asked:
        raise cancelled(run)
    if run.stopping is not None:
        raise Over(RunEnd("stopped" if run.calls else "no_agent", run.stopping))
    if run.left is not None and run.left <= 0:
        raise timed_out(run)


async def _route(run: NetworkExecution, router: AnyRouter) -> None:
    """Call *router*, emit its decision and apply it."""
    route = await routed(run, router)
    ROUTER_CALLS.add()
    data = {"route": route.kind, "agents": list(route.names), "reason": route.reason}
    name = router.name if isinstance(router, RoutingAgent) else None
    await run.tell("router.decided", data, agent=name)
    if route.kind == "stop":
        raise finished(run, route.reason)
    if route.kind == "replace":
        run.queue.replace(route.agents)
    else:
        run.queue.add(route.agents)
    if not run.queue.pending:
        raise finished(run)


async def _next(run: NetworkExecution) -> Agent | None:
    """Return the first pending agent that may be called; None if none is left."""
    while (given := run.queue.next()) is not None:
        try:
            agent = known(given, run.network.agents)
            if await is_enabled(agent, run.handle):
                return agent
        except BadRoute as error:
            raise Over(RunEnd("router", error.detail, error.__cause__)) from error
        except HookFailed as error:
            raise Over(RunEnd("hook", error.hook, error.__cause__)) from error
        why = "it is switched off"
        run.skipped.append((agent.name, why))
        await run.tell("agent.skipped", {"why": why}, agent=agent.name)
    return None


async def _call(run: NetworkExecution, agent: Agent) -> None:
    """Call *agent* and store the result; raise Over if it failed."""
    await run.remembering_of(agent)
    call = AgentCall(agent, run, index=run.calls, timeout=run.left)
    run.part = call.part
    await run.tell("agent.started", {"index": run.calls}, agent=agent.name)
    run.current = agent.name
    try:
        with run.interrupting:
            await call.made()
    except Interrupted:
        if run.owner.stale is None:
            await _keep(run, call)
        raise cancelled(run) from None
    except asyncio.CancelledError:
        await _keep(run, call)
        raise
    except HoldfastError as error:
        raise Over(RunEnd("model_error", f"the agent {agent.name}", error)) from error
    finally:
        run.current = None
    if call.waits:
        raise CallWaits
    broken = await _keep(run, call)
    ending = call.ending
    if ending.reason == "timeout":
        raise timed_out(run, ending.cause)
    if ending.status != "completed":
        raise Over(ending)
    if broken is not None:
        raise Over(broken)


async def _keep(run: NetworkExecution, call: AgentCall) -> RunEnd | None:
    """Count and store the result of *call*; return the end if the history failed."""
    if call.result is None:
        return None
    count_call(call)
    run.calls += call.kept
    body = msgspec.json.encode(run.queue.pending)
    run.versions.note(StateRow("state", "queue", body))
    return await keep(run, call, lambda: run.remembering_of(call.agent))


async def _finish(run: NetworkExecution, ending: RunEnd) -> None:
    """Store the end of the run, then emit it; one does not need the other."""
    run.queue.close()
    run.ended_at, run.ending = run.clock.now(), ending

    async def store() -> None:
        await run_end(run, ending)
        keepers = run.keepers if run.begun else []
        run.ending = await run.owner.end(ending, keepers, partial(_record, run), run.queue.dropped)

    async def record() -> None:
        ended, last = run.ending or ending, run.handle.last
        if ended.status == "completed" and last is not None:
            await persist(_finished_run(run, last.text))

    async def tell() -> None:
        ended, stored = run.ending or ending, run.owner.stored
        if ended.reason != "taken_over":
            # Else the new owner tells the end of the run.
            await run.tell_end(ended, run.used(), run.queue.dropped, stored=stored)
            count_run(run)

    acts = ("its end is stored", store), ("its result is recorded", record)
    await leave(run.id, *acts, ("its end is emitted", tell))


def _finished_run(run: NetworkExecution, result: str) -> FinishedRun:
    return FinishedRun(
        run_id=run.id,
        objective=run.input,
        result=result,
        hf=run.owner.hf,
        user=user_of(run.options.user, run.remembering.history),
        on=any(agent.auto_persist for agent in run.network.agents),
    )


def _record(run: NetworkExecution, ending: RunEnd, whole: bool) -> Run:
    return Run(
        id=run.id,
        kind="network",
        name=record_name(run.network.name, "network"),
        thread_id=run.state.thread_id,
        status=ending.status,
        reason=ending.reason,
        detail=ending.text,
        error=ending.error(),
        usage=run.used(),
        started_at=run.started_at,
        ended_at=run.ended_at,
        extras={"calls": run.calls, **(run.handle.aside() if whole else {})},
    )
