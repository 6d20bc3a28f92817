"""Histories of agents: in memory, in an engine, of a session.

A history is an object with any of the methods below, each plain or awaitable. Each protocol has one
of them, and `History` is an object with at least one.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from msgspec import Struct
from msgspec.structs import replace

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, ResultDiffers
from holdfast.ground.events import EventBus
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON
from holdfast.memories.longterm.recall.block import without_blocks
from holdfast.memories.run.records.run import Run, merged
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult, copied, size_of, text_of
from holdfast.memories.state.sources import in_order, restated
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import (
    MOST_LISTED,
    Thread,
    ThreadMessage,
    ThreadTurn,
    checked_id,
)
from holdfast.memories.state.threads import GivenTurn, Threads, checksum_of_turn, turns_of

T = TypeVar("T")

Given: TypeAlias = T | Awaitable[T]
Results: TypeAlias = Sequence[InferenceResult | Mapping[str, object]]

METHODS: Final = (
    "create_thread",
    "get",
    "append_user_message",
    "append_results",
    "get_run",
    "start_run",
    "end_run",
)
"""The methods that a history may have."""


class HistoryContext(Struct, frozen=True, kw_only=True):
    """The thread and run that a history is called for.

    `thread_id` is None until there is one; `network` is None for an agent that runs alone. `fence`
    is the token of the run's owner in the same `hf`, 0 without one.
    """

    run_id: str
    thread_id: str | None = None
    input: str = ""
    state: NetworkState | None = None
    network: Any = None
    fence: int = 0


@runtime_checkable
class CreatesThreads(Protocol):
    """Makes the thread of a run that was given none."""

    def create_thread(self, ctx: HistoryContext) -> Given[str]:
        """Return the id of a new thread; called once."""
        ...


@runtime_checkable
class GivesResults(Protocol):
    """Loads the results of earlier runs."""

    def get(self, ctx: HistoryContext) -> Given[Results]:
        """Return the results of the thread or their dicts, oldest first.

        An unknown thread has []. Called once, for a given thread and a state without content.
        """
        ...


@runtime_checkable
class TakesUserMessages(Protocol):
    """Stores the messages of users."""

    def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> object:
        """Store the user's *message*.

        Called once, after `get`, and not for an empty input.
        """
        ...


@runtime_checkable
class TakesResults(Protocol):
    """Stores the results of agents."""

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
        """Store the new *results*; called after each call of an agent, never with none."""
        ...


@runtime_checkable
class EndsRuns(Protocol):
    """Receives the ends of runs."""

    def end_run(self, ctx: HistoryContext, summary: Run) -> object:
        """Receive the status, stop reason and usage of the ended run; called once."""
        ...


@runtime_checkable
class KeepsRuns(Protocol):
    """Stores records of runs, so that an ended run is not run again under its id."""

    def get_run(self, ctx: HistoryContext) -> Given[Run | None]:
        """Return the record of the run, or None."""
        ...

    def start_run(self, ctx: HistoryContext, record: Run) -> object:
        """Store the record of a run that has begun."""
        ...


History: TypeAlias = (
    CreatesThreads | GivesResults | TakesUserMessages | TakesResults | EndsRuns | KeepsRuns
)
"""An object with one or more of these methods."""


async def asked(history: History, method: str, *given: object) -> Any:
    """Call *method* of *history* with *given*; return None if it has no such method."""
    found = getattr(history, method, None)
    if found is None:
        return None
    answer = found(*given)
    return await answer if inspect.isawaitable(answer) else answer


def has_any(history: object) -> bool:
    """Return whether *history* has any of the methods, so that its runs need a thread."""
    return any(getattr(history, method, None) is not None for method in METHODS)


class LoadedThread(Struct, frozen=True):
    """The results of a thread as they were loaded, and by what a change is noticed."""

    created_at: datetime
    turns: int
    last: int
    results: list[InferenceResult]
    size: int


LOADED: Final = 16_777_216
"""Bytes of results that a history keeps of the threads that it loaded."""


class LoadedThreads:
    """The results of threads that were loaded last: the next turn loads what is new.

    A thread of which a turn was removed is loaded anew. What exceeds `LOADED` bytes is evicted, the
    thread that was used longest ago first.
    """

    def __init__(self) -> None:
        self._threads: dict[str, LoadedThread] = {}
        self._lock = Lock()

    def results(self, threads: Threads, thread_id: str) -> list[InferenceResult]:
        """Return the results of the thread, oldest first; raise NotFound if there is none."""
        thread = threads.retrieve(thread_id)
        with self._lock:
            known = self._threads.pop(thread_id, None)
        loaded = (known and _continued(threads, thread, known)) or _loaded(threads, thread)
        with self._lock:
            self._threads[thread_id] = loaded
            size = sum(each.size for each in self._threads.values())
            while size > LOADED:
                size -= self._threads.pop(next(iter(self._threads))).size
        return in_order(map(copied, loaded.results))[0]


def _continued(threads: Threads, thread: Thread, known: LoadedThread) -> LoadedThread | None:
    """Return *known* with the turns after it; None if a turn of it was removed."""
    new = thread.turns - known.turns
    if new < 0 or thread.created_at != known.created_at:
        return None
    # With one turn removed and another added, the newest so many begin after the last known one.
    found = list(threads.turns(thread.id, MOST_LISTED, last=new + 1).all())
    if not found or found[0].seq != known.last or len(found) != new + 1:
        return None
    return _with(known, found[1:])


def _loaded(threads: Threads, thread: Thread) -> LoadedThread:
    empty = LoadedThread(thread.created_at, 0, 0, [], 0)
    return _with(empty, list(threads.turns(thread.id, MOST_LISTED).all()))


def _with(before: LoadedThread, turns: list[ThreadTurn]) -> LoadedThread:
    """Return the thread with the new *turns*."""
    new = [each.result for each in turns if each.result is not None]
    return LoadedThread(
        before.created_at,
        before.turns + len(turns),
        turns[-1].seq if turns else before.last,
        [*before.results, *new],
        before.size + sum(map(size_of, new)),
    )


class EngineHistory:
    """Stores threads and runs in the workspace of a handle, local or remote.

    It keeps the results of the threads that it loaded last, so that a turn loads what is new.
    A write is durable when its call returns; the event loop is not blocked. New threads are
    *user*'s, if one is named, and no other user's are written to.
    """

    def __init__(
        self,
        hf: "library.Holdfast",
        *,
        user: str | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self.hf, self.user = hf, user
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._loaded = LoadedThreads()

    @property
    def bus(self) -> EventBus | None:
        """The bus for the events of its runs: its engine's; None through a server."""
        found = cast("object", self.hf.events)
        return found if isinstance(found, EventBus) else None

    def create_thread(self, ctx: HistoryContext) -> str:
        """Return the id of a new thread, which exists once something is appended."""
        del ctx
        return self._ids.new("thread", to_microseconds(self._clock.now()))

    async def get(self, ctx: HistoryContext) -> list[InferenceResult]:
        """Return the thread's results, oldest first; [] for an unknown thread."""
        return await asyncio.to_thread(self._results, thread_of(ctx))

    async def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> None:
        """Store the user's message; storing the same again changes nothing."""
        await self._append(ctx, [ThreadTurn.said(message, run_id=ctx.run_id)])

    async def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Store *results*, all or none; storing the same again changes nothing.

        Raise ResultDiffers for another result under a stored id, StaleRun once the run has another
        owner.
        """
        await self._append(ctx, results)

    async def get_run(self, ctx: HistoryContext) -> Run | None:
        """Return the record of the run, or None."""
        return await asyncio.to_thread(self._run, ctx.run_id)

    async def start_run(self, ctx: HistoryContext, record: Run) -> None:
        """Store the record of a run that has begun; raise Conflict if it has ended before."""
        await asyncio.to_thread(self.hf.runs.put, replace(record, fence=ctx.fence))

    async def end_run(self, ctx: HistoryContext, summary: Run) -> None:
        """Store the record of a run that has ended."""
        await asyncio.to_thread(self.hf.runs.put, replace(summary, fence=ctx.fence))

    async def _append(self, ctx: HistoryContext, turns: Sequence[GivenTurn]) -> None:
        append = partial(self.hf.threads.append, user=self.user, fence=ctx.fence)
        await asyncio.to_thread(append, thread_of(ctx), turns)

    def _results(self, thread_id: str) -> list[InferenceResult]:
        try:
            return self._loaded.results(self.hf.threads, thread_id)
        except NotFound:
            return []

    def _run(self, run_id: str) -> Run | None:
        try:
            return self.hf.runs.retrieve(run_id)
        except NotFound:
            return None


def thread_of(ctx: HistoryContext) -> str:
    """Return the thread that *ctx* names; raise InvalidInput if it names none."""
    if ctx.thread_id is None:
        raise InvalidInput("thread_id", "is needed to store a run")
    return ctx.thread_id


class InMemoryHistory:
    """Stores threads and runs as `EngineHistory` does, in the memory of the process.

    Threads may share it.
    """

    def __init__(self, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._threads: dict[str, dict[str, ThreadTurn]] = {}
        self._runs: dict[str, Run] = {}
        self._lock = Lock()

    def create_thread(self, ctx: HistoryContext) -> str:
        """Return the id of a new thread."""
        del ctx
        return self._ids.new("thread", to_microseconds(self._clock.now()))

    def get(self, ctx: HistoryContext) -> list[InferenceResult]:
        """Return the thread's results, oldest first; [] for an unknown thread."""
        found = self.turns(thread_of(ctx))
        return [turn.result for turn in found if turn.result is not None]

    def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> None:
        """Store the user's message; storing the same again changes nothing."""
        self._append(thread_of(ctx), [ThreadTurn.said(message, run_id=ctx.run_id)])

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Store *results*, all or none; storing the same again changes nothing.

        Raise ResultDiffers for another result under a stored id.
        """
        self._append(thread_of(ctx), results)

    def get_run(self, ctx: HistoryContext) -> Run | None:
        """Return the record of the run, or None."""
        with self._lock:
            return self._runs.get(ctx.run_id)

    def start_run(self, ctx: HistoryContext, record: Run) -> None:
        """Store the record of a run that has begun; raise Conflict if it has ended before."""
        del ctx
        self._put(record)

    def end_run(self, ctx: HistoryContext, summary: Run) -> None:
        """Store the record of a run that has ended."""
        del ctx
        self._put(summary)

    def turns(self, thread_id: str) -> list[ThreadTurn]:
        """Return the turns of the thread, oldest first; [] for an unknown one."""
        thread = checked_id("thread_id", thread_id)
        with self._lock:
            return list(self._threads.get(thread, {}).values())

    def _append(self, thread_id: str, given: Sequence[GivenTurn]) -> None:
        thread, turns = checked_id("thread_id", thread_id), turns_of(given)
        with self._lock:
            there = self._threads.get(thread, {})
            new: dict[str, ThreadTurn] = {}
            for turn in turns:
                held = there.get(turn.id) or new.get(turn.id)
                if held is None:
                    new[turn.id] = turn
                elif (old_sum := checksum_of_turn(held)) != (new_sum := checksum_of_turn(turn)):
                    raise ResultDiffers(turn.id, stored=old_sum, given=new_sum)
            self._threads[thread] = there | new

    def _put(self, record: Run) -> None:
        with self._lock:
            held = self._runs.get(record.id)
            ended = held is not None and held.ended
            self._runs[record.id] = merged(held, record) if held and ended else record


class Discreet:
    """Wraps *history* to store results without recalled blocks and *hidden* text.

    Results are stored with *extras* besides their own. It has the methods that *history* has, and
    no others.
    """

    def __init__(
        self,
        history: History,
        hidden: Callable[[], str],
        extras: Callable[[], Mapping[str, JSON]] = dict,
    ) -> None:
        self.history, self._hidden, self._extras = history, hidden, extras

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.history, name)
        if name != "append_results":
            return found

        def append_results(ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
            return found(ctx, [self._stored(each) for each in results])

        return append_results

    def _stored(self, result: InferenceResult) -> InferenceResult:
        bare, extras = restated(result, self._bare), self._extras()
        return bare.replace(extras={**bare.extras, **extras}) if extras else bare

    def _bare(self, message: Message) -> Message | None:
        """Return *message*, if a system text then cut, and None if nothing is left of it."""
        if not isinstance(message, TextMessage) or message.role != "system":
            return message
        text = without_blocks(text_of(message))
        if hidden := self._hidden():
            text = text.replace(f"\n\n{hidden}", "").replace(hidden, "")
        if text == text_of(message):
            return message
        return TextMessage(role="system", content=text, agent=message.agent) if text else None
