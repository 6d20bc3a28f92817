"""Run tasks in topological order, each when it is ready.

A task waits until everything it needs is settled, so that the causes of a block do not depend on
the order in which others end.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from msgspec import Struct
from pydantic_ai.messages import ModelResponse

from holdfast.ground.json_values import JSON, decode, encode
from holdfast.memories.run import keys
from holdfast.memories.run.entry import TITLE_CHARS, VALUE_DEPTH
from holdfast.runtime.context import Context
from holdfast.runtime.steps.executor import StepExecutor


def taken(inputs: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """Return a copy of *inputs*; raise InvalidInput for an invalid key or value."""
    copied: dict[str, JSON] = {}
    for key, value in (inputs or {}).items():
        keys.input(key)
        copied[key] = decode(encode(value, root="$", depth=VALUE_DEPTH, field=f"inputs.{key}"))
    return copied


def supply(context: Context, inputs: Mapping[str, JSON]) -> None:
    """Set each of *inputs* in the run's memory, replacing earlier values."""
    for key, value in inputs.items():
        context.memory.set(keys.input(key), value, title=key[:TITLE_CHARS])


class Spent(Struct):
    """Requests and tokens so far; restored steps count nothing."""

    iterations: int = 0
    tokens: int = 0

    def add(self, done: StepExecutor) -> None:
        """Add the usage of the step executor *done*."""
        self.iterations += done.iterations
        for each in done.messages:
            if isinstance(each, ModelResponse):
                self.tokens += each.usage.input_tokens + each.usage.output_tokens


class Blocked(Struct, frozen=True):
    """An id that never starts, and the failures that block it, in schedule order."""

    id: str
    by: tuple[str, ...]


class ScheduleChange(Struct, frozen=True):
    """The change after one id is settled: ids to start, and ids that are blocked."""

    ready: tuple[str, ...]
    blocked: tuple[Blocked, ...]


class Schedule:
    """Topological order of ids by their needs; each id is settled once.

    >>> schedule = Schedule({"a": [], "b": ["a"], "c": ["b"]})
    >>> schedule.first()
    ('a',)
    >>> schedule.failed("a").blocked
    (Blocked(id='b', by=('a',)), Blocked(id='c', by=('a',)))
    """

    def __init__(self, needs: Mapping[str, Sequence[str]]) -> None:
        self._place = {id: place for place, id in enumerate(needs)}
        self._needed_by: dict[str, list[str]] = {id: [] for id in needs}
        self._left: dict[str, int] = {}
        self._causes: dict[str, set[str]] = {id: set() for id in needs}
        for id, wanted in needs.items():
            mine = [each for each in dict.fromkeys(wanted) if each in self._place]
            self._left[id] = len(mine)
            for each in mine:
                self._needed_by[each].append(id)

    def first(self) -> tuple[str, ...]:
        """Return the ids without needs."""
        return tuple([id for id, left in self._left.items() if left == 0])

    def completed(self, id: str) -> ScheduleChange:
        """Settle *id* as completed."""
        return self._settle(id, ())

    def failed(self, id: str) -> ScheduleChange:
        """Settle *id* as failed; all that need it, directly or not, are blocked by it."""
        return self._settle(id, (id,))

    def _settle(self, id: str, causes: Iterable[str]) -> ScheduleChange:
        ready: list[str] = []
        blocked: list[str] = []
        settled = [(id, set(causes))]
        while settled:
            one, why = settled.pop()
            for each in self._needed_by[one]:
                self._left[each] -= 1
                self._causes[each] |= why
                if self._left[each]:
                    continue
                if self._causes[each]:
                    blocked.append(each)
                    settled.append((each, self._causes[each]))
                else:
                    ready.append(each)
        in_order = partial(sorted, key=self._place.__getitem__)
        named = [Blocked(each, tuple(in_order(self._causes[each]))) for each in in_order(blocked)]
        return ScheduleChange(tuple(in_order(ready)), tuple(named))


K = TypeVar("K")
R = TypeVar("R")


class Crew(Generic[K, R]):
    """A task group of named coroutines; `next` returns each one as it ends.

    On exit, all running ones are cancelled and awaited.
    """

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[R], K] = {}
        self._ended: asyncio.Queue[asyncio.Task[R]] = asyncio.Queue()

    def __len__(self) -> int:
        return len(self._running)

    def start(self, name: K, work: Coroutine[Any, Any, R]) -> None:
        """Run *work* under *name*."""
        task = asyncio.create_task(work)
        self._running[task] = name
        task.add_done_callback(self._ended.put_nowait)

    async def next(self) -> tuple[K, R]:
        """Return the next ended name and result, or raise its error. One must be running."""
        task = await self._ended.get()
        return self._running.pop(task), task.result()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._running:
            each.cancel()
        again: asyncio.CancelledError | None = None
        while left := [each for each in self._running if not each.done()]:
            try:
                await asyncio.wait(left)
            except asyncio.CancelledError as cancelled:
                # Cancelled once more, it still waits for their end.
                again = cancelled
        for each in self._running:
            if not each.cancelled():
                # Retrieved, so that asyncio does not log it as never retrieved.
                each.exception()
        self._running.clear()
        if again is not None:
            raise again


Perform: TypeAlias = Callable[[str], Coroutine[Any, Any, bool | None]]
"""Performs one id: True for completed, False for failed, None for not started.

After None nothing follows from it.
"""


async def walk(
    needs: Mapping[str, Sequence[str]],
    *,
    perform: Perform,
    blocked: Callable[[Blocked], Awaitable[None]],
) -> None:
    """Perform all ids of *needs* concurrently, each after those it needs.

    *blocked* is called for each id that needs a failed one, directly or not. When cancelled, or
    when *perform* raises, cancel what runs and wait for it.
    """
    schedule = Schedule(needs)
    async with Crew[str, bool | None]() as crew:
        for id in schedule.first():
            crew.start(id, perform(id))
        while crew:
            id, done = await crew.next()
            if done is None:
                continue
            change = schedule.completed(id) if done else schedule.failed(id)
            for each in change.blocked:
                await blocked(each)
            for ready in change.ready:
                crew.start(ready, perform(ready))
