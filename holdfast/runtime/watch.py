"""Wait for entries and follow events of a run's memory."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from typing import Any, ClassVar, Final

from msgspec import Struct

from holdfast.ground.errors import InvalidInput, WaitTimeout
from holdfast.memories.run import keys
from holdfast.memories.run.entry import EVERYTHING, EntryFilter, RunEntry, filter_of
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory

BUFFER: Final = 1_000
"""Events that wait for the reader before newer ones are only counted."""


class Gap(RunMemoryEvent, frozen=True, kw_only=True):
    """The number of events *missed* because the reader was too slow."""

    type: ClassVar[str] = "gap"

    missed: int


async def wait_for(
    memory: RunMemory,
    key: str,
    *,
    after_version: int = 0,
    timeout: float | None = None,  # noqa: ASYNC109 - how long is the caller's to say
) -> RunEntry:
    """Return the entry at *key* once its version is above *after_version*.

    Raise WaitTimeout when that takes longer than *timeout* seconds.
    """
    wanted, loop = keys.checked(key), asyncio.get_running_loop()
    found: asyncio.Future[RunEntry] = loop.create_future()

    def take(entry: RunEntry) -> None:
        if not found.done():
            found.set_result(entry)

    def hear(entry: RunEntry) -> None:
        if entry.key == wanted and entry.version > after_version:
            loop.call_soon_threadsafe(take, entry)

    off = memory.subscribe(hear)
    try:
        present = memory.get(wanted)
        if present is not None and present.version > after_version:
            return present
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                return await found
        except TimeoutError as error:
            if timeout is None or not limit.expired():
                raise
            raise WaitTimeout(wanted, timeout) from error
    finally:
        off()


async def watch(
    memory: RunMemory, *, now: Callable[[], int], **conditions: Any
) -> AsyncGenerator[RunMemoryEvent]:
    """Yield the events of *memory* for entries that meet *conditions*.

    The events are those of `on_event`, the conditions those of `list`. Events without an entry are
    yielded only if there are no conditions. At most 1,000 events wait; later ones are missed, and
    one `gap` gives their number.
    """
    wanted, loop = filter_of(**conditions), asyncio.get_running_loop()
    waiting: deque[RunMemoryEvent] = deque()
    news, missed = asyncio.Event(), 0

    def take(event: RunMemoryEvent) -> None:
        nonlocal missed
        if missed or len(waiting) == BUFFER:
            missed += 1
        else:
            waiting.append(event)
        news.set()

    def hear(event: RunMemoryEvent) -> None:
        if _is_meant(event, wanted):
            loop.call_soon_threadsafe(take, event)

    off = memory.on_event(hear)
    try:
        while True:
            await news.wait()
            news.clear()
            while waiting:
                yield waiting.popleft()
            if missed:
                last, missed = missed, 0
                yield Gap(run_id=memory.run_id, at=now(), missed=last)
    finally:
        off()


class _EventEntry(Struct, frozen=True):
    """The entry of an event, with the fields that a filter reads."""

    key: str
    kind: str
    source: str | None


def _is_meant(event: RunMemoryEvent, wanted: EntryFilter) -> bool:
    if wanted == EVERYTHING:
        return True
    key, source = getattr(event, "key", None), getattr(event, "source", None)
    if not isinstance(key, str):
        return False
    try:
        entry = _EventEntry(key, keys.kind_of(key), source)
    except InvalidInput:
        # A write was refused for its key.
        return False
    return bool(wanted.chosen([entry]))
