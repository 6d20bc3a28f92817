"""A run of a network, as whoever started it, its tools, hooks and routers see it."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.memories.state.history import View, Window
from holdfast.memories.state.message import to_milliseconds, to_text
from holdfast.memories.state.result import InferenceResult, Usage
from holdfast.memories.state.run_records import RunStatus
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyModel
from holdfast.runtime.history import History
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.agent_loop import working
from holdfast.runtime.inference.run_types import RunEnd
from holdfast.runtime.networks.queue import AgentOrName, AgentQueue, AgentRoster, Interrupting
from holdfast.runtime.run_events import Telling


@dataclass(kw_only=True, eq=False, repr=False)
class NetworkSpec:
    """What a run needs of its network. `Network` is one that can be run."""

    name: str
    description: str
    agents: AgentRoster
    default_model: AnyModel | None
    max_iter: int | None
    history: History | None
    state: NetworkState
    view: View
    views: Mapping[str, View]
    max_tool_errors: int
    usage_limits: UsageLimits | None


class NetworkProgress:
    """How far a run of *network* has come: the facts that `NetworkRun` tells."""

    def __init__(
        self,
        network: NetworkSpec,
        *,
        id: str,
        input: str,
        state: NetworkState,
        started_at: datetime,
        telling: Telling,
    ) -> None:
        self.network, self.id, self.input, self.state = network, id, input, state
        self.started_at, self.telling = started_at, telling
        self.usage = RunUsage()
        self.mcp: dict[str, dict[str, Any]] = {}
        self.queue, self.interrupting = AgentQueue(), Interrupting()
        self.calls = 0
        self.router_calls: list[InferenceResult] = []
        self.skipped: list[tuple[str, str]] = []
        self.omitted: list[Window] = []
        self.told: Usage | None = None
        self.ending: RunEnd | None = None
        self.ended_at: datetime | None = None
        self.current: str | None = None
        self.stopping: str | None = None
        self.cancelling = ""

    @property
    def results(self) -> list[InferenceResult]:
        """Return the results of this run so far."""
        return [each for each in self.state.results if each.run_id == self.id]

    def used(self) -> Usage:
        """Return what agents and router used together."""
        if self.told is not None:
            return self.told
        usage = self.usage
        return Usage(
            requests=usage.requests,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            tool_calls=usage.tool_calls,
            details={name: count for name, count in usage.details.items() if count > 0},
        )


class NetworkRun:
    """One run of a network: what came of it so far, and the ways to steer it.

    `schedule`, `stop` and `cancel` may be called from any thread.
    """

    def __init__(self, running: NetworkProgress) -> None:
        self._run = running
        self._task: asyncio.Task[NetworkRun] | None = None
        self.id: str = running.id
        self.input: str = running.input
        self.mcp: dict[str, dict[str, Any]] = running.mcp

    @property
    def network(self) -> NetworkSpec:
        """The network it is a run of."""
        return self._run.network

    @property
    def thread_id(self) -> str | None:
        """The thread it belongs to."""
        return self._run.state.thread_id

    @property
    def state(self) -> NetworkState:
        """The state it works on; what is written through it carries the run, and who is at work."""
        run = self._run
        at, tool, call_id = working.get() or (None, None, None)
        if at != run.id:
            tool = call_id = None
        return run.state.on_behalf(agent=run.current, run_id=run.id, tool=tool, call_id=call_id)

    @property
    def results(self) -> list[InferenceResult]:
        """What the calls of agents in this run came to, oldest first."""
        return self._run.results

    @property
    def last(self) -> InferenceResult | None:
        """The newest of its results, or None."""
        found = self._run.results
        return found[-1] if found else None

    @property
    def status(self) -> RunStatus:
        """Whether it is running, or how it ended."""
        return self._run.ending.status if self._run.ending else "running"

    @property
    def stop_reason(self) -> str | None:
        """Why it ended; None while it runs."""
        return self._run.ending.reason if self._run.ending else None

    @property
    def stop_detail(self) -> str | None:
        """What there is to say of why it ended."""
        return (self._run.ending.detail or None) if self._run.ending else None

    @property
    def error(self) -> dict[str, Any] | None:
        """The name and the message of what was raised, if that is why it ended."""
        return self._run.ending.error() if self._run.ending else None

    @property
    def usage(self) -> Usage:
        """What its agents and its router asked of models, together."""
        return self._run.used()

    @property
    def calls(self) -> int:
        """How many calls of agents are finished."""
        return self._run.calls

    @property
    def router_calls(self) -> list[InferenceResult]:
        """What the calls of a routing agent came to."""
        return list(self._run.router_calls)

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of agents that are to run next."""
        return self._run.queue.pending

    @property
    def dropped(self) -> list[str]:
        """The names of agents that were to run and did not."""
        return self._run.queue.dropped

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """The names of agents that were passed over, each with why."""
        return list(self._run.skipped)

    @property
    def omitted(self) -> list[Window]:
        """The windows that left something out of what an agent saw."""
        return list(self._run.omitted)

    @property
    def tool_errors(self) -> int:
        """How many calls of tools ended in an error."""
        return sum("error" in call.content for r in self.results for call in r.tool_calls)

    @property
    def event_errors(self) -> int:
        """How often `on_event` raised."""
        return self._run.telling.errors

    @property
    def started_at(self) -> datetime:
        """When it began."""
        return to_milliseconds("started_at", self._run.started_at)

    @property
    def ended_at(self) -> datetime | None:
        """When it ended; None while it runs."""
        ended = self._run.ended_at
        return None if ended is None else to_milliseconds("ended_at", ended)

    def schedule(self, *agents: AgentOrName) -> None:
        """Let *agents* run after what is pending, before what the router adds next.

        Conflict once the run has ended. A name that is no agent's ends the run as `router_error`.
        """
        self._run.queue.add(agents)

    def stop(self, reason: str = "") -> None:
        """End the run once the call that goes on is finished."""
        if self._run.stopping is None:
            self._run.stopping = reason

    def cancel(self, reason: str = "") -> None:
        """End the run now, as cancelled; what was finished is kept."""
        if not self._run.interrupting.asked:
            self._run.cancelling = reason
            self._run.interrupting.ask()

    def agent_of(self, result: InferenceResult) -> Agent | None:
        """Return the agent that made *result*, or None if the network has it no more."""
        return self._run.network.agents.get(result.agent)

    def be_awaited(self, task: "asyncio.Task[NetworkRun]") -> None:
        """Let `wait` wait for *task*."""
        self._task = task

    async def wait(self) -> "NetworkRun":
        """Return it once it has ended; RunFailed if it failed.

        What kept it from beginning is raised too. A wait that is cancelled leaves it running.
        """
        if self._task is None:
            return self
        return await asyncio.shield(self._task)

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
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
        """Return what it tells of itself beside what came of it, as JSON has it."""
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
