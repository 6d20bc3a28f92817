"""What one call of an agent needs of the run it is part of: the port a network's run fills."""

from collections.abc import Sequence
from typing import Any, Protocol

from pydantic_ai.usage import RunUsage, UsageLimits

from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput
from holdfast.memories.state.history import View, Window
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.agent import AgentSpec, AnyModel
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
