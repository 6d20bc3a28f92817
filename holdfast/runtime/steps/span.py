"""The trace of a step: a span that says how it went, linked to the steps it needed."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from opentelemetry.trace import Link, Span
from pydantic_ai.messages import ModelMessage, ModelResponse

from holdfast.runtime.events import StepError
from holdfast.runtime.plans.plan import State
from holdfast.runtime.steps.contract import Assignment


class StepSpan:
    """The span of one step."""

    def __init__(self, span: Span) -> None:
        self._span = span

    def end(
        self,
        state: State,
        error: StepError | None,
        *,
        messages: Sequence[ModelMessage],
        iterations: int,
    ) -> None:
        """Say how the step ended, after *iterations* and the *messages* of its last try."""
        span = self._span
        if not span.is_recording():
            return
        usages = [each.usage for each in messages if isinstance(each, ModelResponse)]
        span.set_attribute("holdfast.state", state)
        span.set_attribute("holdfast.iterations", iterations)
        span.set_attribute("gen_ai.usage.input_tokens", sum(u.input_tokens for u in usages))
        span.set_attribute("gen_ai.usage.output_tokens", sum(u.output_tokens for u in usages))
        if error is not None:
            span.set_attribute("holdfast.reason", error.reason)


@contextmanager
def step_span(assignment: Assignment) -> Generator[StepSpan]:
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
        yield StepSpan(span)
