"""Await the commit of a write from an event loop."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.scope import Scope

T = TypeVar("T")

_SubmitToLoop = Callable[..., Callable[[], bool]]
"""`submit_to_loop` of an engine that wakes an event loop once for a whole group of writes."""


async def awaited(
    engine: Engine,
    work: Callable[[Transaction], T],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - how long the write may wait, as in `write`
) -> T:
    """Return the result of `engine.write(work)` without blocking a thread.

    Cancelling withdraws the write if it does not run yet; a running write continues.
    """
    submit_to_loop: _SubmitToLoop | None = getattr(engine, "submit_to_loop", None)
    if submit_to_loop is None:
        return await asyncio.wrap_future(engine.submit(work, timeout=timeout))
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(value: object, error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", value))

    withdraw = submit_to_loop(loop, work, finish, timeout=timeout)
    try:
        return await future
    except asyncio.CancelledError:
        withdraw()
        raise


# A method of the library that writes checks its arguments, and its last act is to return what the
# engine's `write` returns. So with this engine it returns the awaitable instead, and an event loop
# waits for many writes without a thread for each.


class AwaitedWrites:
    """*engine* with awaitable writes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def scoped(self, scope: Scope) -> "AwaitedWrites":
        """Return the same for another owner."""
        return AwaitedWrites(self._engine.scoped(scope))

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> object:
        """Return an awaitable of what *work*(transaction) returns, once it is durable."""
        return awaited(self._engine, work, timeout=timeout)


def awaited_writes(engine: Engine) -> Engine:
    """Return *engine* with awaitable writes.

    A method that returns the result of `write` returns an awaitable of it instead.
    """
    return cast("Engine", AwaitedWrites(engine))
