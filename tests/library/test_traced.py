"""Spans of durable memory, as the real SDK collects them; and nothing where nobody does."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import Struct
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import holdfast
from holdfast import tools
from holdfast.ground.errors import InvalidInput, PreconditionFailed, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory, DurableRun
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

SECRET = "Ada pays by post"


@pytest.fixture
def hf() -> Iterator[Holdfast]:
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def durable(told: InMemorySpanExporter, hf: Holdfast) -> DurableMemory:
    del told
    return hf.durable("agent_7")


@pytest.fixture
def open_about(told: InMemorySpanExporter) -> Iterator[DurableMemory]:
    """Give the memory of a handle whose spans may tell texts."""
    del told
    with holdfast.open(":memory:", trace_content=True) as hf:
        yield hf.durable("agent_7")


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def last(told: InMemorySpanExporter) -> ReadableSpan:
    return told.get_finished_spans()[-1]


ACTS: dict[str, tuple[str, int, Callable[[DurableMemory, Path], object]]] = {
    "get": ("search_memory", 1, lambda durable, _: durable.get("a")),
    "get of nothing": ("search_memory", 0, lambda durable, _: durable.get("b")),
    "list": ("search_memory", 2, lambda durable, _: durable.list()),
    "hydrate": ("search_memory", 2, lambda durable, _: durable.hydrate()),
    "set": ("upsert_memory", 1, lambda durable, _: durable.set("b", "y", category="core")),
    "set_many": (
        "upsert_memory",
        2,
        lambda durable, _: durable.set_many(
            [{"key": "b", "content": "y", "category": "core"}, {"key": "c"}], on_error="skip"
        ),
    ),
    "import_markdown": (
        "upsert_memory",
        2,
        lambda durable, path: durable.import_markdown(path),
    ),
    "promote": (
        "upsert_memory",
        1,
        lambda durable, _: durable.promote(promoted(), "shared:b", category="core"),
    ),
    "forget": ("delete_memory", 1, lambda durable, _: durable.forget("a")),
}


class Value(Struct, frozen=True):
    """A value as a run's memory gives it."""

    value: object
    kind: str = "shared"
    source: str | None = None


def promoted() -> dict[str, Value]:
    return {"shared:b": Value(SECRET)}


class TestEachAct:
    @pytest.mark.parametrize("name", ACTS)
    def test_it_is_one_span_of_its_operation(
        self, told: InMemorySpanExporter, durable: DurableMemory, tmp_path: Path, name: str
    ) -> None:
        durable.set("a", SECRET, category="core")
        durable.set("w", SECRET, category="workspace")
        durable.export_markdown(tmp_path / "files")
        told.clear()
        operation, count, act = ACTS[name]

        act(durable, tmp_path / "files")

        (span,) = told.get_finished_spans()
        assert (span.name, span.kind) == (operation, SpanKind.INTERNAL)
        assert span.status.status_code is StatusCode.UNSET
        attributes = facts(span)
        attributes.pop("gen_ai.memory.record.id", None)
        assert attributes == {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "holdfast",
            "gen_ai.memory.store.id": "agent_7",
            "gen_ai.memory.record.count": count,
        }

    @pytest.mark.parametrize("name", ["get", "set", "promote"])
    def test_an_act_on_one_entry_tells_its_id(
        self, told: InMemorySpanExporter, durable: DurableMemory, tmp_path: Path, name: str
    ) -> None:
        durable.set("a", SECRET, category="core")

        found: Any = ACTS[name][2](durable, tmp_path)

        assert facts(last(told))["gen_ai.memory.record.id"] == found.id

    def test_what_is_not_of_the_table_makes_no_span(
        self, told: InMemorySpanExporter, durable: DurableMemory, tmp_path: Path
    ) -> None:
        durable.explain("a")
        durable.history()
        durable.sweep()
        durable.limits()
        durable.export_markdown(tmp_path / "files")

        assert told.get_finished_spans() == ()


class TestARun:
    def test_its_acts_are_spans_as_well(
        self, told: InMemorySpanExporter, durable: DurableMemory
    ) -> None:
        with durable.run("run_1") as run:
            run.set("a", "x", category="conversation")
            run.capture([{"key": "b", "content": "y", "category": "core"}])
            run.get("a")
            run.forget("a")

        names = [span.name for span in told.get_finished_spans()]
        assert names == ["upsert_memory", "upsert_memory", "search_memory", "delete_memory"]
        with pytest.raises(StaleRun):
            run.get("a")

    def test_it_is_the_run_that_it_stands_for(self, durable: DurableMemory) -> None:
        with durable.run("run_1") as run:
            assert isinstance(run, DurableRun)
            assert (run.run_id, run.lane, run.hydration.entries) == ("run_1", "main", ())


class TestWhatFails:
    def test_a_refusal_tells_its_class_and_nothing_more(
        self, told: InMemorySpanExporter, durable: DurableMemory
    ) -> None:
        with pytest.raises(InvalidInput):
            durable.set(f" {SECRET}", "x", category="core")

        span = last(told)
        assert facts(span)["error.type"] == "InvalidInput"
        assert span.status.status_code is StatusCode.ERROR
        assert SECRET not in span.to_json()


class TestTexts:
    def test_without_being_asked_for_none_is_told(
        self, told: InMemorySpanExporter, durable: DurableMemory
    ) -> None:
        durable.set("pays_how", SECRET, category="core")
        durable.get("pays_how")
        durable.list(query=SECRET)
        durable.hydrate()
        durable.forget("pays_how")

        for span in told.get_finished_spans():
            assert SECRET not in span.to_json()
            assert "pays_how" not in span.to_json()

    def test_asked_for_they_are_what_was_sought_and_what_was_found(
        self, told: InMemorySpanExporter, open_about: DurableMemory
    ) -> None:
        stored = open_about.set("pays_how", SECRET, category="core", tags=["billing"])
        open_about.list(None, None, None, None, "ada")

        attributes = facts(last(told))
        assert attributes["gen_ai.memory.query.text"] == "ada"
        assert msgspec.json.decode(attributes["gen_ai.memory.records"]) == [
            {
                "id": stored.id,
                "content": SECRET,
                "metadata": {"key": "pays_how", "category": "core", "tags": ["billing"]},
            }
        ]

    @pytest.mark.usefixtures("told")
    def test_other_handles_of_the_same_database_tell_them_too(
        self, told: InMemorySpanExporter
    ) -> None:
        with holdfast.open(":memory:", trace_content=True) as hf:
            hf.acting(workspace="other").durable("agent_7").set("a", SECRET, category="core")

        assert SECRET in last(told).to_json()


class TestOthersSpans:
    def test_a_span_stands_in_the_one_around_it(
        self, told: InMemorySpanExporter, durable: DurableMemory
    ) -> None:
        with trace.get_tracer("app").start_as_current_span("turn") as turn:
            durable.get("a")

        inner, _ = told.get_finished_spans()
        assert inner.parent == turn.get_span_context()

    def test_the_tools_make_them(self, told: InMemorySpanExporter, durable: DurableMemory) -> None:
        table = tools.lay_out(tools.durable(durable))

        table["memory_store"].call({"key": "a", "category": "core", "content": "x"})

        assert last(told).name == "upsert_memory"
        entry = durable.get("a")
        assert entry is not None
        assert entry.created_by.actor.kind == "agent"

    def test_the_awaitable_library_makes_them_within_the_callers(
        self, told: InMemorySpanExporter
    ) -> None:
        async def act() -> None:
            async with await holdfast.aio.open(":memory:") as hf:
                durable = await hf.durable("agent_7")
                with trace.get_tracer("app").start_as_current_span("turn"):
                    await durable.set("a", "x", category="core")

        asyncio.run(act())

        inner, turn = told.get_finished_spans()
        assert (inner.name, turn.name) == ("upsert_memory", "turn")
        assert inner.parent == turn.get_span_context()


class TestOverHTTP:
    @pytest.mark.parametrize("name", ACTS)
    def test_both_sides_make_one(
        self, told: InMemorySpanExporter, hf: Holdfast, tmp_path: Path, name: str
    ) -> None:
        clock = FrozenClock()
        with serving(hf, clock=clock) as url, holdfast.open(url) as remote:
            durable = remote.durable("agent_7")
            durable.set("a", SECRET, category="core")
            durable.set("w", SECRET, category="workspace")
            durable.export_markdown(tmp_path / "files")
            told.clear()
            operation, count, act = ACTS[name]

            act(durable, tmp_path / "files")

        server, client = told.get_finished_spans()
        assert (server.name, server.kind) == (operation, SpanKind.INTERNAL)
        assert (client.name, client.kind) == (operation, SpanKind.CLIENT)
        assert facts(client)["gen_ai.memory.record.count"] == count
        assert SECRET not in server.to_json() + client.to_json()

    def test_a_refused_write_is_told_on_both_sides(
        self, told: InMemorySpanExporter, hf: Holdfast
    ) -> None:
        with (
            serving(hf, clock=FrozenClock()) as url,
            holdfast.open(url) as remote,
            pytest.raises(PreconditionFailed),
        ):
            remote.durable("agent_7").set("a", "x", category="core", expected_seq=7)

        errors = [facts(span)["error.type"] for span in told.get_finished_spans()]
        assert errors == ["PreconditionFailed", "PreconditionFailed"]


NOBODY = """
import sys
import holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.memory import DurableRun
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
with holdfast.open(":memory:") as hf:
    durable = hf.durable("agent_7")
    assert type(durable) is DurableMemory, type(durable)
    durable.set("a", "x", category="core")
    assert type(durable.run()) is DurableRun
    assert type(hf.longterm("ada", enabled=True)) is LongTermMemory
    assert type(hf.longterm_data("ada")) is LongTermData
loaded = [name for name, of in sys.modules.items() if name.startswith("opentelemetry") and of]
assert not loaded, loaded
"""

NOT_THERE = "import sys; sys.modules['opentelemetry'] = None\n"

WITHOUT_PROVIDER = """
import opentelemetry.trace
import holdfast
from holdfast.memories.durable.memory import DurableMemory
with holdfast.open(":memory:") as hf:
    assert type(hf.durable("agent_7")) is DurableMemory
opentelemetry.trace.set_tracer_provider(opentelemetry.trace.NoOpTracerProvider())
with holdfast.open(":memory:") as hf:
    assert type(hf.durable("agent_7")) is DurableMemory
"""


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(NOBODY, id="nobody collects"),
        pytest.param(NOT_THERE + NOBODY, id="not installed"),
        pytest.param(WITHOUT_PROVIDER, id="no provider is set"),
    ],
)
def test_where_nobody_collects_a_memory_is_handed_out_as_it_is(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
