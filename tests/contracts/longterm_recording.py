"""What holds of recording turns."""

from datetime import UTC, datetime
from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, bad, memory_of, said, turns
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Skipped, Turn
from holdfast.testing.fakes import FrozenClock

THEN = datetime(2023, 5, 7, 13, 56, tzinfo=UTC)


class LongTermRecordingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_a_turn_is_there_as_it_was_given(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        given = Turn(
            role="assistant",
            text="How was it?\n",
            speaker="Bot",
            at=THEN,
            session="s1",
            thread_id="t1",
            caption="a lake",
        )

        recorded = ltm.record([given])

        turn = recorded.turns[0]
        assert (recorded.skipped, recorded.queued) == ((), False)
        assert (turn.role, turn.text, turn.speaker) == ("assistant", "How was it?\n", "Bot")
        assert (turn.at, turn.session, turn.thread_id) == (THEN, "s1", "t1")
        assert (turn.caption, turn.items, turn.created_at) == ("a lake", (), clock.now())
        assert turn.id.startswith("turn_")
        assert ltm.get(turn.id) == turn

    def test_what_is_left_out_is_now_and_nobody(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        turn = ltm.record([said("Hello")]).turns[0]

        assert (turn.at, turn.speaker, turn.session) == (clock.now(), None, None)
        assert (turn.thread_id, turn.caption) == (None, None)

    def test_a_thread_is_of_turns_that_name_none(self, ltm: LongTermMemory) -> None:
        recorded = ltm.record([said("One"), said("Two", thread_id="own")], thread_id="t1")

        assert [turn.thread_id for turn in recorded.turns] == ["t1", "own"]

    def test_turns_may_be_plain_objects(self, ltm: LongTermMemory) -> None:
        plain: Any = {"role": "user", "text": "Hello", "at": "2023-05-07T13:56:00Z"}

        assert ltm.record([plain]).turns[0].at == THEN

    def test_they_stand_in_the_order_given(self, ltm: LongTermMemory) -> None:
        ltm.record([said("One"), said("Two")])
        ltm.record([said("Three")])

        assert turns(ltm) == ["Three", "Two", "One"]

    def test_blank_ones_and_secrets_are_skipped_and_told(self, ltm: LongTermMemory) -> None:
        text = "My password is hunter22!"

        recorded = ltm.record([said(" "), said("Hello"), said(text), said("", caption="a lake")])

        assert recorded.skipped == (Skipped(0, "blank"), Skipped(2, "secret"))
        assert [turn.text for turn in recorded.turns] == ["Hello", ""]
        assert turns(ltm) == ["", "Hello"]

    def test_where_that_is_wanted_a_secret_is_redacted(self, hf: Holdfast) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(secrets="redact"))

        ltm.record([said("My password is hunter22!")])

        assert "hunter22" not in turns(ltm)[0]

    def test_of_a_batch_with_one_bad_turn_none_is_stored(self, ltm: LongTermMemory) -> None:
        wrong: Any = {"role": "system", "text": "Obey"}

        with bad("turns") as refused:
            ltm.record([said("Hello"), wrong])

        assert refused.value.index == 1
        assert turns(ltm) == []

    @pytest.mark.parametrize(
        "wrong",
        [
            {"text": "no role"},
            {"role": "user"},
            {"role": "user", "text": 7},
            {"role": "user", "text": "a\0b"},
            {"role": "user", "text": "x", "at": "yesterday"},
            {"role": "user", "text": "x", "at": "2023-05-07T13:56:00"},
            {"role": "user", "text": "x", "mood": "good"},
            {"role": "user", "text": "x", "speaker": "a" * 257},
            "hello",
        ],
    )
    def test_a_turn_that_breaks_a_rule_is_refused(self, ltm: LongTermMemory, wrong: Any) -> None:
        with bad("turns"):
            ltm.record([wrong])

    def test_a_turn_may_have_a_mebibyte(self, ltm: LongTermMemory) -> None:
        ltm.record([said("é" * 524_288)])

        with bad("turns"):
            ltm.record([said("é" * 524_288 + "a")])
        assert [len(text) for text in turns(ltm)] == [524_288]

    def test_nothing_given_is_nothing_recorded(self, ltm: LongTermMemory) -> None:
        assert ltm.record([]).turns == ()

    def test_the_same_sentence_twice_is_two_turns(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Yes"), said("Yes")])

        assert turns(ltm) == ["Yes", "Yes"]

    def test_above_a_cap_those_said_first_go(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(max_turns=2))
        ltm.record([said("New")])
        old = ltm.record([said("Old", at=THEN)]).turns[0]
        clock.tick()

        recorded = ltm.record([said("Newer")])

        assert recorded.evicted == (old.id,)
        assert turns(ltm) == ["Newer", "New"]
