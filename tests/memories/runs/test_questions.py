"""Questions of runs: what they hold, what makes them the same, and how they are stored."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from holdfast.errors import InvalidInput, LimitExceeded
from holdfast.ground.clock import to_microseconds
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.question import (
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
from holdfast.testing.fakes import FrozenClock

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
