"""Contract of threads, their turns, and records of network runs."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.ground.errors import (
    ChecksumMismatch,
    Conflict,
    HistoryGone,
    InvalidInput,
    LimitExceeded,
    NotFound,
    NotPermitted,
    ResultDiffers,
    ScopeDenied,
    StaleRun,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.writer import RunOpening
from holdfast.memories.state import history as messages
from holdfast.memories.state.references import digest_of
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ForeignTurn, ThreadTurn
from holdfast.testing.contracts.history import AT, THREAD, began, ended, made, said
from holdfast.testing.fakes import FrozenClock

OPENING = RunOpening(kind="network", name="desk")
BAD_IDS = ("", "a b", "a/b", "é", "a" * 129, "thread\0", None, 7)
CALLS: dict[str, Callable[[Holdfast, Any], object]] = {
    "retrieve": lambda hf, id: hf.threads.retrieve(id),
    "turns": lambda hf, id: hf.threads.turns(id),
    "results": lambda hf, id: hf.threads.results(id),
    "append": lambda hf, id: hf.threads.append(id, [made()]),
    "delete": lambda hf, id: hf.threads.delete(id),
}
NO_TURNS: list[tuple[Any, str]] = [
    ([], "turns"),
    ("text", "turns"),
    (None, "turns"),
    ({"kind": "user"}, "turns"),
    ([7], "turns[0]"),
    ([{}], "turns[0].id"),
    ([{"kind": "else"}], "turns[0].kind"),
    ([{"kind": "user"}], "turns[0].message"),
    ([{"kind": "result", "result": {}}], "turns[0].result.agent"),
    ([{"kind": "user", "message": {"id": "m"}}], "turns[0].message.content"),
    ([{"kind": "result", "result": made(), "also": 1}], "turns[0].also"),
    ([{"id": "m", "content": 7, "at": AT}], "turns[0].content"),
    ([{"id": "m", "content": "", "at": "soon"}], "turns[0].at"),
    ([{"id": "m", "content": "", "at": "2026-01-01T00:00:00"}], "turns[0].at"),
    ([{"id": "m", "content": "", "at": AT, "role": "system"}], "turns[0].role"),
    ([{"id": "m", "content": "", "at": AT, "more": 1}], "turns[0].more"),
    ([made().export(), {"agent": "a", "input": 7}], "turns[1].input"),
    ([InferenceResult(agent="a", id="a b")], "turns[0].id"),
    ([InferenceResult(agent="a", run_id="a b")], "turns[0].run_id"),
    ([InferenceResult(agent="a" * 513)], "turns[0].agent"),
]
"""What cannot be appended, and which field of it is wrong."""


class ThreadsContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_thread_counts_its_turns_and_runs_and_knows_its_times(
        self, hf: Holdfast, clock: FrozenClock
    ) -> None:
        first = clock.now()
        hf.threads.append(THREAD, [said(), made(0)])
        second = clock.tick()
        hf.threads.append(THREAD, [made(1)])
        hf.runs.put(began())

        thread = hf.threads.retrieve(THREAD)

        assert (thread.id, thread.turns, thread.runs) == (THREAD, 3, 1)
        assert (thread.created_at, thread.updated_at) == (first, second)

    def test_what_changes_nothing_leaves_its_times(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.threads.append(THREAD, [made()])
        before = hf.threads.retrieve(THREAD)
        clock.tick()

        hf.threads.append(THREAD, [made()])

        assert hf.threads.retrieve(THREAD) == before

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("call", ["retrieve", "turns", "results"])
    def test_an_unknown_thread_is_not_found(self, hf: Holdfast, call: str) -> None:
        with pytest.raises(NotFound) as refused:
            CALLS[call](hf, "thread_x")

        assert (refused.value.kind, refused.value.id) == ("thread", "thread_x")

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("call", CALLS)
    @pytest.mark.parametrize("id", BAD_IDS)
    def test_an_id_is_of_few_characters(self, hf: Holdfast, call: str, id: object) -> None:
        with pytest.raises(InvalidInput) as refused:
            CALLS[call](hf, id)

        assert refused.value.field == "thread_id"

    @pytest.mark.parametrize("id", ["a", "a" * 128, "A-z_0.9:", "..", "."])
    def test_a_callers_own_id_is_used_as_it_is(self, hf: Holdfast, id: str) -> None:
        hf.threads.append(id, [made()])

        assert hf.threads.retrieve(id).id == id
        assert hf.threads.results(id) == [made()]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_threads_are_listed_newest_first(self, hf: Holdfast, clock: FrozenClock) -> None:
        for number in range(5):
            hf.threads.append(f"thread_{number}", [made()])
            clock.tick()
        hf.threads.append("thread_0", [made(1)])

        page = hf.threads.list(2)

        newest = [f"thread_{number}" for number in reversed(range(5))]
        assert [each.id for each in page] == newest[:2]
        assert [each.id for each in page.all()] == newest
        assert [each.id for each in hf.threads.list(2, page.next_page)] == newest[2:4]
        assert hf.threads.list().data[-1] == hf.threads.retrieve("thread_0")

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("limit", [0, -1, 1_001, True, "2"])
    def test_a_list_has_its_most(self, hf: Holdfast, limit: Any) -> None:
        hf.threads.append(THREAD, [made()])

        with pytest.raises(InvalidInput) as of_threads:
            hf.threads.list(limit)
        with pytest.raises(InvalidInput) as of_turns:
            hf.threads.turns(THREAD, limit)

        assert of_threads.value.field == of_turns.value.field == "limit"

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_cursor_is_of_its_list_alone(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.threads.append(THREAD, [made(0), made(1)])
        clock.tick()
        hf.threads.append("other", [made(0), made(1)])

        page = hf.threads.turns(THREAD, 1).next_page

        for ask in (
            lambda: hf.threads.list(page=page),
            lambda: hf.threads.turns("other", page=page),
            lambda: hf.threads.turns(THREAD, page=page, kind="user"),
            lambda: hf.threads.turns(THREAD, page=hf.threads.list(1).next_page),
            lambda: hf.threads.turns(THREAD, page="page_x"),
        ):
            with pytest.raises(InvalidInput) as refused:
                ask()
            assert refused.value.field == "page"

    def test_another_workspace_has_threads_of_its_own(
        self, hf: Holdfast, elsewhere: Holdfast
    ) -> None:
        hf.threads.append(THREAD, [made(0)])
        hf.runs.put(began())
        elsewhere.threads.append(THREAD, [made(0, text="Else.")])

        assert [each.text for each in hf.threads.results(THREAD)] == ["Done."]
        assert [each.text for each in elsewhere.threads.results(THREAD)] == ["Else."]
        assert elsewhere.runs.list(thread=THREAD).data == []
        assert elsewhere.threads.delete(THREAD)
        assert hf.threads.retrieve(THREAD).turns == 1

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("call", CALLS)
    def test_a_session_reaches_no_thread(self, hf: Holdfast, call: str) -> None:
        store = hf.memory_stores.create(name="Notes")
        session = hf.sessions.create(
            agent="agent_7",
            environment_id="env",
            resources=[{"type": "memory_store", "memory_store_id": store.id}],
        )
        narrowed = hf.for_session(session.id)

        with pytest.raises(NotPermitted):
            CALLS[call](narrowed, THREAD)
        with pytest.raises(NotPermitted):
            narrowed.threads.list()
        narrowed.close()


@pytest.mark.surface("file", "a transaction is committed to disk")
class ThreadTurnsContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_turns_come_back_as_they_were_in_their_order(self, hf: Holdfast) -> None:
        message, results = said("Write, é \N{CRAB}\0."), [made(0), made(1)]
        hf.threads.append(THREAD, [ThreadTurn.said(message, run_id="run_1"), results[0]])
        hf.threads.append(THREAD, [results[1]])

        first, second, third = hf.threads.turns(THREAD)

        assert (first.kind, first.message, first.run_id) == ("user", message, "run_1")
        assert (first.id, first.at, first.result) == (message.id, AT, None)
        assert [second.result, third.result] == results
        assert (second.kind, second.id, second.run_id) == ("result", results[0].id, "run_1")
        assert (second.at, second.message) == (results[0].created_at, None)
        assert 0 < first.seq < second.seq < third.seq

    def test_a_result_comes_back_to_the_byte(self, hf: Holdfast) -> None:
        deep: Any = 2**64 - 1
        for _ in range(200):
            deep = {"a": [deep]} if isinstance(deep, int) else {"a": deep}
        result = made().replace(extras={"deep": deep, "z": -0.0, "least": -(2**63)})

        hf.threads.append(THREAD, [result])

        (found,) = hf.threads.results(THREAD)
        assert found == result
        assert str(found.export()) == str(result.export())
        assert found.checksum == result.checksum

    def test_turns_may_be_given_in_any_of_their_forms(self, hf: Holdfast) -> None:
        message, result = said(), made(1)
        given = [
            message.export(),
            made(0).export(),
            ThreadTurn.said(said()).export(),
            {"kind": "result", "result": result},
        ]

        appended = hf.threads.append(THREAD, iter(given))

        assert len(appended.stored) == 4
        assert [each.kind for each in hf.threads.turns(THREAD)] == [
            "user",
            "result",
            "user",
            "result",
        ]
        assert hf.threads.results(THREAD) == [made(0), result]

    def test_turns_of_one_thread_can_be_given_to_another(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [said(), made(0), made(1)])

        hf.threads.append("copy", [turn.export() for turn in hf.threads.turns(THREAD)])

        here, there = ([*hf.threads.turns(each)] for each in (THREAD, "copy"))
        assert [replace(turn, seq=0) for turn in here] == [replace(turn, seq=0) for turn in there]

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_pages_of_turns_follow_one_another(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made(number) for number in range(7)])

        page = hf.threads.turns(THREAD, 3)

        assert [each.result.index for each in page if each.result] == [0, 1, 2]
        assert [each.result.index for each in page.all() if each.result] == [*range(7)]
        assert len(hf.threads.turns(THREAD, 7)) == 7
        assert hf.threads.turns(THREAD, 7).next_page is None

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_turns_of_one_kind_are_listed_alone(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [said(id="m1"), made(0), said(id="m2"), made(1)])

        kinds = [hf.threads.turns(THREAD, 1, kind=kind).all() for kind in ("user", "result")]

        assert [[each.id for each in turns] for turns in kinds] == [
            ["m1", "m2"],
            [made(0).id, made(1).id],
        ]
        with pytest.raises(InvalidInput):
            hf.threads.turns(THREAD, kind="else")  # pyright: ignore[reportArgumentType] - that is the point

    def test_a_page_of_large_turns_ends_early(self, hf: Holdfast) -> None:
        large = "x" * 6_000_000
        for number in range(4):
            hf.threads.append(THREAD, [InferenceResult(agent="a", id=f"r{number}", input=large)])

        page = hf.threads.turns(THREAD)

        assert [each.id for each in page] == ["r0", "r1"]
        assert [each.id for each in page.all()] == ["r0", "r1", "r2", "r3"]
        assert [each.id for each in hf.threads.results(THREAD)] == ["r0", "r1", "r2", "r3"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_turn_of_a_former_owner_does_not_reach_the_thread(self, hf: Holdfast) -> None:
        former = hf.runs.open_run(RunMemory(run_id="run_1"), OPENING)
        owner = hf.runs.open_run(RunMemory(run_id="run_1"), replace(OPENING, take_over="always"))

        with pytest.raises(StaleRun) as refused:
            hf.threads.append(THREAD, [made(0)], fence=former.fence)
        with pytest.raises(NotFound):
            hf.threads.retrieve(THREAD)
        stored = hf.threads.append(THREAD, [made(0)], fence=owner.fence)

        assert (refused.value.token, refused.value.live_token) == (former.fence, owner.fence)
        assert len(stored.stored) == 1
        with pytest.raises(StaleRun):
            hf.threads.append(THREAD, [said()], fence=owner.fence)

    def test_what_was_new_and_what_was_there_is_told(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made(0), made(1)])

        appended = hf.threads.append(THREAD, [made(1), made(2), made(2)])

        assert appended.stored == (made(2).id,)
        assert appended.duplicates == (made(1).id, made(2).id)
        assert [each.index for each in hf.threads.results(THREAD)] == [0, 1, 2]

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_one_that_differs_keeps_all_out(self, hf: Holdfast, place: int) -> None:
        hf.threads.append(THREAD, [made(0)])
        other = made(0, text="Else.")
        given = [made(1), made(2)]

        with pytest.raises(ResultDiffers) as refused:
            hf.threads.append(THREAD, [*given[:place], other, *given[place:]])

        assert refused.value.id == other.id
        assert (refused.value.stored, refused.value.given) == (made(0).checksum, other.checksum)
        assert [each.index for each in hf.threads.results(THREAD)] == [0]

    def test_two_that_differ_in_one_call_are_refused_and_no_thread_is_made(
        self, hf: Holdfast
    ) -> None:
        with pytest.raises(ResultDiffers):
            hf.threads.append(THREAD, [made(0), made(0, text="Else.")])

        with pytest.raises(NotFound):
            hf.threads.retrieve(THREAD)

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_message_of_another_content_differs_and_a_later_one_does_not(
        self, hf: Holdfast
    ) -> None:
        first = said("One.", "m1")
        hf.threads.append(THREAD, [first])

        later = hf.threads.append(THREAD, [replace(first, at=made(9).created_at)])
        with pytest.raises(ResultDiffers):
            hf.threads.append(THREAD, [said("Two.", "m1")])

        assert later.duplicates == ("m1",)
        assert [each.message for each in hf.threads.turns(THREAD)] == [first]

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize(("turns", "field"), NO_TURNS)
    def test_what_is_no_turn_is_refused_by_its_place(
        self, hf: Holdfast, turns: Any, field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.threads.append(THREAD, turns)

        assert refused.value.field == field

    @pytest.mark.surface("http", "the client loads the thread for it")
    def test_what_a_call_was_sent_is_given_back_from_the_thread(self, hf: Holdfast) -> None:
        first = InferenceResult(agent="writer", input="Where?", run_id="run_1", id="res_1")
        sent = [messages.user("Where?"), messages.assistant("Oslo.")]
        first = first.replace(output=sent[1:])
        own = {"asked": True, "first": "res_1", "last": "res_1", "prompt": 1}
        seen = {**own, "digest": digest_of([messages.user("And?"), *sent])}
        second = {"agent": "writer", "input": "And?", "run_id": "run_2", "seen": seen}
        hf.threads.append(THREAD, [first, second])

        turns = list(hf.threads.turns(THREAD, limit=1).all())
        for result in (hf.threads.results(THREAD)[1], turns[1].result):
            assert result is not None
            assert (result.prompt, result.history) == ([messages.user("And?")], sent)

        hf.threads.delete(THREAD)
        with pytest.raises(HistoryGone):
            _ = turns[1].result and turns[1].result.history

    def test_a_result_that_was_altered_is_refused(self, hf: Holdfast) -> None:
        altered = {**made().export(), "input": "Else."}

        with pytest.raises(ChecksumMismatch) as refused:
            hf.threads.append(THREAD, [altered])

        assert refused.value.id == made().id

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_turn_has_its_most(self, hf: Holdfast) -> None:
        large = InferenceResult(agent="a", input="x" * 16_777_216)

        with pytest.raises(LimitExceeded) as refused:
            hf.threads.append(THREAD, [large])

        assert refused.value.allowed == 16_777_216

    def test_many_writers_at_once_lose_nothing(self, hf: Holdfast) -> None:
        def write(number: int) -> None:
            run = f"run_{number % 4}"
            hf.threads.append(THREAD, [made(number // 4, run_id=run)])

        with ThreadPoolExecutor(8) as writers:
            list(writers.map(write, range(80)))

        found = hf.threads.results(THREAD)
        assert len({each.id for each in found}) == len(found) == 80
        assert hf.threads.retrieve(THREAD).turns == 80


@pytest.mark.surface("file", "deleted rows leave the file")
class ThreadForgettingContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_thread_goes_with_its_turns_and_runs_and_no_other(self, hf: Holdfast) -> None:
        for thread in (THREAD, "other"):
            hf.threads.append(thread, [said(), made()])
            hf.runs.put(began(f"run_of_{thread}", thread_id=thread))

        deleted = hf.threads.delete(THREAD)

        assert deleted
        assert [each.id for each in hf.threads.list()] == ["other"]
        assert [each.id for each in hf.runs.list()] == ["run_of_other"]
        assert hf.threads.retrieve("other").turns == 2

    def test_what_is_not_there_is_not_deleted(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made()])
        hf.threads.delete(THREAD)

        assert not hf.threads.delete(THREAD)

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_deleted_thread_can_begin_anew(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.threads.append(THREAD, [made(0), made(1)])
        hf.threads.delete(THREAD)
        clock.tick()

        appended = hf.threads.append(THREAD, [made(1, text="Else.")])

        assert appended.stored == (made(1).id,)
        assert hf.threads.retrieve(THREAD).created_at == clock.now()
        assert [each.text for each in hf.threads.results(THREAD)] == ["Else."]

    def test_a_forgotten_agents_results_go_and_nobody_elses(
        self, hf: Holdfast, elsewhere: Holdfast
    ) -> None:
        mine, others = made(0, agent="writer"), made(1, agent="editor")
        for each in (hf, elsewhere):
            each.threads.append(THREAD, [said(), mine, others])
            each.threads.append("other", [made(2, agent="editor")])

        report = hf.forget_agent("writer")

        assert report.counts["thread_turns"] == 1
        assert hf.threads.results(THREAD) == [others]
        assert [each.kind for each in hf.threads.turns(THREAD)] == ["user", "result"]
        assert hf.threads.retrieve(THREAD).turns == 2
        assert hf.threads.retrieve("other").turns == 1
        assert elsewhere.threads.retrieve(THREAD).turns == 3

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_an_agent_is_forgotten_by_any_name_that_a_network_gives(self, hf: Holdfast) -> None:
        name = 'The "Editor", or 1=1; \N{CRAB}'
        hf.threads.append(THREAD, [made(0, agent=name), made(1)])
        hf.runs.put(ended(skipped=[[name, "off"]]))

        report = hf.forget_agent(name)

        assert (report.counts["thread_turns"], report.counts["runs"]) == (1, 1)
        assert hf.threads.results(THREAD) == [made(1)]

    @pytest.mark.surface("http", "fields of the body cross the wire")
    def test_records_of_runs_lose_what_names_a_forgotten_agent(self, hf: Holdfast) -> None:
        failed = {"name": "Odd", "message": "The agent editor was odd."}
        named = ended(
            "run_1", status="failed", error=failed, detail="editor", dropped=["editor"], more=1
        )
        hf.runs.put(named)
        hf.runs.put(ended("run_2", dropped=["writer", "editors"]))

        report = hf.forget_agent("editor")

        first, second = (hf.runs.retrieve(each) for each in ("run_1", "run_2"))
        assert report.counts["runs"] == 1
        assert (first.extras, first.error, first.detail) == ({"calls": 2, "more": 1}, None, None)
        assert (first.status, first.usage) == (named.status, named.usage)
        assert second == ended("run_2", dropped=["writer", "editors"])

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_who_made_nothing_is_forgotten_without_a_trace(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [made()])

        report = hf.forget_agent("nobody")

        assert set(report.counts.values()) == {0}
        assert hf.threads.retrieve(THREAD).turns == 1


FOREIGN: list[Any] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Hi"}], "b": 1, "a": 2},
    "text",
    0,
    0.0,
    1.5,
    -0.5,
    True,
    None,
    [],
    {},
    {"empty": None, "nested": [[{"deep": [1, 1.0]}]]},
]


def foreign(*values: Any) -> list[ForeignTurn]:
    """Return turns of another framework."""
    return [ForeignTurn(value, "openai.responses") for value in values]


def values_of(hf: Holdfast, thread: str = THREAD, **options: Any) -> list[Any]:
    """Return the values of the foreign turns of a thread."""
    return [turn.value for turn in hf.threads.turns(thread, kind="foreign", **options).all()]


class ForeignTurnsContract:
    """Turns of other frameworks, and threads of users.

    Subclass it, and give it `hf` and `elsewhere` fixtures.
    """

    @pytest.mark.surface("http", "values cross the wire equal")
    def test_a_value_comes_back_as_it_was(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, foreign(*FOREIGN))

        turns = list(hf.threads.turns(THREAD).all())

        assert [json.dumps(turn.value) for turn in turns] == list(map(json.dumps, FOREIGN))
        assert {turn.kind for turn in turns} == {"foreign"}
        assert {turn.source for turn in turns} == {"openai.responses"}
        assert len({turn.id for turn in turns}) == len(FOREIGN)

    @pytest.mark.surface("http", "the form of a turn on the wire")
    def test_a_turn_is_given_again_without_effect(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, foreign("a"))
        (turn,) = hf.threads.turns(THREAD).data

        again = hf.threads.append(THREAD, [turn.export()])

        assert again.duplicates == (turn.id,)
        assert values_of(hf) == ["a"]

    def test_another_value_under_the_same_id_is_refused(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [ForeignTurn("a", "test", id="t1")])

        with pytest.raises(ResultDiffers):
            hf.threads.append(THREAD, [ForeignTurn("b", "test", id="t1")])

    @pytest.mark.parametrize(
        ("turn", "field"),
        [
            (ForeignTurn({"at": object()}, "test"), "turns[0].value"),
            (ForeignTurn(float("nan"), "test"), "turns[0].value"),
            (ForeignTurn("\ud800", "test"), "turns[0].value"),
            (ForeignTurn("a", "Open AI"), "turns[0].source"),
            (ForeignTurn("a", ""), "turns[0].source"),
            (ForeignTurn("a", "x" * 65), "turns[0].source"),
            ({"kind": "foreign", "source": "test"}, "turns[0].value"),
            ({"kind": "foreign", "value": 1}, "turns[0].source"),
        ],
    )
    def test_what_is_no_foreign_turn_is_refused(self, hf: Holdfast, turn: Any, field: str) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.threads.append(THREAD, [turn])

        assert refused.value.field == field

    def test_results_pass_over_foreign_turns(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [*foreign("a"), said(), made(0), *foreign("b")])

        assert [each.id for each in hf.threads.results(THREAD)] == [made(0).id]
        assert hf.threads.retrieve(THREAD).turns == 4

    @pytest.mark.surface("http", "the query parameter crosses the wire")
    def test_the_last_turns_come_oldest_first(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [said(), *foreign(*range(150)), made(0)])

        assert values_of(hf, last=3) == [147, 148, 149]
        assert values_of(hf, last=120) == list(range(30, 150))
        assert values_of(hf, last=1_000) == list(range(150))
        assert [turn.kind for turn in hf.threads.turns(THREAD, last=2)] == ["foreign", "result"]

    def test_no_last_turns_are_refused(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, foreign("a"))

        with pytest.raises(InvalidInput, match="last"):
            hf.threads.turns(THREAD, last=0)

    @pytest.mark.surface("http", "a turn, or none, crosses the wire")
    def test_the_last_turn_of_a_kind_is_taken_away(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [*foreign("a", None), made(0)])

        popped = [hf.threads.pop(THREAD) for _ in range(3)]

        assert [turn and (turn.kind, turn.value) for turn in popped] == [
            ("foreign", None),
            ("foreign", "a"),
            None,
        ]
        assert hf.threads.retrieve(THREAD).turns == 1
        assert hf.threads.pop("missing") is None

    def test_what_was_taken_away_can_be_given_again(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, foreign("a", "b"))
        popped = hf.threads.pop(THREAD)
        assert popped is not None

        hf.threads.append(THREAD, [popped])

        assert values_of(hf) == ["a", "b"]

    def test_turns_of_one_call_stand_together(self, hf: Holdfast) -> None:
        calls = [[f"{call} {number}" for number in range(5)] for call in range(8)]

        def append(call: list[str]) -> None:
            hf.threads.append(THREAD, foreign(*call))

        with ThreadPoolExecutor(8) as threads:
            list(threads.map(append, calls))

        found = values_of(hf)
        assert sorted(found[at : at + 5] for at in range(0, 40, 5)) == sorted(calls)

    @pytest.mark.surface("http", "the user crosses the wire, and so does the refusal")
    def test_a_thread_of_a_user_is_no_other_users(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, foreign("a"), user="ada")
        hf.threads.append("plain", foreign("b"))

        assert hf.threads.retrieve(THREAD).user == "ada"
        assert hf.threads.retrieve("plain").user is None
        for thread, user in ((THREAD, "bob"), ("plain", "bob")):
            with pytest.raises(ScopeDenied):
                hf.threads.append(thread, foreign("c"), user=user)
            with pytest.raises(ScopeDenied):
                hf.threads.turns(thread, user=user)
            with pytest.raises(ScopeDenied):
                hf.threads.pop(thread, user=user)
        hf.threads.append(THREAD, foreign("d"))
        assert values_of(hf, user="ada") == ["a", "d"]
        assert hf.threads.retrieve(THREAD).user == "ada"

    @pytest.mark.surface("http", "the query parameter crosses the wire")
    def test_the_threads_of_a_user_are_listed(self, hf: Holdfast) -> None:
        for number in range(5):
            hf.threads.append(f"ada_{number}", foreign("a"), user="ada")
            hf.threads.append(f"bob_{number}", foreign("b"), user="bob")

        page = hf.threads.list(2, user="ada")

        assert sorted(thread.id for thread in page.all()) == [f"ada_{n}" for n in range(5)]
        assert hf.threads.list(user="nobody").data == []

    @pytest.mark.embedded("forgetting a user needs the right of an admin")
    def test_a_forgotten_user_takes_the_threads_along(self, hf: Holdfast) -> None:
        hf.threads.append(THREAD, [*foreign("a"), said(), made(0)], user="ada")
        hf.runs.put(began())
        hf.threads.append("other", foreign("b"), user="bob")

        report = hf.forget_user("ada")

        assert report.counts["threads"] == 1
        assert report.counts["thread_turns"] == 3
        assert report.counts["runs"] == 1
        assert [thread.id for thread in hf.threads.list()] == ["other"]


class PutRunsContract:
    """Subclass it, and give it `hf`, `elsewhere` and `clock` fixtures."""

    def test_a_run_is_recorded_at_its_start_and_at_its_end(self, hf: Holdfast) -> None:
        hf.runs.put(began())
        there = hf.runs.retrieve("run_1")

        hf.runs.put(ended())

        assert there == began()
        assert hf.runs.retrieve("run_1") == ended()
        assert ended().extras == {"calls": 2, "dropped": ["editor"]}

    def test_a_record_may_be_given_as_its_dict(self, hf: Holdfast) -> None:
        record = ended(error={"name": "Odd", "message": "It was."}, status="failed")

        assert hf.runs.put(record.export()) == record
        assert hf.runs.retrieve("run_1") == record

    def test_a_run_that_goes_on_may_change_its_record(self, hf: Holdfast) -> None:
        hf.runs.put(began(thread_id=None))

        hf.runs.put(replace(began(), extras={"calls": 1}))

        assert hf.runs.retrieve("run_1").extras == {"calls": 1}
        assert [each.id for each in hf.runs.list(thread=THREAD)] == ["run_1"]

    @pytest.mark.surface("http", "error fields cross the wire")
    @pytest.mark.parametrize("record", [began(), ended(calls=7), ended(status="failed")])
    def test_a_run_that_has_ended_stays_as_it_ended(self, hf: Holdfast, record: Any) -> None:
        hf.runs.put(ended())
        hf.runs.put(ended())

        with pytest.raises(Conflict) as refused:
            hf.runs.put(record)

        assert refused.value.reason == "ended"
        assert hf.runs.retrieve("run_1") == ended()

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_record_of_a_former_owner_is_refused(self, hf: Holdfast) -> None:
        former = hf.runs.open_run(RunMemory(run_id="run_1"), OPENING)
        hf.runs.open_run(RunMemory(run_id="run_1"), replace(OPENING, take_over="always"))

        with pytest.raises(StaleRun) as refused:
            hf.runs.put(replace(ended(), fence=former.fence))

        assert refused.value.reason == "superseded"
        assert hf.runs.retrieve("run_1").status == "running"

    def test_an_end_beside_a_live_owner_is_stored_with_its_only_event(self, hf: Holdfast) -> None:
        owner = hf.runs.open_run(RunMemory(run_id="run_1"), OPENING)
        hf.runs.put(ended())
        at_once = [each.type for each in hf.runs.follow("run_1")]

        owner.end("failed", reason="internal")

        assert at_once == ["run.started", "run.completed"]
        assert [each.type for each in hf.runs.follow("run_1")] == at_once
        record = hf.runs.retrieve("run_1")
        assert (record.status, record.reason) == ("completed", ended().reason)

    def test_a_run_makes_its_thread(self, hf: Holdfast, clock: FrozenClock) -> None:
        hf.runs.put(began())

        thread = hf.threads.retrieve(THREAD)
        assert (thread.turns, thread.runs, thread.created_at) == (0, 1, clock.now())
        assert hf.threads.results(THREAD) == []
        assert list(hf.threads.turns(THREAD)) == []

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_runs_are_listed_newest_first_and_by_filters(self, hf: Holdfast) -> None:
        for number in range(6):
            started = AT.replace(minute=number)
            even = number % 2 == 0
            record = began(
                f"run_{number}",
                thread_id="even" if even else None,
                kind="agent" if number == 5 else "network",
                started_at=started,
            )
            hf.runs.put(record)
        hf.runs.put(ended("run_4", thread_id="even", started_at=AT.replace(minute=4)))

        def ids(**filters: Any) -> list[str]:
            return [each.id[-1:] for each in hf.runs.list(limit=2, **filters).all()]

        assert ids() == ["5", "4", "3", "2", "1", "0"]
        assert ids(kind="network") == ["4", "3", "2", "1", "0"]
        assert ids(thread="even") == ["4", "2", "0"]
        assert ids(status="completed") == ["4"]
        assert ids(status=["completed", "failed"]) == ["4"]
        assert ids(thread="even", status="running", kind="network") == ["2", "0"]
        assert ids(kind="team") == []
        assert ids(since=AT.replace(minute=3)) == ["5", "4", "3"]

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_an_unknown_run_is_not_found(self, hf: Holdfast) -> None:
        with pytest.raises(NotFound) as refused:
            hf.runs.retrieve("run_x")

        assert (refused.value.kind, refused.value.id) == ("run", "run_x")

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_another_workspace_has_runs_of_its_own(self, hf: Holdfast, elsewhere: Holdfast) -> None:
        hf.runs.put(began())
        elsewhere.runs.put(ended())

        assert hf.runs.retrieve("run_1") == began()
        assert [each.status for each in elsewhere.runs.list()] == ["completed"]

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"id": "a b"}, "id"),
            ({"thread_id": ""}, "thread_id"),
            ({"name": ""}, "name"),
            ({"name": "é" * 257}, "name"),
            ({"kind": "errand"}, "kind"),
            ({"status": "done"}, "status"),
            ({"status": "running"}, "ended_at"),
            ({"ended_at": None}, "ended_at"),
            ({"ended_at": "soon"}, "ended_at"),
            ({"started_at": 7}, "started_at"),
            ({"reason": 7}, "reason"),
            ({"error": "odd"}, "error"),
            ({"error": {"name": "Odd", "message": 7}}, "error.message"),
            ({"usage": {"requests": "many"}}, "usage.requests"),
        ],
    )
    def test_what_is_no_record_is_refused_by_its_field(
        self, hf: Holdfast, changes: dict[str, Any], field: str
    ) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.runs.put({**ended().export(), **changes})

        assert refused.value.field == field

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("given", [None, 7, "run_1", ["run_1"]])
    def test_what_is_no_object_is_no_record(self, hf: Holdfast, given: Any) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.runs.put(given)

        assert refused.value.field == "record"

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize(
        "filters", [{"kind": ""}, {"thread": "a b"}, {"status": "done"}, {"limit": 0}]
    )
    def test_what_filters_nothing_is_refused(self, hf: Holdfast, filters: dict[str, Any]) -> None:
        with pytest.raises(InvalidInput) as refused:
            hf.runs.list(**filters)

        assert refused.value.field == next(iter(filters))
