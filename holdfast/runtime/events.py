"""What `execute()` yields for the events of a run, and the events of sessions.

Each class is computed from one `RunEvent`, its origin; `event_facts` has the fields of both.
`from_json` restores an event from `to_json`, except for a result over 64 KiB, of which the JSON
carries a part and its size, and for its origin.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.memories.run.records.event import Reason, RunEvent
from holdfast.memories.state.message import to_text

PART = 65_536
"""Characters of a result's compact JSON that an event in JSON carries."""


class StepError(Struct, frozen=True):
    """Why a step has no result: a code and a message.

    *reason* is for code, *message* gives people the true cause.
    """

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class Spending(Struct, frozen=True):
    """The model requests and tokens of a run so far."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionEvent:
    """An event of the run *run_id*.

    *seq* rises within the run, *at* is in ms since 1970; both are those of *origin*, the event it
    was computed from. `Context.tell` fills in these four when it emits the event.
    """

    type: ClassVar[str]
    run_id: str = ""
    seq: int = 0
    at: int = 0
    origin: RunEvent | None = field(default=None, compare=False, repr=False)

    def of(self, origin: RunEvent) -> Self:
        """Return a copy that was computed from *origin*."""
        return replace(self, run_id=origin.run_id, seq=origin.seq, at=origin.at, origin=origin)

    def to_json(self) -> str:
        """Return the event as one JSON object with its `type`."""
        named = [each.name for each in fields(self) if each.name != "origin"]
        payload: dict[str, Any] = {name: getattr(self, name) for name in named}
        if "result" in payload:
            payload["result"] = _carried(payload["result"])
        return _encoded({"type": self.type} | payload).decode()


@dataclass(frozen=True, kw_only=True)
class RunUpdate(ExecutionEvent):
    """The state of the run: its first and last event, from the outermost executor.

    One that is `waiting` has questions to people, and goes on once they are answered.
    """

    type: ClassVar[str] = "run_update"
    event: Literal["started", "waiting", "completed", "failed", "cancelled"]
    executor: str
    result: Any = None
    reason: str | None = None
    usage: Spending | None = None


@dataclass(frozen=True, kw_only=True)
class PlanningUpdate(ExecutionEvent):
    """Progress of planning."""

    type: ClassVar[str] = "planning_update"
    phase: Literal[
        "initialization", "generation", "validation", "awaiting_approval", "revision", "complete"
    ]
    status: Literal["running", "success", "failed"]
    content: str = ""


TaskMoment: TypeAlias = Literal[
    "task_planned",
    "task_removed",
    "task_created",
    "step_started",
    "step_retried",
    "entered_conclusion_stage",
    "step_waiting",
    "step_completed",
    "step_failed",
    "step_blocked",
    "step_cancelled",
    "step_restored",
    "task_completed",
    "task_failed",
    "task_blocked",
    "task_cancelled",
    "task_restored",
]


@dataclass(frozen=True, kw_only=True)
class TaskUpdate(ExecutionEvent):
    """A change of a task or a step.

    *cause* is the reason, *blocked_by* names what it waited for.
    """

    type: ClassVar[str] = "task_update"
    event: TaskMoment
    task_id: str | None = None
    title: str | None = None
    step_id: str | None = None
    item_index: int | None = None
    cause: str | None = None
    blocked_by: tuple[str, ...] = ()
    result: Any = None


@dataclass(frozen=True, kw_only=True)
class StepResult(ExecutionEvent):
    """The end of a step: its result, or the error instead of one."""

    type: ClassVar[str] = "step_result"
    task_id: str | None = None
    step_id: str
    item_index: int | None = None
    result: Any = None
    error: StepError | None = None
    is_task_result: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolCallUpdate(ExecutionEvent):
    """A tool call of a model; *message* describes it in one line for people."""

    type: ClassVar[str] = "tool_call_update"
    task_id: str | None = None
    step_id: str | None = None
    tool_call_id: str
    name: str
    args: Any = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolResultUpdate(ExecutionEvent):
    """The result of a tool call: success, length, and whether it was cut to a page."""

    type: ClassVar[str] = "tool_result_update"
    task_id: str | None = None
    step_id: str | None = None
    tool_call_id: str
    name: str
    ok: bool
    characters: int
    paged: bool = False


@dataclass(frozen=True, kw_only=True)
class Chunk(ExecutionEvent):
    """A piece of a model's text or reasoning; *done* ends a response."""

    type: ClassVar[str] = "chunk"
    step_id: str | None = None
    content: str = ""
    thinking: bool = False
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryUpdate(ExecutionEvent):
    """A write to the run's memory, without the value."""

    type: ClassVar[str] = "memory_update"
    key: str
    kind: str
    source: str | None = None
    version: int
    value_bytes: int


TeamMoment: TypeAlias = Literal[
    "agent_started",
    "agent_idle",
    "agent_finished",
    "agent_benched",
    "task_created",
    "task_claimed",
    "task_working",
    "task_blocked",
    "task_released",
    "task_completed",
    "task_failed",
    "message_sent",
    "deadlock_detected",
    "stalled",
    "team_complete",
]


@dataclass(frozen=True, kw_only=True)
class TeamUpdate(ExecutionEvent):
    """A change of a team, one of its agents, tasks or messages."""

    type: ClassVar[str] = "team_update"
    event: TeamMoment
    agent: str | None = None
    task_id: str | None = None
    title: str | None = None
    message_id: str | None = None
    to: str | None = None
    content: str | None = None
    result: Any = None
    tasks: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LogUpdate(ExecutionEvent):
    """A log line for the reader of the events."""

    type: ClassVar[str] = "log_update"
    severity: Literal["info", "warning", "error"]
    content: str
    task_id: str | None = None
    step_id: str | None = None


KINDS: dict[str, type[ExecutionEvent]] = {
    kind.type: kind
    for kind in (
        RunUpdate,
        PlanningUpdate,
        TaskUpdate,
        StepResult,
        ToolCallUpdate,
        ToolResultUpdate,
        Chunk,
        MemoryUpdate,
        TeamUpdate,
        LogUpdate,
    )
}
"""The class of each `type`."""


def from_json(text: str) -> ExecutionEvent:
    """Return the event that `to_json` serialized as *text*."""
    try:
        payload = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidInput("event", "must be one JSON object") from error
    kind = KINDS.get(payload.pop("type", ""))
    if kind is None:
        raise UnknownFormat("event", format="event", version=text[:80], known=", ".join(KINDS))
    try:
        return msgspec.convert(payload, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput("event", str(error)) from error


def _carried(result: Any) -> Any:
    encoded = _encoded(result)
    if len(encoded) <= PART:
        return cast("Any", msgspec.Raw(encoded))
    return {"part": encoded.decode()[:PART], "value_bytes": len(encoded)}


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        # A model may emit a lone surrogate; its text is sent all the same.
        return msgspec.json.encode(_of_whole_characters(value))


def _of_whole_characters(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="replace").decode()
    if isinstance(value, list | tuple):
        return [_of_whole_characters(each) for each in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        known = cast("dict[Any, Any]", value)
        return {_of_whole_characters(key): _of_whole_characters(known[key]) for key in known}
    return value


class EventFacts(Struct, frozen=True, kw_only=True):
    """An event of a run before it is numbered: its type and where it happened."""

    type: str
    part: str | None = None
    agent: str | None = None
    call_id: str | None = None
    data: dict[str, Any] = {}


def parts_ready(
    kind: Literal["task", "node", "board_task"], needs: Mapping[str, Sequence[str]]
) -> EventFacts:
    """Return the facts of `plan.ready` for parts of *kind* with their *needs*."""
    parts = [{"id": id, "kind": kind, "depends_on": list(each)} for id, each in needs.items()]
    data = {"phase": "complete", "status": "success", "parts": parts}
    return EventFacts(type="plan.ready", data=data)


CONTENT_BYTES = 4_096
"""Bytes of a text, an input or a value in an event; of a larger one it has a part and the size."""

_TASK_TYPES: dict[str, str] = {
    "task_planned": "task.created",
    "entered_conclusion_stage": "step.concluding",
}
_TEAM_TYPES: dict[str, str] = {
    **{f"agent_{each}": f"agent.{each}" for each in ("started", "idle", "finished", "benched")},
    "message_sent": "message.sent",
    "deadlock_detected": "team.deadlocked",
    "stalled": "team.stalled",
    "team_complete": "team.finished",
}
_PLAN_TYPES = {("complete", "success"): "plan.ready"}


def event_facts(update: ExecutionEvent, more: dict[str, Any] | None = None) -> EventFacts:
    """Return the facts of the event that *update* is computed from.

    Its data has *more* fields; `part` and `agent` among them are those of the event.
    """
    facts = _FACTS[type(update)](update)
    if more:
        named = {name: more[name] for name in ("part", "agent") if name in more}
        data = facts.data | {name: each for name, each in more.items() if name != "part"}
        facts = msgspec.structs.replace(facts, data=data, **named)
    return facts


def shortened(value: Any) -> Any:
    """Return *value* as JSON for an event; of more than 4 KiB a part and its size."""
    encoded = _encoded(value)
    if len(encoded) <= CONTENT_BYTES:
        return msgspec.json.decode(encoded)
    text = encoded if not isinstance(value, str) else value.encode(errors="replace")
    part = text[:CONTENT_BYTES].decode(errors="ignore")
    return {"part": part, "value_bytes": len(encoded)}


def _of_task(update: TaskUpdate) -> EventFacts:
    of_step = update.step_id is not None
    type_ = _TASK_TYPES.get(update.event, update.event.replace("_", ".", 1))
    data: dict[str, Any] = {"title": update.title}
    if of_step:
        data |= {"task": update.task_id, "item_index": update.item_index}
    elif update.event == "task_planned":
        data["planned"] = True
    data |= {"cause": update.cause, "blocked_by": update.blocked_by}
    data = {name: each for name, each in data.items() if each not in (None, ())}
    return EventFacts(type=type_, part=update.step_id or update.task_id, data=data)


def _of_plan(update: PlanningUpdate) -> EventFacts:
    usual = "plan.refused" if update.status == "failed" else "plan.drafted"
    return EventFacts(
        type=_PLAN_TYPES.get((update.phase, update.status), usual),
        data={
            "phase": update.phase,
            "status": update.status,
            "content": shortened(update.content),
        },
    )


def _of_result(update: StepResult) -> EventFacts:
    error = None
    if update.error is not None:
        error = {"reason": update.error.reason, "message": shortened(update.error.message)}
    return EventFacts(
        type="step.result",
        part=update.step_id,
        data={
            "task": update.task_id,
            "item_index": update.item_index,
            "value": shortened(update.result),
            "error": error,
            "is_task_result": update.is_task_result,
        },
    )


def _of_call(update: ToolCallUpdate) -> EventFacts:
    data = {"name": update.name, "input": shortened(update.args), "task": update.task_id}
    return EventFacts(
        type="tool.called", part=update.step_id, call_id=update.tool_call_id, data=data
    )


def _of_answer(update: ToolResultUpdate) -> EventFacts:
    data = {
        "name": update.name,
        "task": update.task_id,
        "ok": update.ok,
        "characters": update.characters,
        "paged": update.paged,
    }
    return EventFacts(
        type="tool.returned", part=update.step_id, call_id=update.tool_call_id, data=data
    )


def _of_chunk(update: Chunk) -> EventFacts:
    kind = "reasoning.delta" if update.thinking else "text.delta"
    return EventFacts(type=kind, part=update.step_id, data={"delta": update.content})


def _of_memory(update: MemoryUpdate) -> EventFacts:
    names = ("key", "kind", "source", "version", "value_bytes")
    return EventFacts(type="memory.written", data={name: getattr(update, name) for name in names})


def _of_team(update: TeamUpdate) -> EventFacts:
    type_ = _TEAM_TYPES.get(update.event, update.event.replace("task_", "board."))
    data: dict[str, Any] = {"title": update.title, "message": update.message_id, "to": update.to}
    if type_.startswith("board."):
        data |= {"by": update.agent}
    if type_ == "message.sent":
        data |= {"from": update.agent, "subject": data.pop("title")}
    elif type_ == "team.finished":
        data |= {"status": update.content}
    elif update.content is not None:
        data |= {"why": shortened(update.content)}
    data |= {"tasks": list(update.tasks) or None}
    return EventFacts(
        type=type_,
        part=update.task_id,
        agent=update.agent,
        data={name: each for name, each in data.items() if each is not None},
    )


def _of_log(update: LogUpdate) -> EventFacts:
    data = {"severity": update.severity, "content": shortened(update.content)}
    if update.task_id is not None:
        data["task"] = update.task_id
    return EventFacts(type="log", part=update.step_id, data=data)


def _of_run(update: RunUpdate) -> EventFacts:
    return EventFacts(type=f"run.{update.event}", data={"kind": update.executor})


_FACTS: dict[type[ExecutionEvent], Callable[[Any], EventFacts]] = {
    RunUpdate: _of_run,
    PlanningUpdate: _of_plan,
    TaskUpdate: _of_task,
    StepResult: _of_result,
    ToolCallUpdate: _of_call,
    ToolResultUpdate: _of_answer,
    Chunk: _of_chunk,
    MemoryUpdate: _of_memory,
    TeamUpdate: _of_team,
    LogUpdate: _of_log,
}


SessionEventType: TypeAlias = Literal[
    "hydrated", "omitted", "longterm_off", "recalled", "stored", "mined", "failed"
]


class SessionEvent(Struct, frozen=True, kw_only=True):
    """An event around the turns of a session; `data` names things by key or id.

    - `hydrated`: `run_id`, `entries` (keys), `size_bytes`, `digest`
    - `omitted`: `entries` (each `key`, `category`, `size_bytes`, `reason`) that hydration left out
    - `longterm_off`: `reason`
    - `recalled`: `ids`, best first, and `left_out`, the number that did not fit into the block
    - `stored`: `turns` (ids), `skipped` (each `index`, `reason`), `queued`, `evicted`
    - `mined`: `items` (ids), `outcomes`, `done`, `pending`, `failed`
    - `failed`: `what` (hydrate, longterm, store, recall, remember, close, flush), `error`,
      `message`
    """

    type: SessionEventType
    at: datetime
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return {"type": self.type, "at": to_text(self.at), "data": self.data}
