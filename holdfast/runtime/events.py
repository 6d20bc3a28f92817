"""Typed events of executors and sessions, and their feed.

`to_json` and `from_json` lead there and back, but for a result over 64 KiB, of which the JSON
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
from holdfast.memories.state.message import to_text

PART = 65_536
"""Characters of a result's compact JSON that an event in JSON carries."""

Reason: TypeAlias = str
"""Why a step failed. The runtime's own are `max_iterations token_budget no_answer model_error
timeout rejected memory hook disabled not_a_list too_many_items items internal`."""


class StepError(Struct, frozen=True):
    """Why a step has no result: *reason* for code, *message* with the true cause for people."""

    reason: Reason
    message: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


class Spending(Struct, frozen=True, kw_only=True):
    """What a run has asked of its models so far."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class ExecutionEvent:
    """Something that happened in the run *run_id*: *seq* rises within it, *at* is ms since 1970.

    `Context.tell` fills in these three when it sends the event on its way.
    """

    type: ClassVar[str]
    run_id: str = ""
    seq: int = 0
    at: int = 0

    def of(self, run_id: str, *, seq: int, at: int) -> Self:
        """Return it as number *seq* of the run *run_id*, at *at*."""
        return replace(self, run_id=run_id, seq=seq, at=at)

    def to_json(self) -> str:
        """Return it as one JSON object with its `type`."""
        told: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        if "result" in told:
            told["result"] = _carried(told["result"])
        return _encoded({"type": self.type} | told).decode()


@dataclass(frozen=True, kw_only=True)
class RunUpdate(ExecutionEvent):
    """The run as a whole: the first and the last event, from the outermost executor alone."""

    type: ClassVar[str] = "run_update"
    event: Literal["started", "completed", "failed", "cancelled"]
    executor: str
    result: Any = None
    reason: str | None = None
    usage: Spending | None = None


@dataclass(frozen=True, kw_only=True)
class PlanningUpdate(ExecutionEvent):
    """How far the making of a plan is."""

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
    """What became of a task or a step; *cause* says why, *blocked_by* what it waited for."""

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
    """What a step gave: its result, or the error instead of one."""

    type: ClassVar[str] = "step_result"
    task_id: str | None = None
    step_id: str
    item_index: int | None = None
    result: Any = None
    error: StepError | None = None
    is_task_result: bool = False


@dataclass(frozen=True, kw_only=True)
class ToolCallUpdate(ExecutionEvent):
    """A model called a tool; *message* says so in one line for a person."""

    type: ClassVar[str] = "tool_call_update"
    task_id: str | None = None
    step_id: str | None = None
    tool_call_id: str
    name: str
    args: Any = None
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class ToolResultUpdate(ExecutionEvent):
    """A tool answered: whether well, at which length, and whether the model got only a part."""

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
    """A piece of what a model is saying or thinking; *done* ends a response."""

    type: ClassVar[str] = "chunk"
    step_id: str | None = None
    content: str = ""
    thinking: bool = False
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class MemoryUpdate(ExecutionEvent):
    """An entry of the run's memory was written; never its value."""

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
    """What became of a team, of one of its agents, tasks or messages."""

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
    """Something worth a line to whoever watches."""

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
    """Return the event that `to_json` told as *text*."""
    try:
        told = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise InvalidInput("event", "must be one JSON object") from error
    kind = KINDS.get(told.pop("type", ""))
    if kind is None:
        raise UnknownFormat("event", format="event", version=text[:80], known=", ".join(KINDS))
    try:
        return msgspec.convert(told, kind)
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
        # A model may say half a character, and what it said is told all the same.
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


# One bounded queue for a whole run: whoever tells faster than is looked waits, in the order they
# came, so nothing piles up and events of parallel parts come as they happen.

BOUND = 256
"""Events that wait to be looked at before those who tell them wait as well."""

Make = Callable[[], ExecutionEvent]
"""Makes the event at the moment it takes its place, so that numbers rise in the queue."""


class EventFeed:
    """Events in the order they were told, for one reader on one event loop."""

    def __init__(self, bound: int = BOUND) -> None:
        self._loop = asyncio.get_running_loop()
        self._room = asyncio.Semaphore(bound)
        self._events: deque[tuple[ExecutionEvent, bool]] = deque()
        self._lock = Lock()
        self._news = asyncio.Event()
        self._closed = False

    async def tell(self, make: Make) -> None:
        """Put an event in its place when there is room; nothing once nobody looks."""
        if asyncio.get_running_loop() is not self._loop:
            # A run nested in a tool's thread has a loop of its own.
            self.tell_soon(make)
            return
        await self._room.acquire()
        if self._closed:
            self._room.release()
            return
        self._put(make, took_room=True)

    def tell_soon(self, make: Make) -> None:
        """Put an event in its place now, from any thread, waiting for nothing."""
        if not self._closed:
            self._put(make, took_room=False)

    def _put(self, make: Make, *, took_room: bool) -> None:
        with self._lock:
            self._events.append((make(), took_room))
        self._wake()

    def _wake(self) -> None:
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._news.set()
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._news.set)

    async def events(self, work: "asyncio.Task[bool]") -> AsyncGenerator[ExecutionEvent]:
        """Give what is told until *work* is over and all of it was given."""
        work.add_done_callback(lambda _: self._news.set())
        while True:
            while self._events:
                event, took_room = self._events.popleft()
                if took_room:
                    self._room.release()
                yield event
            if work.done() and not self._events:
                return
            self._news.clear()
            if not self._events and not work.done():
                await self._news.wait()

    def close(self) -> None:
        """Let everything told from now on be dropped, and whoever waits for room go on."""
        self._closed = True
        self._room.release()


feed: ContextVar[EventFeed | None] = ContextVar("feed", default=None)
"""Where what runs here tells its events; None when nobody looks on."""


SessionEventType: TypeAlias = Literal[
    "hydrated", "omitted", "longterm_off", "recalled", "stored", "mined", "failed"
]


class SessionEvent(Struct, frozen=True, kw_only=True):
    """One thing that happened around the turns of a session; `data` names things, by key or id.

    - `hydrated`: `run_id`, `entries` (keys), `size_bytes`, `digest`
    - `omitted`: `entries` (each `key`, `category`, `size_bytes`, `reason`) that hydration left out
    - `longterm_off`: `reason`
    - `recalled`: `ids`, best first, and `left_out`, how many the block had no room for
    - `stored`: `turns` (ids), `skipped` (each `index`, `reason`), `queued`, `evicted`
    - `mined`: `items` (ids), `outcomes`, `done`, `pending`, `failed`
    - `failed`: `what` (hydrate, longterm, recall, remember, close, flush), `error`, `message`
    """

    type: SessionEventType
    at: datetime
    data: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {"type": self.type, "at": to_text(self.at), "data": self.data}
