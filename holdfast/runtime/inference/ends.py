"""How a call ends, and what that means for who asked for it."""

from typing import Any, Final, Literal

from msgspec import Struct

from holdfast.ground.errors import RunFailed
from holdfast.runtime.inference.messages import whole

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
