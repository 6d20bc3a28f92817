"""Semaphores and orphaned tasks on an event loop."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from inspect import isawaitable
from threading import Lock
from typing import Any, Final, TypeAlias, TypeVar, cast

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler, WrapRunHandler
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

from holdfast.ground.errors import InvalidInput
from holdfast.runtime.metrics import counts

T = TypeVar("T")


async def awaited(value: T | Awaitable[T]) -> T:
    """Return *value*, awaited if it must be."""
    return await cast("Awaitable[T]", value) if isawaitable(value) else cast("T", value)


class Slots:
    """At most *most* holders at once, first come first served, on any number of event loops.

    A holder whose own work asks for a slot lends its own for that long: a waiting parent holds
    none, so a run nested in itself goes on even where there is one slot. `narrowed` gives slots
    of which each is one of these too.
    """

    def __init__(self, most: int, *, within: "Slots | None" = None) -> None:
        if isinstance(most, bool) or most < 1:
            raise InvalidInput("max_concurrency", "must be at least 1", given=most)
        self.most = most if within is None else min(most, within.most)
        """How many may be held at once."""
        self._within = within
        self._free = most
        self._line: deque[_Place] = deque()
        self._lock = Lock()

    def narrowed(self, most: int) -> "Slots":
        """Return slots of which at most *most* are taken at once; each is one of these too."""
        return Slots(most, within=self)

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Hold a slot; waits until it is one's turn."""
        lender = _held.get()
        if lender is not None:
            lender.lend()
        ticket = _Ticket(self)
        try:
            await ticket.take()
            token = _held.set(ticket)
            try:
                yield
            finally:
                _held.reset(token)
                ticket.end()
        finally:
            if lender is not None:
                await lender.have_back()

    @property
    def waiting(self) -> int:
        """How many wait for their turn."""
        return len(self._line)

    async def acquire(self) -> None:
        """Take a slot when it is one's turn; `release` gives it back."""
        await self._acquire_here()
        if self._within is not None:
            try:
                await self._within.acquire()
            except BaseException:
                self._release_here()
                raise

    def release(self) -> None:
        """Give a slot back, to whoever is first in line."""
        if self._within is not None:
            self._within.release()
        self._release_here()

    async def _acquire_here(self) -> None:
        with self._lock:
            if self._free and not self._line:
                self._free -= 1
                return
            place = _Place()
            self._line.append(place)
        counts.waits(1)
        try:
            await place.turn
        except BaseException:
            self._leave(place)
            raise
        finally:
            counts.waits(-1)

    def _leave(self, place: "_Place") -> None:
        with self._lock:
            if not place.called:
                self._line.remove(place)
                return
        self._release_here()

    def _release_here(self) -> None:
        while True:
            with self._lock:
                if not self._line:
                    self._free += 1
                    return
                place = self._line.popleft()
                place.called = True
            if place.call():
                return


class _Place:
    """A place in the line."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self._loop.create_future()
        self.called = False

    def call(self) -> bool:
        """Say that it is one's turn; False when nobody is there any more."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
        except RuntimeError:
            # Its event loop was closed while it waited.
            return False
        return True

    def _begin(self) -> None:
        if not self.turn.done():
            self.turn.set_result(None)


class _Ticket:
    """A slot that is held, but while it is lent to work that its holder waits for."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._holds, self._ended, self._lent = False, False, 0

    async def take(self) -> None:
        await self._slots.acquire()
        self._holds = True

    def lend(self) -> None:
        self._lent += 1
        self._give_back()

    async def have_back(self) -> None:
        self._lent -= 1
        if self._lent or self._ended:
            return
        await self.take()
        # Others may have borrowed it, or its holder ended, while this stood in line.
        if self._lent or self._ended:
            self._give_back()

    def end(self) -> None:
        self._ended = True
        self._give_back()

    def _give_back(self) -> None:
        if self._holds:
            self._holds = False
            self._slots.release()


_held: ContextVar[_Ticket | None] = ContextVar("_held", default=None)
"""What the work at hand holds."""


# pydantic-ai surrounds a loop with hooks in a task of their own, and streams a reply in another.
# Cancelled just as one of them hands over, it leaves that task waiting for ever; so both are noted,
# and ended with the loop.

Tasks: TypeAlias = set[asyncio.Task[Any]]

PATIENCE: Final = 5.0
"""Seconds in which what was cancelled is to end."""

_noted: ContextVar[Tasks | None] = ContextVar("_noted", default=None)
"""The tasks of the loop that runs here."""


class Noting(AbstractCapability[Any]):
    """Notes in which tasks a loop's hooks surround it, and its requests are made."""

    async def wrap_run(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        handler: WrapRunHandler,
    ) -> AgentRunResult[Any]:
        """Let the loop run."""
        _note()
        return await handler()

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Let the request be made."""
        _note()
        return await handler(request_context)


def _note() -> None:
    tasks, here = _noted.get(), asyncio.current_task()
    if tasks is not None and here is not None:
        tasks.add(here)


NOTING: Final = Noting()


@asynccontextmanager
async def none_left() -> AsyncGenerator[None]:
    """End what is left of the loop within this when it is over."""
    tasks: Tasks = set()
    token = _noted.set(tasks)
    try:
        yield
    finally:
        _noted.reset(token)
        left = {each for each in tasks if not each.done()} - {asyncio.current_task()}
        if left:
            await _ended(left)


async def _ended(left: Tasks) -> None:
    """Cancel those *left* and wait for them, also where the one who waits is cancelled again."""
    for each in left:
        each.cancel()
    try:
        await asyncio.wait(left, timeout=PATIENCE)
    except asyncio.CancelledError:
        await asyncio.wait(left, timeout=PATIENCE)
        raise
