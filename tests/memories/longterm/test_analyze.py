"""Analysis of texts and queries: terms, dates, flags, and cues of a question."""

import unicodedata
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.recall.analyze import (
    WORDS,
    QueryDate,
    analyze,
    closeness,
    dates_in,
    flags_of,
)
from holdfast.memories.longterm.recall.query import calls, read


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("She painted two paintings", ["paint", "two", "paint"]),
        ("The of and it's don't", []),
        ("Ana's dogs' o'clock", ["ana", "dog", "o"]),
        ("bought children better", ["buy", "child", "good"]),
        ("BOUGHT, Bought; bought.", ["buy", "buy", "buy"]),
        ("it\u2019s Ana\u2019s caf\u00e9\u2019s", ["ana", "caf\u00e9"]),
        ("snake_case kebab-case", ["snake", "case", "kebab", "case"]),
        ("call 555 in 2023", ["call", "555", "2023"]),
        ("\uff21\uff22\uff23 \ufb01sh", ["abc", "fish"]),
        (
            "Tsch\u00fcss Stra\u00dfe \u041c\u043e\u0441\u043a\u0432\u0430",
            ["tsch\u00fcss", "stra\u00dfe", "\u043c\u043e\u0441\u043a\u0432\u0430"],
        ),
        ("", []),
        ("!? \u2026 \U0001f600", []),
    ],
)
def test_words_become_terms(text: str, terms: list[str]) -> None:
    assert analyze(text) == terms


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("\u6211\u7231\u4f60", ["\u6211", "\u7231", "\u4f60", "\u6211\u7231", "\u7231\u4f60"]),
        ("\u732b", ["\u732b"]),
        ("\u7528Python\u5199", ["\u7528", "python", "\u5199"]),
        ("\u30ab\u30e1\u30e9", ["\u30ab", "\u30e1", "\u30e9", "\u30ab\u30e1", "\u30e1\u30e9"]),
        ("\ucee4\ud53c", ["\ucee4", "\ud53c", "\ucee4\ud53c"]),
        ("\u0e01\u0e32", ["\u0e01", "\u0e32", "\u0e01\u0e32"]),
        ("2023\u5e745\u6708", ["2023", "\u5e74", "5", "\u6708"]),
    ],
)
def test_what_is_written_without_spaces_becomes_characters_and_pairs(
    text: str, terms: list[str]
) -> None:
    assert analyze(text) == terms


def test_a_stop_word_says_nothing_in_any_case() -> None:
    assert analyze(" ".join(WORDS.stop)) == []
    assert analyze(" ".join(WORDS.stop).upper()) == []


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u0416"])
def test_of_what_is_too_long_for_a_word_the_beginning_counts(letter: str) -> None:
    blob = letter.lower() * 100_000

    assert [len(term) for term in analyze(f"a {blob} boat")] == [64, 4]


@given(st.text())
def test_a_term_can_stand_in_a_body_of_terms_joined_by_spaces(text: str) -> None:
    terms = analyze(text)

    assert " ".join(terms).split() == terms


@given(st.text())
def test_a_text_and_its_compatible_form_have_the_same_terms(text: str) -> None:
    assert analyze(text) == analyze(unicodedata.normalize("NFKC", text))


@given(st.text(), st.text())
def test_a_text_is_as_much_about_its_parts_as_they_are_alone(first: str, second: str) -> None:
    assert analyze(f"{first}\n{second}") == [*analyze(first), *analyze(second)]


@given(st.text(alphabet=st.characters(codec="ascii")))
def test_the_quick_way_for_ascii_gives_what_the_long_way_does(text: str) -> None:
    assert analyze(text + "\u00a0") == analyze(text)


def asked(year: int | None, month: int, day: int | None) -> QueryDate:
    return QueryDate(year=year, month=month, day=day)


def since_1970(year: int, month: int, day: int) -> int:
    return (date(year, month, day) - date(1970, 1, 1)).days


@pytest.mark.parametrize(
    ("text", "date"),
    [
        ("on 7 May, 2023", asked(2023, 5, 7)),
        ("on 7 may 2023?", asked(2023, 5, 7)),
        ("the 7th of May", asked(None, 5, 7)),
        ("May 7th, 2023", asked(2023, 5, 7)),
        ("may 7", asked(None, 5, 7)),
        ("in May 2023", asked(2023, 5, None)),
        ("in May of 2023", asked(2023, 5, None)),
        ("in May", asked(None, 5, None)),
        ("at 2023-05-07", asked(2023, 5, 7)),
        ("1 Sept 2022", asked(2022, 9, 1)),
        ("29 February", asked(None, 2, 29)),
        ("她在2023年5月7日去了哪里", asked(2023, 5, 7)),
        ("5月7号", asked(None, 5, 7)),
        ("2023年 5月", asked(2023, 5, None)),
        ("2023년 5월 7일에", asked(2023, 5, 7)),
    ],
)
def test_a_date_is_found_however_it_is_written(text: str, date: QueryDate) -> None:
    assert dates_in(text) == (date,)


@pytest.mark.parametrize(
    "text",
    [
        "what may happen",
        "they march on",
        "31 June",
        "2023-13-01",
        "May I ask?",
        "in 2023",
        "7",
        "5个月",
        "13月",
    ],
)
def test_what_is_no_date_is_not_taken_for_one(text: str) -> None:
    assert dates_in(text) == ()


def test_each_date_is_found_once_in_order() -> None:
    found = dates_in("Between 7 May and June 3rd, or again 7 May?")

    assert found == (asked(None, 5, 7), asked(None, 6, 3))


@pytest.mark.parametrize(
    ("after", "close"),
    [
        (0, 1),
        (1, 1),
        (-1, 1),
        (2, 0.6),
        (10, 0.6),
        (11, 0.2),
        (30, 0.2),
        (31, 0),
        (-2, 0.2),
        (-7, 0.2),
        (-8, 0),
    ],
)
def test_days_are_close_by_how_long_after(after: int, close: float) -> None:
    assert closeness([asked(2023, 5, 15)], since_1970(2023, 5, 15) + after) == close


def test_a_day_without_a_year_is_in_the_year_of_the_row() -> None:
    assert closeness([asked(None, 5, 7)], since_1970(1999, 5, 7)) == 1
    assert closeness([asked(1998, 5, 7)], since_1970(1999, 5, 7)) == 0
    assert closeness([asked(None, 2, 29)], since_1970(2023, 3, 1)) == 0


@pytest.mark.parametrize(
    ("year", "row", "close"),
    [
        (None, (2021, 12, 31), 1),
        (None, (2022, 1, 1), 0.5),
        (2021, (2021, 12, 1), 1),
        (2021, (2022, 1, 31), 0.5),
        (2021, (2023, 1, 1), 0),
        (2022, (2021, 12, 1), 0),
        (None, (2022, 2, 1), 0),
        (None, (2021, 11, 30), 0),
    ],
)
def test_a_month_is_close_to_itself_and_the_next(
    year: int | None, row: tuple[int, int, int], close: float
) -> None:
    assert closeness([asked(year, 12, None)], since_1970(*row)) == close


def test_of_several_dates_the_nearest_counts() -> None:
    day = since_1970(2023, 5, 17)

    assert closeness([asked(2023, 5, 15), asked(2023, 5, 17)], day) == 1
    assert closeness([], day) == 0


@given(st.text())
def test_any_text_can_be_searched_for_dates(text: str) -> None:
    for each in dates_in(text):
        assert 0 <= closeness([each], since_1970(2023, 5, 7)) <= 1


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
