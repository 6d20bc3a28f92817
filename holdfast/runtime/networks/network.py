"""`Network`: agents on one state, the start of its runs, and their loop.

The loop calls the router, then an agent, until the end.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, Self, TypedDict, Unpack, cast

import msgspec
from pydantic_ai.usage import UsageLimits

from holdfast import library
from holdfast.ground.errors import HoldfastError, InvalidInput, NoAgentEnabled, NoRouter
from holdfast.ground.validation import check_whole
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.event import REASONS, Reason, RunEvent
from holdfast.memories.run.records.record import TakeOver
from holdfast.memories.run.records.run import Run
from holdfast.memories.state.history import View
from holdfast.memories.state.message import checked_name
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyModel, UserMessage, user_message
from holdfast.runtime.concurrency import Suspended, run_sync
from holdfast.runtime.history import History
from holdfast.runtime.inference.agent import Agent, keep, run_end
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.inference.owner import HistoryFailed, Interrupted, user_of
from holdfast.runtime.inference.pages import LIMIT, check_limit
from holdfast.runtime.inference.request import HookFailed, is_enabled
from holdfast.runtime.inference.run_types import (
    MAX_TOOL_ERRORS,
    RunEnd,
    check_most,
    internal,
    no_model,
)
from holdfast.runtime.inference.values import ValuesMode, checked_values
from holdfast.runtime.mcp import close, require
from holdfast.runtime.metrics import ROUTER_CALLS
from holdfast.runtime.networks.route import AgentRoster, BadRoute, known
from holdfast.runtime.networks.router import (
    DEFAULT,
    AnyRouter,
    Router,
    RoutingAgent,
    enabled,
    routed,
)
from holdfast.runtime.networks.run import (
    MAX_TURNS,
    NetworkExecution,
    NetworkOptions,
    NetworkRun,
    NetworkSpec,
    Over,
    cancelled,
    count_call,
    count_run,
    failed,
    finished,
    timed_out,
)
from holdfast.runtime.persistence import FinishedRun, persist
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, Sink, followed, leave
from holdfast.runtime.runs.run_record import Recorded, record_name

_going: set[asyncio.Task[NetworkRun]] = set()


class NetworkRunArguments(TypedDict, total=False):
    """Options of a run; all may be left out, and override those of the network.

    A run works on *state* itself (a state, its JSON text or its dict), or on a copy of the
    network's; *data* are values to set there first. *model* is used for every agent. *max_turns*
    bounds calls of agents (None: no bound), *timeout* seconds. With the *run_id* of a run that was
    begun before, what its thread holds of it is not run again. With *hf* the run is one of
    `hf.runs`; a history that stores in one brings it. What it knows is kept at *checkpoint*, else
    with *hf*, and a run that was cut off goes on from there; *take_over* says when it is taken from
    another owner. With *record* "facts" no texts, inputs and contents of its events are stored. A
    failed run raises RunFailed, unless *raises* is False.
    """

    state: NetworkState | str | dict[str, Any] | None
    data: Mapping[str, Any] | None
    thread_id: str | None
    run_id: str | None
    router: Router | RoutingAgent | None
    model: AnyModel | None
    max_turns: int | None
    history: History | None
    timeout: float | None
    usage_limits: UsageLimits | None
    on_event: OnEvent | None
    hf: "library.Holdfast | None"
    user: str | None
    checkpoint: Checkpoints | None
    take_over: TakeOver
    record: Recorded
    raises: bool


class Network(NetworkSpec):
    """Agents that work on one state. It holds no data of runs; runs may overlap.

    A tool's result of more than *tool_result_limit* characters is read in parts. With *values*
    `named` each agent knows the keys of the state's values, and has the tools
    `value_list` and `value_read`; with `off` it does not.

    >>> from holdfast.runtime import Agent
    >>> from holdfast.testing.scripted import ScriptedModel
    >>> ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Hello."]))
    >>> network = Network("desk", [ada], router=lambda ctx: None if ctx.call_count else "ada")
    >>> run = network.run_sync("Hi?")
    >>> run.last.text, run.stop_reason
    ('Hello.', 'done')
    """

    def __init__(
        self,
        name: str,
        agents: Iterable[Agent],
        *,
        description: str = "",
        router: Router | RoutingAgent | None = None,
        default_model: AnyModel | None = None,
        max_turns: int | None = MAX_TURNS,
        default_state: NetworkState | None = None,
        history: History | None = None,
        hf: "library.Holdfast | None" = None,
        view: View | None = None,
        views: Mapping[str, View] | None = None,
        max_tool_errors: int = MAX_TOOL_ERRORS,
        tool_result_limit: int = LIMIT,
        usage_limits: UsageLimits | None = None,
        values: ValuesMode = "named",
    ) -> None:
        check_most("max_turns", max_turns)
        name, roster = checked_name("name", name), AgentRoster(agents)
        self.router = _checked_router(router)
        super().__init__(
            name=name,
            description=description,
            agents=roster,
            default_model=default_model,
            max_turns=max_turns,
            history=history,
            hf=hf,
            state=_checked_state(default_state),
            view=_checked_view("view", view or View()),
            views=_checked_views(views or {}, roster),
            max_tool_errors=check_whole(
                "max_tool_errors", max_tool_errors, "must be a whole number from 1", least=1
            ),
            tool_result_limit=check_limit(tool_result_limit),
            usage_limits=usage_limits,
            values=checked_values(values),
        )

    @cached_property
    def own_router(self) -> RoutingAgent:
        """The router of a network that was given none."""
        return RoutingAgent("router", instructions=DEFAULT)

    async def run(
        self, input: str | UserMessage, **options: Unpack[NetworkRunArguments]
    ) -> NetworkRun:
        """Run the network on *input*; return the ended run, or raise RunFailed.

        Raise NoAgentEnabled, NoRouter or InvalidInput, before anything is stored or sent, if it
        cannot be run as it is.
        """
        return await self._made(self._running(input, NetworkOptions(**options)))

    def start(self, input: str | UserMessage, **options: Unpack[NetworkRunArguments]) -> NetworkRun:
        """Start a run on *input* and return it; `wait` for it, or `cancel` it."""
        return self._started(input, NetworkOptions(**options))

    def stream(
        self, input: str | UserMessage, **options: Unpack[NetworkRunArguments]
    ) -> AsyncGenerator[RunEvent]:
        """Yield the events of a `run`; leaving early cancels it.

        The last event has the end of the run; RunFailed is raised after it.
        """
        given = NetworkOptions(**options)
        return followed(lambda sink: self._made(self._running(input, given, sink)))

    def run_sync(
        self, input: str | UserMessage, **options: Unpack[NetworkRunArguments]
    ) -> NetworkRun:
        """Do as `run` does, from synchronous code, and close its agents' MCP servers."""
        return run_sync(lambda: self._run_and_close(input, NetworkOptions(**options)))

    async def aclose(self) -> None:
        """Close the connections to its agents' MCP servers; the next run makes new ones."""
        await close([toolset for agent in self.agents for toolset in agent.toolsets])

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _started(
        self, input: str | UserMessage, options: NetworkOptions, sink: Sink | None = None
    ) -> NetworkRun:
        running = self._running(input, options, sink)
        task = asyncio.get_running_loop().create_task(self._made(running))
        running.handle.be_awaited(task)
        # An event loop holds its tasks weakly.
        _going.add(task)
        task.add_done_callback(_going.discard)
        return running.handle

    def _running(
        self, input: str | UserMessage, options: NetworkOptions, sink: Sink | None = None
    ) -> NetworkExecution:
        _checked_router(options.router)
        return NetworkExecution(self, user_message(input), options, sink=sink)

    def _made(self, running: NetworkExecution) -> Coroutine[Any, Any, NetworkRun]:
        options = running.options
        router: AnyRouter | None = options.router or self.router
        if router is None and (options.model or self.default_model):
            router = self.own_router
        return made(running, router)

    async def _run_and_close(self, input: str | UserMessage, options: NetworkOptions) -> NetworkRun:
        # A connection belongs to an event loop, and this one ends here.
        try:
            return await self._made(self._running(input, options))
        finally:
            await self.aclose()

    def __repr__(self) -> str:
        return f"Network({self.name!r}, {self.agents!r})"


def _checked_router(given: object) -> Router | RoutingAgent | None:
    if given is None or isinstance(given, RoutingAgent):
        return given
    if not callable(given):
        raise InvalidInput("router", "must be a function or a RoutingAgent", given=given)
    return cast("Router", given)


def _checked_state(given: object) -> NetworkState:
    if given is None:
        return NetworkState()
    if not isinstance(given, NetworkState):
        raise InvalidInput("default_state", "must be a NetworkState", given=given)
    return given


def _checked_view(field: str, given: object) -> View:
    if not isinstance(given, View):
        raise InvalidInput(field, "must be a View", given=given)
    return given


def _checked_views(given: Mapping[str, Any], agents: AgentRoster) -> Mapping[str, View]:
    for name in given:
        if name not in agents:
            there = ", ".join(agents.names) or "none"
            raise InvalidInput("views", f"names no agent; there are: {there}", given=name)
    return MappingProxyType({n: _checked_view(f"views.{n}", each) for n, each in given.items()})


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
