"""One run of a network while it goes on: what its agents' calls need, and what has come of it."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import UNSET
from pydantic_ai.usage import RunUsage

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.ids import Ids
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.thread import checked_id_or_none
from holdfast.runtime.agent import AgentSpec, AnyModel, UserMessage
from holdfast.runtime.history import History
from holdfast.runtime.inference.agent import Remembering, as_state
from holdfast.runtime.inference.run_types import check_max_iter
from holdfast.runtime.networks.options import NetworkOptions
from holdfast.runtime.networks.run import NetworkProgress, NetworkRun, NetworkSpec
from holdfast.runtime.run_events import RunEvent, RunEventType, Sink, Telling

_ids = Ids()
_clock: Clock = SystemClock()


class NetworkExecution(NetworkProgress):
    """A run of *network*: the port its agents' calls need."""

    def __init__(
        self,
        network: NetworkSpec,
        message: UserMessage,
        options: NetworkOptions,
        *,
        sink: Sink | None = None,
        also: Callable[[RunEvent], object] | None = None,
    ) -> None:
        self.options, self.clock = options, _clock
        self.max_iter = network.max_iter if options.max_iter is UNSET else options.max_iter
        check_max_iter(self.max_iter)
        _check_timeout(options.timeout)
        self._deadline: float | None = None
        started_at = self.clock.now()
        id = checked_id_or_none("run_id", options.run_id) or _new_id(started_at)
        checked_id_or_none("thread_id", options.thread_id)
        given = as_state(options.state)
        super().__init__(
            network,
            id=id,
            input=message.content,
            state=network.state.clone() if given is None else given,
            started_at=started_at,
            telling=Telling(
                id,
                clock=self.clock,
                network=network.name,
                on_event=options.on_event,
                sink=sink,
                also=also,
            ),
        )
        self.system_prompt = message.system_prompt or ""
        self.usage_limits = options.usage_limits or network.usage_limits
        self.max_tool_errors = network.max_tool_errors
        self.omitted_told = 0
        self.handle = NetworkRun(self)
        self._message, self._history = message, options.history or network.history
        self._own: dict[int, Remembering] = {}
        self.remembering = self._remembering(self._history)

    def _remembering(self, history: History | None) -> Remembering:
        return Remembering(
            history,
            run_id=self.id,
            state=self.state,
            input=self._message,
            clock=self.clock,
            network=self.handle,
        )

    async def remembering_of(self, agent: AgentSpec) -> Remembering:
        """Return what keeps the results of *agent*: its own history where the run has none.

        That joins the run's thread at the agent's first call. HistoryFailed, with its cause.
        """
        if self._history is not None or agent.history is None:
            return self.remembering
        found = self._own.get(id(agent.history))
        if found is None:
            found = self._own[id(agent.history)] = self._remembering(agent.history)
            await found.open(None)
            self.telling.thread_id = self.state.thread_id
            await found.begin(self.started_at, self.network.name)
        return found

    @property
    def keepers(self) -> list[Remembering]:
        """Return all that keep something of the run."""
        return [self.remembering, *self._own.values()]

    @property
    def watched(self) -> bool:
        """Tell whether anybody looks on."""
        return self.telling.watched

    @property
    def left(self) -> float | None:
        """The seconds that are left of its time; None where it has no bound."""
        if self._deadline is None:
            return None
        return self._deadline - asyncio.get_running_loop().time()

    def begin_time(self) -> None:
        """Let the run's time begin."""
        if self.options.timeout is not None:
            self._deadline = asyncio.get_running_loop().time() + self.options.timeout

    def take_up(self) -> None:
        """Count what an earlier attempt at this run has done as done."""
        found = self.results
        self.calls = len(found)
        for each in found:
            used = each.usage
            self.usage.incr(
                RunUsage(
                    requests=used.requests,
                    input_tokens=used.input_tokens,
                    output_tokens=used.output_tokens,
                    tool_calls=used.tool_calls,
                    details=dict(used.details),
                )
            )

    def model_of(self, agent: AgentSpec) -> AnyModel | None:
        """Return the model *agent* is to ask: the one given, its own, or the network's."""
        return self.options.model or agent.model or self.network.default_model

    def view_of(self, agent: AgentSpec) -> View:
        """Return how *agent* sees what was said before."""
        return self.network.views.get(agent.name) or self.network.view

    def leave_out(self, window: Window) -> None:
        """Take note of what *window* left out."""
        if window.omitted:
            self.omitted.append(window)

    async def tell(
        self,
        type: RunEventType,
        data: dict[str, Any],
        *,
        agent: str | None,
        call_id: str | None = None,
    ) -> None:
        """Send an event of *type*; waits for a slow reader."""
        await self.telling.tell(type, data, agent=agent, call_id=call_id)


def _check_timeout(timeout: object) -> None:
    if timeout is not None and (
        isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0
    ):
        raise InvalidInput("timeout", "must be seconds, more than 0", given=timeout)


def _new_id(at: datetime) -> str:
    return _ids.new("run", to_microseconds(at))
