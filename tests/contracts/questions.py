"""Contract of questions of runs: listed, answered once, expired, withdrawn."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from threading import Barrier, Thread
from typing import Any

import pytest

from contracts.stores import invalid
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import (
    AlreadyAnswered,
    Conflict,
    HoldfastError,
    InvalidInput,
    NotFound,
    NotPermitted,
)
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import VersionSave, save_version
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import RunAcquisition, RunsContext
from holdfast.memories.run.records.write import begin
from holdfast.testing.fakes import FrozenClock

BERTH = {
    "type": "object",
    "properties": {"berth": {"type": "integer", "minimum": 1}},
    "required": ["berth"],
}
HOSTILE = "\u202e<script>alert(1)</script>\n'; drop table runs; -- {x} \U0001f6a2"

_numbers = count(1)

Rest = Callable[..., tuple[Question, ...]]


def question(run: str, at: datetime, **more: Any) -> Question:
    """Return a question with the fields *more*."""
    number = next(_numbers)
    facts: dict[str, Any] = {"id": f"question_{number}", "kind": "question", "key": str(number)}
    facts |= {"text": "Which berth?", "part": "dock", "run_id": run, "asked_at": at}
    return Question(**(facts | more))


def come_to_rest(
    context: RunsContext, *asked: dict[str, Any], run: str = "run_1", waits: bool = True
) -> tuple[Question, ...]:
    """Start the run *run*, ask questions by their fields, and let the run wait."""
    now = context.clock.now()
    at = to_microseconds(now) // 1_000
    holder = f"h{next(_numbers)}"
    start = RunAcquisition(
        run_id=run, holder=holder, name="dock", kind="task", place="rock:7", started_at=at
    )
    grant = begin(context, start)
    questions = tuple(
        question(run, now + timedelta(milliseconds=place), **each)
        for place, each in enumerate(asked or ({},))
    )
    save = VersionSave(
        run_id=run,
        fence=grant.fence,
        at=at,
        cause="question",
        questions=questions,
        status="waiting" if waits else None,
    )
    save_version(context, save)
    return questions


class GivenAWaitingRun:
    """Fixtures: what brings a run to rest with questions, in the test's workspace."""

    @pytest.fixture
    def rest(self, hf: Holdfast, embedded: Holdfast) -> Rest:
        """Return a function that asks questions, as their fields, and lets the run wait."""
        return partial(come_to_rest, embedded.acting(workspace=hf.workspace).runs.context)


def types(hf: Holdfast, run: str = "run_1") -> list[str]:
    """Return the types of the events of a run that rests."""
    return [each.type for each in hf.runs.follow(run, rest=True)]


@pytest.mark.surface("http", "questions and answers cross the wire")
class QuestionsContract(GivenAWaitingRun):
    """Questions are listed, and answered once, by the right person, with a fitting value."""

    def test_an_open_question_is_listed_and_read(self, hf: Holdfast, rest: Rest) -> None:
        given = {
            "text": HOSTILE,
            "kind": "approval",
            "tool": "dock",
            "call_id": "call_1",
            "arguments": {"berth": "\0", "deep": [[1.5, None]]},
            "options": [HOSTILE, 2],
            "default": None,
        }
        (asked,) = rest(given)

        assert hf.runs.questions().data == [asked]
        assert hf.runs.question(asked.id) == asked
        run = hf.runs.retrieve("run_1")
        assert (run.status, run.questions) == ("waiting", (asked.id,))
        assert [each.questions for each in hf.runs.list("waiting")] == [(asked.id,)]
        assert types(hf) == ["run.started", "version.kept", "question.asked", "run.waiting"]

    def test_questions_are_filtered_and_paged_the_last_asked_first(
        self, hf: Holdfast, rest: Rest, clock: FrozenClock
    ) -> None:
        first = rest({"who": "user:anna"}, {})
        clock.tick()
        second = rest({"who": ["user:bob", "user:anna"]}, run="run_2")
        hf.runs.answer("run_1", "7", question=first[1].id)

        assert [each.id for each in hf.runs.questions(limit=1).all()] == [
            second[0].id,
            first[0].id,
        ]
        assert hf.runs.questions(run="run_2").data == list(second)
        assert hf.runs.questions(who="user:bob").data == list(second)
        assert hf.runs.questions(who="user:ann").data == []
        assert [each.id for each in hf.runs.questions("answered")] == [first[1].id]
        assert len(hf.runs.questions(["open", "answered"])) == 3
        assert len(hf.runs.questions(None)) == 3
        with invalid("status"):
            hf.runs.questions("lost")  # pyright: ignore[reportArgumentType] - what a caller might give
        with invalid("who"):
            hf.runs.questions(who="anna")

    def test_there_is_no_other_question(
        self, hf: Holdfast, elsewhere: Holdfast, rest: Rest
    ) -> None:
        (asked,) = rest()

        for id in ("question_0", "run_1", "question_\0", "x" * 300):
            with pytest.raises(NotFound):
                hf.runs.question(id)
        with pytest.raises(NotFound):
            elsewhere.runs.question(asked.id)
        with pytest.raises(NotFound):
            hf.runs.answer("run_2", "7", question=asked.id)
        with pytest.raises(NotFound):
            hf.runs.answer("run_2", "7")
        assert elsewhere.runs.questions(None).data == []

    def test_an_answer_queues_the_run_after_the_last_question(
        self, hf: Holdfast, rest: Rest, clock: FrozenClock
    ) -> None:
        one, two = rest({}, {})
        clock.tick()

        answered = hf.runs.answer("run_1", "7", question=two.id, note="by the pier")

        assert (answered.status, answered.answer, answered.note) == ("answered", "7", "by the pier")
        assert answered.answered_at == clock.now()
        assert answered.answered_by is not None
        assert hf.runs.question(two.id) == answered
        run = hf.runs.retrieve("run_1")
        assert (run.status, run.questions) == ("waiting", (one.id,))

        hf.runs.answer("run_1", "8")

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.questions) == ("queued", ())

    def test_a_question_is_named_where_several_are_open(self, hf: Holdfast, rest: Rest) -> None:
        rest({}, {})

        with invalid("question"):
            hf.runs.answer("run_1", "7")

    def test_the_first_answer_wins(self, hf: Holdfast, rest: Rest) -> None:
        (asked,) = rest()
        first = hf.runs.answer("run_1", "7", note="one")

        assert hf.runs.answer("run_1", "7") == first
        assert hf.runs.answer("run_1", "7", question=asked.id) == first
        with pytest.raises(AlreadyAnswered) as caught:
            hf.runs.answer("run_1", "8")
        assert (caught.value.by, caught.value.at) == (first.answered_by, first.answered_at)
        assert hf.runs.question(asked.id) == first

    def test_of_two_answers_at_once_one_wins(self, hf: Holdfast, rest: Rest) -> None:
        (asked,) = rest()
        came: list[Question | HoldfastError] = []
        together = Barrier(4)

        def answer(value: str) -> None:
            together.wait(60)
            try:
                came.append(hf.runs.answer("run_1", value, question=asked.id))
            except HoldfastError as error:
                came.append(error)

        threads = [Thread(target=answer, args=(str(each),)) for each in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)

        won = [each for each in came if isinstance(each, Question)]
        assert len(won) == 1
        assert [type(each) for each in came if each not in won] == [AlreadyAnswered] * 3
        assert hf.runs.question(asked.id) == won[0]
        assert hf.runs.retrieve("run_1").status == "queued"

    def test_a_value_that_does_not_fit_is_refused_with_its_place(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        rest({"schema": BERTH})

        for value in ({"berth": 0}, {}, "7", None):
            with pytest.raises(InvalidInput) as caught:
                hf.runs.answer("run_1", value)
            assert caught.value.field == "value"
        with pytest.raises(InvalidInput, match='at "/berth": expected minimum 1; came integer 0'):
            hf.runs.answer("run_1", {"berth": 0})
        assert hf.runs.answer("run_1", {"berth": 3}).answer == {"berth": 3}

    def test_without_a_schema_an_answer_is_text_or_an_option(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        text, chosen, mixed = rest({}, {"options": [1, "two"]}, {"options": ["a"], "schema": {}})

        for value in (7, None, True, ["7"]):
            with invalid("value"):
                hf.runs.answer("run_1", value, question=text.id)
        for value in ("1", True, "three"):
            with invalid("value"):
                hf.runs.answer("run_1", value, question=chosen.id)
        assert hf.runs.answer("run_1", HOSTILE, question=text.id).answer == HOSTILE
        assert hf.runs.answer("run_1", 1, question=chosen.id).answer == 1
        assert hf.runs.answer("run_1", "a", question=mixed.id).answer == "a"

    def test_an_answer_has_at_most_256_kib(self, hf: Holdfast, rest: Rest) -> None:
        rest()

        with invalid("value"):
            hf.runs.answer("run_1", "x" * 262_143)
        with invalid("note"):
            hf.runs.answer("run_1", "7", note="x" * 16_385)
        assert len(str(hf.runs.answer("run_1", "x" * 262_142).answer)) == 262_142

    def test_an_approval_is_yes_or_no_or_yes_with_other_arguments(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        call = {"kind": "approval", "tool": "dock", "arguments": {"berth": 1}, "schema": BERTH}
        yes, no, other, empty = rest(call, call, call, call)

        for value in ("yes", 1, None, {}, {"approved": 1}, {"approved": True, "why": 1}):
            with invalid("value"):
                hf.runs.answer("run_1", value, question=yes.id)
        for value in ({"berth": 0}, [1]):
            with invalid("value"):
                hf.runs.answer("run_1", {"approved": True, "arguments": value}, question=other.id)
        with invalid("value"):
            hf.runs.answer("run_1", {"approved": False, "arguments": {}}, question=no.id)

        assert hf.runs.answer("run_1", True, question=yes.id).answer is True
        denied = hf.runs.answer("run_1", {"approved": False, "note": "too deep"}, question=no.id)
        assert (denied.answer, denied.note) == (False, "too deep")
        changed = {"approved": True, "arguments": {"berth": 2}}
        assert hf.runs.answer("run_1", changed, question=other.id).answer == changed
        assert hf.runs.answer("run_1", {"approved": True}, question=empty.id).answer is True

    def test_an_external_result_is_any_json(self, hf: Holdfast, rest: Rest) -> None:
        (asked,) = rest({"kind": "external", "schema": None})

        assert hf.runs.answer("run_1", {"deep": [None, "\0"]}).answer == {"deep": [None, "\0"]}
        assert hf.runs.question(asked.id).answer == {"deep": [None, "\0"]}

    def test_a_question_for_others_is_not_answered(self, hf: Holdfast, rest: Rest) -> None:
        rest({"who": ["user:anna", "key:desk"]})

        with pytest.raises(NotPermitted):
            hf.runs.answer("run_1", "7")
        assert len(hf.runs.questions()) == 1

    def test_a_question_for_administrators_is_answered_by_one(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        rest({"who": "scope:admin"})

        assert hf.runs.answer("run_1", "7").status == "answered"

    def test_a_question_without_a_default_expires(
        self, hf: Holdfast, rest: Rest, clock: FrozenClock
    ) -> None:
        (asked,) = rest({"expires_at": clock.now() + timedelta(seconds=60)})
        assert hf.runs.retrieve("run_1").status == "waiting"
        clock.tick(60)

        assert [each.id for each in hf.runs.list("queued")] == ["run_1"]
        run, question = hf.runs.retrieve("run_1"), hf.runs.question(asked.id)
        assert (run.status, run.questions) == ("queued", ())
        assert (question.status, question.answered_by) == ("expired", None)
        with pytest.raises(Conflict) as caught:
            hf.runs.answer("run_1", "7")
        assert not isinstance(caught.value, AlreadyAnswered)
        assert caught.value.reason == "expired"

    def test_a_default_is_the_answer_once_the_time_is_over(
        self, hf: Holdfast, rest: Rest, clock: FrozenClock
    ) -> None:
        due = clock.now() + timedelta(seconds=60)
        one, two = rest({"expires_at": due, "default": None}, {})
        clock.tick(61)

        found = hf.runs.questions("answered").data
        assert [(each.id, each.answer, each.answered_by) for each in found] == [
            (one.id, None, "timeout")
        ]
        assert hf.runs.list("waiting").data[0].questions == (two.id,)
        with pytest.raises(AlreadyAnswered) as caught:
            hf.runs.answer("run_1", "7", question=one.id)
        assert caught.value.by == "timeout"

    def test_a_run_that_is_cancelled_while_it_waits_withdraws_its_questions(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        (asked,) = rest()

        hf.runs.cancel("run_1", "no ship came")

        assert hf.runs.retrieve("run_1").status == "cancelled"
        assert hf.runs.question(asked.id).status == "withdrawn"
        assert types(hf)[-3:] == ["run.waiting", "question.withdrawn", "run.cancelled"]
        with pytest.raises(Conflict) as caught:
            hf.runs.answer("run_1", "7")
        assert caught.value.reason == "withdrawn"

    def test_a_run_that_is_deleted_while_it_waits_has_no_questions(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        (asked,) = rest()
        hf.runs.delete("run_1")

        with pytest.raises(NotFound):
            hf.runs.question(asked.id)

    def test_a_queued_run_can_be_cancelled_and_not_steered(self, hf: Holdfast, rest: Rest) -> None:
        rest()
        for _ in range(2):
            with pytest.raises(Conflict):
                hf.runs.steer("run_1", "hurry")
            if hf.runs.retrieve("run_1").status == "waiting":
                hf.runs.answer("run_1", "7")

        hf.runs.cancel("run_1")
        assert hf.runs.retrieve("run_1").status == "cancelled"
        assert types(hf)[3:] == ["run.waiting", "question.answered", "run.queued", "run.cancelled"]

    def test_a_question_is_answered_while_its_run_still_runs(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        rest(waits=False)

        hf.runs.answer("run_1", "7")

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.questions) == ("running", ())

    def test_a_run_that_comes_to_rest_with_every_answer_is_queued(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        (asked,) = rest(waits=False)
        hf.runs.answer("run_1", "7")

        rest({"id": asked.id})

        assert hf.runs.retrieve("run_1").status == "queued"
        hf.runs.cancel("run_1")
        assert types(hf)[-2:] == ["run.queued", "run.cancelled"]

    def test_the_answers_to_several_questions_come_in_any_order(
        self, hf: Holdfast, rest: Rest
    ) -> None:
        asked = rest(*[{}] * 3)

        for place in (2, 0, 1):
            assert hf.runs.retrieve("run_1").status == "waiting"
            hf.runs.answer("run_1", str(place), question=asked[place].id)

        assert [each.answer for each in hf.runs.questions("answered")] == ["2", "1", "0"]
        assert hf.runs.retrieve("run_1").status == "queued"
