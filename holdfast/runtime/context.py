"""What all executors of one run share: its memory, model, slots, clock, and the word to stop."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from threading import Lock
from typing import Any, Final, Literal, TypeAlias, get_args

from opentelemetry import trace
from pydantic_ai.usage import RequestUsage

from holdfast.ground.clock import Clock, SystemClock, to_microseconds
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.ids import Ids
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import RunEntry
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.runtime import watch as watching
from holdfast.runtime.agent import AnyModel
from holdfast.runtime.cancelling import Cancelling
from holdfast.runtime.concurrency import Slots
from holdfast.runtime.events import ExecutionEvent, Spending
from holdfast.runtime.feed import feed
from holdfast.runtime.mcp import Remote
from holdfast.runtime.metrics import counts
from holdfast.runtime.steering import Steering

_ids: Final = Ids()

Profile: TypeAlias = Literal["alone", "together"]
Sleep: TypeAlias = Callable[[float], Awaitable[Any]]


class Context:
    """One run: *memory* is new unless given, and what runs in it uses *model* unless told other.

    At most *max_concurrency* model loops are at work in it at once. *stream* asks models piece by
    piece. With *hf* the run is to be seen in `hf.runs`, as one of *agent*. *sleep* waits before a
    failed request is tried again. Spans go to *tracer_provider*, without content unless
    *trace_content*.

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
        hf: Holdfast | None = None,
        max_concurrency: int = 5,
        stream: bool = True,
        profile: Profile = "alone",
        clock: Clock | None = None,
        ids: Ids | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        trace_content: bool = False,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        if profile not in get_args(Profile):
            raise InvalidInput("profile", "must be alone or together", given=profile)
        self.clock = clock or SystemClock()
        self.ids = ids or _ids
        self.memory = self._new_memory(run_id) if memory is None else memory
        if run_id not in (None, self.memory.run_id):
            raise InvalidInput("run_id", f"the memory is of {self.memory.run_id}", given=run_id)
        self.run_id = self.memory.run_id
        self.model, self.agent, self.hf = model, agent, hf
        self.profile: Profile = profile
        self.stream, self.sleep = stream, sleep
        self.tracer_provider, self.trace_content = tracer_provider, trace_content
        self.tracer = trace.get_tracer("holdfast", tracer_provider=tracer_provider)
        self.slots = Slots(max_concurrency)
        self.steering = Steering()
        self.spans: dict[str, trace.SpanContext] = {}
        self.servers_down: dict[Remote, str] = {}
        self._root: Context | None = None
        self._ledger = _Ledger()
        self._cancelling = Cancelling()
        self._numbers = _Numbers()

    def _new_memory(self, run_id: str | None) -> RunMemory:
        at = to_microseconds(self.clock.now())
        return RunMemory(run_id=run_id or self.ids.new("run", at), clock=self.clock)

    def copy(self, *, inherit: Sequence[str] = ()) -> "Context":
        """Return a run within this: its own memory, with the entries *inherit*; the rest shared.

        It is cancelled with this run, not the other way. NotFound for a key that is not there.
        """
        missing = next((key for key in inherit if not self.memory.has(key)), None)
        if missing is not None:
            raise NotFound("run entry", missing)
        within = object.__new__(Context)
        within.__dict__.update(self.__dict__)
        within.memory = self.memory.copy(keys=list(inherit))
        within.run_id = within.memory.run_id
        within.steering, within.spans, within._root = Steering(), {}, self.root
        within._cancelling = Cancelling(self._cancelling)
        within._numbers = _Numbers()
        return within

    @property
    def root(self) -> "Context":
        """The run that this is part of; itself unless it is a copy."""
        return self._root or self

    def narrowed(self, most: int) -> "Context":
        """Return this run with at most *most* model loops at once in what is given it."""
        within = object.__new__(Context)
        within.__dict__.update(self.__dict__)
        within.slots, within._root = self.slots.narrowed(most), self.root
        return within

    @property
    def usage(self) -> Spending:
        """What the run, and all runs within it, have asked of their models so far."""
        return self._ledger.spending

    def spend(self, usage: RequestUsage) -> None:
        """Count one more answered request."""
        self._ledger.add(usage)
        counts.spent(received=usage.input_tokens, sent=usage.output_tokens)

    def cancel(self, reason: str = "cancelled") -> None:
        """Stop everything that runs, keep what is finished. From any thread, however often."""
        self._cancelling.cancel(reason)

    @property
    def cancelled(self) -> str | None:
        """The reason the run was cancelled for; None while it was not."""
        return self._cancelling.reason

    def when_cancelled(self, hear: Callable[[], None]) -> Callable[[], None]:
        """Call *hear*, on whichever thread, when the run is cancelled; return what ends that."""
        return self._cancelling.heard_by(hear)

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of all running steps; return which.

        It waits for a step that has not started; NotFound for one that has ended or is unknown.
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

        WaitTimeout when that takes longer than *timeout* seconds.
        """
        return await watching.wait_for(
            self.memory, key, after_version=after_version, timeout=timeout
        )

    def watch(self, **conditions: Any) -> AsyncGenerator[RunMemoryEvent]:
        """Give what happens to entries of the run's memory that meet *conditions*.

        These are the filters of `memory.list`. Whoever looks too slowly gets a `gap` that says
        how many events were missed.
        """
        return watching.watch(self.memory, now=self.now, **conditions)

    def now(self) -> int:
        """Return the present instant in milliseconds since 1970."""
        return to_microseconds(self.clock.now()) // 1000

    async def tell(self, event: ExecutionEvent) -> None:
        """Tell whoever looks on of *event*, the run's next; wait while they are behind."""
        looking = feed.get()
        if looking is not None:
            await looking.tell(lambda: self.stamped(event))

    def tell_soon(self, event: ExecutionEvent) -> None:
        """Tell whoever looks on of *event*, from plain code, without waiting."""
        looking = feed.get()
        if looking is not None:
            looking.tell_soon(lambda: self.stamped(event))

    def stamped(self, event: ExecutionEvent) -> ExecutionEvent:
        """Return *event* as the next one of this run, now."""
        return event.of(self.run_id, seq=self._numbers.next(), at=self.now())


class _Ledger:
    """What is spent, by a run and the runs within it."""

    def __init__(self) -> None:
        self.spending = Spending()
        self._lock = Lock()

    def add(self, usage: RequestUsage) -> None:
        with self._lock:
            before = self.spending
            self.spending = Spending(
                requests=before.requests + 1,
                input_tokens=before.input_tokens + usage.input_tokens,
                output_tokens=before.output_tokens + usage.output_tokens,
                total_tokens=before.total_tokens + usage.input_tokens + usage.output_tokens,
            )


class _Numbers:
    """Numbers events from 1."""

    def __init__(self) -> None:
        self._last = 0
        self._lock = Lock()

    def next(self) -> int:
        with self._lock:
            self._last += 1
            return self._last
