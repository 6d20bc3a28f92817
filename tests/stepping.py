"""One step, ready to be executed against a scripted model."""

from collections.abc import Callable, Sequence
from typing import Any

from pydantic_ai.messages import ToolReturnPart

from holdfast.runtime import Context, Step, StepExecutor, Task
from holdfast.runtime.events import ExecutionEvent
from holdfast.testing import ScriptedModel
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked, Turn

NUMBER = {"type": "integer"}


class Stepping:
    """A step of a task of its own, its model and its run."""

    def __init__(
        self,
        turns: Sequence[Turn] | Callable[[Asked], object] = (),
        *,
        context: Context | None = None,
        instructions: str = "Count the ships.",
        step: dict[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        self.model = ScriptedModel(turns)
        self.context = context or Context(run_id="run_1", clock=FrozenClock())
        self.step = Step(id="count", instructions=instructions, **(step or {}))
        self.task = Task(id="harbour", title="The harbour", steps=[self.step])
        given: dict[str, Any] = {"model": self.model} | fields
        self.executor = StepExecutor(task=self.task, step=self.step, context=self.context, **given)

    async def events(self) -> list[ExecutionEvent]:
        """Execute the step; return all its events."""
        return [event async for event in self.executor.execute()]

    async def told(self, kind: type[ExecutionEvent]) -> list[Any]:
        """Execute the step; return its events of *kind*."""
        return [event for event in await self.events() if isinstance(event, kind)]

    @property
    def given(self) -> list[Any]:
        """What the tools gave to the model, in the order it was told."""
        parts = [part for message in self.executor.messages for part in message.parts]
        return [part.content for part in parts if isinstance(part, ToolReturnPart)]


def names(events: Sequence[ExecutionEvent]) -> list[str]:
    """Return what *events* say happened, their type where they say no more."""
    return [str(getattr(event, "event", event.type)) for event in events]
