"""Writes of one caller that waits for none of them, so that they share a group."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from holdfast.engines.async_writes import awaited_writes
from holdfast.engines.base import Transaction
from holdfast.library.holdfast import Holdfast

Call = Callable[[Holdfast], object]


def together(hf: Holdfast, calls: Sequence[Call]) -> list[Any]:
    """Make *calls* while the writer is busy; return the result or error of each."""
    waiting = hf.acting(through=awaited_writes)
    inside, go = threading.Event(), threading.Event()

    def busy(_: Transaction) -> None:
        inside.set()
        go.wait()

    async def all_at_once() -> list[object]:
        first = hf.engine.submit(busy)
        first.add_done_callback(lambda _: inside.set())
        inside.wait()
        tasks = [asyncio.ensure_future(cast("Awaitable[object]", call(waiting))) for call in calls]
        # Each task has submitted its write once the loop comes round.
        await asyncio.sleep(0)
        go.set()
        first.exception()
        return await asyncio.gather(*tasks, return_exceptions=True)

    return asyncio.run(all_at_once())
