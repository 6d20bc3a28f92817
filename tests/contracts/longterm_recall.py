"""Contract of recall and of recorded conversations of long-term memory."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, bad, kept, memory_of, said, texts, turns
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Recorded, Skipped, Turn, Weights
from holdfast.testing.fakes import FrozenClock


def user(content: Any, **given: Any) -> dict[str, Any]:
    """Return a message of the user's."""
    return {"role": "user", "content": content, **given}


def bot(content: Any) -> dict[str, Any]:
    """Return a message of the assistant's."""
    return {"role": "assistant", "content": content}


def reasons(recorded: Recorded) -> list[str]:
    """Return why messages were passed over, in their order."""
    return [each.reason for each in recorded.skipped]


HELLO = [user("Hello"), bot("Hello, how are you?"), user("Fine, thanks")]


class LongTermConversationContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_was_said_is_recorded(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        recorded = ltm.remember_conversation(
            [user("I like tabs", name="Ana", at="2023-05-07T13:56:00Z"), bot("Noted")], "t1"
        )

        first, second = recorded.turns
        assert (first.role, first.text, first.speaker) == ("user", "I like tabs", "Ana")
        assert (first.thread_id, second.role, second.at) == ("t1", "assistant", clock.now())
        assert recorded.queued is False
        assert recorded.skipped == ()

    @pytest.mark.surface("http", "the server has a branch for it")
    def test_only_users_and_assistants_speak(self, ltm: LongTermMemory) -> None:
        others = [
            {"role": role, "content": "Obey"}
            for role in ("system", "developer", "tool", "function")
        ]

        recorded = ltm.remember_conversation([*others, user("Hello"), bot(None)])

        assert reasons(recorded) == ["role"] * 4 + ["blank"]
        assert turns(ltm) == ["Hello"]

    def test_parts_of_text_are_joined_and_others_dropped(self, ltm: LongTermMemory) -> None:
        parts = [
            {"type": "text", "text": "One"},
            {"type": "image", "source": "…"},
            {"type": "tool_result", "content": "Obey"},
            {"type": "text", "text": "Two"},
        ]

        ltm.remember_conversation([user(parts)])

        assert turns(ltm) == ["One\nTwo"]

    def test_the_whole_list_again_adds_nothing(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        again = ltm.remember_conversation(HELLO, "t1")

        assert (again.turns, reasons(again)) == ((), ["seen"] * 3)
        assert len(turns(ltm)) == 3

    def test_the_list_grown_adds_what_is_new(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        grown = ltm.remember_conversation([*HELLO, bot("Good"), user("Bye")], "t1")

        assert [turn.text for turn in grown.turns] == ["Good", "Bye"]
        assert reasons(grown) == ["seen"] * 3

    def test_only_what_is_new_works_too(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        ltm.remember_conversation([bot("Good"), user("Bye")], "t1")

        assert turns(ltm)[:2] == ["Bye", "Good"]
        assert len(turns(ltm)) == 5

    def test_a_part_sent_again_is_seen(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        assert reasons(ltm.remember_conversation(HELLO[1:2], "t1")) == ["seen"]

    def test_a_window_that_moved_on_adds_what_is_new(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        moved = ltm.remember_conversation([*HELLO[1:], bot("Good")], "t1")

        assert [turn.text for turn in moved.turns] == ["Good"]

    def test_an_edited_list_is_new_from_the_edit_on(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        edited = ltm.remember_conversation([user("Good morning"), *HELLO[1:]], "t1")

        assert len(edited.turns) == 3

    def test_the_same_sentence_twice_is_two_turns(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation([user("Yes"), user("Yes")], "t1")
        ltm.remember_conversation([user("Yes"), user("Yes"), user("Yes")], "t1")

        assert turns(ltm) == ["Yes"] * 3

    def test_threads_are_apart(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO, "t1")

        assert len(ltm.remember_conversation(HELLO, "t2").turns) == 3

    def test_without_a_thread_it_is_known_again_too(self, ltm: LongTermMemory) -> None:
        ltm.remember_conversation(HELLO)

        assert ltm.remember_conversation(HELLO).turns == ()

    def test_what_was_recorded_by_itself_is_known(self, ltm: LongTermMemory) -> None:
        ltm.record(
            [said("Hello"), Turn(role="assistant", text="Hello, how are you?")], thread_id="t1"
        )

        grown = ltm.remember_conversation(HELLO, "t1")

        assert [turn.text for turn in grown.turns] == ["Fine, thanks"]

    def test_a_long_thread_is_known_whole(self, ltm: LongTermMemory) -> None:
        long = [user(f"Number {number}") for number in range(600)]
        ltm.remember_conversation(long[:300], "t1")
        ltm.remember_conversation(long[:599], "t1")

        grown = ltm.remember_conversation(long, "t1")

        assert [turn.text for turn in grown.turns] == ["Number 599"]

    @pytest.mark.surface("http", "ids of messages cross the wire")
    def test_messages_with_ids_are_known_in_whatever_parts_they_come(
        self, ltm: LongTermMemory
    ) -> None:
        whole = [{**user("Yes"), "event_id": f"e{number}"} for number in range(5)]
        ltm.remember_conversation(whole[:2], "t1")
        ltm.remember_conversation([whole[4], whole[4]], "t1")

        again = ltm.remember_conversation(whole, "t1")

        assert len(turns(ltm)) == 5
        assert [each.index for each in again.skipped] == [0, 1, 4]
        assert reasons(again) == ["seen"] * 3
        assert len(ltm.remember_conversation(whole, "t2").turns) == 5

    def test_what_was_forgotten_stays_so_under_its_id_and_its_text(
        self, ltm: LongTermMemory
    ) -> None:
        message = {**user("I like tabs"), "event_id": "e1"}
        turn = ltm.remember_conversation([message], "t1").turns[0]
        ltm.forget(turn.id)

        assert reasons(ltm.remember_conversation([message], "t1")) == ["seen"]
        assert reasons(ltm.remember_conversation([message], "t2")) == ["forgotten"]

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize("id", ["", 7, "x" * 257])
    def test_an_id_of_a_message_is_a_name(self, ltm: LongTermMemory, id: Any) -> None:
        with bad("messages") as refused:
            ltm.remember_conversation([user("Hi"), {**user("Ho"), "event_id": id}])

        assert refused.value.index == 1
        assert turns(ltm) == []

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_a_recalled_block_is_cut_out(self, ltm: LongTermMemory) -> None:
        block = "<recalled-memories>\n- [fact] Old news\n</recalled-memories>"

        ltm.remember_conversation([user(f"{block}\nI like tabs"), user(block)])

        assert turns(ltm) == ["I like tabs"]

    def test_secrets_are_skipped_each_time(self, ltm: LongTermMemory) -> None:
        messages = [user("My password is hunter22!"), user("Hello")]

        first = ltm.remember_conversation(messages, "t1")
        again = ltm.remember_conversation(messages, "t1")

        assert first.skipped == (Skipped(0, "secret"),)
        assert reasons(again) == ["secret", "seen"]

    def test_what_was_forgotten_is_not_learnt_again(self, ltm: LongTermMemory) -> None:
        turn = ltm.remember_conversation(HELLO, "t1").turns[0]
        ltm.forget(turn.id)

        again = ltm.remember_conversation(HELLO, "t1")
        elsewhere = ltm.remember_conversation([user("Hello"), user("Hi")], "t2")

        assert reasons(again) == ["seen"] * 3
        assert reasons(elsewhere) == ["forgotten"]
        assert reasons(ltm.remember_conversation([user("Hello"), user("Hi")], "t2")) == ["seen"] * 2

    def test_a_cleared_collection_knows_no_thread(self, ltm: LongTermMemory) -> None:
        turn = ltm.remember_conversation(HELLO, "t1").turns[0]
        ltm.forget(turn.id)
        ltm.clear()

        assert len(ltm.remember_conversation(HELLO, "t1").turns) == 3

    @pytest.mark.surface("http", "the client has a branch for it")
    @pytest.mark.parametrize(
        "wrong",
        [
            {"role": "queen", "content": "Hello"},
            {"content": "Hello"},
            {"role": "user", "content": 7},
            {"role": "user", "content": [{"type": "text"}]},
            {"role": "user", "content": "Hello", "at": "soon"},
            "Hello",
        ],
    )
    def test_of_a_list_with_one_bad_message_none_is_stored(
        self, ltm: LongTermMemory, wrong: Any
    ) -> None:
        with bad("messages") as refused:
            ltm.remember_conversation([user("Hello"), wrong])

        assert refused.value.index == 1
        assert turns(ltm) == []

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_a_bad_thread_is_refused(self, ltm: LongTermMemory) -> None:
        with bad("thread_id"):
            ltm.remember_conversation(HELLO, "")

    def test_other_users_threads_are_theirs(
        self, hf: Holdfast, ltm: LongTermMemory, other: LongTermMemory
    ) -> None:
        ltm.remember_conversation(HELLO, "t1")

        assert len(other.remember_conversation(HELLO, "t1").turns) == 3
        assert (
            len(memory_of(hf, "ada", namespace="n").remember_conversation(HELLO, "t1").turns) == 3
        )


THEN = datetime(2023, 5, 7, 13, 56, tzinfo=UTC)


class LongTermRecordingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "query parameters cross the wire")
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

    @pytest.mark.surface("http", "the client has a branch for it")
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


@pytest.mark.surface("file", "postings are read from the file")
class LongTermRecallingContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_answers_is_found_with_its_reason(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Prefers tabs over spaces", kind="preference")
        kept(ltm, "Was born in Lisbon")

        found = ltm.recall("tabs or spaces?")

        assert texts(found) == ["Prefers tabs over spaces"]
        assert (found[0].item, found[0].turn, found[0].id) == (item, None, item.id)
        assert found[0].neighbours is None
        assert found[0].why["terms"]
        assert "tab" in str(found[0].why["text"])
        for number in (found[0].score, found[0].similarity, found[0].relevance):
            assert 0 < number <= 1

    def test_nothing_is_found_where_nothing_is(self, ltm: LongTermMemory) -> None:
        assert ltm.recall("tabs") == []
        assert ltm.status().items == 0

    def test_what_has_nothing_to_do_with_it_is_not_recalled(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Prefers tabs over spaces")

        assert ltm.recall("What is the weather like on Mars?") == []
        assert ltm.recall("") == ltm.recall("the of and") == []

    def test_a_turn_comes_with_those_beside_it(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Good evening"), said("The lake was frozen"), said("How cold")])
        ltm.record([said("Elsewhere entirely")], thread_id="t2")

        found = ltm.recall("frozen lake", k=1)[0]

        assert found.turn is not None
        assert found.turn.text == "The lake was frozen"
        assert found.neighbours is not None
        assert texts(each for each in found.neighbours if each) == ["Good evening", "How cold"]

    def test_a_turn_at_the_end_has_nobody_after_it(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Nothing much"), said("The lake was frozen")], thread_id="t1")
        ltm.record([said("Of another thread")], thread_id="t2")

        found = ltm.recall("frozen lake", k=1)[0]

        assert found.neighbours is not None
        assert found.neighbours[1] is None

    def test_a_caption_is_found_and_no_part_of_the_text(self, ltm: LongTermMemory) -> None:
        ltm.record([said("Look at this", caption="a frozen lake")])

        assert texts(ltm.recall("frozen lake")) == ["Look at this"]

    def test_what_and_kinds_narrow_it(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Chose tabs for the project", kind="decision")
        kept(ltm, "Likes tabs in general", kind="preference")
        ltm.record([said("I said tabs")])

        assert set(texts(ltm.recall("tabs", what="turns"))) == {"I said tabs"}
        assert "I said tabs" not in texts(ltm.recall("tabs", what="items"))
        assert texts(ltm.recall("tabs", what="items", kinds=["decision"])) == [
            "Chose tabs for the project"
        ]

    def test_at_most_k_are_recalled(self, ltm: LongTermMemory) -> None:
        ltm.record([said(f"tabs number {number}") for number in range(9)])

        assert len(ltm.recall("tabs")) == 5
        assert len(ltm.recall("tabs", k=7)) == 7
        assert ltm.recall("tabs", k=0) == []

    @pytest.mark.surface("http", "error fields cross the wire")
    def test_wrong_arguments_are_refused(self, ltm: LongTermMemory) -> None:
        wrong: Any = 7
        for k in (-1, 101, True, 2.5):
            with bad("k"):
                ltm.recall("tabs", k=k)  # pyright: ignore[reportArgumentType] - it is wrong
        with bad("query"):
            ltm.recall(wrong)
        with bad("what"):
            ltm.recall("tabs", what=wrong)
        with bad("kinds"):
            ltm.recall("tabs", kinds=["belief"])
        with bad("min_relevance"):
            ltm.recall("tabs", min_relevance=2)
        with bad("weights"):
            ltm.recall("tabs", weights=Weights(0, 0, 0))

    def test_the_freshest_wins_where_only_that_counts(
        self, ltm: LongTermMemory, clock: FrozenClock
    ) -> None:
        kept(ltm, "Likes tabs in Python")
        clock.tick(86_400)
        kept(ltm, "Likes tabs in Go")

        found = ltm.recall("tabs", weights=Weights(0, 1, 0))

        assert texts(found) == ["Likes tabs in Go", "Likes tabs in Python"]
        assert found[0].recency == 1
        assert 0.97 < found[1].recency < 1

    @pytest.mark.surface("http", "the server has a branch for it")
    def test_the_most_important_wins_where_only_that_counts(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs in Python", importance=0.9)
        kept(ltm, "Likes tabs in Go", importance=0.2)

        found = ltm.recall("tabs", weights=Weights(0, 0, 1))

        assert [each.score for each in found] == pytest.approx([0.9, 0.2])

    def test_a_day_that_is_asked_about_is_found(self, ltm: LongTermMemory) -> None:
        day = datetime(2023, 5, 7, tzinfo=UTC)
        ltm.record([said("We went swimming", at=day)])
        ltm.record([said("We stayed home", at=day + timedelta(days=90))], thread_id="t2")

        assert texts(ltm.recall("What happened on 7 May 2023?")) == ["We went swimming"]

    def test_another_writer_is_seen_at_once(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs in Python")
        ltm.recall("tabs")

        kept(memory_of(hf, "ada"), "Likes tabs in Go")

        assert len(ltm.recall("tabs")) == 2

    def test_the_answer_does_not_depend_on_what_was_kept(
        self, ltm: LongTermMemory, let_go: Callable[[], None]
    ) -> None:
        for number in range(12):
            ltm.record([said(f"The lake froze in year {number}"), said("Really?")])
            ltm.recall("lake", touch=False)
        kept(ltm, "Loves the frozen lake")
        warm = ltm.recall("the frozen lake", k=20, touch=False)

        let_go()

        assert ltm.recall("the frozen lake", k=20, touch=False) == warm

    def test_neighbours_do_not_change_it(self, hf: Holdfast, ltm: LongTermMemory) -> None:
        kept(ltm, "Loves the frozen lake")
        alone = ltm.recall("frozen lake", touch=False)

        for user in ("bob", "ada2", "ad"):
            kept(memory_of(hf, user), "The frozen lake is mine")

        assert ltm.recall("frozen lake", touch=False) == alone

    def test_a_related_word_is_found_with_the_same_numbers_everywhere(
        self, ltm: LongTermMemory
    ) -> None:
        ltm.record([said("My dog sleeps by the fire"), said("The train leaves at noon")])

        found = ltm.recall("Do I have a pet?")[0]

        assert found.why["related"] == [["pet", "dog"]]
        assert (found.similarity, round(found.relevance, 4)) == (1, 0.444)


@pytest.mark.surface("file", "recall times are written in batches")
class LongTermMarksContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    def test_what_was_recalled_is_marked(self, ltm: LongTermMemory, clock: FrozenClock) -> None:
        item = kept(ltm, "Likes tabs")
        clock.tick(60)
        ltm.recall("tabs")
        ltm.recall("tabs")

        assert ltm.flush().done
        marked: Any = ltm.get(item.id)

        assert (marked.last_accessed_at, marked.access_count) == (clock.now(), 2)
        assert marked.updated_at == item.updated_at

    def test_without_touch_it_is_not(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs", touch=False)
        ltm.flush()

        assert ltm.get(item.id) == item

    def test_a_mark_makes_it_fresh_for_everybody(
        self, ltm: LongTermMemory, clock: FrozenClock, let_go: Callable[[], None]
    ) -> None:
        kept(ltm, "Likes tabs")
        clock.tick(30 * 86_400)
        assert ltm.recall("tabs")[0].recency == pytest.approx(0.5)
        ltm.flush()

        warm = ltm.recall("tabs", touch=False)
        let_go()

        assert warm[0].recency == 1
        assert ltm.recall("tabs", touch=False) == warm

    def test_a_mark_does_not_bring_back_what_was_forgotten(self, ltm: LongTermMemory) -> None:
        item = kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        ltm.forget(item.id)
        ltm.flush()

        assert ltm.get(item.id) is None
        assert ltm.recall("tabs", min_relevance=0) == []

    @pytest.mark.surface("http", "query parameters cross the wire")
    def test_nor_what_was_cleared(self, ltm: LongTermMemory) -> None:
        kept(ltm, "Likes tabs")
        ltm.recall("tabs")
        ltm.clear()
        ltm.flush()

        assert ltm.status().items == 0


class LongTermOptionsContract(GivenAUser):
    """Subclass it, and give it `hf` and `clock` fixtures."""

    @pytest.mark.parametrize(
        "given",
        [
            {"max_items": -1},
            {"max_items": 2.5},
            {"max_items": True},
            {"max_turns": -1},
            {"half_life_days": 0},
            {"min_relevance": 1.5},
            {"dedupe_similarity": -0.1},
            {"cosine_weight": float("inf")},
            {"secrets": "keep"},
            {"weights": (1, 0, 0)},
        ],
    )
    def test_a_wrong_option_is_refused(self, given: Any) -> None:
        with bad(next(iter(given))):
            LongTermOptions(**given)

    def test_a_half_life_is_the_options(self, hf: Holdfast, clock: FrozenClock) -> None:
        ltm = memory_of(hf, "ada", options=LongTermOptions(half_life_days=1))
        kept(ltm, "Likes tabs")
        clock.tick(86_400)

        assert ltm.recall("tabs")[0].recency == pytest.approx(0.5)
