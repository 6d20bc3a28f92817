"""Types of one run of an agent: the run, its end, its record."""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec import Struct
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.ground.clock import Clock
from holdfast.ground.errors import NoModel, RunFailed
from holdfast.ground.text import whole
from holdfast.ground.validation import check_whole
from holdfast.memories.run.records.event import REASONS, Ending, Reason, RunEvent
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.result import InferenceResult, Usage
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.concurrency import class_of
from holdfast.runtime.inference.pages import LIMIT, ResultPages
from holdfast.runtime.part_log import OnQuestion, PartLogs
from holdfast.runtime.run_events import Telling, message_of, unforeseen

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

    def __post_init__(self) -> None:
        self.logs = PartLogs(self.id, clock=self.clock, on_question=self.on_question)

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
