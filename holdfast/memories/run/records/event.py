"""The events of a run: one vocabulary for whatever runs.

Steps, tasks, plans, teams, workflows, networks, agents and sessions emit the same `RunEvent`. Its
`type` is one of those below, and decides what `data` has.
"""

from typing import Any, Final, Literal, TypeAlias, get_args

from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.ground.events import Event
from holdfast.ground.json_values import JSON
from holdfast.memories.run.listeners import RunMemoryEvent, notice_of

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

GAP: Final = "gap"
"""The type of the event with the number of events that are no longer stored, as `missed`."""

NO_DATA: Final[dict[str, JSON]] = {}


class RunEvent(Struct, frozen=True, kw_only=True):
    """An event of the run *run_id*.

    `seq` counts from 1 without gaps over all owners of the run; a delta, which is not stored, has
    the number of the event before it. `at` is in milliseconds since 1970.
    `part` is the id of the step, node or board task, `read.3` for an item of a fan-out, `ada.0` for
    a call or turn of an agent.
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


MEMORY_NOTICES: Final = {
    "run.entry_written": "memory.written",
    "run.entry_deleted": "memory.deleted",
    "run.entries_cleared": "memory.cleared",
    "run.entry_read": "memory.read",
    "run.entry_refused": "memory.refused",
    "run.restored": "memory.restored",
}
"""The type in a run of each event of run memory, by its name there and on the bus."""

_NOTICES: Final = {type: name for name, type in MEMORY_NOTICES.items()}

_TEXTS: Final = frozenset(
    (
        *("text", "input", "content", "value", "delta", "subject", "title", "error", "detail"),
        *("result", "cause", "why", "traceback"),
    )
)
"""Members of an event's data that may be content."""

_CODES: Final = frozenset(("version.kept", "version.folded"))
"""The types in which the cause is a code."""


def facts_alone(event: RunEvent) -> RunEvent:
    """Return *event* without texts, inputs and contents."""
    texts = _TEXTS - {"cause"} if event.type in _CODES else _TEXTS
    if event.type == "router.decided":
        texts |= {"reason"}
    if texts.isdisjoint(event.data):
        return event
    facts = {name: each for name, each in event.data.items() if name not in texts}
    return replace(event, data=facts)


def of_memory(event: RunMemoryEvent, *, seq: int) -> RunEvent:
    """Return *event* of a run's memory as the event *seq* of the run."""
    return RunEvent(
        type=MEMORY_NOTICES[event.type],
        seq=seq,
        at=event.at,
        run_id=event.run_id,
        part=event.working,
        data=event.data,
    )


def notice_of_event(workspace: str, event: RunEvent) -> Event:
    """Return *event* as one of a bus, without content: the run and its key are ids."""
    name = _NOTICES.get(event.type)
    if name is None:
        name = event.type if event.type in RUN_TYPES else f"run.{event.type.replace('.', '_')}"
    named = {"part": event.part, "agent": event.agent, "call_id": event.call_id}
    facts = facts_alone(event).data
    known = {key: each for key, each in named.items() if each is not None}
    return notice_of(workspace, event.run_id, name, event.at, {**known, **facts})
