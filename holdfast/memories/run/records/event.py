"""The events of a run: one vocabulary for whatever runs.

Steps, tasks, plans, teams, workflows, networks, agents and sessions emit the same `RunEvent`. Its
`type` is one of those below, and decides what `data` has.
"""

from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ground.json_values import JSON

RUN_TYPES: Final = (
    "run.queued",
    "run.started",
    "run.resumed",
    "run.taken_over",
    "run.waiting",
    "run.lost",
    "run.forked",
    "run.completed",
    "run.failed",
    "run.cancelled",
)
"""What happens to a run as a whole. The last three are its end: a run has exactly one of them."""

PART_TYPES: Final = (
    "plan.drafted",
    "plan.refused",
    "plan.ready",
    "task.created",
    "task.completed",
    "task.failed",
    "task.blocked",
    "task.cancelled",
    "task.restored",
    "task.removed",
    "step.started",
    "step.concluding",
    "step.retried",
    "step.waiting",
    "step.completed",
    "step.failed",
    "step.blocked",
    "step.cancelled",
    "step.restored",
    "step.result",
    "router.decided",
    "agent.started",
    "agent.finished",
    "agent.skipped",
    "agent.idle",
    "agent.benched",
    "board.created",
    "board.claimed",
    "board.working",
    "board.blocked",
    "board.released",
    "board.completed",
    "board.failed",
    "message.sent",
    "team.deadlocked",
    "team.stalled",
    "team.finished",
)
"""What happens to the parts of a run: plans, tasks, steps, agents, tasks of a board."""

CALL_TYPES: Final = (
    "model.requested",
    "model.responded",
    "tool.called",
    "tool.returned",
    "text.delta",
    "reasoning.delta",
)
"""What a part asks of models and tools. The two deltas are only emitted live, never stored."""

MEMORY_TYPES: Final = (
    "memory.written",
    "memory.read",
    "memory.deleted",
    "memory.cleared",
    "memory.refused",
    "memory.restored",
    "value.changed",
    "value.read",
)
"""What happens to entries of run memory and to values of a network; never with a value."""

OTHER_TYPES: Final = (
    "question.asked",
    "question.answered",
    "question.expired",
    "question.withdrawn",
    "version.kept",
    "version.folded",
    "history.omitted",
    "mcp.unavailable",
    "log",
    "gap",
)
"""Questions to people, versions, notes, and the number of events that a reader missed."""

TYPES: Final = frozenset((*RUN_TYPES, *PART_TYPES, *CALL_TYPES, *MEMORY_TYPES, *OTHER_TYPES))
"""Every type of event."""

ENDS: Final = frozenset(("run.completed", "run.failed", "run.cancelled"))
"""The types of which a run has exactly one, as its last event."""

Ending: TypeAlias = Literal["completed", "failed", "cancelled"]
"""The status of a run that is over."""

_Completed: TypeAlias = Literal["done", "no_agent", "stopped", "hook_stop"]
_Failed: TypeAlias = Literal[
    "max_turns",
    "max_iterations",
    "token_budget",
    "budget",
    "timeout",
    "no_answer",
    "rejected",
    "schema",
    "model_error",
    "tool_error",
    "hook",
    "router",
    "history",
    "memory",
    "disabled",
    "not_a_list",
    "too_many_items",
    "items",
    "steps",
    "stalled",
    "deadlocked",
    "answer_timeout",
    "internal",
    "taken_over",
]

Reason: TypeAlias = _Completed | _Failed | Literal["cancelled"]
"""Why a run, or a part of one, ended: the same words for every kind."""

REASONS: Final[dict[str, Ending]] = {
    **dict.fromkeys(get_args(_Completed), "completed"),
    **dict.fromkeys(get_args(_Failed), "failed"),
    "cancelled": "cancelled",
}
"""Each reason with the status of a run that ended for it."""

LIVE: Final = frozenset(("text.delta", "reasoning.delta"))
"""The types that are not stored."""

NO_DATA: Final[dict[str, JSON]] = {}


class RunEvent(Struct, frozen=True, kw_only=True):
    """An event of the run *run_id*.

    `seq` counts from 1 without gaps over all owners of the run; `at` is in milliseconds since 1970.
    `part` is the id of the step, node or board task, `read.3` for an item of a fan-out.
    """

    type: str
    seq: int
    at: int
    run_id: str
    thread_id: str | None = None
    network: str | None = None
    part: str | None = None
    agent: str | None = None
    call_id: str | None = None
    data: dict[str, Any] = NO_DATA

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return asdict(self)
