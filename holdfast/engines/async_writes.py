"""Awaiting a write on an event loop, which is woken once for all that were committed together."""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar, cast, runtime_checkable

from holdfast.engines.base import Engine, Transaction

T = TypeVar("T")


@runtime_checkable
class SubmitsToLoop(Protocol):
    """An engine that wakes an event loop once for a whole group of writes."""

    def submit_to_loop(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Callable[[Transaction], object],
        finish: Callable[[object, BaseException | None], None],
        *,
        timeout: float | None = None,
    ) -> Callable[[], bool]:
        """Hand in *work*; call *finish*(value, error) on *loop*; return what withdraws it."""
        ...


async def awaited(
    engine: Engine,
    work: Callable[[Transaction], T],
    *,
    timeout: float | None = None,  # noqa: ASYNC109 - how long the write may wait, as in `write`
) -> T:
    """Return what `engine.write(work)` returns, without a thread of the caller's.

    Cancelling withdraws the write if it does not run yet; one that runs goes on.
    """
    if not isinstance(engine, SubmitsToLoop):
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

    withdraw = engine.submit_to_loop(loop, work, finish, timeout=timeout)
    try:
        return await future
    except asyncio.CancelledError:
        withdraw()
        raise
