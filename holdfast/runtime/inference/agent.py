"""`Agent`: run it, stream it, export it to pydantic-ai."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Self, TypedDict, Unpack, cast

from msgspec import Struct
from pydantic_ai import Agent as ModelAgent
from pydantic_ai import RunContext
from pydantic_ai.usage import UsageLimits

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import (
    AgentNameTaken,
    HoldfastError,
    InvalidInput,
    NoAgentEnabled,
)
from holdfast.ground.ids import Ids
from holdfast.memories.run.records.event import REASONS, Reason, RunEvent
from holdfast.memories.run.records.record import TakeOver
from holdfast.memories.run.records.run import Run, RunKind
from holdfast.memories.run.records.writer import RunOpening
from holdfast.memories.state.history import View
from holdfast.memories.state.result import NO_USAGE, InferenceResult, result_id
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import checked_id_or_none
from holdfast.runtime.agent import AgentSpec, AnyModel, UserMessage, user_message
from holdfast.runtime.concurrency import awaited, run_sync
from holdfast.runtime.context import Context
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.inference.owner import (
    HistoryFailed,
    Interrupted,
    Remembering,
    RunOwner,
    hf_of,
    is_over,
    untold,
    user_of,
)
from holdfast.runtime.inference.pages import LIMIT, check_limit
from holdfast.runtime.inference.request import HookFailed, is_enabled
from holdfast.runtime.inference.run_types import (
    MAX_ITERATIONS,
    MAX_TOOL_ERRORS,
    InferenceRun,
    RunEnd,
    Telling,
    check_most,
    failure,
    internal,
    no_model,
)
from holdfast.runtime.mcp import close, connect, kept
from holdfast.runtime.metrics import EVENT_ERRORS
from holdfast.runtime.persistence import (
    FinishedRun,
    SessionPersistence,
    persist,
    session_persistence,
)
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, Sink, followed, leave
from holdfast.runtime.runs.run_record import Recorded
from holdfast.runtime.tools import ToolContext, equipped, tool_context


async def keep(
    run: InferenceRun, call: AgentCall, remembering: Callable[[], Awaitable[Remembering]]
) -> RunEnd | None:
    """Store the result of *call* in the state and the history, then emit its end.

    Return the end of the run if the history failed, else None.
    """
    result, broken = call.result, None
    if result is None:
        return None
    for window in call.omitted:
        data = {"count": len(window.omitted), "size": window.omitted.size}
        await run.tell("history.omitted", data, agent=call.agent.name)
    if call.kept:
        run.state.append_result(result)
        in_thread = False
        try:
            keeper = await remembering()
            await keeper.add([result])
            in_thread = keeper.is_of_record
        except HistoryFailed as error:
            broken = error.ending
        await run.keep_call(result, in_thread=in_thread)
    await tell_finished(run, result)
    return broken


async def tell_finished(run: InferenceRun, result: InferenceResult) -> None:
    """Emit that the call that made *result* has ended."""
    run.part = run.part or f"{result.agent}.{result.index or 0}"
    data = {
        "result_id": result.id,
        "stop_reason": result.stop_reason,
        "usage": result.usage.export(),
    }
    await run.tell("agent.finished", data, agent=result.agent)
    run.part = None


async def run_end(run: InferenceRun, ending: RunEnd) -> None:
    """Keep what *run* knows at its end, unless it was cut short; then keep no more."""
    try:
        if ending.status != "cancelled" and ending.reason != "taken_over":
            await run.versions.finish()
    finally:
        await run.versions.close()


def bare_agent(agent: AgentSpec, context: Context) -> ModelAgent[Any, str]:
    """Return *agent* as a pydantic-ai agent; its tools get *context* and a new state."""

    async def instructions() -> str:
        text = agent.instructions
        return text if isinstance(text, str) else await awaited(text(context))

    state = NetworkState(clock=context.clock)

    def context_of(ctx: RunContext[Any]) -> ToolContext:
        return tool_context(ctx, agent, state, run_id=context.run_id, context=context)

    toolsets = [kept(each) for each in agent.toolsets]
    return ModelAgent[Any, str](
        agent.model or context.model,
        name=agent.name,
        instructions=instructions,
        toolsets=[equipped(agent.tools, toolsets, context_of=context_of)],
        model_settings=agent.model_settings,
    )


_ids = Ids()
_clock: Clock = SystemClock()


class AgentRunArguments(TypedDict, total=False):
    """Options for calling an agent by itself; all may be left out.

    *model* goes before the agent's own, *network*'s default after it. The result is appended to
    *state*: a state, its JSON text or its dict; a new one unless given. *max_iterations* bounds the
    requests (None: no bound), *timeout* seconds. A tool's result over *tool_result_limit*
    characters is read in parts. With the *run_id* of a run that its thread holds nothing is run
    again. With *hf* the run is one of `hf.runs`; a history that stores in one brings it. What it
    knows is kept at *checkpoint*, else with *hf*, and a run that was cut off goes on; *take_over*
    says when it is taken from another owner. With *record* "facts" no texts, inputs and contents
    of its events are stored. The run is *user*'s, by default the history's, in whose long-term
    memory an agent with `auto_persist` records its objective and result. A failed run raises
    RunFailed, unless *raises* is False.
    """

    model: AnyModel | None
    network: Any
    state: NetworkState | str | dict[str, Any] | None
    max_iterations: int | None
    thread_id: str | None
    run_id: str | None
    timeout: float | None
    tool_result_limit: int | None
    usage_limits: UsageLimits | None
    on_event: OnEvent | None
    hf: "library.Holdfast | None"
    user: str | None
    checkpoint: Checkpoints | None
    take_over: TakeOver
    record: Recorded
    raises: bool


class AgentRunOptions(Struct, frozen=True, kw_only=True):
    """The same options with their defaults; *kind* is that of the run's record.

    *session* has the long-term memory of the session that the run is a turn of.
    """

    model: AnyModel | None = None
    network: Any = None
    state: Any = None
    max_iterations: int | None = MAX_ITERATIONS
    thread_id: str | None = None
    run_id: str | None = None
    timeout: float | None = None
    tool_result_limit: int | None = None
    usage_limits: UsageLimits | None = None
    on_event: OnEvent | None = None
    hf: Any = None
    user: str | None = None
    checkpoint: Any = None
    take_over: TakeOver = "expired"
    record: Recorded = "content"
    raises: bool = True
    kind: RunKind = "agent"
    session: SessionPersistence | None = None


@dataclass(frozen=True, eq=False)
class Agent(AgentSpec):
    """An agent: a name, a system text, tools. Many runs may use one at once.

    *instructions* are text, or a function of the run it is in. *assistant* is its opening message
    before the conversation. *tool_choice* forces a tool, any or one by name, in the first request
    of a call. With *auto_persist* a completed run's objective and result are recorded in its
    user's long-term memory. *role* and *skills* count in a team.

    >>> from holdfast.testing.scripted import ScriptedModel
    >>> ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Hello."]))
    >>> ada.run_sync("Hi?").text
    'Hello.'
    """

    async def run(
        self, input: str | UserMessage, **options: Unpack[AgentRunArguments]
    ) -> InferenceResult:
        """Call the agent with *input* and return the result.

        Raise RunFailed, with the result, if the run failed. Raise NoModel, NoAgentEnabled or
        NotRunnable, before anything is stored or sent, if it cannot be called as it is.
        """
        return await run_alone(self, input, AgentRunOptions(**options))

    def run_sync(
        self, input: str | UserMessage, **options: Unpack[AgentRunArguments]
    ) -> InferenceResult:
        """Do as `run` does, from synchronous code, and close its MCP servers."""
        return run_sync(lambda: self._run_and_close(input, AgentRunOptions(**options)))

    def stream(
        self, input: str | UserMessage, **options: Unpack[AgentRunArguments]
    ) -> AsyncGenerator[RunEvent]:
        """Yield the events of a `run`; leaving early cancels it.

        The last event has the end of the run; RunFailed is raised after it.
        """
        return stream_alone(self, input, AgentRunOptions(**options))

    def to_pydantic_ai(self, context: Context) -> ModelAgent[Any, str]:
        """Return a pydantic-ai agent of it, whose tools get *context*."""
        return bare_agent(self, context)

    async def aclose(self) -> None:
        """Close the connections to its MCP servers; the next run makes new ones."""
        await close(self.toolsets)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _run_and_close(
        self, input: str | UserMessage, options: AgentRunOptions
    ) -> InferenceResult:
        # A connection belongs to an event loop, and this one ends here.
        try:
            return await run_alone(self, input, options)
        finally:
            await self.aclose()


def indexed(agents: Sequence[Agent]) -> dict[str, Agent]:
    """Return *agents* by name; raise AgentNameTaken if two of them share one."""
    by_name: dict[str, Agent] = {}
    for agent in agents:
        if by_name.setdefault(agent.name, agent) is not agent:
            raise AgentNameTaken(agent.name)
    return by_name


async def run_alone(
    agent: AgentSpec,
    input: str | UserMessage,
    options: AgentRunOptions,
    *,
    sink: Sink | None = None,
) -> InferenceResult:
    """Call *agent* with *input* and return the result."""
    check_most("max_iterations", options.max_iterations)
    alone = Alone(agent, user_message(input), options, sink)
    within = session_persistence.set(options.session or session_persistence.get())
    try:
        result = await alone.made()
    finally:
        session_persistence.reset(within)
    if options.raises and alone.ending.status == "failed":
        raise failure(agent.name, alone.ending, result=result, run=alone.handle)
    return result


def stream_alone(
    agent: AgentSpec, input: str | UserMessage, options: AgentRunOptions
) -> AsyncGenerator[RunEvent]:
    """Yield the events of calling *agent* with *input*; raise RunFailed if it fails."""
    # The generator itself: closing one that goes through another would leave that one open.
    return followed(lambda sink: run_alone(agent, input, options, sink=sink))


def as_state(given: object) -> NetworkState | None:
    """Return *given*, a state, its JSON text or its dict, as a state; None for None."""
    if given is None or isinstance(given, NetworkState):
        return given
    if isinstance(given, str | bytes):
        return NetworkState.from_json(given)
    if isinstance(given, dict):
        return NetworkState.from_dict(given)  # pyright: ignore[reportUnknownArgumentType] - it checks
    raise InvalidInput("state", "must be a NetworkState, its JSON text or its dict", given=given)


def _limit(options: AgentRunOptions, network: object) -> object:
    """Return the limit of tool results of the call, *network* or the default."""
    given = options.tool_result_limit
    return getattr(network, "tool_result_limit", LIMIT) if given is None else given


def _new_id(at: datetime) -> str:
    return _ids.new("run", to_microseconds(at))


class Alone:
    """The run of an agent that is called by itself."""

    def __init__(
        self, agent: AgentSpec, message: UserMessage, options: AgentRunOptions, sink: Sink | None
    ) -> None:
        self._agent, self._options = agent, options
        self._network: Any = getattr(options.network, "network", options.network)
        self._name: str | None = getattr(self._network, "name", None)
        self._started_at = _clock.now()
        id = checked_id_or_none("run_id", options.run_id) or _new_id(self._started_at)
        # A network run passes itself to hooks and tools; a network does not.
        self.handle = options.network if hasattr(options.network, "network") else None
        self._telling = Telling(
            id, clock=_clock, network=self._name, on_event=options.on_event, sink=sink
        )
        history = getattr(self._network, "history", None) or agent.history
        hf = options.hf or agent.hf or getattr(self._network, "hf", None)
        self.owner = RunOwner(hf_of(hf, history), id, _clock)
        self.run = InferenceRun(
            id=id,
            input=message.content,
            state=as_state(options.state) or self._state_of_network(),
            clock=_clock,
            handle=self.handle,
            system_prompt=message.system_prompt or "",
            model=options.model,
            default_model=getattr(self._network, "default_model", None),
            view=getattr(self._network, "view", None) or View(),
            views=getattr(self._network, "views", {}),
            usage_limits=options.usage_limits,
            max_tool_errors=getattr(self._network, "max_tool_errors", MAX_TOOL_ERRORS),
            tool_result_limit=check_limit(_limit(options, self._network)),
            telling=self._telling,
            names_values=getattr(self._network, "values", "off") == "named",
            inbox_of=self.owner.steering.started,
        )
        self.run.ownership, self.run.lose = self.owner.ownership, self.owner.lose
        self.ending = RunEnd()
        self._used = NO_USAGE
        self._begun = self._over = False
        self._ended_at = self._started_at
        self._result: InferenceResult | None = None
        self._remembering = Remembering(
            history,
            owner=self.owner,
            state=self.run.state,
            input=message,
            network=self.handle,
        )

    async def made(self) -> InferenceResult:
        """Run the call and return the result; raise what prevents its start."""
        try:
            return await self._made()
        except GeneratorExit:
            raise
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit):
            await self._finish(RunEnd("cancelled", "its task was cancelled"))
            raise
        except BaseException as error:
            if isinstance(error, HoldfastError) and (self._over or not self._begun):
                raise
            await self._finish(internal(error))
            return self._without_answer()

    async def _made(self) -> InferenceResult:
        run = self.run
        try:
            await self._check()
            unavailable = await connect(self._agent, run)
            await self._remembering.open(self._options.thread_id)
            if (done := run.results) and await is_over(self.owner):
                return done[-1]
            self._telling.thread_id = run.state.thread_id
            options = self._options
            await self.owner.acquire(
                self._opening(), self._telling, options.checkpoint, options.record
            )
            await self._remembering.begin(self._started_at, options.kind, self._agent.name)
        except (HookFailed, HistoryFailed) as error:
            return await self._never_begun(error)
        self._begun = True
        await self.owner.begin(self._telling)
        unwatch = self._telling.watch(run.state)
        try:
            await run.go_on(self.owner.place)
            for error in unavailable:
                await run.tell("mcp.unavailable", error, agent=self._agent.name)
            return await self._called()
        finally:
            unwatch()

    def _opening(self) -> RunOpening:
        name, state = self._agent.name, self.run.state
        return RunOpening(
            kind=self._options.kind,
            name=name,
            agent=name,
            thread_id=state.thread_id,
            parent_id=None if self.handle is None else self.handle.id,
            user=user_of(self._options.user, self._remembering.history),
            inputs=tuple(state.kv),
            take_over=self._options.take_over,
            holder=self.owner.ownership.holder,
            continues=self._options.checkpoint is not None,
        )

    async def _check(self) -> None:
        if not await is_enabled(self._agent, self.handle):
            raise NoAgentEnabled(
                f"The agent {self._agent.name} is switched off.", agent=self._agent.name
            )
        if self.run.model_of(self._agent) is None:
            raise no_model(self._agent)

    async def _called(self) -> InferenceResult:
        if done := self.run.results:
            return await self._ended_with(done[-1])
        options = self._options
        call = AgentCall(
            self._agent, self.run, max_iterations=options.max_iterations, timeout=options.timeout
        )
        self.run.part = call.part
        await self.run.tell("agent.started", {"index": 0}, agent=self._agent.name)
        try:
            with self.owner.interrupting:
                result = await call.made()
        except Interrupted:
            if self.owner.stale is None:
                await self._keep(call)
            await self._finish(self.owner.ending())
            return self._without_answer()
        except asyncio.CancelledError:
            await self._keep(call)
            await self._finish(call.ending)
            raise
        except HoldfastError as error:
            await self._finish(RunEnd("model_error", "", error))
            raise
        if call.waits:
            self._over = True
            await leave(self.run.id, ("it rests", lambda: self.owner.rest(self.run, self._telling)))
            if self.owner.stale is None:
                return result
            self._over = False
            return await self._closed(self.owner.ending(), result)
        await self._keep(call)
        return await self._closed(self.ending, result)

    async def _closed(self, ending: RunEnd, result: InferenceResult) -> InferenceResult:
        """End the run; return *result*, or an error if another owner has the run."""
        await self._finish(ending)
        return self._without_answer() if self.ending.reason == "taken_over" else result

    async def _ended_with(self, result: InferenceResult) -> InferenceResult:
        """End the run whose call an earlier process has made, with its *result*."""
        self._result, self._used = result, result.usage
        for each in await untold(self.owner, [result]):
            await tell_finished(self.run, each)
        reason, said = result.stop_reason, result.error or {}
        known = cast("Reason", reason) if reason in REASONS else "done"
        return await self._closed(RunEnd(known, str(said.get("message", ""))), result)

    async def _keep(self, call: AgentCall) -> None:
        if call.result is not None:
            self._result, self._used = call.result, call.result.usage

        async def remembering() -> Remembering:
            return self._remembering

        self.ending = await keep(self.run, call, remembering) or call.ending

    async def _finish(self, ending: RunEnd) -> None:
        """Store the end of the run, and emit it, once."""
        if self._over:
            return None
        self.ending, self._over = ending, True
        self._ended_at = self.run.clock.now()

        async def store() -> None:
            await run_end(self.run, ending)
            keepers = [self._remembering] if self._begun else []
            self.ending = await self.owner.end(ending, keepers, self._record)

        acts = (
            ("its end is stored", store),
            ("its result is recorded", self._persist),
            ("its end is emitted", self._tell_end),
        )
        return await leave(self.run.id, *acts)

    async def _persist(self) -> None:
        """Record the exchange of a completed run; a session records its turns itself."""
        options, result = self._options, self._result
        if self.ending.status != "completed" or result is None or options.kind == "session":
            return
        finished = FinishedRun(
            run_id=self.run.id,
            objective=self.run.input,
            result=result.text,
            hf=self.owner.hf,
            user=user_of(options.user, self._remembering.history),
            on=self._agent.auto_persist,
            nested=self.handle is not None,
        )
        await persist(finished)

    def _record(self, ending: RunEnd, whole: bool) -> Run:
        run, calls = self.run, len(self.run.results)
        return Run(
            id=run.id,
            kind=self._options.kind,
            name=self._agent.name,
            agent=self._agent.name,
            thread_id=run.state.thread_id,
            status=ending.status,
            reason=ending.reason,
            detail=ending.text,
            error=ending.error(),
            usage=self._used,
            started_at=self._started_at,
            ended_at=self._ended_at,
            extras={"calls": calls, "event_errors": self._telling.errors} if whole else {},
        )

    async def _tell_end(self) -> None:
        if self.ending.reason == "taken_over":
            # The new owner tells the end of the run.
            return
        await self.run.tell_end(self.ending, self._used, stored=self.owner.stored)
        EVENT_ERRORS.add(by=self._telling.errors)

    async def _never_begun(self, error: HookFailed | HistoryFailed) -> InferenceResult:
        """Return an empty result: a hook or the history failed before anything ran."""
        self._telling.thread_id = self.run.state.thread_id
        if isinstance(error, HookFailed):
            await self._finish(RunEnd("hook", error.hook, error.__cause__))
        else:
            await self._finish(error.ending)
        return self._without_answer()

    def _without_answer(self) -> InferenceResult:
        """Return the result of a run that ended beside its call, with what that call said."""
        run, error = self.run, self.ending.error()
        if self._result is not None:
            return self._result.replace(stop_reason=self.ending.reason, error=error)
        return InferenceResult(
            agent=self._agent.name,
            input=run.input,
            id=result_id(run.id, 0),
            created_at=self._started_at,
            stop_reason=self.ending.reason,
            run_id=run.id,
            index=0,
            error=error,
        )

    def _state_of_network(self) -> NetworkState:
        """Return the network run's state, a copy of the network's own, or a new one."""
        state: NetworkState | None = getattr(self._options.network, "state", None)
        if state is None:
            return NetworkState(clock=_clock)
        return state if self.handle is not None else state.clone()
