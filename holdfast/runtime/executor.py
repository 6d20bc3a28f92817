"""The driver that all executors share.

An executor does its work in `perform`, which emits events through its context. `ending` returns the
outcome. An executor inside another is performed by that one; this module is for the outermost.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final, Literal, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import asdict

from holdfast.ground.errors import (
    HoldfastError,
    RunCancelled,
    RunFailed,
    RunTaken,
)
from holdfast.memories.run.keys import split
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.records.event import Reason, RunEvent
from holdfast.memories.run.records.record import NAME_MOST
from holdfast.runtime import concurrency
from holdfast.runtime.concurrency import Claims
from holdfast.runtime.context import Context
from holdfast.runtime.events import EventFacts, ExecutionEvent, MemoryUpdate, RunUpdate
from holdfast.runtime.run_events import (
    Audience,
    EventFeed,
    Observer,
    audience,
    followed,
    leave,
    unforeseen,
    updates,
)

State: TypeAlias = Literal["completed", "failed", "cancelled"]

log = logging.getLogger(__name__)


class ExecutionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an execution.

    *reason* is a code, *detail* says it in words. *failure* is the error that `run` raises.
    *completed* names the finished parts, *blocked* those that never began.
    """

    state: Literal["completed", "failed"]
    result: Any = None
    reason: Reason | None = None
    detail: str | None = None
    failure: HoldfastError | None = None
    completed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class Executor(Protocol):
    """A step, task, plan, team or other work that can be executed."""

    @property
    def name(self) -> str:
        """The kind for a `RunUpdate`: `step`, `task`, `plan`, `team` and others."""
        ...

    @property
    def title(self) -> str:
        """The name under which people see the run in `hf.runs`."""
        ...

    @property
    def context(self) -> Context:
        """The run it is in."""
        ...

    @property
    def parts(self) -> Collection[str]:
        """The keys of the entries that are its alone while it is at work, such as `step:a`."""
        ...

    async def perform(self) -> None:
        """Do the work and emit its events.

        Failure is not raised but emitted. When cancelled, emit what that ends, and raise on.
        """
        ...

    def ending(self) -> ExecutionOutcome:
        """Return the outcome; called after `perform`, also after a cancelled one."""
        ...


def events(executor: Executor, observer: Observer | None = None) -> AsyncGenerator[ExecutionEvent]:
    """Execute *executor*; yield its updates as they happen.

    A reader that stops early stops the work: all of it is cancelled and awaited first.
    """
    return updates(lambda feed: _heard(executor, observer, feed))


def stream(executor: Executor, observer: Observer | None = None) -> AsyncGenerator[RunEvent]:
    """Do as `events` does, and yield every event of the run."""
    return followed(lambda feed: _heard(executor, observer, feed))


async def run(executor: Executor, observer: Observer | None = None) -> Any:
    """Execute *executor* and return its result.

    Raise the error it failed with, or RunCancelled.
    """
    whole = await _heard(executor, observer)
    ending = executor.ending()
    if not whole:
        reason = executor.context.cancelled or ""
        raise RunCancelled(reason, completed=ending.completed)
    if ending.failure is not None:
        raise ending.failure
    return ending.result


def run_sync(executor: Executor, observer: Observer | None = None) -> Any:
    """Do as `run` does, in a script without an event loop."""
    return concurrency.run_sync(lambda: run(executor, observer))


def refuse_at_work(executor: Executor) -> None:
    """Raise RunTaken if *executor* is at work."""
    if id(executor) in _at_work:
        raise _taken(executor, executor.parts)


@contextmanager
def _claimed(executor: Executor) -> Generator[None]:
    """Hold *executor* and its parts for the time of the block.

    Raise RunTaken if it is at work, or if another executor of its context has one of the parts.
    """
    if _at_work.take([id(executor)]):
        raise _taken(executor, executor.parts)
    context, lent = executor.context, LENT.get()
    parts = [part for part in executor.parts if part not in lent]
    try:
        if met := context.claims.take(parts):
            raise _taken(executor, met)
        try:
            yield
        finally:
            context.claims.free(parts)
    finally:
        _at_work.free([id(executor)])


def _taken(executor: Executor, parts: Iterable[str]) -> RunTaken:
    return RunTaken(executor.context.run_id, ids=[split(part)[1] for part in parts])


async def _heard(
    executor: Executor, observer: Observer | None, feed: EventFeed | None = None
) -> bool:
    """Perform *executor* for its *feed* and *observer*; return False if cancelled.

    Without a reader of its own, that of an enclosing run receives its events.
    """
    with _claimed(executor):
        return await _observed(executor, observer, feed)


async def _observed(executor: Executor, observer: Observer | None, feed: EventFeed | None) -> bool:
    outer = audience.get()
    observers = () if outer is None else outer.observers
    if observer is not None:
        observers = (*observers, observer)
        executor.context.events.observers.add(observer)
    if feed is None and outer is not None:
        feed = outer.feed
    here = Audience(feed, observers) if feed is not None or observers else None
    token = audience.set(here)
    try:
        return await _performed(executor)
    finally:
        audience.reset(token)


async def _performed(executor: Executor) -> bool:
    """Perform *executor*; return False if the run was cancelled first."""
    context, inside = executor.context, _inside.get()
    if inside is not None and inside.events is context.events:
        return await _interruptible(executor)
    stay = _Stay(executor, within=None if inside is None else inside.root)
    with context.tracer.start_as_current_span("holdfast.run") as span, _watched(context):
        span.set_attribute("holdfast.run_id", context.run_id)
        try:
            if stay.heard:
                await stay.begin()
            whole = await _interruptible(executor)
            stay.ended(whole=whole)
        except BaseException as error:
            stay.failed(error)
            raise
        finally:
            span.set_attribute("holdfast.state", stay.state)
            await stay.leave()
        return whole


class _Stay:
    """A run of *executor* in this process, from its first event to its last."""

    def __init__(self, executor: Executor, *, within: Context | None) -> None:
        self._executor, self._context = executor, executor.context
        # A sub-run has events of its own; `execute()` yields an update for the outermost alone.
        self._outermost = within is not self._context.root
        self._record = _shown(executor)
        self.heard = self._context.watched
        self.state: State = "failed"
        self._error: BaseException | None = None
        self._reason, self._detail = "internal", ""

    async def begin(self) -> None:
        """Emit that the run begins."""
        executor, context = self._executor, self._context
        context.events.begin()
        inputs = [entry.key for entry in context.memory.list(kind="input")]
        data = {"kind": executor.name, "name": executor.title, "inputs": inputs}
        update = RunUpdate(event="started", executor=executor.name)
        facts = EventFacts(type="run.started", data=data)
        await context.emit(facts, update if self._outermost else None)

    def ended(self, *, whole: bool) -> None:
        """Set how the run ended by itself; it is not *whole* if it was cancelled."""
        ending = self._executor.ending()
        if not whole:
            self._cancel()
            return
        self.state, self._error = ending.state, ending.failure
        usual = "done" if ending.state == "completed" else "internal"
        self._reason, self._detail = ending.reason or usual, ending.detail or ""

    def failed(self, error: BaseException) -> None:
        """Set that *error* ended the run."""
        if isinstance(error, asyncio.CancelledError):
            self._cancel()
            return
        self.state, self._reason, self._error = "failed", "internal", error
        self._detail = str(error) if isinstance(error, HoldfastError) else unforeseen(error)
        if not isinstance(error, HoldfastError):
            log.error("the run %s ended", self._context.run_id, exc_info=error)

    def _cancel(self) -> None:
        self.state, self._reason = "cancelled", "cancelled"
        self._detail = self._context.cancelled or "cancelled"

    async def leave(self) -> None:
        """Store the end of the run and emit it as its last event."""
        events, record = self._context.events, self._record
        if self.heard:
            last = events.close(self._facts(), self._update(), to=audience.get())
            await leave(
                self._context.run_id,
                ("its end is stored", lambda: record and record(self.state)),
                ("its end is emitted", lambda: events.finish(last)),
            )
        elif record is not None:
            await leave(self._context.run_id, ("its end is stored", lambda: record(self.state)))

    def _facts(self) -> EventFacts:
        error = self._error
        data = {
            "reason": self._reason,
            "detail": self._detail,
            "error": None if error is None else _named(error),
            "usage": asdict(self._context.usage),
            "dropped": [],
            "blocked": list(self._ending.blocked),
        }
        return EventFacts(type=f"run.{self.state}", data=data)

    def _update(self) -> RunUpdate | None:
        if not self._outermost:
            return None
        reason = self._detail
        if self._error is not None and not isinstance(self._error, HoldfastError):
            reason = f"internal: {reason}"
        return RunUpdate(
            event=self.state,
            executor=self._executor.name,
            result=self._ending.result,
            reason=reason or (None if self.state == "completed" else self._reason),
            usage=self._context.usage,
        )

    @property
    def _ending(self) -> ExecutionOutcome:
        try:
            return self._executor.ending()
        except Exception:
            log.exception("the outcome of the run %s", self._context.run_id)
            return ExecutionOutcome(state="failed")


def _named(error: BaseException) -> dict[str, str]:
    return {"name": type(error).__name__, "message": unforeseen(error)}


def _shown(executor: Executor) -> Callable[[State], None] | None:
    """Show the run in `hf.runs`, if it has one; return the function that ends it."""
    context = executor.context.root
    if context.hf is None:
        return None
    return context.hf.runs.attach(
        context.memory,
        name=_as_name(executor.title, executor.name),
        agent=_as_name(context.agent, "default"),
        control=context,
    )


def _as_name(text: str, otherwise: str) -> str:
    """Return *text* made fit for a record's name; *otherwise* if nothing is left.

    A title thus never stops a run.
    """
    plain = text.encode(errors="replace").decode().replace("\0", " ").strip()
    if len(plain) > NAME_MOST:
        plain = f"{plain[: NAME_MOST - 1]}…"
    return plain or otherwise


async def _interruptible(executor: Executor) -> bool:
    """Perform *executor* so that cancelling its run stops it; return False if it did."""
    context, loop = executor.context, asyncio.get_running_loop()
    if context.cancelled is not None:
        return False
    within = copy_context()
    within.run(_inside.set, context)
    work = loop.create_task(executor.perform(), context=within)

    def interrupt() -> None:
        loop.call_soon_threadsafe(work.cancel)

    off = context.when_cancelled(interrupt)
    try:
        await work
    except asyncio.CancelledError as error:
        # Being cancelled from outside goes on; being cancelled as a run ends here.
        here = asyncio.current_task()
        if here is not None and here.cancelling():
            raise
        if context.cancelled is None:
            what = "A part of the run raised CancelledError, and nothing had cancelled it."
            raise RunFailed(what, run=context, stop_reason="internal") from error
        return False
    finally:
        off()
    return True


_MEMORY: dict[str, str] = {
    "run.entry_written": "memory.written",
    "run.entry_deleted": "memory.deleted",
    "run.entries_cleared": "memory.cleared",
    "run.entry_read": "memory.read",
    "run.entry_refused": "memory.refused",
    "run.restored": "memory.restored",
}
"""The type of a run's event for each type of an event of its memory."""


@contextmanager
def _watched(context: Context) -> Generator[None]:
    """Emit what happens to the memory of *context*, without values."""
    to = audience.get()
    if not context.watched:
        yield
        return

    def emit(event: RunMemoryEvent) -> None:
        data = event.data
        data.pop("title", None)
        facts = EventFacts(type=_MEMORY[event.type], data=data)
        update = None
        if event.type == "run.entry_written":
            update = _written(data)
        context.events.emit_soon(facts, update, to=to)

    off = context.memory.on_event(emit)
    try:
        yield
    finally:
        off()


def _written(data: dict[str, Any]) -> MemoryUpdate:
    return MemoryUpdate(
        key=data["key"],
        kind=data["kind"],
        source=data["source"],
        version=data["version"],
        value_bytes=data["value_bytes"],
    )


_at_work: Final = Claims()
"""The executors that are performed now, by their `id`."""

LENT: Final[ContextVar[frozenset[str]]] = ContextVar("lent", default=frozenset())
"""The parts of an enclosing executor that what runs here may have."""

_inside: ContextVar[Context | None] = ContextVar("_inside", default=None)
"""The run that encloses what runs here."""
