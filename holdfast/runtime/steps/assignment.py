"""All that one try of a step needs to know, and nothing it may change."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from holdfast.runtime.agent import AnyModel, AnyTool, AnyToolset
from holdfast.runtime.context import Context
from holdfast.runtime.events import LogUpdate, TaskMoment, TaskUpdate
from holdfast.runtime.inference.agent import Agent
from holdfast.runtime.plans.plan import Step, Task
from holdfast.runtime.steps.contract import ResultSchema
from holdfast.runtime.steps.prompt import Contract
from holdfast.tools.base import Tool

AcceptResult: TypeAlias = Callable[[Any], str | Awaitable[str | None] | None]
"""Says why a result will not do, or None."""


class Assignment(Struct, frozen=True, kw_only=True):
    """A step as it is to be done: by *agent* or nobody in particular, with *model*, these tools.

    *tools* are the caller's, *contract_tools* those that every step has. *wanted* is what the
    result must be, None for plain text.
    """

    context: Context
    task: Task
    step: Step
    item_index: int | None
    model: AnyModel
    agent: Agent
    tools: Sequence[AnyTool]
    toolsets: Sequence[AnyToolset]
    contract_tools: Sequence[Tool]
    contract: Contract
    wanted: ResultSchema | None
    max_iterations: int
    token_budget: int
    tool_result_limit: int
    accept_result: AcceptResult | None

    def update(self, event: TaskMoment, **told: Any) -> TaskUpdate:
        """Return *event* of this step."""
        return TaskUpdate(
            event=event,
            task_id=self.task.id,
            title=self.task.title,
            step_id=self.step.id,
            item_index=self.item_index,
            **told,
        )

    def log(self, severity: Literal["info", "warning", "error"], content: str) -> LogUpdate:
        """Return a line about this step."""
        return LogUpdate(
            severity=severity, content=content, task_id=self.task.id, step_id=self.step.id
        )
