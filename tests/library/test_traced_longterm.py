"""Spans of long-term memory, as the real SDK collects them."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import holdfast
from holdfast import tools
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermData, LongTermMemory
from holdfast.memories.longterm.records import Turn
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

FACT = "Ada pays by post"
SAID = "Send the invoice by post"
PASSWORD = "The password is hunter2-Zebra99!"
STORE, RECORD = "gen_ai.memory.store.id", "gen_ai.memory.record.id"


@pytest.fixture
def hf(told: InMemorySpanExporter) -> Iterator[Holdfast]:
    del told
    with holdfast.open(":memory:") as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    return memory_of(hf)


@pytest.fixture
def open_about(told: InMemorySpanExporter) -> Iterator[LongTermMemory]:
    """Give the memory of a handle whose spans may tell texts."""
    del told
    with holdfast.open(":memory:", trace_content=True) as hf:
        yield memory_of(hf)


def memory_of(hf: Holdfast) -> LongTermMemory:
    ltm = hf.longterm("ada", enabled=True)
    assert ltm is not None
    return ltm


def facts(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def last(told: InMemorySpanExporter) -> ReadableSpan:
    return told.get_finished_spans()[-1]


def fact_of(ltm: LongTermMemory) -> str:
    """Return the id of the one item there is."""
    (item,) = ltm.list().data
    return str(item.id)


Act = Callable[[LongTermMemory], object]

ACTS: dict[str, tuple[str, int, Act]] = {
    "recall": ("search_memory", 1, lambda ltm: ltm.recall("How does Ada pay?", what="items")),
    "recall of nothing": ("search_memory", 0, lambda ltm: ltm.recall("zebras")),
    "remember": ("create_memory", 1, lambda ltm: ltm.remember("Likes tabs")),
    "remember a secret": ("create_memory", 1, lambda ltm: ltm.remember(PASSWORD)),
    "record": (
        "create_memory",
        2,
        lambda ltm: ltm.record([Turn(role="user", text="Hello"), Turn(role="user", text=" ")]),
    ),
    "remember_conversation": (
        "create_memory",
        2,
        lambda ltm: ltm.remember_conversation(
            [{"role": "user", "content": "Hello"}, Turn(role="assistant", text="Good day")]
        ),
    ),
    "update": ("update_memory", 1, lambda ltm: ltm.update(fact_of(ltm), importance=0.9)),
    "import_": (
        "upsert_memory",
        3,
        lambda ltm: ltm.import_([*ltm.export(), {"type": "nonsense"}]),
    ),
    "forget": ("delete_memory", 1, lambda ltm: ltm.forget(fact_of(ltm))),
    "forget nothing": ("delete_memory", 0, lambda ltm: ltm.forget("nothing")),
    "clear": ("delete_memory", 2, lambda ltm: ltm.clear()),
}


def told_before(ltm: LongTermMemory) -> None:
    """Have an item and a turn there."""
    ltm.remember(FACT)
    ltm.record([Turn(role="user", text=SAID)])


class TestEachAct:
    @pytest.mark.parametrize("name", ACTS)
    def test_it_is_one_span_of_its_operation(
        self, told: InMemorySpanExporter, ltm: LongTermMemory, name: str
    ) -> None:
        told_before(ltm)
        told.clear()
        operation, count, act = ACTS[name]

        act(ltm)

        (span,) = told.get_finished_spans()
        assert (span.name, span.kind) == (operation, SpanKind.INTERNAL)
        assert span.status.status_code is StatusCode.UNSET
        attributes = facts(span)
        attributes.pop(RECORD, None)
        assert attributes.pop(STORE).startswith("coll_")
        assert attributes == {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "holdfast",
            "gen_ai.memory.record.count": count,
        }

    @pytest.mark.parametrize("name", ["update", "forget"])
    def test_an_act_on_one_record_tells_its_id(
        self, told: InMemorySpanExporter, ltm: LongTermMemory, name: str
    ) -> None:
        told_before(ltm)
        id = fact_of(ltm)

        ACTS[name][2](ltm)

        assert facts(last(told))[RECORD] == id

    def test_what_was_remembered_tells_its_id(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        stored = ltm.remember(FACT).stored

        assert stored is not None
        assert facts(last(told))[RECORD] == stored.id

    @pytest.mark.parametrize("name", ["remember a secret", "forget nothing", "recall", "clear"])
    def test_an_act_on_no_record_or_on_several_tells_none(
        self, told: InMemorySpanExporter, ltm: LongTermMemory, name: str
    ) -> None:
        told_before(ltm)

        ACTS[name][2](ltm)

        assert RECORD not in facts(last(told))

    def test_what_is_not_of_the_table_makes_no_span(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        ltm.list()
        ltm.get("nothing")
        ltm.status()
        ltm.flush(0)
        ltm.retry()
        list(ltm.export())

        assert told.get_finished_spans() == ()


class TestTheCollection:
    def test_before_anything_was_kept_there_is_none_to_name(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        ltm.recall("How does Ada pay?")

        assert STORE not in facts(last(told))

    def test_the_act_that_makes_it_names_it(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        ltm.remember(FACT)
        ltm.recall("How does Ada pay?")

        first, second = [facts(span)[STORE] for span in told.get_finished_spans()]
        assert first == second

    def test_each_has_its_own(self, told: InMemorySpanExporter, hf: Holdfast) -> None:
        memory_of(hf).remember(FACT)
        work = hf.longterm("ada", namespace="work", enabled=True)
        assert work is not None
        work.remember(FACT)

        first, second = [facts(span)[STORE] for span in told.get_finished_spans()]
        assert first != second

    def test_a_user_is_not_named(self, told: InMemorySpanExporter, hf: Holdfast) -> None:
        ltm = hf.longterm("ada@example.org", enabled=True)
        assert ltm is not None
        ltm.remember("Likes tabs")
        ltm.recall("tabs")
        ltm.clear()

        for span in told.get_finished_spans():
            assert "ada@example.org" not in span.to_json()


class TestAPersonsData:
    def test_forgetting_and_clearing_are_spans_whatever_the_switch_says(
        self, told: InMemorySpanExporter, hf: Holdfast, ltm: LongTermMemory
    ) -> None:
        told_before(ltm)
        told.clear()
        data = hf.longterm_data("ada")

        data.forget(fact_of(ltm))
        data.clear()

        spans = told.get_finished_spans()
        assert [span.name for span in spans] == ["delete_memory", "delete_memory"]
        assert [facts(span)["gen_ai.memory.record.count"] for span in spans] == [1, 1]

    def test_they_are_what_they_stand_for(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        assert isinstance(ltm, LongTermMemory)
        assert isinstance(hf.longterm_data("ada"), LongTermData)


class TestWhatFails:
    def test_a_refusal_tells_its_class_and_nothing_more(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        with pytest.raises(InvalidInput):
            ltm.remember(FACT, kind=SAID)

        span = last(told)
        assert facts(span)["error.type"] == "InvalidInput"
        assert span.status.status_code is StatusCode.ERROR
        assert SAID not in span.to_json()

    def test_an_id_that_is_not_there_is_not_told(
        self, told: InMemorySpanExporter, ltm: LongTermMemory
    ) -> None:
        with pytest.raises(NotFound):
            ltm.update(FACT, importance=1)
        ltm.forget(FACT)

        for span in told.get_finished_spans():
            assert FACT not in span.to_json()


class TestTexts:
    @pytest.mark.parametrize("name", ACTS)
    def test_without_being_asked_for_none_is_told(
        self, told: InMemorySpanExporter, ltm: LongTermMemory, name: str
    ) -> None:
        told_before(ltm)

        ACTS[name][2](ltm)

        texts = (FACT, SAID, PASSWORD, "How does Ada pay?", "Hello", "Likes tabs")
        for span in told.get_finished_spans():
            assert not [each for each in texts if each in span.to_json()]

    def test_asked_for_they_are_what_was_sought_and_what_was_found(
        self, told: InMemorySpanExporter, open_about: LongTermMemory
    ) -> None:
        stored = open_about.remember(FACT, "fact", 0.75).stored
        assert stored is not None
        (found,) = open_about.recall("How does Ada pay?")

        attributes = facts(last(told))
        assert attributes["gen_ai.memory.query.text"] == "How does Ada pay?"
        assert msgspec.json.decode(attributes["gen_ai.memory.records"]) == [
            {
                "id": stored.id,
                "content": FACT,
                "metadata": {"type": "item", "kind": "fact", "importance": 0.75},
                "score": pytest.approx(found.score),
            }
        ]

    def test_a_turn_tells_who_said_it(
        self, told: InMemorySpanExporter, open_about: LongTermMemory
    ) -> None:
        (turn,) = open_about.record([Turn(role="user", text=SAID, speaker="Ada")]).turns

        assert msgspec.json.decode(facts(last(told))["gen_ai.memory.records"]) == [
            {
                "id": turn.id,
                "content": SAID,
                "metadata": {"type": "turn", "role": "user", "speaker": "Ada"},
            }
        ]

    def test_what_was_not_kept_or_is_forgotten_is_never_told(
        self, told: InMemorySpanExporter, open_about: LongTermMemory
    ) -> None:
        open_about.remember(PASSWORD)
        open_about.remember(FACT)
        open_about.forget(fact_of(open_about))

        secret, _, forgotten = told.get_finished_spans()
        assert PASSWORD not in secret.to_json()
        assert FACT not in forgotten.to_json()


class TestOthersSpans:
    def test_the_tools_make_them(self, told: InMemorySpanExporter, ltm: LongTermMemory) -> None:
        table = tools.lay_out(tools.longterm(ltm))

        table["ltm_remember"].call({"text": FACT})
        table["ltm_recall"].call({"query": "How does Ada pay?"})
        (item,) = ltm.list().data
        table["ltm_forget"].call({"id": item.id})

        names = [span.name for span in told.get_finished_spans()]
        assert names == ["create_memory", "search_memory", "delete_memory"]
        assert item.origin == "tool"

    def test_the_awaitable_library_makes_them_within_the_callers(
        self, told: InMemorySpanExporter
    ) -> None:
        async def act() -> None:
            async with await holdfast.aio.open(":memory:") as hf:
                ltm = await hf.longterm("ada", enabled=True)
                assert ltm is not None
                with trace.get_tracer("app").start_as_current_span("turn"):
                    await ltm.remember(FACT)

        asyncio.run(act())

        inner, turn = told.get_finished_spans()
        assert (inner.name, turn.name) == ("create_memory", "turn")
        assert inner.parent == turn.get_span_context()


@pytest.fixture
def there(hf: Holdfast) -> Iterator[Holdfast]:
    with serving(hf, clock=FrozenClock()) as url, holdfast.open(url) as remote:
        yield remote


class TestOverHTTP:
    @pytest.mark.parametrize("name", sorted(set(ACTS) - {"forget nothing"}))
    def test_both_sides_make_one(
        self, told: InMemorySpanExporter, there: Holdfast, name: str
    ) -> None:
        ltm = memory_of(there)
        told_before(ltm)
        told.clear()
        operation, count, act = ACTS[name]

        act(ltm)

        server, client = told.get_finished_spans()
        assert (server.name, server.kind) == (operation, SpanKind.INTERNAL)
        assert (client.name, client.kind) == (operation, SpanKind.CLIENT)
        counts = [facts(span)["gen_ai.memory.record.count"] for span in (server, client)]
        assert counts == [count, count]
        assert facts(server).get(RECORD) == facts(client).get(RECORD)
        assert FACT not in server.to_json() + client.to_json()

    def test_the_collection_is_named_where_it_is(
        self, told: InMemorySpanExporter, there: Holdfast
    ) -> None:
        memory_of(there).remember(FACT)

        server, client = told.get_finished_spans()
        assert facts(server)[STORE].startswith("coll_")
        assert STORE not in facts(client)

    def test_what_cannot_be_there_is_not_asked_of_the_server(
        self, told: InMemorySpanExporter, there: Holdfast
    ) -> None:
        there.longterm_data("ada").forget("nothing")

        (client,) = told.get_finished_spans()
        assert (client.name, client.kind) == ("delete_memory", SpanKind.CLIENT)

    def test_an_item_that_is_changed_while_memory_is_off_is_told_as_well(
        self, told: InMemorySpanExporter, there: Holdfast, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ltm = memory_of(there)
        told_before(ltm)
        told.clear()
        monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "0")

        ltm.update(fact_of(ltm), importance=0.9)

        server, client = told.get_finished_spans()
        assert (server.name, client.name) == ("update_memory", "update_memory")
