"""The driver that all executors share.

An executor does its work in `perform`, which emits events through its context. `ending` returns the
outcome. An executor inside another is performed by that one; this module is for the outermost.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Literal, Protocol, TypeAlias

from msgspec import Struct

from holdfast.ground.errors import HoldfastError, InvalidInput, RunCancelled
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.records.record import NAME_MOST
from holdfast.runtime.context import Context
from holdfast.runtime.events import EventFeed, ExecutionEvent, MemoryUpdate, RunUpdate, feed

State: TypeAlias = Literal["completed", "failed", "cancelled"]


class ExecutionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an execution.

    *failure* is the error that `run` raises, *completed* names the finished parts.
    """

    state: Literal["completed", "failed"]
    result: Any = None
    reason: str | None = None
    failure: HoldfastError | None = None
    completed: tuple[str, ...] = ()


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

    async def perform(self) -> None:
        """Do the work and emit its events.

        Failure is not raised but emitted. When cancelled, emit what that ends, and raise on.
        """
        ...

    def ending(self) -> ExecutionOutcome:
        """Return the outcome; called after `perform`, also after a cancelled one."""
        ...


async def events(executor: Executor) -> AsyncGenerator[ExecutionEvent]:
    """Execute *executor*; yield its events as they happen.

    A reader that stops early stops the work: all of it is cancelled and awaited first.
    """
    queue = EventFeed()
    token = feed.set(queue)
    try:
        work = asyncio.create_task(_performed(executor))
    finally:
        feed.reset(token)
    try:
        async for event in queue.events(work):
            yield event
    finally:
        queue.close()
        work.cancel()
        await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
    await work


async def run(executor: Executor) -> Any:
    """Execute *executor* and return its result.

    Raise the error it failed with, or RunCancelled.
    """
    whole = await _performed(executor)
    ending = executor.ending()
    if not whole:
        reason = executor.context.cancelled or ""
        raise RunCancelled(reason, completed=ending.completed)
    if ending.failure is not None:
        raise ending.failure
    return ending.result


def run_sync(executor: Executor) -> Any:
    """Do as `run` does, in a script without an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run(executor))
    raise InvalidInput("run_sync", "cannot be called on an event loop", next="Await run().")


async def _performed(executor: Executor) -> bool:
    """Perform *executor*; return False if the run was cancelled first."""
    context, inside = executor.context, _inside.get()
    if inside is not None and inside.root is context.root:
        with _watched(context, inside):
            return await _interruptible(executor)
    with (
        context.tracer.start_as_current_span("holdfast.run") as span,
        _shown(executor) as ends,
        _watched(context, inside),
    ):
        span.set_attribute("holdfast.run_id", context.run_id)
        await context.tell(RunUpdate(event="started", executor=executor.name))
        try:
            whole = await _interruptible(executor)
        except asyncio.CancelledError:
            span.set_attribute("holdfast.state", "cancelled")
            ends("cancelled")
            context.tell_soon(_ended(executor, "cancelled", context.cancelled or "cancelled"))
            raise
        except Exception as error:
            span.set_attribute("holdfast.state", "failed")
            why = str(error) if isinstance(error, HoldfastError) else f"internal: {error}"
            await context.tell(_ended(executor, "failed", why))
            raise
        state = executor.ending().state if whole else "cancelled"
        span.set_attribute("holdfast.state", state)
        ends(state)
        await context.tell(_ended(executor, state, context.cancelled))
        return whole


def _ended(executor: Executor, state: State, reason: str | None) -> RunUpdate:
    """Return the last event of *executor*.

    Its reason is the outcome's own where there is one for *state*, else *reason*.
    """
    ending = executor.ending()
    return RunUpdate(
        event=state,
        executor=executor.name,
        result=ending.result,
        reason=ending.reason if state == ending.state and ending.reason else reason,
        usage=executor.context.usage,
    )


@contextmanager
def _shown(executor: Executor) -> Generator[Callable[[State], None]]:
    """Show the run in `hf.runs` until it ends.

    Yield the function that sets its last state; without a call it is failed or cancelled.
    """
    context = executor.context.root
    if context.hf is None:
        yield lambda _: None
        return
    attached = context.hf.runs.attach(
        context.memory,
        name=_as_name(executor.title, executor.name),
        agent=_as_name(context.agent, "default"),
        control=context,
    )
    try:
        yield attached
    finally:
        attached("cancelled" if context.cancelled else "failed")


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
    except asyncio.CancelledError:
        # Being cancelled from outside goes on; being cancelled as a run ends here.
        here = asyncio.current_task()
        if context.cancelled is None or (here is not None and here.cancelling()):
            raise
        return False
    finally:
        off()
    return True


@contextmanager
def _watched(context: Context, inside: Context | None) -> Generator[None]:
    """Emit the writes to the memory of *context*, unless an outer run does so already."""
    events = feed.get()
    if events is None or (inside is not None and inside.memory is context.memory):
        yield
        return

    def emit(entry: RunEntry) -> None:
        update = MemoryUpdate(
            key=entry.key,
            kind=entry.kind,
            source=entry.source,
            version=entry.version,
            value_bytes=entry.value_bytes,
        )
        events.tell_soon(lambda: context.stamped(update))

    off = context.memory.subscribe(emit)
    try:
        yield
    finally:
        off()


_inside: ContextVar[Context | None] = ContextVar("_inside", default=None)
"""The run that encloses what runs here."""
