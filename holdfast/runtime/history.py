"""Histories of agents: in memory, in an engine, of a session.

A history is an object with any of the methods below, each plain or awaitable: the protocols say
one each, and `History` is whatever has one of them.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any, Final, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from msgspec import Struct

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, ResultDiffers
from holdfast.ground.events import EventBus
from holdfast.ground.ids import Ids
from holdfast.memories.longterm.block import without_blocks
from holdfast.memories.state.message import Message, TextMessage
from holdfast.memories.state.result import InferenceResult, text_of
from holdfast.memories.state.run_records import RunRecord, already_ended
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import ThreadMessage, ThreadTurn, checked_id
from holdfast.memories.state.thread_store import GivenTurn, checksum_of_turn, turns_of

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
"""What a history may have."""


class HistoryContext(Struct, frozen=True, kw_only=True):
    """Which thread and run a history is asked about.

    `thread_id` is None until there is one; `network` is None for an agent that runs alone.
    """

    run_id: str
    thread_id: str | None = None
    input: str = ""
    state: NetworkState | None = None
    network: Any = None


@runtime_checkable
class CreatesThreads(Protocol):
    """Names the thread of a run that was given none."""

    def create_thread(self, ctx: HistoryContext) -> Given[str]:
        """Return the id of a new thread; asked once."""
        ...


@runtime_checkable
class GivesResults(Protocol):
    """Knows what came of earlier runs."""

    def get(self, ctx: HistoryContext) -> Given[Results]:
        """Return the thread's results or their dicts, oldest first; [] for an unknown thread.

        Asked once, for a thread that was given and a state that holds nothing yet.
        """
        ...


@runtime_checkable
class TakesUserMessages(Protocol):
    """Keeps what users say."""

    def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> object:
        """Keep what the user said; asked once, after `get`, and not when nothing was said."""
        ...


@runtime_checkable
class TakesResults(Protocol):
    """Keeps what agents make."""

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
        """Keep *results*, which are new; asked after each call of an agent, never with none."""
        ...


@runtime_checkable
class EndsRuns(Protocol):
    """Hears how runs end."""

    def end_run(self, ctx: HistoryContext, summary: RunRecord) -> object:
        """Hear how the run ended: its status, stop reason and usage; asked once."""
        ...


@runtime_checkable
class KeepsRuns(Protocol):
    """Keeps records of runs, so that one which ended is not run again under its id."""

    def get_run(self, ctx: HistoryContext) -> Given[RunRecord | None]:
        """Return the record of the run, or None."""
        ...

    def start_run(self, ctx: HistoryContext, record: RunRecord) -> object:
        """Keep the record of a run that has begun."""
        ...


History: TypeAlias = (
    CreatesThreads | GivesResults | TakesUserMessages | TakesResults | EndsRuns | KeepsRuns
)
"""Any object that has one of these methods, or more."""


async def asked(history: History, method: str, *given: object) -> Any:
    """Return what *method* of *history* gives for *given*; None where it has no such method."""
    found = getattr(history, method, None)
    if found is None:
        return None
    answer = found(*given)
    return await answer if inspect.isawaitable(answer) else answer


def has_any(history: object) -> bool:
    """Tell whether *history* has any of the methods, so that its runs need a thread."""
    return any(getattr(history, method, None) is not None for method in METHODS)


class EngineHistory:
    """Keeps threads and runs in the workspace of a handle, whatever that was opened on.

    What it is asked to keep is durable when the answer comes; the event loop does not wait.
    """

    def __init__(
        self, hf: "library.Holdfast", *, clock: Clock | None = None, ids: Ids | None = None
    ) -> None:
        self.hf = hf
        self._clock, self._ids = clock or SystemClock(), ids or Ids()

    @property
    def bus(self) -> EventBus | None:
        """Where what happens in its runs is told: its engine's bus; None through a server."""
        found = cast("object", self.hf.events)
        return found if isinstance(found, EventBus) else None

    def create_thread(self, ctx: HistoryContext) -> str:
        """Return the id of a new thread, which is there once something is appended."""
        del ctx
        return self._ids.new("thread", to_microseconds(self._clock.now()))

    async def get(self, ctx: HistoryContext) -> list[InferenceResult]:
        """Return the thread's results, oldest first; [] for an unknown thread."""
        return await asyncio.to_thread(self._results, thread_of(ctx))

    async def append_user_message(self, ctx: HistoryContext, message: ThreadMessage) -> None:
        """Keep what the user said; the same twice is once."""
        turn = ThreadTurn.said(message, run_id=ctx.run_id)
        await asyncio.to_thread(self.hf.threads.append, thread_of(ctx), [turn])

    async def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Keep *results*, all or none; the same twice is once, else ResultDiffers."""
        await asyncio.to_thread(self.hf.threads.append, thread_of(ctx), results)

    async def get_run(self, ctx: HistoryContext) -> RunRecord | None:
        """Return the record of the run, or None."""
        return await asyncio.to_thread(self._run, ctx.run_id)

    async def start_run(self, ctx: HistoryContext, record: RunRecord) -> None:
        """Keep the record of a run that has begun; Conflict if it has ended before."""
        del ctx
        await asyncio.to_thread(self.hf.network_runs.put, record)

    async def end_run(self, ctx: HistoryContext, summary: RunRecord) -> None:
        """Keep the record of a run that has ended."""
        del ctx
        await asyncio.to_thread(self.hf.network_runs.put, summary)

    def _results(self, thread_id: str) -> list[InferenceResult]:
        try:
            return self.hf.threads.results(thread_id)
        except NotFound:
            return []

    def _run(self, run_id: str) -> RunRecord | None:
        try:
            return self.hf.network_runs.retrieve(run_id)
        except NotFound:
            return None


def thread_of(ctx: HistoryContext) -> str:
    """Return the thread that *ctx* names; InvalidInput if it names none."""
    if ctx.thread_id is None:
        raise InvalidInput("thread_id", "is needed to store a run")
    return ctx.thread_id


class InMemoryHistory:
    """Keeps threads and runs as `EngineHistory` does, for as long as it lives itself.

    Threads may share it.
    """

    def __init__(self, *, clock: Clock | None = None, ids: Ids | None = None) -> None:
        self._clock, self._ids = clock or SystemClock(), ids or Ids()
        self._threads: dict[str, dict[str, ThreadTurn]] = {}
        self._runs: dict[str, RunRecord] = {}
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
        """Keep what the user said; the same twice is once."""
        self._append(thread_of(ctx), [ThreadTurn.said(message, run_id=ctx.run_id)])

    def append_results(self, ctx: HistoryContext, results: Sequence[InferenceResult]) -> None:
        """Keep *results*, all or none; the same twice is once, else ResultDiffers."""
        self._append(thread_of(ctx), results)

    def get_run(self, ctx: HistoryContext) -> RunRecord | None:
        """Return the record of the run, or None."""
        with self._lock:
            return self._runs.get(ctx.run_id)

    def start_run(self, ctx: HistoryContext, record: RunRecord) -> None:
        """Keep the record of a run that has begun; Conflict if it has ended before."""
        del ctx
        self._put(record)

    def end_run(self, ctx: HistoryContext, summary: RunRecord) -> None:
        """Keep the record of a run that has ended."""
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
                elif (stored := checksum_of_turn(held)) != (told := checksum_of_turn(turn)):
                    raise ResultDiffers(turn.id, stored=stored, given=told)
            self._threads[thread] = there | new

    def _put(self, record: RunRecord) -> None:
        with self._lock:
            held = self._runs.get(record.id)
            if held is not None and held.ended and held != record:
                raise already_ended(record.id)
            self._runs[record.id] = record


class Discreet:
    """Does as *history* does, but keeps of results neither recalled blocks nor what *hidden* gives.

    It has the methods that *history* has, and no others.
    """

    def __init__(self, history: History, hidden: Callable[[], str]) -> None:
        self._history, self._hidden = history, hidden

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._history, name)
        if name != "append_results":
            return found

        def append_results(ctx: HistoryContext, results: Sequence[InferenceResult]) -> object:
            return found(ctx, [self._bare(each) for each in results])

        return append_results

    def _bare(self, result: InferenceResult) -> InferenceResult:
        return result.replace(
            prompt=self._without(result.prompt), history=self._without(result.history)
        )

    def _without(self, messages: Iterable[Message]) -> list[Message]:
        """Return *messages*, the system's cut, and those left out of which nothing stays."""
        hidden = self._hidden()
        kept: list[Message] = []
        for message in messages:
            if not isinstance(message, TextMessage) or message.role != "system":
                kept.append(message)
                continue
            text = without_blocks(text_of(message))
            if hidden:
                text = text.replace(f"\n\n{hidden}", "").replace(hidden, "")
            if text == text_of(message):
                kept.append(message)
            elif text:
                kept.append(TextMessage(role="system", content=text, agent=message.agent))
        return kept
