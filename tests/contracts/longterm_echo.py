"""Contract of what recall leaves out: questions, echoes, repeats, and what is off the topic."""

from datetime import timedelta
from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, bad, kept, memory_of, said, texts, turns
from contracts.longterm_recall import bot, user
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, RecallResult
from holdfast.testing.fakes import FrozenClock

FACT, QUESTION = "I work at Acme as a welder", "Where do I work?"


def left_out(found: RecallResult) -> dict[str, int]:
    """Return how many rows were left out, by reason."""
    return {each.reason: each.count for each in found.suppressed}


@pytest.mark.surface("file", "flags are read from the file")
@pytest.mark.surface("http", "noise, explain and what was left out cross the wire")
class LongTermEchoContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize("times", [0, 1, 4, 40])
    def test_however_often_it_is_asked_the_fact_alone_is_recalled(
        self, ltm: LongTermMemory, times: int
    ) -> None:
        ltm.record([said(FACT)], thread_id="first")
        for number in range(times):
            asking = [user(QUESTION), bot("I do not know.")]
            ltm.remember_conversation(asking, f"t{number}")

        found = ltm.recall(QUESTION, explain=True)

        assert texts(found) == [FACT]
        assert left_out(found).get("noise", 0) >= times
        assert len(turns(ltm)) == 1 + 2 * times

    @pytest.mark.parametrize(
        "asked",
        [
            "Can you tell me where I work?",
            "who do i work for",
            "At which place do I work?",
        ],
    )
    def test_the_question_in_other_words_hides_nothing(
        self, ltm: LongTermMemory, asked: str
    ) -> None:
        ltm.record([said(FACT)], thread_id="first")
        for number in range(10):
            ltm.record([said("Which firm do I work for?")], thread_id=f"t{number}")
            ltm.record([said(asked)], thread_id=f"u{number}")

        assert FACT in texts(ltm.recall(asked))

    def test_a_text_that_is_the_query_is_no_answer(self, ltm: LongTermMemory) -> None:
        ltm.record([said("work at which firm"), said(FACT)])

        found = ltm.recall("my work: at which firm", explain=True)
        assert FACT in texts(found)
        echo = ltm.recall("Work at which firm?", min_relevance=0.01, explain=True)
        assert "work at which firm" not in texts(echo)

    def test_an_item_that_is_the_query_is_an_answer(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Prefers tabs over spaces")

        assert texts(ltm.recall("prefers tabs over spaces")) == ["Prefers tabs over spaces"]

    def test_questions_come_last_where_nothing_is_left_out(self, ltm: LongTermMemory) -> None:
        ltm.record([said(QUESTION), said(QUESTION)], thread_id="a")
        ltm.record([said(FACT)], thread_id="b")

        assert texts(ltm.recall(QUESTION, min_relevance=0)) == [FACT, QUESTION, QUESTION]

    def test_questions_are_recalled_where_they_are_wanted_each_once(
        self, ltm: LongTermMemory
    ) -> None:
        first = ltm.record([said(QUESTION)], thread_id="a").turns[0]
        second = ltm.record([said("where do I work")], thread_id="b").turns[0]

        assert ltm.recall("work") == []
        (found,) = ltm.recall(QUESTION, noise=True)
        assert {found.id, *found.also} == {first.id, second.id}
        assert found.why["also"] == 1

    @pytest.mark.parametrize("query", ["What did I ask you about work?", "Did I mention my work?"])
    def test_a_query_about_what_was_asked_is_answered_by_it(
        self, ltm: LongTermMemory, query: str
    ) -> None:
        ltm.record([said(QUESTION)])

        assert texts(ltm.recall(query)) == [QUESTION]

    def test_questions_stand_beside_and_lend_their_words(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Which firm do I work for?"), said("Acme, in the north of Graz")])

        (found,) = ltm.recall("my firm")

        assert found.text == "Acme, in the north of Graz"
        assert found.neighbours is not None
        assert found.neighbours[0] is not None
        assert found.neighbours[0].text == "Which firm do I work for?"

    def test_what_was_said_often_is_recalled_once_and_k_is_filled(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        for number in range(30):
            ltm.record(
                [said(FACT, at=clock.now() - timedelta(minutes=number))], thread_id=f"t{number}"
            )
        others = [f"At work I met {name}" for name in ("Ana", "Bo", "Cem", "Dai")]
        old = clock.now() - timedelta(days=90)
        ltm.record([said(text, session=text, at=old) for text in others])

        found = ltm.recall("my work?", k=5, explain=True)

        assert sorted(texts(found)) == sorted([FACT, *others])
        repeated = next(each for each in found if each.text == FACT)
        assert repeated.turn is not None
        assert repeated.turn.at == clock.now()
        assert (len(repeated.also), repeated.why["also"]) == (20, 29)
        assert left_out(found)["duplicate"] == 29

    def test_spellings_that_differ_in_their_words_are_one_and_k_is_filled(
        self, ltm: LongTermMemory
    ) -> None:
        written = ["My e-mail is at Acme", "My email is at Acme", "My E mail is at Acme"]
        ltm.record([said(text, session=text) for text in (*written, "Acme pays by mail")])

        assert len(ltm.recall("my mail at Acme", k=2)) == 2

    def test_of_an_item_and_its_turn_the_item_alone_is_recalled(self, ltm: LongTermMemory) -> None:
        turn = ltm.record([said(FACT)]).turns[0]
        item = kept(ltm, "Works at Acme as a welder", turns=[turn.id])

        (found,) = ltm.recall("my work at Acme")

        assert (found.id, found.also) == (item.id, (turn.id,))
        assert texts(ltm.recall("my work at Acme", what="turns")) == [FACT]

    @pytest.mark.parametrize(
        ("query", "reason"),
        [
            ("Thanks, that works!", "phatic"),
            ("Summarize this text about welders", "at_hand"),
            ("How do welders from Mars repair quantum turbines?", "general"),
        ],
    )
    def test_what_is_off_the_topic_recalls_nothing_and_says_why(
        self, ltm: LongTermMemory, query: str, reason: str
    ) -> None:
        ltm.record([said("A welder works at Acme")])

        found = ltm.recall(query, explain=True)

        assert found == []
        assert left_out(found) == {reason: 1}
        assert ltm.recall(query).suppressed == ()

    def test_what_is_left_out_is_for_the_options_to_say(self, hf: Holdfast) -> None:
        lax = LongTermOptions(min_relevance_general=0.05, min_evidence=0.05)
        query = "How do welders from Mars repair quantum turbines?"
        memory_of(hf, "ada").record([said("A welder works at Acme")])

        assert memory_of(hf, "ada").recall(query) == []
        found = memory_of(hf, "ada", options=lax).recall(query)
        assert texts(found) == ["A welder works at Acme"]

    def test_a_wrong_share_is_refused(self) -> None:
        wrong: Any = "much"
        for name in ("min_relevance_general", "min_evidence"):
            with bad(name):
                LongTermOptions(**{name: wrong})
