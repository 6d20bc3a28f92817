"""Run tasks in topological order, each when it is ready.

Whoever needs something waits until all of it is settled, so that what it is blocked by does not
depend on what happened to end first.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from msgspec import Struct
from pydantic_ai.messages import ModelResponse

from holdfast.ground.json_values import JSON, decode, encode
from holdfast.memories.run import keys
from holdfast.memories.run.entry import TITLE_CHARS, VALUE_DEPTH
from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset, named
from holdfast.runtime.checkpoints import CheckpointWriter
from holdfast.runtime.context import Context
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import Step, Task
from holdfast.runtime.steps.executor import StepExecutor


@dataclass(frozen=True)
class PlanContext:
    """What every step gets."""

    context: Context
    _: KW_ONLY
    model: AnyModel | None = None
    agent: Agent | None = None
    tools: Sequence[AnyTool] = ()
    toolsets: Sequence[AnyToolset] = ()
    system_prompt: str | None = None
    upstream_memory_keys: Sequence[str] = ()
    max_iterations: int = 10
    token_budget: int = 120_000
    keeper: CheckpointWriter | None = None

    def reading(self, upstream: Iterable[str]) -> "PlanContext":
        """Return the same for steps that are told of the entries *upstream*."""
        return replace(self, upstream_memory_keys=tuple(upstream))

    def keeping(self, keeper: CheckpointWriter | None) -> "PlanContext":
        """Return the same, with *keeper* keeping what is complete."""
        return replace(self, keeper=keeper)

    def restored(self, step: str) -> bool:
        """Tell whether *step*, or this item of one, was complete before this run began."""
        return self.keeper is not None and step in self.keeper.restored_steps

    def tool_names(self) -> Collection[str] | None:
        """Return the names of the tools there will be, None when they are not known yet.

        Raises ToolNameTaken when two of them are named alike.
        """
        agents = self.agent.tools if self.agent else ()
        known = named(self.tools, agents)
        sets = [*self.toolsets, *(self.agent.toolsets if self.agent else ())]
        return None if sets else set(known)

    def check(self, task: Task) -> None:
        """Raise what would keep every step of *task* from being begun: NoModel, ToolNameTaken."""
        self.executor(task, task.steps[0])

    def executor(
        self, task: Task, step: Step, *, finish: bool = False, item_index: int | None = None
    ) -> StepExecutor:
        """Return what works on *step* of *task*."""
        return StepExecutor(
            task=task,
            step=step,
            context=self.context,
            model=self.model,
            agent=self.agent,
            tools=self.tools,
            toolsets=self.toolsets,
            system_prompt=self.system_prompt,
            upstream_memory_keys=self.upstream_memory_keys,
            finish_task=finish,
            max_iterations=self.max_iterations,
            token_budget=self.token_budget,
            item_index=item_index,
        )


def taken(inputs: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """Return a copy of *inputs*; InvalidInput for a key or value that no run can be given."""
    copied: dict[str, JSON] = {}
    for key, value in (inputs or {}).items():
        keys.input(key)
        copied[key] = decode(encode(value, root="$", depth=VALUE_DEPTH, field=f"inputs.{key}"))
    return copied


def supply(context: Context, inputs: Mapping[str, JSON]) -> None:
    """Set each of *inputs*, whatever an earlier run left under its key."""
    for key, value in inputs.items():
        context.memory.set(keys.input(key), value, title=key[:TITLE_CHARS])


class Spent(Struct):
    """What was spent so far; what was restored from a checkpoint cost nothing."""

    iterations: int = 0
    tokens: int = 0

    def add(self, done: StepExecutor) -> None:
        """Count what the step *done* has cost."""
        self.iterations += done.iterations
        replies = (each for each in done.messages if isinstance(each, ModelResponse))
        self.tokens += sum(each.usage.input_tokens + each.usage.output_tokens for each in replies)


class Blocked(Struct, frozen=True):
    """One that never starts, and the failures it would have needed, in the order of all."""

    id: str
    by: tuple[str, ...]


class ScheduleChange(Struct, frozen=True):
    """What follows when one is settled: who may start now, who never will."""

    ready: tuple[str, ...]
    blocked: tuple[Blocked, ...]


class Schedule:
    """Names by what they need, in their order; each is settled once.

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
        """Return those that need nothing."""
        return tuple(id for id, left in self._left.items() if left == 0)

    def completed(self, id: str) -> ScheduleChange:
        """Settle *id* as done."""
        return self._settle(id, ())

    def failed(self, id: str) -> ScheduleChange:
        """Settle *id* as failed: what needs it, directly or not, is blocked by it."""
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
        return ScheduleChange(
            tuple(self._in_order(ready)),
            tuple(Blocked(each, self._named(each)) for each in self._in_order(blocked)),
        )

    def _in_order(self, ids: Iterable[str]) -> list[str]:
        return sorted(ids, key=self._place.__getitem__)

    def _named(self, id: str) -> tuple[str, ...]:
        return tuple(self._in_order(self._causes[id]))


K = TypeVar("K")
R = TypeVar("R")


class Crew(Generic[K, R]):
    """Pieces of work, each under a name; `next` tells of each that ends, in that order.

    Left for whatever reason, what still runs is cancelled and has ended.
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
        """Return which has ended, with what; raise what it raised. One must be running."""
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
                # Cancelled once more, it must still see them end.
                again = cancelled
        for each in self._running:
            if not each.cancelled():
                # Asked for, so that it is not reported as never seen.
                each.exception()
        self._running.clear()
        if again is not None:
            raise again


Perform: TypeAlias = Callable[[str], Coroutine[Any, Any, bool | None]]
"""Does the one with this id: True when it is done, False when it failed, None when it was not
started and nothing is to follow from that."""


async def walk(
    needs: Mapping[str, Sequence[str]],
    *,
    perform: Perform,
    blocked: Callable[[Blocked], Awaitable[None]],
) -> None:
    """Perform all of *needs*, side by side, none before those it needs.

    *blocked* is told of each that needs one that failed, directly or not. Cancelled, or when
    *perform* raises, it cancels what runs and waits for it.
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
