"""Topic of a query: what it is about decides whether it is answered."""

from typing import Any

import pytest
from memories.longterm.spoken import ids, row, search
from msgspec.structs import replace

from holdfast.memories.longterm.recall.form import PHRASES
from holdfast.memories.longterm.recall.index import Postings, Row
from holdfast.memories.longterm.recall.query import Topic, asks_for_turns, read, topic_of
from holdfast.memories.longterm.recall.rank import Ranking, ranking


def topic(text: str, user: str = "ada", participants: tuple[str, ...] = ("Ana", "Bo")) -> Topic:
    return topic_of(text, read(text, participants), user)


def answered(rows: list[Row], query: str, **wanted: Any) -> Ranking:
    postings = Postings(rows)
    question = read(query, postings.participants)
    kind = topic_of(query, question, "user_1")
    return ranking(postings, question, replace(search(**wanted), topic=kind))


@pytest.mark.parametrize(
    "text",
    [
        "Where do I work?",
        "what is my sister's name",
        "What did Ana paint?",
        "What happened on 7 May 2023?",
        "Does Ada like tabs?",
        "Which plan is ADA on?",
        "Remember the boat?",
        "Where did we go?",
        "Where does she live?",
        "How do I get to my office?",
    ],
)
def test_a_query_about_a_person_or_a_date_is_personal(text: str) -> None:
    assert topic(text).kind == "personal"


@pytest.mark.parametrize(
    "text",
    [
        "Why is the sky blue?",
        "How do I sort a list in Python?",
        "Give me three names for a startup",
        "Who painted the Mona Lisa?",
        "Can you show me the timetable of trains?",
        "tabs or spaces?",
    ],
)
def test_words_that_speak_to_the_assistant_are_not_about_the_user(text: str) -> None:
    assert topic(text).kind == "general"


@pytest.mark.parametrize(
    "text",
    ["Thanks, that works!", "ok", "Good morning!", "Yes please", "See you tomorrow", "Try again"],
)
def test_thanks_and_greetings_are_phatic(text: str) -> None:
    assert topic(text).kind == "phatic"


def test_a_question_about_a_person_is_not_phatic_whatever_its_words() -> None:
    assert topic("where do I work?").kind == "personal"
    assert topic("where do I work").kind == "personal"
    assert topic("I work").kind == "phatic"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Summarize this text", "at_hand"),
        ("Translate the following into Spanish", "at_hand"),
        ("Correct the grammar of these sentences", "at_hand"),
        ("Plan a menu for this weekend", "general"),
        ("What did I do this week?", "personal"),
        ("Does this text mention my sister?", "personal"),
    ],
)
def test_a_query_about_the_message_itself_is_at_hand(text: str, kind: str) -> None:
    assert topic(text).kind == kind


@pytest.mark.parametrize(
    ("user", "kind"),
    [
        ("ada.lovelace@example.org", "personal"),
        ("lovelace-7", "personal"),
        ("user_lovelace", "personal"),
        ("lo", "general"),
        ("user", "general"),
    ],
)
def test_a_word_of_the_users_id_names_the_user(user: str, kind: str) -> None:
    assert topic("Which trains does Lovelace take, the user?", user).kind == kind


def test_a_general_query_is_compared_without_phatic_words() -> None:
    assert topic("Great, help with trains to Rome please").terms == ("train", "rome")


@pytest.mark.parametrize(
    ("text", "lifts"),
    [
        ("What did I ask you about trains?", True),
        ("Have I mentioned my sister?", True),
        ("What did you recommend for dinner?", True),
        ("Where do I work?", False),
    ],
)
def test_a_query_about_what_was_said_may_be_answered_by_questions(
    text: str, *, lifts: bool
) -> None:
    assert asks_for_turns(text, read(text)) is lifts


def test_no_message_off_the_topic_is_about_a_person_but_those_that_name_one() -> None:
    personal = [text for text in PHRASES.off_topic if topic(text, "user_1").kind == "personal"]

    assert personal == []


TALK = [
    row(0, "The sky over the lake was blue when the boat sank", session="a"),
    row(1, "He repaired the old bicycle", session="b"),
    row(2, "They adopted a grey cat", session="c"),
]


def test_a_general_query_is_answered_by_a_row_that_holds_most_of_its_telling_words() -> None:
    assert ids(answered(TALK, "who repaired a bicycle").found) == [1]
    assert ids(answered(TALK, "bicycle").found) == [1]


def test_a_row_with_one_word_of_many_answers_no_general_query_and_is_counted() -> None:
    query = "bicycle turbines of quartz violins"
    found = answered(TALK, query, min_relevance=0.1)

    assert found.found == []
    assert found.suppressed == {"general": 1}
    assert ids(answered(TALK, f"my {query}", min_relevance=0.1).found) == [1]


def test_a_word_of_every_row_is_no_evidence() -> None:
    rows = [row(seq, "the lake", session=str(seq)) for seq in range(60)]

    assert answered(rows, "lakes").found == []
    assert len(answered(rows, "my lakes", k=60).found) == 60


def test_a_general_query_needs_a_row_to_be_nearer_in_meaning_than_a_personal_one() -> None:
    near = {"turn_0002": 0.45}

    assert answered(TALK, "kittens", cosines=near).found == []
    assert ids(answered(TALK, "my kittens", cosines=near).found) == [2]
    assert ids(answered(TALK, "kittens", cosines={"turn_0002": 0.5}).found) == [2]


@pytest.mark.parametrize(
    ("query", "reason"), [("good, thanks", "phatic"), ("summarize this: the lake", "at_hand")]
)
def test_what_is_answered_with_nothing_says_so_unless_nothing_is_to_be_left_out(
    query: str, reason: str
) -> None:
    rows = [row(0, "good work on the lake", session="a")]

    assert answered(rows, query).found == []
    assert answered(rows, query).suppressed in ({reason: 1}, {})
    assert answered(rows, f"{query} lake", min_relevance=0).found != []
