"""Emit the events of runs: numbered, in order, to readers, observers and records.

A `RunEvents` numbers the events of one run. Each event goes to the run's taps, which store and
publish it, and to the `Audience` of the execution that emitted it: a reader, who is waited for, and
functions that are called with each event.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from threading import Lock, get_ident
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.errors import StaleRun
from holdfast.ground.json_values import JSON
from holdfast.memories.run.records.event import LIVE, Ending, Reason, RunEvent
from holdfast.runtime.concurrency import awaited, class_of, described
from holdfast.runtime.events import EventFacts, ExecutionEvent

BOUND = 256
"""Events that may wait for the reader before those who emit them wait as well."""

log = logging.getLogger(__name__)

OnEvent: TypeAlias = Callable[[RunEvent], object | Awaitable[object]]
"""Called with each event of a run; plain or awaitable."""
Tap: TypeAlias = Callable[[RunEvent], object]
"""Receives each event of a run at once, on the thread that emits it."""
Delivery: TypeAlias = tuple[RunEvent, ExecutionEvent | None]
"""An event, and what `execute()` yields for it, if anything."""


class EventFeed:
    """A bounded queue of events for one reader on one event loop.

    Emitters wait in order while the reader is behind, so nothing piles up, and events of parallel
    parts arrive as they happen.
    """

    def __init__(self, bound: int = BOUND) -> None:
        self._loop = asyncio.get_running_loop()
        self._space = asyncio.Semaphore(bound)
        self._events: deque[tuple[Delivery, bool]] = deque()
        self._news = asyncio.Event()
        self._closed = False

    async def reserve(self) -> bool:
        """Wait for space for an event; return whether it was taken.

        A run nested in a tool's thread has an event loop of its own, and does not wait.
        """
        if self._closed or asyncio.get_running_loop() is not self._loop:
            return False
        await self._space.acquire()
        if self._closed:
            self._space.release()
            return False
        return True

    def put(self, delivery: Delivery, *, reserved: bool) -> None:
        """Queue *delivery*, from any thread; drop it once the feed is closed."""
        if self._closed:
            return
        self._events.append((delivery, reserved))
        try:
            here = asyncio.get_running_loop() is self._loop
        except RuntimeError:
            here = False
        if here:
            self._news.set()
        else:
            # Its event loop may be closed while a thread still emits.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._news.set)

    async def read(self, work: "asyncio.Future[Any]") -> AsyncGenerator[Delivery]:
        """Yield the events until *work* is over and the queue is empty."""
        work.add_done_callback(lambda _: self._news.set())
        while True:
            while self._events:
                delivery, reserved = self._events.popleft()
                if reserved:
                    self._space.release()
                yield delivery
            if work.done() and not self._events:
                return
            self._news.clear()
            if not self._events and not work.done():
                await self._news.wait()

    def close(self) -> None:
        """Drop all later events, and release whatever waits for space."""
        self._closed = True
        self._space.release()


class Observer:
    """Calls *on_event* with each event, one at a time; counts the times it raises."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._waiting: deque[RunEvent] = deque()
        self._idle: asyncio.Event | None = None
        self.errors = 0

    def put(self, event: RunEvent) -> None:
        """Queue *event*; `deliver` hands it over."""
        self._waiting.append(event)

    async def deliver(self) -> None:
        """Hand over what waits, unless that is under way already."""
        if self._idle is not None:
            return
        idle = self._idle = asyncio.Event()
        # What it runs is not observed by itself.
        token = audience.set(None)
        try:
            while self._waiting:
                await self._call(self._waiting.popleft())
        finally:
            audience.reset(token)
            self._idle = None
            idle.set()

    async def settle(self) -> None:
        """Hand over what waits, and wait for what is under way."""
        while self._idle is not None:
            await self._idle.wait()
        await self.deliver()

    async def _call(self, event: RunEvent) -> None:
        try:
            await awaited(self._on_event(event))
        except Exception:
            # An observer must not break the run.
            self.errors += 1
            log.warning("on_event raised for %s", event.type, exc_info=True)


def observer_of(on_event: OnEvent | None) -> Observer | None:
    """Return the observer that calls *on_event*, if there is one."""
    return None if on_event is None else Observer(on_event)


class Audience:
    """The receivers of the events of one execution: a *feed*, and *observers*."""

    def __init__(self, feed: EventFeed | None, observers: Iterable[Observer] = ()) -> None:
        self.feed, self.observers = feed, tuple(observers)
        self._loop = asyncio.get_running_loop()

    async def reserve(self) -> bool:
        """Wait for the reader, if there is one; return whether space was reserved."""
        return await self.feed.reserve() if self.feed is not None else False

    def put(self, delivery: Delivery, *, reserved: bool) -> None:
        """Queue *delivery* for all, from any thread."""
        for each in self.observers:
            each.put(delivery[0])
        if self.feed is not None:
            self.feed.put(delivery, reserved=reserved)

    async def deliver(self) -> None:
        """Hand over to the observers what waits for them."""
        for each in self.observers:
            await each.deliver()

    async def settle(self) -> None:
        """Do as `deliver` does, and wait for what is under way."""
        for each in self.observers:
            await each.settle()

    def deliver_soon(self) -> None:
        """Let the event loop hand over what waits; from any thread."""
        if self.observers:
            # Nothing is handed over on a closed loop.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def _begin(self) -> None:
        task = self._loop.create_task(self.deliver())
        # An event loop holds its tasks weakly.
        _delivering.add(task)
        task.add_done_callback(_delivering.discard)


_delivering: Final[set[asyncio.Task[None]]] = set()

audience: ContextVar[Audience | None] = ContextVar("audience", default=None)
"""The audience of what runs here; None without one."""


class Emission(Struct, frozen=True):
    """An event that is numbered and not yet passed on; a *stored* one goes to no tap."""

    event: RunEvent
    update: ExecutionEvent | None
    to: Audience | None
    reserved: bool = False
    stored: bool = False


class RunFinish(Struct, frozen=True, kw_only=True):
    """How a run ended: *status* for *reason*, with *detail* in words.

    *data* are further members of the data of its event.
    """

    status: Ending
    reason: Reason
    detail: str | None = ""
    error: dict[str, JSON] | None = None
    usage: dict[str, Any] | None = None
    data: Mapping[str, Any] = {}

    def facts(self) -> dict[str, Any]:
        """Return the data of the event of the end."""
        return {
            "reason": self.reason,
            "detail": self.detail,
            "error": self.error,
            "usage": self.usage,
            **self.data,
        }


class EventStore(Protocol):
    """Stores the events of a run as their tap, and its end.

    `opened` are the events that are stored since it was opened, until they are emitted.
    """

    opened: tuple[RunEvent, ...]

    @property
    def stale(self) -> StaleRun | None:
        """The error once another owner has the run."""
        ...

    async def end(self, finish: RunFinish) -> RunEvent:
        """Store the end with its event, give the lease back, and return the event."""
        ...


class RunEvents:
    """The events of the run *run_id*, numbered in the order they are passed on.

    `taps` receive each event, `observers` are those that were given to an execution of it, `record`
    is the open record of the run.
    `thread_id` and `network` are those of the run, if it has any.
    """

    def __init__(self, run_id: str, now: Callable[[], int], *, network: str | None = None) -> None:
        self.run_id, self.network = run_id, network
        self.thread_id: str | None = None
        self.taps: tuple[Tap, ...] = ()
        self._now, self._next = now, 1
        self.observers: set[Observer] = set()
        self.record: EventStore | None = None
        self._lock, self._turn = Lock(), Lock()
        self._numbered: deque[Emission] = deque()
        self._passing: int | None = None
        self._stays, self._over = 0, False
        self.leaving = False
        """Whether the run is given back, so that no part of it is cancelled."""
        self.left_waiting = False
        """Whether an executor waits for people while another one is at work."""

    @property
    def errors(self) -> int:
        """The number of times that an observer raised."""
        return sum(each.errors for each in self.observers)

    def tap(self, tap: Tap) -> Callable[[], None]:
        """Pass each event on to *tap*; return the function that ends it."""
        self.taps = (*self.taps, tap)

        def off() -> None:
            self.taps = tuple(each for each in self.taps if each is not tap)

        return off

    def begin_at(self, number: int) -> None:
        """Number the next event *number* at least: a former owner emitted others."""
        with self._lock:
            self._next = max(self._next, number)

    async def relay(
        self, event: RunEvent, update: ExecutionEvent | None = None, *, to: Audience | None
    ) -> None:
        """Pass on *event*, which is numbered and stored already, to *to*."""
        self.begin_at(event.seq + 1)
        event = replace(event, thread_id=self.thread_id, network=self.network)
        yielded = None if update is None else update.of(event)
        await self._finish(Emission(event, yielded, to, stored=True))

    async def emit(
        self, facts: EventFacts, update: ExecutionEvent | None = None, *, to: Audience | None
    ) -> None:
        """Emit an event of *facts*, from which *update* is computed; wait for the reader."""
        reserved = await to.reserve() if to is not None else False
        self._pass_on(facts, update, to, reserved=reserved)
        if to is not None and to.observers:
            await to.deliver()

    def emit_soon(
        self, facts: EventFacts, update: ExecutionEvent | None = None, *, to: Audience | None
    ) -> None:
        """Emit an event from any thread, without waiting."""
        self._pass_on(facts, update, to, reserved=False)
        if to is not None:
            to.deliver_soon()

    def number(self, facts: EventFacts, *, to: Audience | None) -> RunEvent:
        """Pass on an event that is stored with its fact, after all before; return it."""
        with self._lock:
            emission = replace(self._numbered_as(facts, None, to), stored=True)
            self._numbered.append(emission)
        self._pass_all()
        with self._turn:
            # Another thread may be passing on those before it.
            pass
        if to is not None:
            to.deliver_soon()
        return emission.event

    def _pass_on(
        self,
        facts: EventFacts,
        update: ExecutionEvent | None,
        to: Audience | None,
        *,
        reserved: bool,
    ) -> None:
        with self._lock:
            # The end of the run is its last event.
            if self._over or (self.leaving and _cancels_part(facts)):
                return
            self._numbered.append(self._numbered_as(facts, update, to, reserved=reserved))
        self._pass_all()

    def _pass_all(self) -> None:
        while self._numbered:
            # A thread that passes events on already also passes on this one, in its order.
            if self._passing == get_ident() or not self._turn.acquire(blocking=False):
                return
            try:
                self._passing = get_ident()
                while self._numbered:
                    self._pass(self._numbered.popleft())
            finally:
                self._passing = None
                self._turn.release()

    def _pass(self, emission: Emission) -> None:
        for tap in () if emission.stored else self.taps:
            try:
                tap(emission.event)
            except Exception:
                # What stores or publishes an event must not break the run.
                log.exception("an event of the run %s was not stored or published", self.run_id)
        if emission.to is not None:
            emission.to.put((emission.event, emission.update), reserved=emission.reserved)

    def _numbered_as(
        self,
        facts: EventFacts,
        update: ExecutionEvent | None,
        to: Audience | None,
        *,
        reserved: bool = False,
        counted: bool = True,
    ) -> Emission:
        if facts.type in LIVE or not counted:
            # It is not stored, and what is stored has no gaps: it has the number before it.
            seq = self._next - 1
        else:
            seq, self._next = self._next, self._next + 1
        event = RunEvent(
            type=facts.type,
            seq=seq,
            at=self._now(),
            run_id=self.run_id,
            thread_id=self.thread_id,
            network=self.network,
            part=facts.part,
            agent=facts.agent,
            call_id=facts.call_id,
            data=facts.data,
        )
        yielded = None if update is None else update.of(event)
        return Emission(event, yielded, to, reserved)

    def begin(self) -> bool:
        """Begin the work of an executor; return if no other one is at work in the run."""
        with self._lock:
            self._stays, self._over = self._stays + 1, False
            self.left_waiting = self.left_waiting and self._stays > 1
            return self._stays == 1

    @property
    def is_alone(self) -> bool:
        """Whether one executor alone is at work in the run."""
        return self._stays <= 1

    def close(self) -> bool:
        """End the work of an executor; after the last one later events are dropped.

        Return if it is that.
        """
        with self._lock:
            self._stays -= 1
            self._over = self._stays <= 0
            return self._over

    async def aside(
        self, facts: EventFacts, update: ExecutionEvent | None = None, *, to: Audience | None
    ) -> None:
        """Emit an event of one executor to its audience alone, while another is at work."""
        with self._lock:
            emission = self._numbered_as(facts, update, to, counted=False)
        await self._finish(replace(emission, stored=True))

    async def last(
        self, facts: EventFacts, update: ExecutionEvent | None = None, *, to: Audience | None
    ) -> None:
        """Emit the last event of a stay, which is closed, after all others."""
        with self._lock:
            emission = self._numbered_as(facts, update, to)
        await self._finish(emission)

    async def _finish(self, last: Emission) -> None:
        """Pass on *last* after all others, and wait until it is received."""
        self._numbered.append(last)
        while self._numbered:
            self._pass_all()
            with self._turn:
                # Another thread may be passing it on: its reader must have it before the work ends.
                pass
        if last.to is not None:
            await last.to.settle()


def _cancels_part(facts: EventFacts) -> bool:
    ended = {"agent.finished": "stop_reason", "team.finished": "status"}.get(facts.type)
    cut_off = ended is not None and facts.data.get(ended) == "cancelled"
    return cut_off or facts.type in {"step.cancelled", "task.cancelled"}


Start: TypeAlias = Callable[[EventFeed], Coroutine[Any, Any, object]]
"""Begins work that emits its events to a feed."""


async def followed(start: Start) -> AsyncGenerator[RunEvent]:
    """Yield the events that *start* emits to its feed, then raise what it raises.

    Leaving early cancels *start* and waits for it.
    """
    feed = EventFeed()
    work = asyncio.ensure_future(start(feed))
    try:
        async for event, _ in feed.read(work):
            yield event
    finally:
        await stopped(work, feed)
    await work


async def updates(start: Start) -> AsyncGenerator[ExecutionEvent]:
    """Do as `followed` does, and yield what `execute()` yields for the events."""
    feed = EventFeed()
    work = asyncio.ensure_future(start(feed))
    try:
        async for _, update in feed.read(work):
            if update is not None:
                yield update
    finally:
        await stopped(work, feed)
    await work


async def stopped(work: "asyncio.Future[Any]", feed: EventFeed) -> None:
    """Close *feed*, cancel *work* and wait for it; its error is not raised here."""
    feed.close()
    work.cancel()
    await asyncio.wait([work])
    if not work.cancelled():
        work.exception()


async def leave(run_id: str, *acts: tuple[str, Callable[[], object | Awaitable[object]]]) -> None:
    """End the run *run_id*: do each of *acts*, a name and a function, in order.

    They are: keep what is finished, store the end, emit it, give the lease back. One that fails is
    logged and does not keep the next from happening; a cancellation is raised after the last.
    """
    interrupted: BaseException | None = None
    for name, act in acts:
        try:
            await awaited(act())
        except Exception:
            log.exception("at the end of the run %s: %s", run_id, name)
        except BaseException as error:  # noqa: BLE001 - raised below
            interrupted = interrupted or error
    if interrupted is not None:
        raise interrupted


MESSAGE: Final = 500
"""Characters of an unforeseen error's message in the end of a run."""


def unforeseen(error: BaseException) -> str:
    """Return the class of *error* and its message, of 500 characters at most."""
    return f"{class_of(error)}: {message_of(error, MESSAGE)}"


def named(error: BaseException) -> dict[str, JSON]:
    """Return *error* as the end of a run has it."""
    return {"name": type(error).__name__, "message": unforeseen(error)}


def message_of(error: BaseException, most: int) -> str:
    """Return the message of *error*, cut at *most* characters."""
    text = described(error)
    return text if len(text) <= most else f"{text[: most - 1]}…"


Sink: TypeAlias = EventFeed
"""The feed of the one who reads a run of agents."""
