"""Types of one run of an agent: the run, its end, its record."""

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.ground.clock import Clock
from holdfast.ground.errors import NoModel, RunFailed
from holdfast.ground.validation import check_whole
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.result import InferenceResult, Usage
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.inference.messages import whole
from holdfast.runtime.run_events import RunEventType

MAX_ITER = 20
"""Default limit of requests in one call."""
MAX_TOOL_ERRORS = 20
"""Default limit of tool errors in one call."""


class Run(Protocol):
    """The run that a call is part of.

    `handle` is passed to hooks, instructions and tools as the run: a `NetworkRun`, or None for an
    agent that runs alone. `system_prompt` follows the agent's own. `usage` is added to in place, so
    that `usage_limits` hold for the whole run. `mcp` holds the status of each MCP server, by name.
    """

    id: str
    input: str
    system_prompt: str
    state: NetworkState
    usage: RunUsage
    usage_limits: UsageLimits | None
    max_tool_errors: int
    mcp: dict[str, dict[str, Any]]
    clock: Clock

    @property
    def handle(self) -> Any:
        """Return the run for hooks, instructions and tools."""
        ...

    @property
    def results(self) -> Sequence[InferenceResult]:
        """Return the results of this run so far."""
        ...

    @property
    def watched(self) -> bool:
        """Return whether there is an observer, so that models are to stream."""
        ...

    def model_of(self, agent: AgentSpec) -> AnyModel | None:
        """Return the model for *agent*, or None when none is set."""
        ...

    def view_of(self, agent: AgentSpec) -> View:
        """Return the view of *agent* on earlier messages."""
        ...

    def leave_out(self, window: Window) -> None:
        """Record what *window* left out."""
        ...

    async def tell(
        self,
        type: RunEventType,
        data: dict[str, Any],
        *,
        agent: str | None,
        call_id: str | None = None,
    ) -> None:
        """Emit an event of *type*; wait for a slow reader."""
        ...


def check_max_iter(max_iter: object) -> None:
    """Raise InvalidInput unless *max_iter* is None or a whole number from 1."""
    if max_iter is not None:
        reason = "must be a whole number from 1, or None for no limit"
        check_whole("max_iter", max_iter, reason, least=1)


StopReason = Literal[
    "done",
    "no_agent",
    "max_steps",
    "hook_stop",
    "budget",
    "timeout",
    "tool_error",
    "model_error",
    "hook_error",
    "router_error",
    "history_error",
    "cancelled",
]
Status = Literal["completed", "failed", "cancelled"]

COMPLETED: Final[frozenset[str]] = frozenset({"done", "no_agent", "max_steps", "hook_stop"})


class RunEnd(Struct, frozen=True):
    """The reason why a call or a run ended; `cause` is the exception, if any."""

    reason: StopReason = "done"
    detail: str = ""
    cause: BaseException | None = None

    @property
    def status(self) -> Status:
        """The status of the end: completed, failed or cancelled."""
        if self.reason == "cancelled":
            return "cancelled"
        return "completed" if self.reason in COMPLETED else "failed"

    def error(self) -> dict[str, Any] | None:
        """Return the class name and message of the exception, or None."""
        if self.cause is None:
            return None
        return {"name": type(self.cause).__name__, "message": whole(str(self.cause))}


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
