"""Writes, and what is told when one is refused: its code, a count, an event."""

import inspect
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager
from typing import TypeVar, cast

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import HoldfastError
from holdfast.ground.events import Event, Fact
from holdfast.memories.durable.context import AgentContext, counts
from holdfast.memories.durable.records import give_code

T = TypeVar("T")


def write(caller: AgentContext, work: Callable[[Transaction], T]) -> T:
    """Return what *work* returns, once it is durable.

    With an engine whose writes are awaited that is an awaitable, here as there.
    """
    with refusals(caller):
        written = caller.engine.write(work)
    if inspect.isawaitable(written):
        return cast("T", _awaited(caller, written))
    return written


@contextmanager
def refusals(caller: AgentContext) -> Generator[None, None, None]:
    """Let an error raised within carry its code, and tell of it, once."""
    try:
        yield
    except HoldfastError as error:
        if error.code is None:
            give_code(error)
            tell_refused(caller, error)
        raise


def tell_refused(caller: AgentContext, error: HoldfastError) -> None:
    """Tell that a write was refused with *error*, which carries its code."""
    if error.code is not None:
        counts.add("refused_total", error.code)
        publish(caller, "refused", code=error.code)


def publish(caller: AgentContext, what: str, **data: Fact) -> None:
    """Tell this process alone that `durable.<what>` happened, in which nothing was written."""
    if caller.engine.events.heard:
        caller.engine.events.publish(event_of(caller, what, data))


def event_of(
    caller: AgentContext,
    what: str,
    data: Mapping[str, Fact],
    *,
    at: int | None = None,
    run_id: str = "",
) -> Event:
    """Return the event that `durable.<what>` happened, in the caller's run or to *run_id*.

    It never holds content or a key.
    """
    run = run_id or caller.run_id
    return Event(
        type=f"durable.{what}",
        at=from_microseconds(caller.now() if at is None else at),
        workspace=caller.workspace,
        owner=caller.agent or None,
        actor=caller.by.actor,
        ids={"run_id": run} if run else {},
        data=dict(data),
    )


async def _awaited(caller: AgentContext, written: Awaitable[T]) -> T:
    with refusals(caller):
        return await written
