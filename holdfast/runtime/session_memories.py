"""The two memories around a conversation, asked off the event loop; what fails is told, not raised.

A conversation without a memory is worth more than none. So nothing here stops one but a mistake in
how it was asked for.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from types import TracebackType
from typing import Final, TypeVar

from holdfast.ground.clock import Clock
from holdfast.ground.errors import HoldfastError, InvalidInput
from holdfast.memories import durable, longterm
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.longterm.block import recalled_block, without_blocks
from holdfast.memories.longterm.records import Recalled
from holdfast.runtime.events import SessionEvent, SessionEventType

T = TypeVar("T")

RECALL_SECONDS: Final = 2.0
"""How long a turn waits for what is recalled."""
FLUSH_SECONDS: Final = 2.0
"""How long closing waits for what is mined."""
UNAVAILABLE: Final = '<durable_memory unavailable="true"/>'
"""What a system text says where hydration failed: the memory is not empty, it is not to be had."""


class SessionEvents:
    """The events of a session, in the order they happened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.events: list[SessionEvent] = []

    def tell(self, type: SessionEventType, **data: object) -> None:
        """Add an event of *type*."""
        self.events.append(SessionEvent(type=type, at=self._now(), data=data))

    def tell_failed(self, what: str, error: BaseException) -> None:
        """Add that *what* failed, and of what."""
        self.tell("failed", what=what, error=type(error).__name__, message=str(error))

    def _now(self) -> datetime:
        return self._clock.now()


class Durably:
    """The durable run of a session: opened, hydrated, ended."""

    def __init__(self, told: SessionEvents) -> None:
        self._told = told
        self.run: durable.DurableRun | None = None

    @property
    def hydration(self) -> Hydration | None:
        """What was hydrated; None where that failed."""
        return self.run.hydration if self.run else None

    @property
    def system_text(self) -> str:
        """What the system text of every turn says of it."""
        return self.run.hydration.render() if self.run else UNAVAILABLE

    def open(self, memory: "durable.DurableMemory", lane: str) -> None:
        """Begin a run of *memory* in *lane*; InvalidInput if it cannot be asked for like that."""
        try:
            self.run = memory.run(lane=lane)
        except InvalidInput:
            raise
        except HoldfastError as error:
            self._told.tell_failed("hydrate", error)
            return
        seen = self.run.hydration
        self._told.tell(
            "hydrated",
            run_id=self.run.run_id,
            entries=[each.key for each in seen.entries],
            size_bytes=seen.size_bytes,
            digest=seen.digest,
        )
        if seen.omitted:
            omitted = [
                {
                    "key": each.key,
                    "category": each.category,
                    "size_bytes": each.size_bytes,
                    "reason": each.reason,
                }
                for each in seen.omitted
            ]
            self._told.tell("omitted", entries=omitted)

    def close(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the run, as failed if something was raised."""
        if self.run is None:
            return
        try:
            self.run.__exit__(kind, error, trace)
        except HoldfastError as failure:
            self._told.tell_failed("close", failure)


class Recalling:
    """The long-term memory of a session, or none: recalled from before a turn, told of it after."""

    def __init__(self, told: SessionEvents, *, k: int, budget: int) -> None:
        recalled_block((), budget)
        self._told, self._k, self._budget = told, k, budget
        self.memory: longterm.LongTermMemory | None = None

    def open(self, find: "Callable[[], longterm.LongTermMemory | None] | None") -> None:
        """Use the memory that *find* gives; None where no user was named."""
        if find is None:
            return self._told.tell("longterm_off", reason="no user was named")
        try:
            self.memory = find()
        except InvalidInput:
            raise
        except HoldfastError as error:
            return self._told.tell_failed("longterm", error)
        if self.memory is None:
            self._told.tell("longterm_off", reason="it is not switched on")
        return None

    async def block(self, text: str) -> str:
        """Return what is recalled by *text*, as a block for the prompt; "" for nothing."""
        memory, query = self.memory, without_blocks(text).strip()
        if memory is None or not query:
            return ""
        try:
            async with asyncio.timeout(RECALL_SECONDS):
                found = await asyncio.to_thread(memory.recall, query, self._k)
            shown = recalled_block(found, self._budget)
        except TimeoutError:
            late = TimeoutError(f"nothing came within {RECALL_SECONDS:g} s")
            self._told.tell_failed("recall", late)
            return ""
        except Exception as error:  # noqa: BLE001 - an embedder is the user's, and raises anything
            self._told.tell_failed("recall", error)
            return ""
        self._tell_recalled(found, shown)
        return shown

    async def take(self, said: str, answer: str, *, thread_id: str) -> None:
        """Remember that the user said *said* and was answered *answer*."""
        memory = self.memory
        if memory is None:
            return
        turns = [{"role": "user", "content": said}, {"role": "assistant", "content": answer}]
        try:
            recorded = await asyncio.to_thread(memory.remember_conversation, turns, thread_id)
        except HoldfastError as error:
            self._told.tell_failed("remember", error)
            return
        self._told.tell(
            "stored",
            turns=[each.id for each in recorded.turns],
            skipped=[{"index": each.index, "reason": each.reason} for each in recorded.skipped],
            queued=recorded.queued,
            evicted=list(recorded.evicted),
        )

    def close(self) -> None:
        """Wait a little for what is being mined, and tell what came of it."""
        if self.memory is None:
            return
        try:
            flushed = self.memory.flush(timeout=FLUSH_SECONDS)
        except HoldfastError as error:
            self._told.tell_failed("flush", error)
            return
        self._told.tell(
            "mined",
            items=[each.stored.id for each in flushed.results if each.stored],
            outcomes=[each.outcome for each in flushed.results],
            done=flushed.done,
            pending=flushed.pending,
            failed=flushed.failed,
        )

    def _tell_recalled(self, found: Sequence[Recalled], shown: str) -> None:
        lines = sum(line.startswith("- ") for line in shown.splitlines())
        self._told.tell("recalled", ids=[each.id for each in found], left_out=len(found) - lines)
