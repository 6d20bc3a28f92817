"""The owner of a run of agents: history, lease in `hf.runs`, cancellation."""

import asyncio
import logging
import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from threading import Lock
from types import TracebackType
from typing import Any, get_args

from holdfast import library
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound, StaleRun
from holdfast.ground.validation import check_one_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.record import this_process
from holdfast.memories.run.records.run import Run, RunKind
from holdfast.memories.run.records.writer import RunOpening
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.state import NetworkState
from holdfast.memories.state.thread import ThreadMessage, message_id
from holdfast.runtime.agent import UserMessage
from holdfast.runtime.concurrency import contained
from holdfast.runtime.context import Steering
from holdfast.runtime.history import (
    Discreet,
    EngineHistory,
    History,
    HistoryContext,
    asked,
    has_any,
)
from holdfast.runtime.inference.run_types import InferenceRun, RunEnd, Telling
from holdfast.runtime.plans.leases import LeaseRequest, RunOwnership, lease_of
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import RunFinish
from holdfast.runtime.runs.run_record import (
    EngineCheckpoints,
    OpenRecord,
    Recorded,
    RecordedVersions,
    open_record,
    waiting_save,
)

log = logging.getLogger(__name__)


class Interrupted(Exception):
    """The awaited work was interrupted on request."""


class Interrupting:
    """Interrupts the work inside of `with`, as Interrupted, once `ask` was called.

    A cancellation of the task itself passes through unchanged.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._requested = False
        self._inside: tuple[asyncio.AbstractEventLoop, asyncio.Task[object]] | None = None
        self._before, self._cut = 0, False

    @property
    def asked(self) -> bool:
        """Whether an interruption was requested."""
        return self._requested

    def ask(self) -> None:
        """Interrupt the current and all later work; from any thread."""
        with self._lock:
            self._requested = True
            inside = self._inside
        if inside is not None:
            # Nothing waits on a closed loop.
            with suppress(RuntimeError):
                inside[0].call_soon_threadsafe(self._cut_short)

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("there is no task to cut short")
        with self._lock:
            if self._requested:
                raise Interrupted
            self._inside = asyncio.get_running_loop(), task
            self._before, self._cut = task.cancelling(), False

    def __exit__(
        self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None
    ) -> None:
        with self._lock:
            inside, self._inside = self._inside, None
        if inside is None or not self._cut:
            return
        others = inside[1].uncancel() > self._before
        if kind is asyncio.CancelledError and not others:
            raise Interrupted

    def _cut_short(self) -> None:
        with self._lock:
            if self._inside is not None and not self._cut:
                self._cut = True
                self._inside[1].cancel()


class HistoryFailed(Exception):
    """A history raised, or returned an invalid value; that is its cause."""

    def __init__(self, method: str) -> None:
        super().__init__(f"the history failed at {method}")
        self.method = method

    @property
    def ending(self) -> RunEnd:
        """The end of a run by this failure, or by a takeover that it has found."""
        if isinstance(self.__cause__, StaleRun):
            return taken_over(self.__cause__)
        return RunEnd("history", self.method, self.__cause__)


def taken_over(error: StaleRun) -> RunEnd:
    """Return the end of a run that another owner has, with *error*."""
    return RunEnd("taken_over", "another process has taken it over", error)


class Remembering:
    """Loads a run's thread from its *history* and stores the run in it.

    Without a history it does nothing. What it stores carries the fence of the run's *owner*.
    """

    def __init__(
        self,
        history: History | None,
        *,
        owner: "RunOwner",
        state: NetworkState,
        input: UserMessage,
        network: Any = None,
    ) -> None:
        self.history, self._owner = history, owner
        self._state, self._input, self._network = state, input, network

    @property
    def is_of_record(self) -> bool:
        """Whether it stores in the thread of the run's record, beside its versions."""
        return self._owner.has_thread_of(self.history)

    async def open(self, thread_id: str | None, *, again: bool = False) -> Run | None:
        """Join the thread, and load its results into an empty state.

        A run that has ended before is returned as it is recorded. One that may have been begun
        before is resumed in its thread with *again*. Raise HistoryFailed, with its cause.
        """
        if again and not thread_id and not self._state.thread_id:
            begun: Run | None = await self._ask("get_run")
            thread_id = begun.thread_id if begun else None
        given = thread_id or self._state.thread_id
        if thread_id and self._state.thread_id not in (None, thread_id):
            raise InvalidInput("thread_id", f"the state is of {self._state.thread_id}", given=given)
        thread = given or await self._new_thread()
        if thread and self._state.thread_id is None:
            self._state.thread_id = thread
        record: Run | None = await self._ask("get_run")
        if given and not self._state.results and not self._state.messages:
            found = await self._ask("get")
            if found:
                self._load(found)
        return record if record and record.ended else None

    async def begin(self, started_at: datetime, kind: RunKind, name: str) -> None:
        """Store that the run has begun, and the user's message."""
        record = Run(
            id=self._owner.run_id,
            kind=kind,
            name=name,
            agent=None if kind == "network" else name,
            thread_id=self._state.thread_id,
            started_at=started_at,
        )
        await self._ask("start_run", record)
        if self._input.content:
            await self._ask("append_user_message", self._message())

    async def add(self, results: Sequence[InferenceResult]) -> None:
        """Store the new *results*."""
        if results:
            await self._ask("append_results", list(results))

    async def end(self, record: Run) -> None:
        """Store how the run ended."""
        await self._ask("end_run", record)

    async def _new_thread(self) -> str | None:
        if self.history is None or not has_any(self.history):
            return None
        made: Any = await self._ask("create_thread")
        if made is None and not hasattr(self.history, "create_thread"):
            return f"thread_{secrets.token_hex(12)}"
        if not isinstance(made, str) or not made:
            raise HistoryFailed("create_thread") from InvalidInput(
                "create_thread", "must return the id of a thread", given=made
            )
        return made

    def _load(self, found: Sequence[Any]) -> None:
        try:
            self._state.set_results(found)
        except InvalidInput as error:
            raise HistoryFailed("get") from error

    def _message(self) -> ThreadMessage:
        return ThreadMessage(
            id=self._input.id or message_id(self._owner.run_id),
            content=self._input.content,
            at=self._input.at or self._owner.clock.now(),
        )

    async def _ask(self, method: str, *given: object) -> Any:
        if self.history is None:
            return None
        ctx = HistoryContext(
            run_id=self._owner.run_id,
            thread_id=self._state.thread_id,
            input=self._input.content,
            state=self._state,
            network=self._network,
            fence=self._owner.fence_of(self.history),
        )
        try:
            with contained():
                return await asked(self.history, method, ctx, *given)
        except Exception as error:
            # A user's history may raise anything; the run ends with it as the cause.
            raise HistoryFailed(method) from error


def hf_of(given: "library.Holdfast | None", history: object) -> "library.Holdfast | None":
    """Return *given*, or else what *history* stores in, if that is a Holdfast."""
    if given is not None:
        return given
    kept = history.history if isinstance(history, Discreet) else history
    return kept.hf if isinstance(kept, EngineHistory) else None


def user_of(given: str | None, history: object) -> str | None:
    """Return *given*, or else the user of the threads that *history* stores."""
    if given is not None:
        return given
    kept = history.history if isinstance(history, Discreet) else history
    return kept.user if isinstance(kept, EngineHistory) else None


class RunOwner:
    """The owner of a run of agents, through which it is cancelled and steered.

    With *hf* the run has a lease there, and its events and its end are stored; without, nothing is.
    `stale` is the error once another owner has the run: then nothing more is written. `stored` is
    the event of the end, once it is stored.
    """

    def __init__(self, hf: "library.Holdfast | None", run_id: str, clock: Clock) -> None:
        self.interrupting, self.steering = Interrupting(), Steering()
        self.hf, self.run_id, self.clock = hf, run_id, clock
        self._why = ""
        self._place: Checkpoints | None = None
        self._opening = RunOpening(kind="agent", name="")
        self._record: OpenRecord | None = None
        self.stored: RunEvent | None = None
        self.ownership = RunOwnership()

    def cancel(self, reason: str = "cancelled") -> None:
        """End the run now, as cancelled for the first *reason*; from any thread."""
        if not self.interrupting.asked:
            self._why = reason
            self.interrupting.ask()

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of the agent *step*, or of the one at work.

        Return the names of the agents that got it. Raise NotFound for one that is not at work.
        """
        return self.steering.steer(text, step=step)

    def ending(self) -> RunEnd:
        """Return the end of the run once it was interrupted."""
        if self.stale is not None:
            return taken_over(self.stale)
        return RunEnd("cancelled", self._why)

    @property
    def stale(self) -> StaleRun | None:
        """The error once another owner has the run."""
        return (self._record and self._record.stale) or self.ownership.stale

    def lose(self, error: StaleRun) -> None:
        """End the run: another owner has it."""
        self.ownership.stale = error
        self.cancel(str(error))

    @property
    def place(self) -> Checkpoints | None:
        """Where versions of the run are kept: the place it was given, else its record."""
        if self._place is not None or self.hf is None or self._record is None:
            return self._place
        if not self._record.keeps:
            return None
        return RecordedVersions(EngineCheckpoints(self.hf), self._record)

    def fence_of(self, history: object) -> int:
        """Return the token of the lease if *history* stores in the same `hf`, else 0."""
        return self._record.fence if self._record and hf_of(None, history) is self.hf else 0

    def has_thread_of(self, history: object) -> bool:
        """Whether *history* stores in the thread that the run's record names, beside it."""
        if self._record is None or not self._record.keeps or self._place is not None:
            return False
        return hf_of(None, history) is self.hf and self._opening.thread_id is not None

    async def acquire(
        self,
        opening: RunOpening,
        telling: Telling,
        place: Checkpoints | None = None,
        recorded: Recorded = "content",
    ) -> None:
        """Own the run in *hf*, if there is one, and store its events as *recorded*.

        It is owned at *place*, too. Raise RunTaken if another owner has it.
        """
        check_one_of("record", recorded, get_args(Recorded), "must be content or facts")
        self._opening, self._place = opening, place
        if place is not None:
            request = LeaseRequest(
                run_id=self.run_id,
                name=opening.name,
                holder=self.ownership.holder,
                place=this_process(),
                take_over=opening.take_over,
            )
            self.ownership.leased = await lease_of(place, request, self.lose)
        if self.hf is not None:
            memory = RunMemory(run_id=self.run_id, clock=self.clock)
            self._record = await open_record(
                self.hf,
                memory,
                telling.events,
                opening,
                control=self,
                recorded=recorded,
            )

    async def begin(self, telling: Telling) -> None:
        """Emit that the run begins."""
        opening = self._opening
        if self._record is None:
            data = {"kind": opening.kind, "name": opening.name, "inputs": list(opening.inputs)}
            return await telling.tell("run.started", data)
        for event in self._record.opened:
            await telling.relay(event)
        return None

    async def rest(self, run: InferenceRun, telling: Telling) -> None:
        """Keep *run* with its questions, free its lease, and emit that it waits.

        `stale` is set if another owner has the run by then: it waits no more, and emits nothing.
        """
        questions, told = run.logs.questions, tuple[RunEvent, ...]()
        try:
            told = await run.versions.rest(questions)
            if self._record is not None and not told:
                now = to_microseconds(self.clock.now()) // 1_000
                save = waiting_save(self.run_id, now, questions)
                told = await asyncio.to_thread(self._record.rest, save)
        except StaleRun as error:
            self.lose(error)
        finally:
            await run.versions.close()
            leased, self.ownership.leased = self.ownership.leased, None
            if leased is not None:
                await leased.give_back(None)
        if self.stale is not None:
            return
        for event in told:
            await telling.relay(event)
        for each in () if told else run.logs.not_asked:
            telling.emit_soon(run.logs.asked(each))
        if not told:
            await telling.tell("run.waiting", {"questions": [each.id for each in questions]})

    async def end(
        self,
        ending: RunEnd,
        keepers: Sequence[Remembering],
        record: Callable[[RunEnd, bool], Run],
        dropped: Sequence[str] = (),
    ) -> RunEnd:
        """Store the end of the run, there and with *keepers*, and give its lease back.

        Return the end as it is stored: a keeper that fails ends a completed run as failed. One that
        fails keeps no other from storing it. *record* returns the record of an end, or with False
        one without extras. A stale owner writes nothing, and its run has failed.
        """
        if self.stale is not None:
            ending = taken_over(self.stale)
        leased, self.ownership.leased = self.ownership.leased, None
        if leased is not None:
            await leased.give_back(ending.status)
        held = self._record
        left = RunFinish(status=ending.status, reason=ending.reason, detail=ending.detail)
        stale = ending.reason == "taken_over"
        if stale or (held is not None and held.is_given_back_by(left)):
            event = None if held is None else await held.end(left)
            self.stored = None if stale else event
            return ending
        # What is kept in *hf* itself adds to the record that the owner has ended.
        own = [each for each in keepers if held and hf_of(None, each.history) is self.hf]
        broken = await _stored([each for each in keepers if each not in own], record, ending)
        if broken is not None and ending.status == "completed":
            ending = broken
        if held is not None:
            event = await held.end(_finish_of(ending, record(ending, False), dropped))
            if held.stale is not None:
                return taken_over(held.stale)
            self.stored = event
        await _stored(own, record, ending)
        return ending


def _finish_of(ending: RunEnd, record: Run, dropped: Sequence[str]) -> RunFinish:
    return RunFinish(
        status=ending.status,
        reason=ending.reason,
        detail=record.detail,
        error=record.error,
        usage=record.usage.export(),
        data={"dropped": list(dropped), "blocked": []},
    )


async def _stored(
    keepers: Iterable[Remembering], record: Callable[[RunEnd, bool], Run], ending: RunEnd
) -> RunEnd | None:
    """Store *ending* with all *keepers*; return the end by one that failed, or None."""
    broken: RunEnd | None = None
    made = _made(record, ending)
    for each in keepers:
        try:
            await each.end(made)
        except HistoryFailed as error:
            log.warning("the end of the run %s was not stored", made.id, exc_info=error)
            broken = error.ending
    return broken


def _made(record: Callable[[RunEnd, bool], Run], ending: RunEnd) -> Run:
    try:
        return record(ending, True)
    except InvalidInput:
        log.warning("the record of a run is stored without its extras", exc_info=True)
        return record(ending, False)


async def is_over(owner: RunOwner) -> bool:
    """Return whether the run has ended in its database, or has no record."""
    if owner.hf is None:
        return True
    try:
        return (await asyncio.to_thread(owner.hf.runs.retrieve, owner.run_id)).ended
    except NotFound:
        return True


async def untold(owner: RunOwner, results: Sequence[InferenceResult]) -> list[InferenceResult]:
    """Return the results of calls whose end is not stored as an event yet."""
    if owner.hf is None or not results:
        return []
    parts = await asyncio.to_thread(owner.hf.runs.parts, owner.run_id)
    # A part that was running is pending since its run was lost and queued again.
    ended = {
        part.id
        for part in parts
        if part.kind == "agent" and part.state not in ("pending", "running")
    }
    return [each for each in results if f"{each.agent}.{each.index or 0}" not in ended]
