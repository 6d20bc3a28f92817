"""The driver that all executors share.

An executor does its work in `perform`, which emits events through its context. `ending` returns the
outcome. An executor inside another is performed by that one; this module is for the outermost.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Mapping
from contextlib import nullcontext
from contextvars import ContextVar, copy_context
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct
from msgspec.structs import asdict

from holdfast import library
from holdfast.ground.errors import (
    CheckpointMismatch,
    HoldfastError,
    RunCancelled,
    RunFailed,
    RunWaiting,
    StaleRun,
)
from holdfast.memories.run.records.event import Reason, RunEvent
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import this_process
from holdfast.memories.run.records.writer import RunOpening
from holdfast.runtime import concurrency
from holdfast.runtime.concurrency import claimed, described
from holdfast.runtime.context import Context
from holdfast.runtime.events import EventFacts, ExecutionEvent, LogUpdate, RunUpdate
from holdfast.runtime.persistence import enclosed, finished_in, persist
from holdfast.runtime.plans.leases import LeaseRequest, lease_of
from holdfast.runtime.runs.checkpoints import Checkpoints
from holdfast.runtime.runs.run_events import (
    Audience,
    EventFeed,
    EventStore,
    Observer,
    RunFinish,
    audience,
    followed,
    leave,
    named,
    unforeseen,
    updates,
)
from holdfast.runtime.runs.run_record import (
    EngineCheckpoints,
    OpenRecord,
    RecordedVersions,
    kind_of,
    memory_events,
    open_record,
    record_name,
    waiting_save,
)
from holdfast.runtime.runs.version_writer import OnMismatch

State: TypeAlias = Literal["waiting", "completed", "failed", "cancelled"]
Prepare: TypeAlias = Callable[[], object] | None
"""Sets what one execution is given, once the executor is at work for it alone."""
Stopped: TypeAlias = RunCancelled | StaleRun | None
"""What stopped a run before its own end."""

log = logging.getLogger(__name__)


class ExecutionOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of an execution.

    *reason* is a code, *detail* says it in words. *failure* is the error that `run` raises.
    *completed* names the finished parts, *blocked* those that never began. One that is `waiting`
    has parts that wait for a person, and nothing else could go on.
    """

    state: Literal["waiting", "completed", "failed"]
    result: Any = None
    reason: Reason | None = None
    detail: str | None = None
    failure: HoldfastError | None = None
    completed: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()


class Executor(Protocol):
    """A step, task, plan, team or other work that can be executed."""

    @property
    def name(self) -> str:
        """The kind for a `RunUpdate`: `step`, `task`, `plan`, `team` and others."""
        ...

    @property
    def title(self) -> str:
        """The name under which people see the run in `hf.runs`."""
        ...

    @property
    def context(self) -> Context:
        """The run it is in."""
        ...

    @property
    def parts(self) -> Collection[str]:
        """The keys of entries that are its alone while it is at work, such as `step:a`."""
        ...

    async def perform(self) -> None:
        """Do the work and emit its events.

        Failure is not raised but emitted. When cancelled, emit what that ends, and raise on.
        """
        ...

    def ending(self) -> ExecutionOutcome:
        """Return the outcome; called after `perform`, also after a cancelled one."""
        ...


@runtime_checkable
class Supplied(Protocol):
    """An executor that sets inputs in run memory when it begins."""

    @property
    def input_keys(self) -> Collection[str]:
        """Their keys."""
        ...


@runtime_checkable
class Resumable(Protocol):
    """An executor that goes on from the versions at its place of checkpoints."""

    @property
    def checkpoints(self) -> Checkpoints | None:
        """The place, of which a run has a lease."""
        ...

    @property
    def on_mismatch(self) -> OnMismatch:
        """What is done with the checkpoint of another run under its id."""
        ...

    def begun_with(self) -> Mapping[str, str]:
        """Return the hashes of what it is begun with, by name."""
        ...


def events(
    executor: Executor, observer: Observer | None = None, prepare: Prepare = None
) -> AsyncGenerator[ExecutionEvent]:
    """Execute *executor*; yield its updates as they happen.

    A reader that stops early stops the work: all of it is cancelled and awaited first.
    """
    return updates(lambda feed: _heard(executor, observer, feed, prepare))


def stream(
    executor: Executor, observer: Observer | None = None, prepare: Prepare = None
) -> AsyncGenerator[RunEvent]:
    """Do as `events` does, and yield every event of the run."""
    return followed(lambda feed: _heard(executor, observer, feed, prepare))


async def run(executor: Executor, observer: Observer | None = None) -> Any:
    """Execute *executor* and return its result.

    Raise the error it failed with, or RunCancelled; RunWaiting while questions of it are open;
    StaleRun once another owner has the run.
    """
    stopped = await _heard(executor, observer)
    if stopped is not None:
        raise stopped
    ending = executor.ending()
    if ending.state == "waiting":
        raise RunWaiting(executor.context.run_id, questions_of(executor.context))
    if ending.failure is not None:
        raise ending.failure
    return ending.result


def questions_of(context: Context) -> tuple[Question, ...]:
    """Return the open questions of the run of *context*."""
    return context.logs.questions


def run_sync(executor: Executor, observer: Observer | None = None) -> Any:
    """Do as `run` does, in a script without an event loop."""
    return concurrency.run_sync(lambda: run(executor, observer))


async def _heard(
    executor: Executor,
    observer: Observer | None,
    feed: EventFeed | None = None,
    prepare: Prepare = None,
) -> Stopped:
    """Perform *executor* for its *feed* and *observer*; return what stopped it.

    Without a reader of its own, that of an enclosing run receives its events.
    """
    with claimed(executor):
        if prepare is not None:
            prepare()
        outer = audience.get()
        observers = () if outer is None else outer.observers
        if observer is not None:
            observers = (*observers, observer)
            executor.context.events.observers.add(observer)
        if feed is None and outer is not None:
            feed = outer.feed
        here = Audience(feed, observers) if feed is not None or observers else None
        token = audience.set(here)
        try:
            return await _performed(executor)
        finally:
            audience.reset(token)


async def _performed(executor: Executor) -> Stopped:
    """Perform *executor*; return what stopped it before its own end, if anything did."""
    context, inside = executor.context, _inside.get()
    if inside is not None and inside.events is context.events:
        whole = await _interruptible(executor)
        return None if whole else _cancelled(executor)
    stay = _Stay(executor, inside)
    await stay.acquire()
    told = memory_events(context.memory, context.events) if context.watched else nullcontext()
    with context.tracer.start_as_current_span("holdfast.run") as span, told:
        span.set_attribute("holdfast.run_id", context.run_id)
        try:
            if context.watched:
                await stay.begin()
            await stay.restore()
            stay.ended(whole=await _interruptible(executor))
        except BaseException as error:
            stay.failed(error)
            raise
        finally:
            await stay.leave()
            span.set_attribute("holdfast.state", stay.state)
    return stay.stopped


def _cancelled(executor: Executor) -> RunCancelled:
    reason = executor.context.cancelled or ""
    return RunCancelled(reason, completed=executor.ending().completed)


class _Stay:
    """A run of *executor* in this process, from its first event to its last."""

    def __init__(self, executor: Executor, within: Context | None) -> None:
        self._executor, self._context, self._within = executor, executor.context, within
        # A sub-run has events of its own; `execute()` yields an update for the outermost alone.
        self._outermost = within is None or within.root is not self._context.root
        self._begun = self._kept = self._whole = False
        self._is_last = True
        self._stored: RunEvent | None = None
        self._rested: tuple[RunEvent, ...] = ()
        self.state: State = "failed"
        self.stopped: Stopped = None
        self._error: BaseException | None = None
        self._reason: Reason = "internal"
        self._detail = ""

    async def acquire(self) -> None:
        """Take the run where it is stored; raise RunTaken if another owner has it."""
        place, hf = getattr(self._executor, "checkpoints", None), self._context.root.hf
        self._context.ownership.stale = None
        # A checkpoint in a database shares the lease of the run's record there.
        late = isinstance(place, EngineCheckpoints)
        if place is not None and not late:
            await self._lease(place)
        try:
            if hf is not None:
                await self.open(hf)
            if late:
                await self._lease(place)
        except BaseException:
            await self._give_back()
            raise

    async def _lease(self, place: object) -> None:
        context = self._context
        request = LeaseRequest(
            run_id=context.run_id,
            name=record_name(self._executor.title, self._executor.name),
            holder=context.ownership.holder,
            place=this_process(),
            take_over=context.take_over,
        )
        context.ownership.leased = await lease_of(place, request, context.lose)

    async def _give_back(self) -> None:
        ownership = self._context.ownership
        held, ownership.leased = ownership.leased, None
        if held is not None:
            await held.give_back(None if self.state == "waiting" else self.state)

    async def open(self, hf: "library.Holdfast") -> None:
        """Open the record of the run; raise RunTaken if another owner has it."""
        executor, context = self._executor, self._context
        if context.events.record is not None:
            # Another executor of this context is at work; they have one record.
            return
        within = None if self._outermost or self._within is None else self._within
        opening = RunOpening(
            kind=kind_of(executor.name),
            name=record_name(executor.title, executor.name),
            agent=record_name(context.agent, "default"),
            parent_id=None if within is None else within.run_id,
            user=context.root.user,
            inputs=self._inputs,
            take_over=context.take_over,
            holder=context.ownership.holder,
            continues=getattr(executor, "checkpoints", None) is not None,
        )
        context.events.record = await open_record(
            hf,
            context.memory,
            context.events,
            opening,
            control=context,
            recorded=context.record,
        )

    @property
    def _inputs(self) -> tuple[str, ...]:
        """The keys of the inputs, those that it sets itself too."""
        there = [entry.key for entry in self._context.memory.list(kind="input")]
        own = self._executor.input_keys if isinstance(self._executor, Supplied) else ()
        return tuple(dict.fromkeys((*there, *own)))

    async def begin(self) -> None:
        """Emit that the run begins."""
        executor, context = self._executor, self._context
        is_first, self._begun = context.events.begin(), True
        update = RunUpdate(event="started", executor=executor.name) if self._outermost else None
        record, to = context.events.record, audience.get()
        if record is not None and record.opened:
            *before, last = record.opened
            record.opened = ()
            for event in before:
                await context.events.relay(event, to=to)
            await context.events.relay(last, update, to=to)
            return
        data = {
            "kind": kind_of(executor.name),
            "name": executor.title,
            "inputs": list(self._inputs),
        }
        tells = context.events.emit if is_first else context.events.aside
        await tells(EventFacts(type="run.started", data=data), update, to=to)

    async def restore(self) -> None:
        """Keep versions from now on, and go on from the newest one, if there is one."""
        executor, context = self._executor, self._context
        resumed = executor if isinstance(executor, Resumable) else None
        place = None if resumed is None else self._place(resumed.checkpoints)
        self._kept = True
        await context.versions.open(place, context.memory)
        if resumed is None or place is None:
            return
        parts = resumed.begun_with()
        other = context.versions.differing(parts)
        if other and resumed.on_mismatch == "refuse":
            raise CheckpointMismatch(other)
        if other:
            why = f"Started again: the checkpoint is of another run ({', '.join(other)})."
            await context.tell(LogUpdate(severity="warning", content=why))
        await context.versions.start(parts, again=bool(other))
        context.go_on()

    def _place(self, given: Checkpoints | None) -> Checkpoints | None:
        """Return where versions are kept: at the place *given*, else in the run's record."""
        record, hf = self._context.events.record, self._context.root.hf
        if not isinstance(record, OpenRecord) or hf is None:
            return given
        if given is None:
            return RecordedVersions(EngineCheckpoints(hf), record) if record.keeps else None
        held = self._context.ownership.leased
        if isinstance(given, EngineCheckpoints) and held is not None and held.lease.shared:
            return RecordedVersions(given, record)
        return given

    def ended(self, *, whole: bool) -> None:
        """Set how the run ended, and what stopped it if it is not *whole*."""
        self._whole, ending = whole, self._executor.ending()
        if self._is_lost(self._context.events.record):
            return None
        if not whole:
            self.stopped = _cancelled(self._executor)
            return self._cancel()
        self.state, self._error = ending.state, ending.failure
        self._reason = ending.reason or ("done" if ending.state == "completed" else "internal")
        self._detail = ending.detail or ""
        return None

    def _is_lost(self, record: EventStore | None) -> bool:
        """Return whether another owner has the run; if so, that is how it ended here."""
        stale = self._context.ownership.stale or (None if record is None else record.stale)
        if stale is not None:
            self.state, self._reason, self._detail = "failed", "taken_over", str(stale)
            self.stopped = self._error = stale
        return stale is not None

    def failed(self, error: BaseException) -> None:
        """Set that *error* ended the run."""
        if isinstance(error, asyncio.CancelledError):
            self._cancel()
            return
        self.state, self._reason, self._error = "failed", "internal", error
        self._detail = described(error) if isinstance(error, HoldfastError) else unforeseen(error)
        if not isinstance(error, HoldfastError):
            log.error("the run %s ended", self._context.run_id, exc_info=error)

    def _cancel(self) -> None:
        self.state, self._reason = "cancelled", "cancelled"
        self._detail = self._context.cancelled or "cancelled"

    async def leave(self) -> None:
        """Keep what is finished, store the end of the run and emit it as its last event."""
        left = self._context.events.left_waiting and bool(questions_of(self._context))
        if left and self.state == "completed" and self._context.events.is_alone:
            # Another executor of this context waits, and this one was the last at work.
            self.state = "waiting"
        if self.state == "waiting":
            return await self._rest()
        try:
            await leave(self._context.run_id, ("what is finished is kept", self._keep))
        finally:
            await self._end()
        return None

    async def _rest(self) -> None:
        """Keep what the run knows with its questions; emit that it waits, as the last."""
        events, versions = self._context.events, self._context.versions
        questions = questions_of(self._context)
        self._is_last = is_last = not self._begun or events.close()
        record, events.left_waiting = events.record, not is_last

        async def keep() -> None:
            try:
                self._rested = await versions.rest(questions) if is_last else ()
                if isinstance(record, OpenRecord) and is_last and not self._rested:
                    save = waiting_save(self._context.run_id, self._context.now(), questions)
                    self._rested = await asyncio.to_thread(record.rest, save)
            except StaleRun as error:
                self._context.lose(error)
            finally:
                await versions.close()

        async def tell() -> None:
            lost = self._is_lost(record)
            if self._begun:
                await (self._tell() if lost else self._tell_rest())

        if is_last:
            events.record = None
        if record is None and not versions.is_open:
            log.warning("the questions of %s are kept in its context alone", self._context.run_id)
        acts = ("what it knows is kept", keep), ("its end is emitted", tell)
        await leave(self._context.run_id, *acts, ("its lease is given back", self._give_back))

    async def _tell_rest(self) -> None:
        events, to = self._context.events, audience.get()
        for event in self._rested[:-1]:
            await events.relay(event, to=to)
        if self._rested:
            await events.relay(self._rested[-1], self._update(), to=to)
            return
        questions, logs = questions_of(self._context), self._context.logs
        tells = events.last if self._is_last else events.aside
        for each in logs.not_asked:
            await tells(logs.asked(each), to=to)
        facts = EventFacts(type="run.waiting", data={"questions": [each.id for each in questions]})
        await tells(facts, self._update(), to=to)

    async def _keep(self) -> None:
        versions = self._context.versions
        if not self._kept:
            return
        try:
            if self._whole:
                await versions.finish()
        finally:
            await versions.close()
            self._is_lost(self._context.events.record)

    async def _end(self) -> None:
        events = self._context.events
        given_back = ("its lease is given back", self._give_back)
        if not self._begun:
            await leave(self._context.run_id, given_back)
            return
        self._is_last, record = events.close(), events.record
        acts: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        if record is not None and self._is_last:
            events.record = None
            acts.append(("its end is stored", lambda: self._store(record)))
        if self.state == "completed" and self._outermost:
            acts.append(("its result is recorded", self._persist))
        await leave(self._context.run_id, *acts, ("its end is emitted", self._tell), given_back)

    async def _persist(self) -> None:
        objective = getattr(self._executor, "objective", self._executor.title)
        nested = self._within is not None
        await persist(finished_in(self._context, objective, self._ending.result, nested=nested))

    async def _store(self, record: EventStore) -> None:
        stored = await record.end(self._finish())
        self._stored = None if self._is_lost(record) else stored

    async def _tell(self) -> None:
        events, to = self._context.events, audience.get()
        if self._stored is not None:
            await events.relay(self._stored, self._update(), to=to)
            return
        finish = self._finish()
        facts = EventFacts(type=f"run.{finish.status}", data=finish.facts())
        tells = events.last if self._is_last else events.aside
        await tells(facts, self._update(), to=to)

    def _finish(self) -> RunFinish:
        error = self._error
        return RunFinish(
            status="failed" if self.state == "waiting" else self.state,
            reason=self._reason,
            detail=self._detail,
            error=None if error is None else named(error),
            usage=asdict(self._context.usage),
            data={"dropped": [], "blocked": list(self._ending.blocked)},
        )

    def _update(self) -> RunUpdate | None:
        if not self._outermost:
            return None
        reason = self._detail
        if self.state == "waiting":
            return RunUpdate(
                event="waiting", executor=self._executor.name, usage=self._context.usage
            )
        if self._error is not None and not isinstance(self._error, HoldfastError):
            reason = f"internal: {reason}"
        return RunUpdate(
            event=self.state,
            executor=self._executor.name,
            result=None if self.stopped else self._ending.result,
            reason=reason or (None if self.state == "completed" else self._reason),
            usage=self._context.usage,
        )

    @property
    def _ending(self) -> ExecutionOutcome:
        try:
            return self._executor.ending()
        except Exception:
            log.exception("the outcome of the run %s", self._context.run_id)
            return ExecutionOutcome(state="failed")


async def _interruptible(executor: Executor) -> bool:
    """Perform *executor* so that cancelling its run stops it; return False if it did."""
    context, loop = executor.context, asyncio.get_running_loop()
    if context.cancelled is not None:
        return False
    within = copy_context()
    within.run(_inside.set, context)
    within.run(enclosed.set, True)
    work = loop.create_task(executor.perform(), context=within)

    def interrupt() -> None:
        loop.call_soon_threadsafe(work.cancel)

    off = context.when_cancelled(interrupt)
    try:
        await work
    except asyncio.CancelledError as error:
        # Being cancelled from outside goes on; being cancelled as a run ends here.
        here = asyncio.current_task()
        if here is not None and here.cancelling():
            raise
        if context.cancelled is None:
            what = "A part of the run raised CancelledError, and nothing had cancelled it."
            raise RunFailed(what, run=context, stop_reason="internal") from error
        return False
    finally:
        off()
    return True


_inside: ContextVar[Context | None] = ContextVar("_inside", default=None)
"""The run that encloses what runs here."""
