"""Semaphores, claims on parts, orphaned tasks, and exceptions of user code."""

import asyncio
from collections import deque
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Hashable,
    Iterable,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from inspect import isawaitable
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast

from pydantic_ai import AgentRunResult, RunContext
from pydantic_ai.capabilities import AbstractCapability, WrapModelRequestHandler, WrapRunHandler
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext

from holdfast.ground.errors import InvalidInput, RunTaken
from holdfast.ground.text import whole
from holdfast.memories.run.keys import split
from holdfast.memories.run.records.question import Question
from holdfast.runtime.metrics import WAITING

T = TypeVar("T")
K = TypeVar("K", bound=Hashable)


async def awaited(value: T | Awaitable[T]) -> T:
    """Return *value*, awaited if it must be."""
    return await cast("Awaitable[T]", value) if isawaitable(value) else cast("T", value)


class Claims:
    """The keys that executors at work hold, each held by one. Any thread may call it."""

    def __init__(self) -> None:
        self._held: set[Hashable] = set()
        self._lock = Lock()

    def take(self, keys: Iterable[K]) -> list[K]:
        """Hold *keys*; return those that are held already, and then hold none."""
        wanted = list(keys)
        with self._lock:
            met = [key for key in wanted if key in self._held]
            if not met:
                self._held.update(wanted)
        return met

    def free(self, keys: Iterable[Hashable]) -> None:
        """Hold *keys* no longer."""
        with self._lock:
            self._held.difference_update(keys)

    def __contains__(self, key: object) -> bool:
        return key in self._held


class Claimant(Protocol):
    """Work that has parts of a run for itself while it goes on."""

    @property
    def context(self) -> "RunWithClaims":
        """The run it is in."""
        ...

    @property
    def parts(self) -> Collection[str]:
        """The keys of entries that are its alone."""
        ...


class RunWithClaims(Protocol):
    """A run with its claims."""

    run_id: str
    claims: Claims


_at_work: Final = Claims()
"""The executors that are performed now, by their `id`."""

LENT: Final[ContextVar[frozenset[str]]] = ContextVar("lent", default=frozenset())
"""The parts of an enclosing executor that what runs here may have."""


def refuse_at_work(executor: Claimant) -> None:
    """Raise RunTaken if *executor* is at work."""
    if id(executor) in _at_work:
        raise _taken(executor, executor.parts)


@contextmanager
def claimed(executor: Claimant) -> Generator[None]:
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


def _taken(executor: Claimant, parts: Iterable[str]) -> RunTaken:
    return RunTaken(executor.context.run_id, ids=[split(part)[1] for part in parts])


def run_sync(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run *work* on an event loop of its own and return its result.

    On a running event loop, raise InvalidInput before *work* is called.
    """
    if _is_running():
        raise InvalidInput("run_sync", "cannot be called on an event loop", next="Await run().")
    return asyncio.run(work())


def _is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class Suspended(BaseException):
    """The call waits for the answer to *question*; the loop of its agent catches it."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.text)
        self.question = question


class ForeignExit(Exception):
    """User code raised what would end more than its own part; that is its cause.

    That is a CancelledError though nothing was cancelled, or a SystemExit. `name` is its class.
    """

    def __init__(self, cause: BaseException) -> None:
        cancelled = isinstance(cause, asyncio.CancelledError)
        super().__init__(described(cause) or ("nothing was cancelled" if cancelled else ""))
        self.name = type(cause).__name__


def class_of(error: BaseException) -> str:
    """Return the name of the class of *error*, which user code raised."""
    return error.name if isinstance(error, ForeignExit) else type(error).__name__


def described(error: BaseException) -> str:
    """Return the message of *error*, which user code raised, without lone surrogates."""
    try:
        return whole(str(error))
    except Exception as broken:  # noqa: BLE001 - it may have any `__str__`
        return f"its message cannot be read: {type(broken).__name__}"


def cause_of(error: BaseException) -> str:
    """Return the class of *error* and its message, without lone surrogates."""
    return ": ".join(filter(None, (class_of(error), described(error))))


@contextmanager
def contained() -> Generator[None]:
    """Raise ForeignExit for what user code raises in the block, if it is no Exception.

    A cancellation of the current task passes, and so do KeyboardInterrupt and Suspended.
    """
    here = _task()
    try:
        yield
    except (Exception, KeyboardInterrupt, Suspended):
        raise
    except BaseException as error:
        # A coroutine that is closed gets a GeneratorExit outside of its task.
        if _task() is not here or (
            isinstance(error, asyncio.CancelledError) and (here is None or here.cancelling())
        ):
            raise
        raise ForeignExit(error) from error


def _task() -> asyncio.Task[Any] | None:
    return asyncio.current_task() if _is_running() else None


Stop: TypeAlias = Callable[["asyncio.Task[Any]"], Awaitable[object]]


async def cancel(task: "asyncio.Task[Any]") -> None:
    """Cancel *task* and wait for its end."""
    task.cancel()
    await asyncio.wait([task])


async def apart(work: Awaitable[T], *, stop: Stop = cancel) -> T:
    """Await *work*, which is user code, in a task of its own.

    Raise ForeignExit as `contained` does. When this is cancelled, *stop* ends that task.
    """
    task = asyncio.ensure_future(_outcome(work))
    try:
        value, error = await asyncio.shield(task)
    except asyncio.CancelledError:
        await stop(task)
        raise
    if error is None:
        return cast("T", value)
    if isinstance(error, Exception | Suspended):
        raise error
    raise ForeignExit(error) from error


async def _outcome(work: Awaitable[T]) -> tuple[T | None, BaseException | None]:
    # A task that ends with SystemExit or GeneratorExit ends the event loop, or its awaiter.
    try:
        return await work, None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - raised again in the awaiting task
        return None, error


class Slots:
    """Semaphore for any number of event loops: at most *most* holders, in order.

    A holder that itself waits for a slot lends its own for that time. A waiting parent thus holds
    none, so a run nested in itself proceeds even with one slot. `narrowed` returns a smaller
    semaphore within this one.
    """

    def __init__(self, most: int, *, within: "Slots | None" = None) -> None:
        if isinstance(most, bool) or most < 1:
            raise InvalidInput("max_concurrency", "must be at least 1", given=most)
        self.most = most if within is None else min(most, within.most)
        """The number of slots."""
        self._within = within
        self._free = most
        self._queue: deque[_Waiter] = deque()
        self._lock = Lock()

    def narrowed(self, most: int) -> "Slots":
        """Return a semaphore of *most* slots, each of which also takes one of these."""
        return Slots(most, within=self)

    @asynccontextmanager
    async def taken(self) -> AsyncGenerator[None]:
        """Hold a slot for the time of the block; wait in the queue for it."""
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
        """The number of waiters in the queue."""
        return len(self._queue)

    async def acquire(self) -> None:
        """Take a slot, in the order of the queue; `release` frees it."""
        await self._acquire_here()
        if self._within is not None:
            try:
                await self._within.acquire()
            except BaseException:
                self._release_here()
                raise

    def release(self) -> None:
        """Free a slot for the first in the queue."""
        if self._within is not None:
            self._within.release()
        self._release_here()

    async def _acquire_here(self) -> None:
        with self._lock:
            if self._free and not self._queue:
                self._free -= 1
                return
            waiter = _Waiter()
            self._queue.append(waiter)
        WAITING.add()
        try:
            await waiter.turn
        except BaseException:
            self._leave(waiter)
            raise
        finally:
            WAITING.add(by=-1)

    def _leave(self, waiter: "_Waiter") -> None:
        with self._lock:
            if not waiter.called:
                self._queue.remove(waiter)
                return
        self._release_here()

    def _release_here(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._free += 1
                    return
                waiter = self._queue.popleft()
                waiter.called = True
            if waiter.call():
                return


class _Waiter:
    """An entry of the queue."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.turn: asyncio.Future[None] = self._loop.create_future()
        self.called = False

    def call(self) -> bool:
        """Wake the waiter; return False if its event loop is closed."""
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
    """A held slot, which is free while its holder waits for work that takes one."""

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
        # It may be lent once more, or its holder have ended, while this waited.
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
"""The slot that the current work holds."""


# pydantic-ai runs the hooks around a loop in a task of their own, and streams a reply in another.
# Cancelled just as one of them hands over, it leaves that task waiting for ever; so both are noted,
# and ended with the loop.

Tasks: TypeAlias = set[asyncio.Task[Any]]

PATIENCE: Final = 5.0
"""Seconds in which cancelled tasks have to end."""

_noted: ContextVar[Tasks | None] = ContextVar("_noted", default=None)
"""The tasks of the agent loop that runs here."""


class Noting(AbstractCapability[Any]):
    """Records the tasks in which a loop's hooks run and its requests are made."""

    async def wrap_run(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        handler: WrapRunHandler,
    ) -> AgentRunResult[Any]:
        """Record the task of the loop and run it."""
        _note()
        return await handler()

    async def wrap_model_request(
        self,
        ctx: RunContext[Any],  # noqa: ARG002 - the hook's signature
        *,
        request_context: ModelRequestContext,
        handler: WrapModelRequestHandler,
    ) -> ModelResponse:
        """Record the task of the request and make it."""
        _note()
        return await handler(request_context)


def _note() -> None:
    tasks, here = _noted.get(), asyncio.current_task()
    if tasks is not None and here is not None:
        tasks.add(here)


NOTING: Final = Noting()


@asynccontextmanager
async def none_left() -> AsyncGenerator[None]:
    """Cancel the tasks that the loop of this block left behind, at its end."""
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
    """Cancel the tasks *left* and wait for them.

    If the waiting task itself is cancelled meanwhile, wait once more and raise.
    """
    for each in left:
        each.cancel()
    try:
        await asyncio.wait(left, timeout=PATIENCE)
    except asyncio.CancelledError:
        await asyncio.wait(left, timeout=PATIENCE)
        raise


class RequestGate:
    """Lets model requests of the loops that run here pass, until it is closed.

    A closed one holds each loop before its next request, until it is cancelled.
    """

    def __init__(self) -> None:
        self._closed, self._hurried, self._loops = False, False, 0
        self._lock = Lock()
        self._emptied: Callable[[], object] | None = None

    @contextmanager
    def entered(self) -> Generator[None]:
        """Count a loop at work for the time of the block."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    async def wait_to_request(self) -> None:
        """Return at once, or never: a loop that is held is not at work."""
        if not self._closed:
            return
        self._count(-1)
        try:
            await asyncio.Event().wait()
        finally:
            self._count(1)

    def close(self) -> None:
        """Let no further request pass; from any thread."""
        self._closed = True

    def hurry(self) -> None:
        """End `emptied` now; from any thread."""
        self._hurried = True
        with self._lock:
            self._ring()

    async def emptied(self, seconds: float) -> None:
        """Wait until no loop is at work, for *seconds* at most."""
        loop, empty = asyncio.get_running_loop(), asyncio.Event()
        with self._lock:
            self._emptied = lambda: loop.call_soon_threadsafe(empty.set)
            if self._loops == 0 or self._hurried:
                return
        with suppress(TimeoutError):
            await asyncio.wait_for(empty.wait(), seconds)

    def _count(self, change: int) -> None:
        with self._lock:
            self._loops += change
            if self._loops == 0:
                self._ring()

    def _ring(self) -> None:
        if self._emptied is not None:
            # Nothing waits on a closed loop.
            with suppress(RuntimeError):
                self._emptied()


GATE: Final[ContextVar[RequestGate | None]] = ContextVar("GATE", default=None)
"""The gate of the worker whose run is executed here."""


@contextmanager
def at_work() -> Generator[None]:
    """Count the agent loop of the block for the gate here, if there is one."""
    gate = GATE.get()
    if gate is None:
        yield
        return
    with gate.entered():
        yield


async def wait_to_request() -> None:
    """Return once the loop here may make a request."""
    gate = GATE.get()
    if gate is not None:
        await gate.wait_to_request()
