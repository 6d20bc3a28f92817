"""What can be told of a text when it is written."""

import pytest

from holdfast.memories.longterm.recall.analyze import flags_of


@pytest.mark.parametrize("text", ["Why?", "Why? ", "\u4e3a\u4ec0\u4e48\uff1f"])
def test_a_question_ends_with_its_mark(text: str) -> None:
    assert flags_of(text).question


@pytest.mark.parametrize("text", ["Why? I do not know.", "No", ""])
def test_what_only_holds_a_question_is_none(text: str) -> None:
    assert not flags_of(text).question


def test_a_caption_makes_no_question() -> None:
    assert not flags_of("Look", caption="a sign that says why?").question
    assert flags_of("Look at that?", caption="a sign").question


@pytest.mark.parametrize(
    "text", ["I did", "so MY dog", "I\u2019m here", "with us, our way", "we", "me"]
)
def test_first_person_is_told_by_its_words(text: str) -> None:
    assert flags_of(text).first_person


@pytest.mark.parametrize("text", ["mine", "iPad", "inform", "You did", "ours"])
def test_other_words_are_not_first_person(text: str) -> None:
    assert not flags_of(text).first_person


@pytest.mark.parametrize(
    "text",
    [
        "Yesterday",
        "last week",
        "last Saturday",
        "last tues",
        "next spring",
        "this weekend",
        "two days ago",
        "on monday",
        "in March",
        "since then",
        "I just came",
        "in 2019",
        "1999",
    ],
)
def test_a_time_is_told_by_its_words(text: str) -> None:
    assert flags_of(text).time


@pytest.mark.parametrize("text", ["later", "last song", "this book", "12345", "agony", "justice"])
def test_other_words_tell_no_time(text: str) -> None:
    assert not flags_of(text).time


def test_a_caption_may_tell_a_time_and_a_person() -> None:
    flags = flags_of("Look", caption="my cake, 2021")

    assert flags.time
    assert flags.first_person
