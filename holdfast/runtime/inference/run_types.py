"""Types of one run of an agent: the run, its end, its record."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final

import msgspec
from msgspec import Struct
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import NoModel, RunFailed, StaleRun
from holdfast.ground.text import whole
from holdfast.ground.validation import check_whole
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.records.event import REASONS, Ending, Reason, RunEvent
from holdfast.memories.state.cells import StateChange
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.result import InferenceResult, Usage
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.concurrency import class_of
from holdfast.runtime.events import EventFacts, event_facts
from holdfast.runtime.inference.pages import LIMIT, ResultPages
from holdfast.runtime.plans.leases import RunOwnership
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.part_log import MessageSizes, OnQuestion, PartLogs
from holdfast.runtime.runs.run_events import (
    Audience,
    OnEvent,
    RunEvents,
    Sink,
    Tap,
    message_of,
    observer_of,
    unforeseen,
)
from holdfast.runtime.runs.version_writer import VersionScope, VersionWriter

log = logging.getLogger(__name__)

MAX_ITERATIONS = 20
"""Default limit of requests in one call."""
MAX_TOOL_ERRORS = 20
"""Default limit of tool errors in one call."""


def check_most(field: str, most: object) -> None:
    """Raise InvalidInput unless *most* is None or a whole number from 1."""
    if most is not None:
        reason = "must be a whole number from 1, or None for no limit"
        check_whole(field, most, reason, least=1)


_TERMINAL: Final[dict[Ending, str]] = {
    "completed": "run.completed",
    "failed": "run.failed",
    "cancelled": "run.cancelled",
}


class RunEnd(Struct, frozen=True):
    """The reason why a call or a run ended; `cause` is the exception, if any."""

    reason: Reason = "done"
    detail: str = ""
    cause: BaseException | None = None

    @property
    def status(self) -> Ending:
        """The status of the end: completed, failed or cancelled."""
        return REASONS[self.reason]

    @property
    def text(self) -> str | None:
        """The detail as a record has it, or None."""
        return whole(self.detail) if self.detail else None

    def error(self) -> dict[str, Any] | None:
        """Return the class name and message of the exception, or None."""
        if self.cause is None:
            return None
        return {"name": class_of(self.cause), "message": message_of(self.cause, ERROR_MOST)}


ERROR_MOST: Final = 10_000
"""Characters of an exception's message in a record."""


def internal(error: BaseException) -> RunEnd:
    """Return the end of a run by *error*, which nothing foresaw, and log it."""
    log.error("a run ended by %s", class_of(error), exc_info=error)
    return RunEnd("internal", unforeseen(error), error)


class Telling:
    """Emits the events of a run of agents to *on_event*, *sink* and *also*.

    *also* receives the same events, but does not make a model stream. Changes of values are emitted
    before the next event, in the order they were made.
    """

    def __init__(
        self,
        run_id: str,
        *,
        clock: Clock,
        network: str | None = None,
        on_event: OnEvent | None = None,
        sink: Sink | None = None,
        also: Tap | None = None,
    ) -> None:
        def now() -> int:
            return to_microseconds(clock.now()) // 1_000

        self.events = RunEvents(run_id, now, network=network)
        self._observer, self._sink = observer_of(on_event), sink
        self._audience: Audience | None = None
        if also is not None:
            self.events.tap(also)
        self._changes: list[StateChange] = []
        self._lock = Lock()

    @property
    def thread_id(self) -> str | None:
        """The thread of the run."""
        return self.events.thread_id

    @thread_id.setter
    def thread_id(self, thread_id: str | None) -> None:
        self.events.thread_id = thread_id

    @property
    def errors(self) -> int:
        """The number of errors of *on_event*."""
        return self._observer.errors if self._observer else 0

    @property
    def watched(self) -> bool:
        """Whether an *on_event* or a *sink* receives the events."""
        return self._observer is not None or self._sink is not None

    def watch(self, state: NetworkState) -> Callable[[], None]:
        """Emit the changes of values in *state* by this run; return what unsubscribes."""
        return state.subscribe(self._changed) if self.heard else _nothing

    @property
    def heard(self) -> bool:
        """Whether the events reach an observer, a reader or a tap."""
        return self.watched or bool(self.events.taps)

    async def tell(
        self,
        type: str,
        data: dict[str, Any],
        *,
        part: str | None = None,
        agent: str | None = None,
        call_id: str | None = None,
    ) -> None:
        """Emit an event of *type*; wait for a slow reader."""
        if not self.heard:
            return
        to = self._heard_by()
        with self._lock:
            changes, self._changes = self._changes, []
        for change in changes:
            origin = change.origin
            facts = EventFacts(
                type="value.changed",
                part=part,
                agent=origin.agent,
                call_id=origin.call_id,
                data={"key": change.key, "version": change.revision, "agent": origin.agent},
            )
            await self.events.emit(facts, to=to)
        facts = EventFacts(type=type, part=part, agent=agent, call_id=call_id, data=data)
        await self.events.emit(facts, to=to)

    def emit_soon(self, facts: EventFacts) -> None:
        """Emit an event of *facts* from any thread, without waiting."""
        self.events.emit_soon(facts, to=self._heard_by())

    def number(self, facts: EventFacts) -> RunEvent:
        """Emit an event that is stored with what it tells; return it with its number."""
        return self.events.number(facts, to=self._heard_by())

    async def relay(self, event: RunEvent) -> None:
        """Pass on *event*, which is numbered and stored already."""
        await self.events.relay(event, to=self._heard_by())

    def _heard_by(self) -> Audience | None:
        if self._audience is None and self.watched:
            observers = () if self._observer is None else (self._observer,)
            self._audience = Audience(self._sink, observers)
        return self._audience

    def _changed(self, change: StateChange) -> None:
        # A state may be shared by runs; a change from outside of them is emitted by each.
        if change.what in ("value", "deleted") and change.origin.run_id in (
            None,
            self.events.run_id,
        ):
            with self._lock:
                self._changes.append(change)


def _nothing() -> None:
    """Do nothing: there was no subscription."""


def _nothing_lost(_: StaleRun) -> None:
    """Do nothing: the run has no owner."""


class ChangedValues:
    """The keys of *state* that changed since they were kept; all of them first."""

    def __init__(self, state: NetworkState) -> None:
        self._state, self._keys = state, dict.fromkeys(state.kv)
        state.subscribe(self._note)

    def _note(self, change: StateChange) -> None:
        if change.what in ("value", "deleted") and change.key is not None:
            self._keys[change.key] = None

    def rows(self) -> Iterator[StateRow]:
        """Yield the changed values."""
        keys, self._keys = self._keys, {}
        for key in keys:
            found = self._state.get(key)
            facts = None if found is None else {"value": found.value, "version": found.version}
            yield StateRow("value", key, None if facts is None else msgspec.json.encode(facts))


@dataclass(kw_only=True, eq=False)
class InferenceRun:
    """The run that calls are part of.

    `handle` is passed to hooks, instructions and tools as the run: a `NetworkRun`, or None for an
    agent that runs alone. `system_prompt` follows the agent's own. *model* goes before the agent's,
    *default_model* after it. `usage` is added to in place, so that `usage_limits` hold for the
    whole run. `mcp` holds the status of each MCP server, by name. Nothing is emitted without
    *telling*. With *names_values* its agents know which values there are, and may read them.
    *inbox_of* returns the inbox of an agent that begins to work, for texts to its next request.
    `logs` have what is kept of its calls; *on_question* is asked first what they ask people.
    """

    id: str
    input: str
    state: NetworkState
    clock: Clock
    handle: Any = None
    system_prompt: str = ""
    model: AnyModel | None = None
    default_model: AnyModel | None = None
    view: View = field(default_factory=View)
    views: Mapping[str, View] = field(default_factory=dict[str, View])
    usage: RunUsage = field(default_factory=RunUsage)
    usage_limits: UsageLimits | None = None
    max_tool_errors: int = MAX_TOOL_ERRORS
    tool_result_limit: int = LIMIT
    mcp: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    telling: Telling | None = None
    names_values: bool = False
    inbox_of: Callable[[str], Any] | None = None
    on_question: OnQuestion | None = None
    part: str | None = field(default=None, init=False)
    logs: PartLogs = field(init=False)
    omitted: list[Window] = field(default_factory=list[Window], init=False)
    pages: dict[str, ResultPages] = field(default_factory=dict[str, ResultPages], init=False)
    sizes: dict[str, MessageSizes] = field(default_factory=dict[str, MessageSizes], init=False)

    ownership: RunOwnership = field(default_factory=RunOwnership, init=False)
    lose: Callable[[StaleRun], object] = field(default=_nothing_lost, init=False)
    versions: VersionWriter = field(init=False)
    resumes: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        telling = self.telling or Telling(self.id, clock=self.clock)
        scope = VersionScope(
            run_id=self.id,
            now=lambda: to_microseconds(self.clock.now()) // 1_000,
            emit=telling.emit_soon,
            number=telling.number,
            tell=lambda update: telling.emit_soon(event_facts(update, {})),
            lost=self._lost,
            fence=self._fence,
        )
        self.versions = VersionWriter(scope)
        self.logs = PartLogs(
            self.id,
            clock=self.clock,
            store=self.versions,
            on_question=self.on_question,
            emit=telling.emit_soon,
        )

    def _lost(self, error: StaleRun) -> None:
        self.lose(error)

    def _fence(self, place: object) -> int:
        return self.ownership.fence_of(place)

    async def go_on(self, place: Checkpoints | None) -> None:
        """Keep versions at *place* from now on, and go on from the newest one.

        Its values and results are those that it had.
        """
        await self.versions.open(place)
        await self.versions.start({})
        found, kv = self.versions.restored, self.state.kv
        self.logs.settle(found.questions)
        if self.versions.is_open:
            changed = ChangedValues(self.state)
            self.versions.collect(changed.rows)
        if not found.rows:
            return
        self.resumes = True
        values = found.of("value")
        for key in [key for key in kv if key not in values]:
            kv.delete(key)
        for key, each in values.items():
            if not kv.has(key) or kv.get(key) != each["value"]:
                kv.set(key, each["value"])
        there = {each.id for each in self.state.results}
        for each in found.of("result").values():
            # One whose thread was forgotten has no result.
            if each["id"] not in there and "result" in each:
                self.state.append_result(InferenceResult.from_dict(each["result"]))

    async def keep_call(self, result: InferenceResult, *, in_thread: bool) -> None:
        """Keep the *result* of a call as a version: its id alone if it is *in_thread*."""
        agent, index = result.agent, result.index or 0
        facts: dict[str, Any] = {"id": result.id}
        if not in_thread:
            facts["result"] = result.export()
        row = StateRow("result", f"{index:06d}", msgspec.json.encode(facts))
        part = f"{agent}.{index}"
        await self.versions.complete(part, cause="agent", agent=agent, rows=[row])

    @property
    def results(self) -> list[InferenceResult]:
        """Return the results of this run so far."""
        return [each for each in self.state.results if each.run_id == self.id]

    @property
    def watched(self) -> bool:
        """Return whether there is an observer, so that models are to stream."""
        return self.telling is not None and self.telling.watched

    @property
    def heard(self) -> bool:
        """Return whether its events reach a reader, an observer or a record."""
        return self.telling is not None and self.telling.heard

    def model_of(self, agent: AgentSpec) -> AnyModel | None:
        """Return the model for *agent*, or None when none is set."""
        return self.model or agent.model or self.default_model

    def view_of(self, agent: AgentSpec) -> View:
        """Return the view of *agent* on earlier messages."""
        return self.views.get(agent.name) or self.view

    def pages_of(self, agent: AgentSpec) -> ResultPages:
        """Return the pages of long tool results for *agent*, the same in all its calls."""
        return self.pages.setdefault(agent.name, ResultPages(self.tool_result_limit))

    def leave_out(self, window: Window) -> None:
        """Record what *window* left out."""
        if window.omitted:
            self.omitted.append(window)

    async def tell(
        self,
        type: str,
        data: dict[str, Any],
        *,
        agent: str | None,
        call_id: str | None = None,
    ) -> None:
        """Emit an event of *type*; wait for a slow reader."""
        if self.telling is not None:
            await self.telling.tell(type, data, part=self.part, agent=agent, call_id=call_id)

    async def tell_end(
        self,
        ending: RunEnd,
        usage: Usage,
        dropped: Sequence[str] = (),
        *,
        stored: RunEvent | None = None,
    ) -> None:
        """Emit the end of the run, with its *usage* and *dropped* agents, or as *stored*."""
        if stored is not None and self.telling is not None:
            await self.telling.relay(stored)
            return
        data: dict[str, Any] = {
            "reason": ending.reason,
            "detail": ending.text,
            "error": ending.error(),
            "usage": usage.export(),
            "dropped": list(dropped),
            "blocked": [],
        }
        await self.tell(_TERMINAL[ending.status], data, agent=None)


working: ContextVar[tuple[InferenceRun, str, str] | None] = ContextVar("working", default=None)
"""The run, the name and the call id of the tool at work."""


def failure(agent: str, ending: RunEnd, *, result: object, run: object) -> RunFailed:
    """Return the error for a failed *agent*, with its cause chained."""
    why = str(ending.cause) if ending.cause else ending.detail
    error = RunFailed(
        f"The agent {agent} ended with {ending.reason}" + (f": {why}" if why else "."),
        run=run,
        result=result,
        stop_reason=ending.reason,
        next="The work so far is in the result and in the state.",
    )
    error.__cause__ = ending.cause
    return error


def usage_of(used: RunUsage) -> Usage:
    """Return *used* as our record of usage."""
    return Usage(
        requests=used.requests,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        tool_calls=used.tool_calls,
        details={name: count for name, count in used.details.items() if count > 0},
    )


def no_model(agent: AgentSpec) -> NoModel:
    """Return the error for an *agent* without a model."""
    return NoModel(
        f"The agent {agent.name} has no model.",
        agent=agent.name,
        next="Name one: for the call, for the agent, or as the network's default_model.",
    )
