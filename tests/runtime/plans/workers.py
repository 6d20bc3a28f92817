"""A model for plans in tests: it does each step as it is told to, and keeps account."""

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError

from holdfast.runtime import Context, Step, Task, TaskPlan
from holdfast.runtime.events import ExecutionEvent, TaskUpdate
from holdfast.testing.scripted import Asked, ScriptedModel, call

_WORK = re.compile(r"Work on ([\w.-]+)\.")


def step(id: str, *needs: str, **fields: Any) -> Step:
    """Return a step that the workers know by its id."""
    told: dict[str, Any] = {
        "id": id,
        "instructions": f"Work on {id}.",
        "depends_on": list(needs),
    }
    return Step(**told | fields)


def task(id: str, *steps: Step, **fields: Any) -> Task:
    """Return a task of *steps*, or of one named after it."""
    told: dict[str, Any] = {
        "id": id,
        "title": f"Task {id}",
        "steps": list(steps) or [step(f"{id}1")],
    }
    return Task(**told | fields)


def plan(*tasks: Task, **fields: Any) -> TaskPlan:
    """Return a plan of *tasks*."""
    told: dict[str, Any] = {"title": "A plan", "tasks": list(tasks)}
    return TaskPlan(**told | fields)


class Workers:
    """Gives `done <id>` for each step, unless told what it `gives`, that it `fails`, or `waits`.

    `began` and `ended` are the ids in the order of their requests and answers.
    """

    def __init__(self) -> None:
        self.model = ScriptedModel(self._work)
        self.gives: dict[str, Any] = {}
        self.fails: set[str] = set()
        self.waits: dict[str, asyncio.Event] = {}
        self.asked: dict[str, Asked] = {}
        self.began: list[str] = []
        self.ended: list[str] = []
        self.most_at_once = 0
        self.on_begin: Callable[[str], object] = lambda _: None

    def context(self, **given: Any) -> Context:
        """Return a run that is done by these workers."""
        whole: dict[str, Any] = {"model": self.model} | given
        return Context(**whole)

    def wait(self, *ids: str) -> None:
        """Let *ids* wait until they are let go."""
        self.waits |= {id: asyncio.Event() for id in ids}

    def let_go(self, *ids: str) -> None:
        """Let *ids* be done now."""
        for id in ids:
            self.waits[id].set()

    async def _work(self, asked: Asked) -> Any:
        found = _WORK.search(asked.text)
        assert found is not None, asked.text
        id = found[1]
        self.asked[id] = asked
        self.began.append(id)
        self.most_at_once = max(self.most_at_once, len(self.began) - len(self.ended))
        try:
            self.on_begin(id)
            if id in self.waits:
                await self.waits[id].wait()
            if id in self.fails:
                raise ModelHTTPError(500, "scripted", {"said": f"no {id}"})
        finally:
            self.ended.append(id)
        result = self.gives.get(id, f"done {id}")
        return call("finish_step", result=result) if "finish_step" in asked.offered else result


async def told(executor: Any) -> list[ExecutionEvent]:
    """Execute *executor* and return all its events."""
    return [event async for event in executor.execute()]


def moments(events: Sequence[ExecutionEvent], *wanted: str) -> list[tuple[str, str | None]]:
    """Return what became of tasks and steps, each with its id; only *wanted*, if there are any."""
    return [
        (each.event, each.step_id or each.task_id)
        for each in events
        if isinstance(each, TaskUpdate) and (not wanted or each.event in wanted)
    ]
