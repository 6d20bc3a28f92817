"""Result and record of one run of an agent."""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelRequest, ModelResponse
from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput, RunFailed
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.message import Message
from holdfast.memories.state.result import InferenceResult, Usage, result_id
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.inference.messages import Answers, texts, tool_results, whole
from holdfast.runtime.run_events import RunEventType

MAX_ITER = 20
"""Requests of one call, unless told otherwise."""
MAX_TOOL_ERRORS = 20
"""Errors of tools in one call, unless told otherwise."""


class Run(Protocol):
    """The run a call is part of.

    `handle` is what hooks, instructions and tools are given as the run: a `NetworkRun`, or None
    for an agent that stands alone. `system_prompt` follows the agent's own. `usage` is added to
    in place, so that `usage_limits` hold for the whole run; `mcp` takes what is known of each MCP
    server, by name.
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
        """Return what is given to hooks, instructions and tools as the run."""
        ...

    @property
    def results(self) -> Sequence[InferenceResult]:
        """Return the results of this run so far."""
        ...

    @property
    def watched(self) -> bool:
        """Tell whether anybody looks on, so that a model is asked to stream."""
        ...

    def model_of(self, agent: AgentSpec) -> AnyModel | None:
        """Return the model *agent* is to ask, or None when nobody named one."""
        ...

    def view_of(self, agent: AgentSpec) -> View:
        """Return how *agent* sees what was said before."""
        ...

    def leave_out(self, window: Window) -> None:
        """Take note of what *window* left out."""
        ...

    async def tell(
        self,
        type: RunEventType,
        data: dict[str, Any],
        *,
        agent: str | None,
        call_id: str | None = None,
    ) -> None:
        """Send an event of *type*; waits for a slow reader."""
        ...


def check_max_iter(max_iter: object) -> None:
    """Raise InvalidInput unless *max_iter* is None or a whole number from 1."""
    if max_iter is None:
        return
    if isinstance(max_iter, bool) or not isinstance(max_iter, int) or max_iter < 1:
        raise InvalidInput(
            "max_iter", "must be a whole number from 1, or None for no limit", given=max_iter
        )


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
    """Why a call or a run ended; `cause` is what was raised, if that is why."""

    reason: StopReason = "done"
    detail: str = ""
    cause: BaseException | None = None

    @property
    def status(self) -> Status:
        """Whether that is completed, failed or cancelled."""
        if self.reason == "cancelled":
            return "cancelled"
        return "completed" if self.reason in COMPLETED else "failed"

    def error(self) -> dict[str, Any] | None:
        """Return the name and the message of what was raised, or None."""
        if self.cause is None:
            return None
        return {"name": type(self.cause).__name__, "message": whole(str(self.cause))}


def failure(agent: str, ending: RunEnd, *, result: object, run: object) -> RunFailed:
    """Return the error that tells that *agent* failed, with its cause chained."""
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


class CallRecord:
    """What one call has come to: what it was given, what its tools answered, what it cost."""

    def __init__(self, agent: AgentSpec, run: Run, *, index: int, answers: Answers) -> None:
        self._agent, self._run, self._index, self._answers = agent, run, index, answers
        self._before = deepcopy(run.usage)
        self._created_at = run.clock.now()
        self.prompt: tuple[Message, ...] = ()
        self.history: tuple[Message, ...] = ()

    def result(
        self,
        exchanged: Iterable[ModelMessage],
        *,
        stop_reason: str,
        error: dict[str, Any] | None = None,
    ) -> InferenceResult:
        """Return the result of what was *exchanged*, which ended for *stop_reason*."""
        bare = [_bare(each) for each in exchanged]
        name = self._agent.name
        return InferenceResult(
            agent=name,
            input=self._run.input,
            prompt=list(self.prompt),
            history=list(self.history),
            output=texts(bare, name),
            tool_calls=tool_results(bare, name, self._answers),
            raw=ModelMessagesTypeAdapter.dump_json(bare).decode() if bare else "",
            id=result_id(self._run.id, self._index),
            created_at=self._created_at,
            stop_reason=stop_reason,
            usage=self._usage(),
            run_id=self._run.id,
            index=self._index,
            model=_model(bare),
            error=error,
        )

    def _usage(self) -> Usage:
        used: RunUsage = self._run.usage - self._before
        return Usage(
            requests=used.requests,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            tool_calls=used.tool_calls,
            details={name: count for name, count in used.details.items() if count > 0},
        )


def _bare(message: ModelMessage) -> ModelMessage:
    """Return *message* without the system text, which each result has in its prompt."""
    if isinstance(message, ModelRequest) and message.instructions is not None:
        return replace(message, instructions=None)
    return message


def _model(exchanged: Iterable[ModelMessage]) -> str | None:
    names = [each.model_name for each in exchanged if isinstance(each, ModelResponse)]
    return names[-1] if names else None
