"""What a query asks besides its words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.recall.query import calls, read

PAIR = ("Caroline", "Melanie")


@pytest.mark.parametrize(
    "query",
    [
        "What does Caroline paint?",
        "what does caroline paint?",
        "What are Caroline's paints",
        "Does Caroline\u2019s dog paint?",
        "What does Caro paint?",
        "What does Car paint",
    ],
)
def test_a_participant_is_named_by_name_or_its_beginning(query: str) -> None:
    question = read(query, PAIR)

    assert question.named == ("Caroline",)
    assert question.terms[-1] == "paint"
    assert "carolin" not in question.terms


def test_two_may_be_named() -> None:
    assert read("Did Melanie tell Caroline?", PAIR).named == ("Melanie", "Caroline")


@pytest.mark.parametrize("query", ["carol", "caroli", "caroline2", "xcaroline", ""])
def test_like_a_name_is_not_the_name(query: str) -> None:
    assert read(query, PAIR).named == ()


@pytest.mark.parametrize("query", ["What car does Melanie drive?", "Melanie and her will"])
def test_a_word_is_not_taken_for_a_name_that_would_have_its_capital(query: str) -> None:
    assert read(query, (*PAIR, "Andrew", "Will")).named == ("Melanie",)


def test_a_name_that_is_a_word_counts_with_its_capital_within_a_sentence() -> None:
    assert read("Will Melanie call Will?", (*PAIR, "Will")).named == ("Melanie", "Will")
    assert read("Will Melanie call?", (*PAIR, "Will")).named == ("Melanie",)


def test_names_are_found_where_words_have_no_spaces() -> None:
    question = read("小明昨天和Caroline去了哪里", ("小明", "Caroline", "小红"))

    assert question.named == ("小明", "Caroline")
    assert not {"小", "明", "小明", "carolin"} & set(question.terms)


def test_of_a_longer_name_each_word_counts() -> None:
    participants = ("Ana de Souza", "Bo")

    assert read("What did Souza say?", participants).named == ("Ana de Souza",)
    assert read("What did ana say?", participants).named == ("Ana de Souza",)
    assert read("the de facto way", participants).named == ()
    assert read("What did Bo say?", participants).named == ("Bo",)


def test_a_longer_name_that_is_whole_names_no_other_with_a_word_of_it() -> None:
    participants = ("Speaker 1", "Speaker 2", "User_A")

    assert read("What did Speaker 2 say?", participants).named == ("Speaker 2",)
    assert read("What did speaker 2's dog say?", participants).terms == ("dog", "say")
    assert read("What did speaker say?", participants).named == ("Speaker 1", "Speaker 2")
    assert read("What did speaker 21 say?", participants).named == ("Speaker 1", "Speaker 2")
    assert read("What did user a say?", participants).named == ("User_A",)
    assert read("What did the user say?", participants).named == ()


def test_where_there_is_nothing_but_a_name_the_name_is_the_term() -> None:
    assert read("What about Melanie?", PAIR).terms == ("melani",)
    assert read("What about Melanie?", PAIR).named == ("Melanie",)


def test_terms_are_distinct_and_in_order() -> None:
    assert read("paint a tree, painted trees, by lakes").terms == ("paint", "tree", "lake")


@pytest.mark.parametrize(
    "query",
    ["When did it end?", " when", "What date was it", "WHICH YEAR", "how long ago did he come"],
)
def test_a_when_question_is_known_by_its_beginning(query: str) -> None:
    assert read(query).when


@pytest.mark.parametrize("query", ["Tell me when", "What did it cost?", "How long is it?"])
def test_other_questions_are_no_when_questions(query: str) -> None:
    assert not read(query).when


@pytest.mark.parametrize(
    "query",
    [
        "What did you suggest?",
        "the book you recommended",
        "you've previously told me",
        "Did YOU ever mention it",
        "the plan you came up with",
        "have you already explained it?",
        "what you\u2019d listed",
    ],
)
def test_what_a_machine_said_can_be_asked_for(query: str) -> None:
    assert read(query).asked_of_us


@pytest.mark.parametrize("query", ["What do you think?", "What did I say?", "young people said"])
def test_other_questions_are_not_about_what_a_machine_said(query: str) -> None:
    assert not read(query).asked_of_us


def test_dates_stay_among_the_terms() -> None:
    question = read("What happened on 7 May 2023?")

    assert len(question.dates) == 1
    assert question.terms == ("happen", "7", "may", "2023")


def test_a_text_calls_a_name_as_a_word_and_not_as_a_part() -> None:
    assert calls("Ana's dog", "Ana")
    assert calls("it was souza!", "Ana de Souza")
    assert calls("我看见小明了", "小明")
    assert not calls("a banana", "Ana")


@given(st.text(), st.lists(st.text(min_size=1), max_size=3))
def test_any_text_can_be_a_query_whoever_speaks(query: str, participants: list[str]) -> None:
    question = read(query, participants)

    assert set(question.named) <= set(participants)
    assert len(set(question.terms)) == len(question.terms)
