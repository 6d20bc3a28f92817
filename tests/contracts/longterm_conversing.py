"""What holds of conversations that are given again and again."""

from typing import Any

import pytest

from contracts.longterm_items import GivenAUser, bad, memory_of, said, turns
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Recorded, Skipped, Turn
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
