"""The context of a run: models, tools, cancellation, steering, run memory."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from threading import Lock, RLock
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args
from weakref import WeakSet

import msgspec
from msgspec import Struct
from msgspec.structs import astuple
from opentelemetry import trace
from pydantic_ai.exceptions import UserError
from pydantic_ai.usage import RequestUsage

from holdfast import library
from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NoModel, NotFound, StaleRun, WaitTimeout
from holdfast.ground.ids import Ids
from holdfast.ground.text import encoded
from holdfast.ground.validation import check_one_of, listed
from holdfast.memories.run import keys
from holdfast.memories.run.entry import EVERYTHING, EntryFilter, RunEntry, filter_of
from holdfast.memories.run.history.versions import StateRow
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import TakeOver
from holdfast.runtime.agent import AgentSpec, AnyModel
from holdfast.runtime.concurrency import Claims, Slots
from holdfast.runtime.events import EventFacts, ExecutionEvent, Spending, event_facts
from holdfast.runtime.mcp import Remote
from holdfast.runtime.metrics import TOKENS
from holdfast.runtime.plans.leases import RunOwnership
from holdfast.runtime.runs.part_log import OnQuestion, PartLogs
from holdfast.runtime.runs.run_events import Audience, RunEvents, audience
from holdfast.runtime.runs.run_record import Recorded
from holdfast.runtime.runs.version_writer import VersionScope, VersionWriter


class Cancelling:
    """Whether a run is to end, and why.

    Cancelling *parent* cancels this; cancelling this leaves *parent* as it is.
    """

    def __init__(self, parent: "Cancelling | None" = None) -> None:
        self.reason: str | None = None
        """The reason why the run is to end; None while it is not."""
        self._listeners: dict[object, Callable[[], None]] = {}
        self._children: WeakSet[Cancelling] = WeakSet()
        self._lock = Lock()
        if parent is not None:
            parent.adopt(self)

    def cancel(self, reason: str) -> None:
        """End the run for *reason*; only the first reason counts."""
        with self._lock:
            if self.reason is not None:
                return
            self.reason = reason
            listeners, children = list(self._listeners.values()), list(self._children)
        for listener in listeners:
            listener()
        for child in children:
            child.cancel(reason)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call *listener* when the run is to end, at once if it already is.

        Return the function that removes *listener*.
        """
        key = object()
        with self._lock:
            self._listeners[key] = listener
            late = self.reason is not None
        if late:
            listener()

        def off() -> None:
            with self._lock:
                self._listeners.pop(key, None)

        return off

    def adopt(self, child: "Cancelling") -> None:
        """Cancel *child* together with this, now if this is cancelled already."""
        with self._lock:
            self._children.add(child)
            reason = self.reason
        if reason is not None:
            child.cancel(reason)


Deliver = Callable[[str], None]
"""Puts a text before the next request; raises UserError when there will be none."""


class Steering:
    """The steps of a run that can be steered, by id. Any thread may call."""

    def __init__(self) -> None:
        self._steps: dict[str, Inbox] = {}
        self._lock = RLock()

    def expect(self, steps: Iterable[str]) -> None:
        """Queue what is sent to *steps* until they start."""
        with self._lock:
            for step in steps:
                self._steps.setdefault(step, Inbox(step, self._lock))

    def started(self, step: str) -> "Inbox":
        """Return the inbox of *step*, which runs from now on."""
        with self._lock:
            known = self._steps.get(step)
            if known is None or known.state == "ended":
                self._steps[step] = known = Inbox(step, self._lock)
            known.state = "running"
            return known

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Send *text* to *step*, or to all that run; return the ids of those that got it.

        Raise NotFound if *step* has ended.
        """
        if not encoded("text", text).strip():
            raise InvalidInput("text", "must not be blank")
        with self._lock:
            if step is None:
                running = [each for each in self._steps.values() if each.state == "running"]
                return [each.step for each in running if each.take(text)]
            inbox = self._steps.get(step)
            if inbox is None or not inbox.take(text):
                raise NotFound("step", step)
            return [step]


class Inbox:
    """The texts sent to one step, all stored: a retry receives them again."""

    def __init__(self, step: str, lock: RLock) -> None:
        self.step = step
        self.state: Literal["expected", "running", "ended"] = "expected"
        self._texts: list[str] = []
        self._deliver: Deliver | None = None
        self._lock = lock

    def take(self, text: str) -> bool:
        """Store *text* and deliver it; return False when the step has ended."""
        if self.state == "ended":
            return False
        if self._deliver is not None:
            try:
                self._deliver(text)
            except UserError:
                return False
        self._texts.append(text)
        return True

    def deliver_to(self, deliver: Deliver) -> None:
        """Deliver all texts so far to *deliver*, and each later one when it arrives."""
        with self._lock:
            self._deliver = deliver
            for text in self._texts:
                deliver(text)

    def wait(self) -> None:
        """Queue later texts until there is a recipient."""
        with self._lock:
            self._deliver = None

    def end(self) -> None:
        """Accept no more texts."""
        with self._lock:
            self.state, self._deliver = "ended", None


_ids: Final = Ids()

Profile: TypeAlias = Literal["alone", "together"]
Sleep: TypeAlias = Callable[[float], Awaitable[Any]]


class Context:
    """One run: its memory, its model, its limits, and the handle it is shown in.

    *memory* is new unless given. What runs in it uses *model*, unless it has its own. At most
    *max_concurrency* model loops are at work in it at once. *stream* requests replies piece by
    piece. With *hf* the run is to be seen in `hf.runs`, as one of *agent*; with *record* "facts" no
    texts, inputs and contents of its events are stored. *take_over* says when a run of its id is
    taken from another owner. *on_question* is asked first what a part asks people; None leaves the
    question to wait. Agents with `auto_persist` record its objective and result in *user*'s
    long-term memory. *sleep* waits before a failed request is tried again. Spans go to
    *tracer_provider*, without content unless *trace_content*.

    >>> context = Context(run_id="run_1")
    >>> context.memory.run_id, context.usage.requests
    ('run_1', 0)
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        memory: RunMemory | None = None,
        model: AnyModel | None = None,
        agent: str = "default",
        hf: "library.Holdfast | None" = None,
        user: str | None = None,
        max_concurrency: int = 5,
        stream: bool = True,
        profile: Profile = "alone",
        clock: Clock | None = None,
        ids: Ids | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        trace_content: bool = False,
        record: Recorded = "content",
        take_over: TakeOver = "expired",
        on_question: OnQuestion | None = None,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        check_one_of("profile", profile, get_args(Profile), "must be alone or together")
        check_one_of("record", record, get_args(Recorded), "must be content or facts")
        check_one_of("take_over", take_over, get_args(TakeOver))
        self.clock = clock or SystemClock()
        self.ids = ids or _ids
        self.memory = self._new_memory(run_id) if memory is None else memory
        if run_id not in (None, self.memory.run_id):
            raise InvalidInput("run_id", f"the memory is of {self.memory.run_id}", given=run_id)
        self.run_id = self.memory.run_id
        self.model, self.agent, self.hf, self.user = model, agent, hf, user
        self.auto_persist = False
        self.items: object = None
        self.profile: Profile = profile
        self.stream, self.sleep = stream, sleep
        self.record: Recorded = record
        self.take_over: TakeOver = take_over
        self.tracer_provider, self.trace_content = tracer_provider, trace_content
        self.tracer = trace.get_tracer("holdfast", tracer_provider=tracer_provider)
        self.slots, self.claims = Slots(max_concurrency), Claims()
        self.steering = Steering()
        self.spans: dict[str, trace.SpanContext] = {}
        self.servers_down: dict[Remote, str] = {}
        self._root: Context | None = None
        self._usage = _Usage()
        self._cancelling = Cancelling()
        self.events, self.ownership = RunEvents(self.run_id, self.now), RunOwnership()
        self.versions = self._new_versions()
        self.logs = PartLogs(
            self.run_id,
            clock=self.clock,
            store=self.versions,
            on_question=on_question,
            emit=self.emit_soon,
        )

    def _new_versions(self) -> VersionWriter:
        scope = VersionScope(
            run_id=self.run_id,
            now=self.now,
            emit=self.emit_soon,
            number=self._number,
            tell=self.tell_soon,
            lost=self.lose,
            fence=self.ownership.fence_of,
        )
        return VersionWriter(scope)

    def _number(self, facts: EventFacts) -> RunEvent:
        return self.events.number(facts, to=audience.get())

    def _new_memory(self, run_id: str | None) -> RunMemory:
        at = to_microseconds(self.clock.now())
        return RunMemory(run_id=run_id or self.ids.new("run", at), clock=self.clock)

    def copy(self, *, inherit: Sequence[str] = ()) -> "Context":
        """Return a run within this one, with a memory of its own; the rest is shared.

        The memory starts with the entries of the keys *inherit*. The copy is cancelled with this
        run, not the other way round. Raise NotFound for a key that does not exist.
        """
        inherit = listed(inherit)
        missing = next((key for key in inherit if not self.memory.has(key)), None)
        if missing is not None:
            raise NotFound("run entry", missing)
        within = object.__new__(Context)
        within.__dict__.update(self.__dict__)
        within.memory = self.memory.copy(keys=list(inherit))
        within.run_id = within.memory.run_id
        within.steering, within.spans, within._root = Steering(), {}, self.root
        within._cancelling, within.claims = Cancelling(self._cancelling), Claims()
        within.events, within.ownership = RunEvents(within.run_id, within.now), RunOwnership()
        within.versions = within._new_versions()
        within.logs = PartLogs(
            within.run_id,
            clock=self.clock,
            store=within.versions,
            on_question=self.logs.on_question,
            emit=within.emit_soon,
        )
        return within

    @property
    def root(self) -> "Context":
        """The outermost run that this is part of; itself unless it is a copy."""
        return self._root or self

    def narrowed(self, most: int) -> "Context":
        """Return this run with at most *most* model loops at once in what gets it."""
        within = object.__new__(Context)
        within.__dict__.update(self.__dict__)
        within.slots, within._root = self.slots.narrowed(most), self.root
        return within

    @property
    def usage(self) -> Spending:
        """The model requests and tokens of this run and all runs within it, so far."""
        return self._usage.spending

    def spend(
        self, usage: RequestUsage | Spending, *, requests: int = 1, elsewhere: bool = False
    ) -> None:
        """Add the usage of answered requests; those *elsewhere* were counted there."""
        tokens = usage.input_tokens, usage.output_tokens
        more = (requests, *tokens, sum(tokens))
        with self._usage.lock:
            before = astuple(self._usage.spending)
            self._usage.spending = Spending(*map(sum, zip(before, more, strict=True)))
        if not elsewhere:
            TOKENS.add("input", by=tokens[0])
            TOKENS.add("output", by=tokens[1])

    def go_on(self) -> None:
        """Go on with what an earlier stay in a process has counted; keep it from now on."""
        known = self.versions.restored.get("state", "usage")
        if known is not None and known["requests"] > self.usage.requests:
            self._usage.spending = Spending(**known)
        self.versions.collect(self._changed_usage)
        self.logs.settle(self.versions.restored.questions)

    def _changed_usage(self) -> Iterable[StateRow]:
        if self._usage.kept != self.usage:
            self._usage.kept = self.usage
            yield StateRow("state", "usage", msgspec.json.encode(self.usage))

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop everything that runs; what is finished stays.

        Any thread may call it, any number of times.
        """
        self._cancelling.cancel(reason)

    def lose(self, error: StaleRun) -> None:
        """Stop everything that runs: another owner has the run."""
        self.ownership.stale = error
        self.cancel(str(error))

    @property
    def cancelled(self) -> str | None:
        """The reason of the cancellation; None while the run is not cancelled."""
        return self._cancelling.reason

    def when_cancelled(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Call *hear*, on any thread, when the run is cancelled.

        Return the function that removes *hear*.
        """
        return self._cancelling.subscribe(hear)

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions of the run to people, in the order they were asked."""
        return self.logs.questions

    def answer(
        self, value: object, question: str | None = None, *, note: str | None = None
    ) -> Question:
        """Answer *question*, or the only open one; the next run of its executor goes on.

        Raise InvalidInput for a value that does not fit, AlreadyAnswered after another answer.
        """
        found = self.logs.answer(value, question, note=note)
        if self.hf is not None:
            # One that is not stored yet is known here alone.
            with suppress(NotFound):
                return self.hf.runs.answer(self.run_id, value, question=found.id, note=note)
        return found

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of all running steps.

        Return the ids of the steps that got it. It is queued for a step that has not started. Raise
        NotFound for one that has ended or is unknown.
        """
        return self.steering.steer(text, step=step)

    async def wait_for(
        self,
        key: str,
        *,
        after_version: int = 0,
        timeout: float | None = None,  # noqa: ASYNC109 - how long is the caller's to say
    ) -> RunEntry:
        """Return the entry at *key* once its version is above *after_version*.

        Raise WaitTimeout when that takes longer than *timeout* seconds.
        """
        return await _wait_for(self.memory, key, after_version=after_version, timeout=timeout)

    def watch(self, **conditions: Any) -> AsyncGenerator[RunMemoryEvent]:
        """Yield the events of the run's memory for entries that meet *conditions*.

        These are the filters of `memory.list`. A reader that is too slow gets a `gap` with the
        number of missed events.
        """
        return _watch(self.memory, now=self.now, **conditions)

    def now(self) -> int:
        """Return the present instant in milliseconds since 1970."""
        return to_microseconds(self.clock.now()) // 1000

    async def tell(self, update: ExecutionEvent, **more: Any) -> None:
        """Emit the event that *update* is computed from; wait while the reader is behind.

        Its data has *more* fields than *update*.
        """
        to = audience.get()
        if to is not None or self.events.taps:
            await self.events.emit(event_facts(update, more), update, to=to)

    def tell_soon(self, update: ExecutionEvent, *, to: Audience | None = None, **more: Any) -> None:
        """Do as `tell` does from any thread, without waiting, to *to* if it is given."""
        to = to or audience.get()
        if to is not None or self.events.taps:
            self.events.emit_soon(event_facts(update, more), update, to=to)

    async def emit(self, facts: EventFacts, update: ExecutionEvent | None = None) -> None:
        """Emit an event of *facts*, from which *update* is computed, if it is given."""
        to = audience.get()
        if to is not None or self.events.taps:
            await self.events.emit(facts, update, to=to)

    def emit_soon(self, facts: EventFacts) -> None:
        """Emit an event of *facts* from any thread, without waiting."""
        to = audience.get()
        if to is not None or self.events.taps:
            self.events.emit_soon(facts, to=to)

    @property
    def watched(self) -> bool:
        """Whether an event that is emitted here reaches a reader, an observer or a record."""
        return audience.get() is not None or bool(self.events.taps)

    @property
    def event_errors(self) -> int:
        """The number of times that an `on_event` of the run raised."""
        return self.events.errors


class _Usage:
    """The usage of a run and the runs within it."""

    def __init__(self) -> None:
        self.spending = self.kept = Spending()
        self.lock = Lock()


def model_of(
    context: Context, *, agent: AgentSpec | None = None, model: AnyModel | None = None
) -> AnyModel:
    """Return the model to use: the agent's, else *model*, else the context's.

    Raise NoModel if none of them has one.
    """
    found = (agent.model if agent else None) or model or context.model
    if found is None:
        raise NoModel(
            f"The agent {agent.name} has no model." if agent else "No model is set.",
            agent=agent.name if agent else None,
            next="Name one for the agent, for the executor, or for the context.",
        )
    return found


# Run memory on an event loop.

WATCH_BUFFER: Final = 1_000
"""Events that wait for the reader before newer ones are only counted."""


class Gap(RunMemoryEvent, frozen=True, kw_only=True):
    """The number of events *missed* because the reader was too slow."""

    type: ClassVar[str] = "gap"

    missed: int


async def _wait_for(
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


async def _watch(
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
        if missed or len(waiting) == WATCH_BUFFER:
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
