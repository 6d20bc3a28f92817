"""Going through what needs one another: each starts as soon as all that it needs is done."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeAlias

from holdfast.runtime.plans.crew import Crew
from holdfast.runtime.plans.schedule import Blocked, Schedule

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
