"""Events of a run of agents: numbered, in order, with backpressure."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import suppress
from threading import Lock
from typing import Any, TypeAlias

from holdfast.ground.clock import Clock, to_microseconds
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.state.cells import StateChange
from holdfast.memories.state.state import NetworkState
from holdfast.runtime.concurrency import awaited

BUFFER = 1024
"""Events that wait for a slow reader before the run waits too."""

log = logging.getLogger(__name__)


OnEvent: TypeAlias = Callable[[RunEvent], object | Awaitable[object]]
Sink: TypeAlias = Callable[[RunEvent], Awaitable[object]]
Start: TypeAlias = Callable[[Sink], Coroutine[Any, Any, object]]


class Telling:
    """Emits the events of one run to *on_event*, *sink* and *also*.

    Errors of *on_event* are counted. *also* receives the same events, but does not make a model
    stream. Changes of values are emitted before the next event, in the order they were made.
    """

    def __init__(
        self,
        run_id: str,
        *,
        clock: Clock,
        network: str | None = None,
        on_event: OnEvent | None = None,
        sink: Sink | None = None,
        also: Callable[[RunEvent], object] | None = None,
    ) -> None:
        self._run_id, self._network, self._clock = run_id, network, clock
        self._on_event, self._sink, self._also = on_event, sink, also
        self._seq = 0
        self._changes: list[StateChange] = []
        self._lock = Lock()
        self.thread_id: str | None = None
        self.errors = 0

    @property
    def watched(self) -> bool:
        """Whether an *on_event* or a *sink* receives the events."""
        return self._on_event is not None or self._sink is not None

    def watch(self, state: NetworkState) -> Callable[[], None]:
        """Emit the changes of values in *state* by this run; return what unsubscribes."""
        return state.subscribe(self._changed) if self._observed else _nothing

    @property
    def _observed(self) -> bool:
        return self.watched or self._also is not None

    async def tell(
        self,
        type: str,
        data: dict[str, Any],
        *,
        agent: str | None = None,
        call_id: str | None = None,
    ) -> None:
        """Emit an event of *type*; wait for a slow reader."""
        if not self._observed:
            return
        with self._lock:
            changes, self._changes = self._changes, []
        for change in changes:
            payload = {"key": change.key, "version": change.revision}
            origin = change.origin
            await self._send("value.changed", payload, agent=origin.agent, call_id=origin.call_id)
        await self._send(type, data, agent=agent, call_id=call_id)

    def _changed(self, change: StateChange) -> None:
        # A state may be shared by runs; a change from outside of them is emitted by each.
        if change.what in ("value", "deleted") and change.origin.run_id in (None, self._run_id):
            with self._lock:
                self._changes.append(change)

    async def _send(
        self, type: str, data: dict[str, Any], *, agent: str | None, call_id: str | None
    ) -> None:
        self._seq += 1
        event = RunEvent(
            type=type,
            seq=self._seq,
            at=to_microseconds(self._clock.now()) // 1_000,
            run_id=self._run_id,
            thread_id=self.thread_id,
            network=self._network,
            agent=agent,
            call_id=call_id,
            data=data,
        )
        if self._also is not None:
            self._also(event)
        if self._on_event is not None:
            try:
                await awaited(self._on_event(event))
            except Exception:
                # An observer must not break the run.
                self.errors += 1
                log.warning("on_event raised for %s", type, exc_info=True)
        if self._sink is not None:
            await self._sink(event)


async def followed(
    start: Callable[[Sink], Coroutine[Any, Any, object]],
) -> AsyncGenerator[RunEvent]:
    """Yield the events that *start* sends to its sink, then raise what it raises.

    Leaving early cancels *start* and waits for it.
    """
    events: asyncio.Queue[RunEvent] = asyncio.Queue(BUFFER)
    left = False

    async def take(event: RunEvent) -> None:
        if not left:
            await events.put(event)

    task = asyncio.ensure_future(start(take))
    try:
        while not (task.done() and events.empty()):
            coming = asyncio.ensure_future(events.get())
            try:
                await asyncio.wait({coming, task}, return_when=asyncio.FIRST_COMPLETED)
                if coming.done():
                    yield coming.result()
            finally:
                coming.cancel()
        await task
    finally:
        # The reader has left, and the run still emits its end.
        left = True
        if not task.done():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


def _nothing() -> None:
    """Do nothing: there was no subscription."""
