"""The trace of a step: a span that says how it went, linked to the steps it needed."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.trace import Link, Span
from pydantic_ai.messages import ModelResponse

from holdfast.runtime.events import StepError
from holdfast.runtime.plans.shapes import State
from holdfast.runtime.steps.assignment import Assignment

if TYPE_CHECKING:
    from holdfast.runtime.steps.executor import StepExecutor


class StepSpan:
    """The span of one step."""

    def __init__(self, span: Span, executor: "StepExecutor") -> None:
        self._span, self._executor = span, executor

    def end(self, state: State, error: StepError | None) -> None:
        """Say how the step ended."""
        span, replies = self._span, self._executor.messages
        if not span.is_recording():
            return
        usages = [each.usage for each in replies if isinstance(each, ModelResponse)]
        span.set_attribute("holdfast.state", state)
        span.set_attribute("holdfast.iterations", self._executor.iterations)
        span.set_attribute("gen_ai.usage.input_tokens", sum(u.input_tokens for u in usages))
        span.set_attribute("gen_ai.usage.output_tokens", sum(u.output_tokens for u in usages))
        if error is not None:
            span.set_attribute("holdfast.reason", error.reason)


@contextmanager
def step_span(assignment: Assignment, executor: "StepExecutor") -> Generator[StepSpan]:
    """Trace what is done within as the step of *assignment*."""
    context, step = assignment.context, assignment.step
    needed = [context.spans[each] for each in step.depends_on if each in context.spans]
    attributes: dict[str, str | int] = {
        "holdfast.run_id": context.run_id,
        "holdfast.task_id": assignment.task.id,
        "holdfast.step_id": step.id,
    }
    if assignment.item_index is not None:
        attributes["holdfast.item_index"] = assignment.item_index
    with context.tracer.start_as_current_span(
        "holdfast.step", attributes=attributes, links=[Link(each) for each in needed]
    ) as span:
        context.spans[step.id] = span.get_span_context()
        yield StepSpan(span, executor)
