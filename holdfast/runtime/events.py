"""Typed events of executors and sessions, and the queue that carries them.

`from_json` restores an event from `to_json`, except for a result over 64 KiB, of which the JSON
carries a part and its size.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields, replace
from datetime import datetime
from threading import Lock
from typing import Any, ClassVar, Literal, Self, TypeAlias, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.memories.run.records.event import Reason
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


class Spending(Struct, frozen=True, kw_only=True):
    """The model requests and tokens of a run so far."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionEvent:
    """An event of the run *run_id*.

    *seq* rises within the run, *at* is in ms since 1970. `Context.tell` fills in these three when
    it emits the event.
    """

    type: ClassVar[str]
    run_id: str = ""
    seq: int = 0
    at: int = 0

    def of(self, run_id: str, *, seq: int, at: int) -> Self:
        """Return a copy as number *seq* of the run *run_id*, at *at*."""
        return replace(self, run_id=run_id, seq=seq, at=at)

    def to_json(self) -> str:
        """Return the event as one JSON object with its `type`."""
        payload: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        if "result" in payload:
            payload["result"] = _carried(payload["result"])
        return _encoded({"type": self.type} | payload).decode()


@dataclass(frozen=True, kw_only=True)
class RunUpdate(ExecutionEvent):
    """The state of the run: its first and last event, from the outermost executor."""

    type: ClassVar[str] = "run_update"
    event: Literal["started", "completed", "failed", "cancelled"]
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
    "entered_conclusion_stage",
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


# One bounded queue for a whole run. Emitters wait in order while the reader is behind, so nothing
# piles up, and events of parallel parts arrive as they happen.

BOUND = 256
"""Events that may wait for the reader before those who emit them wait as well."""

Make = Callable[[], ExecutionEvent]
"""Makes the event when it enters the queue, so that numbers rise in the queue."""


class EventFeed:
    """A queue of events for one reader on one event loop."""

    def __init__(self, bound: int = BOUND) -> None:
        self._loop = asyncio.get_running_loop()
        self._space = asyncio.Semaphore(bound)
        self._events: deque[tuple[ExecutionEvent, bool]] = deque()
        self._lock = Lock()
        self._news = asyncio.Event()
        self._closed = False

    async def tell(self, make: Make) -> None:
        """Queue an event when there is space; drop it once the feed is closed."""
        if asyncio.get_running_loop() is not self._loop:
            # A run nested in a tool's thread has a loop of its own.
            self.tell_soon(make)
            return
        await self._space.acquire()
        if self._closed:
            self._space.release()
            return
        self._put(make, took_space=True)

    def tell_soon(self, make: Make) -> None:
        """Queue an event now, from any thread, without waiting for space."""
        if not self._closed:
            self._put(make, took_space=False)

    def _put(self, make: Make, *, took_space: bool) -> None:
        with self._lock:
            self._events.append((make(), took_space))
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def events(self, work: "asyncio.Task[bool]") -> AsyncGenerator[ExecutionEvent]:
        """Yield events until *work* is over and the queue is empty."""
        work.add_done_callback(lambda _: self._news.set())
        while True:
            while self._events:
                event, took_space = self._events.popleft()
                if took_space:
                    self._space.release()
                yield event
            if work.done() and not self._events:
                return
            self._news.clear()
            if not self._events and not work.done():
                await self._news.wait()

    def close(self) -> None:
        """Drop all later events, and release whatever waits for space."""
        self._closed = True
        self._space.release()


feed: ContextVar[EventFeed | None] = ContextVar("feed", default=None)
"""The feed for the events of what runs here; None without a reader."""


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
    - `failed`: `what` (hydrate, longterm, recall, remember, close, flush), `error`, `message`
    """

    type: SessionEventType
    at: datetime
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the event as a JSON object."""
        return {"type": self.type, "at": to_text(self.at), "data": self.data}
