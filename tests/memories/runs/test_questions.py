"""Questions of runs: what they hold, what makes them the same, and how they are stored."""

from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contracts.questions import come_to_rest
from contracts.runs import Held
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.errors import Conflict, InvalidInput, LimitExceeded, NotPermitted
from holdfast.ground.clock import to_microseconds
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import VersionSave, save_version
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.answer import sweep_questions
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import (
    Answerer,
    Question,
    approval_identity,
    ask,
    expiry,
    identity,
    open_ids,
    questions_of,
    withdraw,
)
from holdfast.memories.run.records.record import RunAcquisition
from holdfast.memories.run.records.write import begin, statements
from holdfast.memories.run.records.writer import RunOpening
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def question(number: int = 1, **more: Any) -> Question:
    facts: dict[str, Any] = {
        "kind": "question",
        "text": "Which berth?",
        "key": f"k{number}",
        "asked_at": NOON,
    }
    facts |= {"id": f"question_{number}", "run_id": "run_1"}
    return Question(**(facts | more))


def begun(hf: Holdfast) -> None:
    start = RunAcquisition(
        run_id="run_1", holder="one", name="n", kind="task", place="rock:7", started_at=1
    )
    begin(hf.runs.context, start)


def asked(hf: Holdfast, *questions: Question) -> tuple[RunEvent, ...]:
    sql = statements(hf.runs.context)
    return hf.runs.context.engine.write(lambda tx: ask(tx, sql, "run_1", questions))


def stored(hf: Holdfast) -> list[Question]:
    sql = statements(hf.runs.context)
    return hf.runs.context.engine.read(lambda reader: questions_of(reader, sql, "run_1"))


HOSTILE = "\u202e<b>&amp;</b>\n'; drop table runs; -- {x} \U0001f6a2"


def test_a_question_is_stored_as_it_was_asked(kept: Holdfast) -> None:
    begun(kept)
    full = question(
        kind="approval",
        text=HOSTILE,
        schema={"type": "object", "\0": [1, None]},
        options=["a", {"b": [1.5]}, None],
        part="read.3",
        agent="harbour",
        tool="dock",
        call_id="call_1",
        arguments={"berth": "\0", "n": 2},
        expires_at=NOON + timedelta(days=2),
        who=("user:anna", "key:desk", "scope:admin"),
        default=None,
    )

    told = asked(kept, full, question(2))

    assert stored(kept) == [full, question(2)]
    assert [each.type for each in told] == ["question.asked"] * 2
    assert told[0].part == "read.3"
    assert told[0].data == {
        "question": "question_1",
        "kind": "approval",
        "text": HOSTILE,
        "who": ["user:anna", "key:desk", "scope:admin"],
    }


def test_a_question_that_is_asked_again_is_left_as_it_is(kept: Holdfast) -> None:
    begun(kept)
    asked(kept, question())

    assert asked(kept, question(text="Another?")) == ()
    assert stored(kept) == [question()]


def test_a_run_has_at_most_a_hundred_open_questions(kept: Holdfast) -> None:
    begun(kept)
    asked(kept, *(question(number) for number in range(1, 101)))

    with pytest.raises(LimitExceeded) as caught:
        asked(kept, question(101))
    assert caught.value.allowed == 100
    assert len(stored(kept)) == 100


def test_the_open_questions_of_a_run_are_withdrawn_together(
    kept: Holdfast, clock: FrozenClock
) -> None:
    begun(kept)
    done = {"status": "answered", "answer": "7", "answered_by": "user:anna", "answered_at": NOON}
    asked(kept, question(1), question(2, **done), question(3))
    context, now = kept.runs.context, to_microseconds(clock.now())
    sql = statements(context)

    told = context.engine.write(lambda tx: withdraw(tx, sql, "run_1", now))

    assert [(each.type, each.data["question"]) for each in told] == [
        ("question.withdrawn", "question_1"),
        ("question.withdrawn", "question_3"),
    ]
    assert context.engine.read(lambda reader: open_ids(reader, sql, "run_1")) == ()
    assert [each.status for each in stored(kept)] == ["withdrawn", "answered", "withdrawn"]


def test_the_questions_of_a_run_go_with_it(kept: Holdfast, clock: FrozenClock) -> None:
    begun(kept)
    asked(kept, question())
    clock.tick(61)
    kept.runs.cancel("run_1")
    kept.runs.delete("run_1")

    assert stored(kept) == []


@pytest.mark.parametrize(
    ("field", "given"),
    [
        ("id", "run_1"),
        ("kind", "other"),
        ("status", "lost"),
        ("text", "x" * 16_385),
        ("text", "\ud800"),
        ("text", "\0"),
        ("text", 7),
        ("schema", "{}"),
        ("schema", {"description": "x" * 65_536}),
        ("options", "ab"),
        ("options", list(range(101))),
        ("arguments", object()),
        ("answer", "x" * 262_144),
        ("default", float("nan")),
        ("who", "anna"),
        ("who", ["user:"]),
        ("who", ["scope:write"]),
        ("who", ["user:anna"] * 101),
        ("note", "x" * 16_385),
    ],
)
def test_what_is_over_a_limit_is_refused_by_its_field(field: str, given: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        question(**{field: given})
    assert caught.value.field.startswith(field)


def test_a_question_is_the_same_after_a_round_trip() -> None:
    for each in (
        question(),
        question(default=None, options=["a"], who="user:anna", expires_at=NOON),
        question(status="answered", answer=None, answered_by="timeout", answered_at=NOON),
    ):
        assert Question.from_dict(each.export()) == each
    with pytest.raises(InvalidInput):
        Question.from_dict({**question().export(), "other": 1})


def test_the_identity_of_a_question_is_its_text_and_schema_and_never_its_place() -> None:
    same = identity("Which?", {"type": "string", "enum": ["a"]})

    assert identity("Which?", {"enum": ["a"], "type": "string"}) == same
    assert len({same, identity("Which?"), identity("Who?"), identity("Which?", number=1)}) == 4


def test_an_approval_is_of_one_call_and_its_arguments() -> None:
    same = approval_identity("call_1", {"a": 1, "b": 2})

    assert approval_identity("call_1", {"b": 2, "a": 1}) == same
    assert approval_identity("call_2", {"a": 1, "b": 2}) != same
    assert approval_identity("call_1", {"a": 1, "b": 3}) != same


@pytest.mark.parametrize("timeout", [0, -1, 315_360_001, float("nan"), float("inf"), True, "1"])
def test_a_timeout_is_above_nothing_and_at_most_ten_years(timeout: Any) -> None:
    with pytest.raises(InvalidInput):
        expiry(NOON, timeout)
    assert expiry(NOON, 315_360_000) == NOON + timedelta(days=3650)
    assert expiry(NOON, None) is None


def test_a_question_that_is_due_has_its_default_or_has_expired() -> None:
    due = NOON + timedelta(seconds=60)
    plain, ready = question(expires_at=due), question(expires_at=due, default=None)

    assert plain.settled(due - timedelta(seconds=1)) == plain
    assert plain.settled(due).status == "expired"
    answered = ready.settled(due)
    assert (answered.status, answered.answer, answered.answered_by) == ("answered", None, "timeout")
    assert answered.answered_at == due


def test_a_record_that_ends_a_waiting_run_withdraws_its_questions(kept: Holdfast) -> None:
    (waiting,) = come_to_rest(kept.runs.context)
    run = kept.runs.retrieve("run_1")
    ended = replace(run, status="failed", reason="internal", ended_at=run.started_at)

    kept.runs.put(ended)

    assert kept.runs.question(waiting.id).status == "withdrawn"
    told = [each.type for each in kept.runs.follow("run_1")]
    assert told[-3:] == ["run.waiting", "question.withdrawn", "run.failed"]


def test_a_run_that_came_to_rest_in_this_process_is_cancelled_at_once(kept: Holdfast) -> None:
    control = Held("s")
    opening = RunOpening(kind="task", name="dock")
    writer = kept.runs.open_run(RunMemory(run_id="run_1"), opening, control=control)
    save = VersionSave(
        run_id="run_1",
        fence=writer.fence,
        at=1,
        cause="question",
        questions=(question(),),
        status="waiting",
    )
    writer.rest(save)

    with pytest.raises(Conflict):
        kept.runs.steer("run_1", "hurry")
    kept.runs.cancel("run_1")

    assert control.asked == []
    run = kept.runs.retrieve("run_1")
    assert (run.status, run.questions) == ("cancelled", ())


def test_a_run_that_ends_withdraws_what_it_still_asks(kept: Holdfast) -> None:
    writer = kept.runs.open_run(
        RunMemory(run_id="run_1"), RunOpening(kind="task", name="dock"), control=Held()
    )
    save = VersionSave(
        run_id="run_1", fence=writer.fence, at=1, cause="question", questions=(question(),)
    )
    writer.keep(save)
    writer.end("failed", reason="budget")

    assert stored(kept)[0].status == "withdrawn"
    told = [each.type for each in kept.runs.follow("run_1")]
    assert told[-2:] == ["question.withdrawn", "run.failed"]


def test_the_events_of_a_run_that_records_facts_have_no_text_of_a_question(
    kept: Holdfast,
) -> None:
    begun(kept)
    save = VersionSave(
        run_id="run_1",
        fence=1,
        at=1,
        cause="question",
        questions=(question(),),
        status="waiting",
        facts=True,
    )

    told = save_version(kept.runs.context, save).events

    assert told[1].type == "question.asked"
    assert told[1].data == {"question": "question_1", "kind": "question", "who": []}
    assert stored(kept)[0].text == "Which berth?"


def test_a_library_caller_answers_for_a_person(kept: Holdfast) -> None:
    (anna, desk) = come_to_rest(kept.runs.context, {"who": "user:anna"}, {"who": "key:desk"})

    with pytest.raises(NotPermitted):
        kept.runs.answer("run_1", "7", question=anna.id, by="user:bob")
    assert kept.runs.answer("run_1", "7", question=anna.id, by="user:anna").answered_by == (
        "user:anna"
    )
    several = Answerer(by="user:bob", names=frozenset(("user:bob", "key:desk")))
    assert kept.runs.answer("run_1", "7", question=desk.id, by=several).answered_by == "user:bob"


def test_the_actor_of_a_handle_answers_as_itself(kept: Holdfast) -> None:
    come_to_rest(kept.runs.context, {"who": "user:anna"})
    anna = kept.acting(actor=Actor.user("user_anna"))

    assert anna.runs.answer("run_1", "7").answered_by == "user:anna"


def test_a_session_answers_nothing(kept: Holdfast) -> None:
    come_to_rest(kept.runs.context)
    store = kept.memory_stores.create(name="notes").id
    resources: Any = [{"type": "memory_store", "memory_store_id": store}]
    session = kept.sessions.create(agent="a", environment_id="e", resources=resources)

    with pytest.raises(NotPermitted):
        kept.for_session(session.id).runs.answer("run_1", "7")


ACTS = st.one_of(
    st.tuples(st.just("answer"), st.integers(0, 3), st.sampled_from("ab")),
    st.tuples(st.just("tick"), st.integers(1, 40), st.just("")),
    st.tuples(st.just("read"), st.integers(0, 3), st.just("")),
    st.tuples(st.just("sweep"), st.just(0), st.just("")),
    st.tuples(st.just("cancel"), st.just(0), st.just("")),
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(ACTS, max_size=12))
def test_each_question_is_settled_once_whatever_comes_first(
    kept: Holdfast, clock: FrozenClock, acts: list[tuple[str, int, str]]
) -> None:
    hf = kept.acting(workspace=new_workspace())
    soon, later = (clock.now() + timedelta(seconds=seconds) for seconds in (30, 60))
    forms: list[dict[str, Any]] = [{}, {"expires_at": soon}, {"expires_at": later, "default": "7"}]
    asked = come_to_rest(hf.runs.context, *forms)
    for step in acts:
        act(hf, clock, asked, step)

    run = hf.runs.retrieve("run_1")
    found = [hf.runs.question(each.id) for each in asked]
    if run.status != "cancelled":
        hf.runs.cancel("run_1")
    told = [
        (each.data["question"], each.type)
        for each in hf.runs.follow("run_1")
        if each.type.startswith("question.")
    ]
    settled = [(id, type) for id, type in told if type != "question.asked"]
    assert sorted(id for id, _ in settled) == sorted(each.id for each in asked)
    for each in found:
        if each.status != "open":
            assert (each.id, f"question.{each.status}") in settled
    open = [each.id for each in found if each.status == "open"]
    assert sorted(run.questions) == sorted(open)
    if run.status != "cancelled":
        assert run.status == ("waiting" if open else "queued")


def act(
    hf: Holdfast, clock: FrozenClock, asked: tuple[Question, ...], step: tuple[str, int, str]
) -> None:
    name, number, value = step
    match name:
        case "tick":
            clock.tick(number)
        case "sweep":
            sweep_questions(hf.engine, clock)
        case "read":
            hf.runs.questions(None)
        case "cancel":
            with suppress(Conflict):
                hf.runs.cancel("run_1")
        case _:
            with suppress(Conflict, InvalidInput):
                question = asked[number].id if number < len(asked) else None
                hf.runs.answer("run_1", value, question=question)
