"""The traces of runs and steps."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from stepping import Stepping

from holdfast.runtime import Context
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock

pytestmark = pytest.mark.anyio


class Tracing:
    """A run that is traced."""

    def __init__(self, *, content: bool = False) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.context = Context(
            run_id="run_1", clock=FrozenClock(), tracer_provider=provider, trace_content=content
        )

    @property
    def spans(self) -> dict[str, ReadableSpan]:
        """The spans that ended, by name; the last of each name."""
        return {span.name: span for span in self._exporter.get_finished_spans()}

    @property
    def text(self) -> str:
        """All there is in all spans."""
        return "\n".join(span.to_json() for span in self._exporter.get_finished_spans())


def attributes(span: ReadableSpan) -> dict[str, Any]:
    """Return ours, and those of usage."""
    found = dict(span.attributes or {})
    return {name: value for name, value in found.items() if not name.startswith("logfire")}


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def number(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_step_is_traced_below_its_run_and_its_requests_below_it() -> None:
    tracing = Tracing()
    stepping = Stepping([call("memory_list"), "Three."], context=tracing.context)

    await stepping.executor.run()

    run, step = tracing.spans["holdfast.run"], tracing.spans["holdfast.step"]
    below = [each for name, each in tracing.spans.items() if not name.startswith("holdfast")]
    assert parent(run) is None
    assert parent(step) == number(run)
    assert number(step) in {parent(each) for each in below}
    assert attributes(run) == {"holdfast.run_id": "run_1", "holdfast.state": "completed"}
    usage = tracing.context.usage
    assert attributes(step) == {
        "holdfast.run_id": "run_1",
        "holdfast.task_id": "harbour",
        "holdfast.step_id": "count",
        "holdfast.state": "completed",
        "holdfast.iterations": 2,
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }


async def test_a_failed_step_says_why() -> None:
    tracing = Tracing()
    stepping = Stepping([OSError("no route")], context=tracing.context, item_index=4)

    await stepping.events()

    found = attributes(tracing.spans["holdfast.step"])
    assert found["holdfast.state"] == "failed"
    assert found["holdfast.reason"] == "model_error"
    assert found["holdfast.item_index"] == 4


async def test_a_step_is_linked_to_those_it_needs() -> None:
    tracing = Tracing()
    first = Stepping(["Three."], context=tracing.context)
    await first.executor.run()
    needed = tracing.spans["holdfast.step"]
    second = Stepping(["Four."], context=tracing.context, step={"depends_on": ["count", "other"]})
    second.step.id = "again"

    await second.executor.run()

    links = tracing.spans["holdfast.step"].links
    assert [link.context.span_id for link in links] == [number(needed)]


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_traced_only_when_asked_for(content: bool) -> None:
    tracing = Tracing(content=content)
    turns = [call("memory_write", key="note", value="SECRET-1"), "SECRET-2"]
    stepping = Stepping(turns, context=tracing.context, instructions="SECRET-3")

    await stepping.executor.run()

    assert ("SECRET" in tracing.text) is content


async def test_without_a_provider_nothing_below_is_instrumented() -> None:
    stepping = Stepping(["Three."])

    assert await stepping.executor.run() == "Three."
    assert not stepping.context.spans["count"].is_valid
