"""`Network`: agents on one state, and the start of its runs."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Self, TypedDict, Unpack, cast

from pydantic_ai.usage import UsageLimits

from holdfast import library
from holdfast.ground.errors import InvalidInput
from holdfast.ground.validation import check_whole
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.record import TakeOver
from holdfast.memories.state.history import View
from holdfast.memories.state.message import checked_name
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AnyModel, UserMessage, user_message
from holdfast.runtime.concurrency import run_sync
from holdfast.runtime.history import History
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.inference.pages import LIMIT, check_limit
from holdfast.runtime.inference.run_types import MAX_TOOL_ERRORS, check_most
from holdfast.runtime.inference.values import ValuesMode, checked_values
from holdfast.runtime.mcp import close
from holdfast.runtime.networks.loop import made
from holdfast.runtime.networks.route import AgentRoster
from holdfast.runtime.networks.router import DEFAULT, AnyRouter, Router, RoutingAgent
from holdfast.runtime.networks.run import (
    MAX_TURNS,
    NetworkExecution,
    NetworkOptions,
    NetworkRun,
    NetworkSpec,
)
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import OnEvent, Sink, followed
from holdfast.runtime.runs.run_record import Recorded

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
