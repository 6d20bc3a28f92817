"""`NetworkRun`, one run of a network: its options and progress."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import asdict
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, RunFailed
from holdfast.ground.ids import Ids
from holdfast.ground.validation import is_number
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.record import TakeOver
from holdfast.memories.run.records.run import RunStatus
from holdfast.memories.run.records.writer import RunOpening
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.message import to_milliseconds, to_text
from holdfast.memories.state.result import InferenceResult, Usage
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import checked_id_or_none
from holdfast.runtime.agent import AgentSpec, AnyModel, UserMessage
from holdfast.runtime.history import History
from holdfast.runtime.inference.agent import Agent, as_state, tell_finished
from holdfast.runtime.inference.call import AgentCall
from holdfast.runtime.inference.owner import Remembering, RunOwner, hf_of, untold, user_of
from holdfast.runtime.inference.run_types import (
    InferenceRun,
    RunEnd,
    Telling,
    check_most,
    usage_of,
    working,
)
from holdfast.runtime.inference.values import ValuesMode
from holdfast.runtime.metrics import (
    AGENT_CALLS,
    EVENT_ERRORS,
    NETWORK_RUNS,
    NETWORK_SECONDS,
    OMITTED_MESSAGES,
    TOOL_ERRORS,
)
from holdfast.runtime.networks.route import AgentOrName, AgentQueue, AgentRoster
from holdfast.runtime.runs.run_events import OnEvent, Sink
from holdfast.runtime.runs.run_record import Recorded, record_name

MAX_TURNS = 25
"""Default limit of agent calls in one run."""


class NetworkOptions(Struct, frozen=True, kw_only=True):
    """The options of a run with their defaults."""

    state: Any = None
    data: Any = None
    thread_id: str | None = None
    run_id: str | None = None
    router: Any = None
    model: Any = None
    max_turns: int | UnsetType | None = UNSET
    history: Any = None
    timeout: float | None = None
    usage_limits: UsageLimits | None = None
    on_event: OnEvent | None = None
    hf: Any = None
    user: str | None = None
    checkpoint: Any = None
    take_over: TakeOver = "expired"
    record: Recorded = "content"
    raises: bool = True


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkSpec:
    """The parts of a network that a run needs. `Network` can be run."""

    name: str
    description: str
    agents: AgentRoster
    default_model: AnyModel | None
    max_turns: int | None
    history: History | None
    hf: "library.Holdfast | None"
    state: NetworkState
    view: View
    views: Mapping[str, View]
    max_tool_errors: int
    tool_result_limit: int
    usage_limits: UsageLimits | None
    values: ValuesMode


class NetworkRun:
    """One run of a network: its results so far, and its control.

    `schedule`, `stop` and `cancel` may be called from any thread.
    """

    def __init__(self, running: "NetworkExecution") -> None:
        self._run = running
        self._task: asyncio.Task[NetworkRun] | None = None
        self.id: str = running.id
        self.input: str = running.input
        self.mcp: dict[str, dict[str, Any]] = running.mcp

    @property
    def network(self) -> NetworkSpec:
        """The network of the run."""
        return self._run.network

    @property
    def thread_id(self) -> str | None:
        """The thread of the run."""
        return self._run.state.thread_id

    @property
    def state(self) -> NetworkState:
        """The state of the run; writes through it carry the run, agent and tool."""
        run = self._run
        at, tool, call_id = working.get() or (None, None, None)
        if at is None or at.id != run.id:
            tool = call_id = None
        return run.state.on_behalf(agent=run.current, run_id=run.id, tool=tool, call_id=call_id)

    @property
    def results(self) -> list[InferenceResult]:
        """The results of agents in this run, oldest first."""
        return self._run.results

    @property
    def last(self) -> InferenceResult | None:
        """The newest result, or None."""
        found = self._run.results
        return found[-1] if found else None

    @property
    def status(self) -> RunStatus:
        """The status: running, waiting for a person, or the kind of end."""
        if self._run.ending:
            return self._run.ending.status
        return "waiting" if self._run.waits else "running"

    @property
    def stop_reason(self) -> str | None:
        """The reason of the end; None while it runs."""
        if self._run.ending:
            return self._run.ending.reason
        return "waiting" if self._run.waits else None

    @property
    def stop_detail(self) -> str | None:
        """Details of the end, or None."""
        return (self._run.ending.detail or None) if self._run.ending else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The name and the message of the exception that ended it, or None."""
        return self._run.ending.error() if self._run.ending else None

    @property
    def usage(self) -> Usage:
        """The usage of its agents and its router together."""
        return self._run.used()

    @property
    def calls(self) -> int:
        """The number of finished agent calls."""
        return self._run.calls

    @property
    def router_calls(self) -> list[InferenceResult]:
        """The results of a routing agent's calls."""
        return list(self._run.router_calls)

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of the pending agents."""
        return self._run.queue.pending

    @property
    def dropped(self) -> list[str]:
        """The names of the agents that were dropped before they ran."""
        return self._run.queue.dropped

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """The names of the agents that were passed over, with reasons."""
        return list(self._run.skipped)

    @property
    def omitted(self) -> list[Window]:
        """The windows that left something out of an agent's view."""
        return list(self._run.omitted)

    @property
    def tool_errors(self) -> int:
        """The number of failed tool calls."""
        return sum("error" in call.content for r in self.results for call in r.tool_calls)

    @property
    def event_errors(self) -> int:
        """The number of errors of `on_event`."""
        return self._run.events.errors

    @property
    def started_at(self) -> datetime:
        """The instant of the start."""
        return to_milliseconds("started_at", self._run.started_at)

    @property
    def ended_at(self) -> datetime | None:
        """The instant of the end; None while it runs."""
        ended = self._run.ended_at
        return None if ended is None else to_milliseconds("ended_at", ended)

    def schedule(self, *agents: AgentOrName) -> None:
        """Run *agents* after the pending ones, before those the router adds next.

        Raise Conflict once the run has ended. An unknown name ends the run as `router`.
        """
        self._run.queue.add(agents)

    def stop(self, reason: str = "") -> None:
        """End the run as `stopped` once the current call is finished.

        Before the first call it ends as `no_agent`.
        """
        if self._run.stopping is None:
            self._run.stopping = reason

    def cancel(self, reason: str = "") -> None:
        """End the run now, as cancelled; finished results stay."""
        self._run.owner.cancel(reason)

    def agent_of(self, result: InferenceResult) -> Agent | None:
        """Return the agent that made *result*, or None if the network has it no longer."""
        return self._run.network.agents.get(result.agent)

    def be_awaited(self, task: "asyncio.Task[NetworkRun]") -> None:
        """Set the *task* that `wait` waits for."""
        self._task = task

    async def wait(self) -> "NetworkRun":
        """Wait for the end and return the run; raise RunFailed if it failed.

        What prevented its start is raised too. Cancelling a wait leaves the run running.
        """
        if self._task is None:
            return self
        return await asyncio.shield(self._task)

    def to_dict(self) -> dict[str, Any]:
        """Return the run as a JSON object."""
        ended = self.ended_at
        return {
            "id": self.id,
            "network": self.network.name,
            "thread_id": self.thread_id,
            "input": self.input,
            "status": self.status,
            "stop_reason": self.stop_reason,
            "stop_detail": self.stop_detail,
            "error": self.error,
            "usage": self.usage.export(),
            "calls": self.calls,
            "results": [each.export() for each in self.results],
            "router_calls": [each.export() for each in self.router_calls],
            "data": self._run.state.kv.all(),
            "started_at": to_text(self.started_at),
            "ended_at": None if ended is None else to_text(ended),
            **self.aside(),
        }

    def aside(self) -> dict[str, Any]:
        """Return the facts beside the results as JSON: pending, dropped, errors."""
        return {
            "pending": list(self.pending),
            "dropped": self.dropped,
            "skipped": [{"agent": name, "why": why} for name, why in self._run.skipped],
            "omitted": sum(len(each.omitted) for each in self._run.omitted),
            "mcp": dict(self.mcp),
            "tool_errors": self.tool_errors,
            "event_errors": self.event_errors,
        }

    def __repr__(self) -> str:
        return f"NetworkRun({self.id}, {self.status}, {self.calls} calls)"


_ids = Ids()
_clock: Clock = SystemClock()


class NetworkExecution(InferenceRun):
    """A run of *network* at work: the `InferenceRun` of its agents' calls."""

    def __init__(
        self,
        network: NetworkSpec,
        message: UserMessage,
        options: NetworkOptions,
        *,
        sink: Sink | None = None,
    ) -> None:
        self.network, self.options = network, options
        self.max_turns = network.max_turns if options.max_turns is UNSET else options.max_turns
        check_most("max_turns", self.max_turns)
        if options.timeout is not None and not (is_number(options.timeout) and options.timeout > 0):
            raise InvalidInput("timeout", "must be seconds, more than 0", given=options.timeout)
        self._deadline: float | None = None
        self.started_at = _clock.now()
        id = checked_id_or_none("run_id", options.run_id) or _new_id(self.started_at)
        checked_id_or_none("thread_id", options.thread_id)
        given = as_state(options.state)
        events = self.events = Telling(
            id,
            clock=_clock,
            network=network.name,
            on_event=options.on_event,
            sink=sink,
        )
        history = options.history or network.history
        owner = self.owner = RunOwner(hf_of(options.hf or network.hf, history), id, _clock)
        super().__init__(
            id=id,
            input=message.content,
            state=network.state.clone() if given is None else given,
            clock=_clock,
            system_prompt=message.system_prompt or "",
            model=options.model,
            default_model=network.default_model,
            view=network.view,
            views=network.views,
            usage_limits=options.usage_limits or network.usage_limits,
            max_tool_errors=network.max_tool_errors,
            tool_result_limit=network.tool_result_limit,
            telling=events,
            names_values=network.values == "named",
            inbox_of=owner.steering.started,
        )
        self.ownership, self.lose = owner.ownership, owner.lose
        self.queue, self.interrupting = AgentQueue(), owner.interrupting
        self.calls = 0
        self.router_calls: list[InferenceResult] = []
        self.skipped: list[tuple[str, str]] = []
        self.recorded_usage: Usage | None = None
        self.begun = self.waits = False
        self.ending: RunEnd | None = None
        self.ended_at: datetime | None = None
        self.current: str | None = None
        self.stopping: str | None = None
        self.handle: NetworkRun = NetworkRun(self)
        self._message, self._history = message, history
        self._own: dict[int, Remembering] = {}
        self.remembering = self._remembering(self._history)

    def used(self) -> Usage:
        """Return the usage of agents and router together."""
        return self.recorded_usage or usage_of(self.usage)

    def _remembering(self, history: History | None) -> Remembering:
        return Remembering(
            history,
            owner=self.owner,
            state=self.state,
            input=self._message,
            network=self.handle,
        )

    async def remembering_of(self, agent: AgentSpec) -> Remembering:
        """Return the storage for results of *agent*: its own history if the run has none.

        Its own history joins the run's thread at the agent's first call. Raise HistoryFailed, with
        its cause.
        """
        if self._history is not None or agent.history is None:
            return self.remembering
        found = self._own.get(id(agent.history))
        if found is None:
            found = self._own[id(agent.history)] = self._remembering(agent.history)
            await found.open(None)
            self.events.thread_id = self.state.thread_id
            await found.begin(self.started_at, "network", record_name(self.network.name, "network"))
        return found

    async def acquire(self) -> None:
        """Own the run in `hf.runs`; raise RunTaken if another owner has it."""
        opening = RunOpening(
            kind="network",
            name=record_name(self.network.name, "network"),
            thread_id=self.state.thread_id,
            user=user_of(self.options.user, self.remembering.history),
            inputs=tuple(self.state.kv),
            take_over=self.options.take_over,
            holder=self.owner.ownership.holder,
            continues=self.options.checkpoint is not None,
        )
        options = self.options
        await self.owner.acquire(opening, self.events, options.checkpoint, options.record)

    async def resume(self) -> None:
        """Go on from the newest version, if there is one: its values, results and queue."""
        known = {each.id for each in self.results}
        await self.go_on(self.owner.place)
        found = [each for each in self.results if each.id not in known]
        self.take_up(found)
        for each in await untold(self.owner, found):
            await tell_finished(self, each)
        self.queue.add(tuple(self.versions.restored.get("state", "queue") or ()))

    async def keep_queue(self, cause: str) -> None:
        """Keep which agents are pending as a version for *cause*."""
        body = msgspec.json.encode(self.queue.pending)
        await self.versions.keep(cause, rows=[StateRow("state", "queue", body)])

    @property
    def keepers(self) -> list[Remembering]:
        """All storages of the run."""
        return [self.remembering, *self._own.values()]

    @property
    def left(self) -> float | None:
        """The remaining seconds of its time limit; None without a limit."""
        if self._deadline is None:
            return None
        return self._deadline - asyncio.get_running_loop().time()

    def begin_time(self) -> None:
        """Start the time limit."""
        if self.options.timeout is not None:
            self._deadline = asyncio.get_running_loop().time() + self.options.timeout

    def take_up(self, found: Sequence[InferenceResult]) -> None:
        """Count the results *found* of an earlier attempt at this run as done."""
        self.calls += len(found)
        for each in found:
            used = asdict(each.usage)
            del used["extras"]
            self.usage.incr(RunUsage(**used | {"details": dict(each.usage.details)}))


def _new_id(at: datetime) -> str:
    return _ids.new("run", to_microseconds(at))


class Over(Exception):
    """The run ends with *ending*."""

    def __init__(self, ending: RunEnd) -> None:
        super().__init__(ending.reason)
        self.ending = ending


def cancelled(run: NetworkExecution) -> Over:
    """Return the end of *run* once it was cancelled or taken over."""
    return Over(run.owner.ending())


def timed_out(run: NetworkExecution, cause: BaseException | None = None) -> Over:
    """Return the end of *run* after its time limit."""
    seconds = run.options.timeout or 0
    return Over(RunEnd("timeout", f"it ran past its {seconds:g} s", cause or TimeoutError()))


def finished(run: NetworkExecution, reason: str = "") -> Over:
    """Return the end of *run* for *reason*, with no work left."""
    return Over(RunEnd("done" if run.calls else "no_agent", reason))


def failed(run: NetworkExecution) -> RunFailed:
    """Return the error for a failed *run*, with its cause chained."""
    ending = run.ending or RunEnd()
    why = ": ".join(filter(None, (ending.detail, str(ending.cause or ""))))
    error = RunFailed(
        f"The run of {run.network.name} ended with {ending.reason}" + (f": {why}" if why else "."),
        run=run.handle,
        result=run.handle.last,
        stop_reason=ending.reason,
        next="The work so far is in the run and in its state.",
    )
    error.__cause__ = ending.cause
    return error


def count_call(call: AgentCall) -> None:
    """Count the finished *call* and the errors of its tools."""
    AGENT_CALLS.add(call.agent.name)
    for each in call.result.tool_calls if call.result else ():
        error = each.content.get("error")
        if isinstance(error, dict):
            TOOL_ERRORS.add(str(error["kind"]))


def count_run(run: NetworkExecution) -> None:
    """Count the ended *run*."""
    if run.ending is None or run.ended_at is None:
        return
    NETWORK_RUNS.add(run.network.name, run.ending.status, run.ending.reason)
    EVENT_ERRORS.add(by=run.events.errors)
    OMITTED_MESSAGES.add(by=sum(len(each.omitted) for each in run.omitted))
    NETWORK_SECONDS.observe((run.ended_at - run.started_at).total_seconds())
