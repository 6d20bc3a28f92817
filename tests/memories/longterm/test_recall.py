"""Whether rows are recalled at all, in which order, and why."""

from datetime import date
from random import Random
from typing import Any

import pytest
from memories.longterm.spoken import ALONE, NOW, ask, ids, row, search, talk

from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.recall.index import DAY, Postings, Row
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.score import rank
from holdfast.memories.longterm.records import Recalled, Turn, Weights

SMALL_TALK = (
    "the lake was cold and the boat was slow",
    "we had soup for dinner with fresh bread",
    "the train leaves early on workdays",
    "her garden is full of roses",
    "he repaired the old bicycle",
    "they adopted a grey cat",
)


def scattered(**given: Any) -> list[Row]:
    return [row(seq, text, session=str(seq), **given) for seq, text in enumerate(SMALL_TALK)]


def test_the_best_comes_first_and_its_similarity_is_one() -> None:
    found = ask(scattered(), "Which cat was adopted?", weights=ALONE)

    assert ids(found)[0] == 5
    assert found[0].similarity == 1
    assert found[0].score == 1
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


@pytest.mark.parametrize("query", ["", "the of and", "?!"])
def test_a_query_without_terms_recalls_nothing(query: str) -> None:
    assert ask(scattered(), query, min_relevance=0) == []


def test_an_unrelated_message_recalls_nothing() -> None:
    bread = "soup for dinner with fresh bread, butter, honey, cheese and grapes"
    rows = [*scattered(), row(6, bread, session="b")]
    query = "Please explain quantum chromodynamics, bread and thermodynamics"

    assert ask([rows[0], rows[6], row(7, bread, session="c")], query) == []
    assert ids(ask(rows, query, min_relevance=0)) == [1, 6]


def test_rows_that_are_hardly_relevant_are_left_out() -> None:
    rows = [*scattered(), *(row(6 + n, "the cat again", session=f"b{n}") for n in range(40))]
    query = "cat bicycle dinner train garden"
    everything = ask(rows, query, k=100, min_relevance=0)
    least = min(each.relevance for each in everything)

    found = ask(rows, query, k=100, row_relevance=least + 0.01)

    assert 0 < len(found) < len(everything)


def test_a_row_on_the_day_asked_about_is_relevant_whatever_its_words() -> None:
    day = (date(2023, 5, 7) - date(1970, 1, 1)).days * DAY
    rows = [row(0, "soup", session="a", at=day), row(1, "tree", session="b", at=0)]
    found = ask(rows, "What happened on 7 May 2023?")

    assert ids(found) == [0]
    assert found[0].relevance == 1
    assert found[0].why["text"] == "on the day asked about"


def test_a_date_alone_is_a_query() -> None:
    day = (date(2023, 5, 7) - date(1970, 1, 1)).days * DAY

    assert ids(ask([row(0, "soup", at=day)], "2023-05-07")) == [0]


def test_a_short_row_is_relevant_if_the_query_has_its_words_among_many_others() -> None:
    long = "zebra xylophone quartz violin umbrella turbine sextant oyster lantern kayak"
    found = ask([row(0, "grey cat"), row(1, "soup", session="b")], f"cat grey {long}", k=1)

    assert ids(found) == [0]
    assert found[0].relevance == 1


def test_a_long_row_is_not_relevant_for_the_one_word_it_shares() -> None:
    words = " ".join(f"word{number}" for number in range(26))
    query = "cat zebra xylophone quartz violin"

    assert ask([row(seq, f"cat {words}", session=str(seq)) for seq in (0, 1)], query) == []
    assert len(ask([row(seq, "cat blue", session=str(seq)) for seq in (0, 1)], query)) == 2


def test_fresh_rows_score_more_and_half_as_much_after_each_half_life() -> None:
    rows = [row(0, "lake", session="a", at=NOW - 60 * DAY), row(1, "lake", session="b", at=NOW)]
    found = ask(rows, "lake", half_life_days=30)

    assert ids(found) == [1, 0]
    assert [each.recency for each in found] == [1, 0.25]
    assert found[1].score == pytest.approx(0.7 + 0.2 * 0.25 + 0.1 * 0.5)


def test_the_future_counts_as_now() -> None:
    assert ask([row(0, "lake", at=NOW + DAY)], "lake")[0].recency == 1


def test_what_was_recalled_lately_is_fresh() -> None:
    old = NOW - 300 * DAY
    postings = Postings([row(0, "lake", at=old), row(1, "boat", session="b", at=old)])
    postings.touch("turn_0000", NOW - 30 * DAY)
    postings.touch("turn_none", NOW)

    found = rank(postings, read("lake boat"), search(k=2))

    assert {each.id: round(each.recency, 3) for each in found} == {
        "turn_0000": 0.5,
        "turn_0001": 0.001,
    }


def test_importance_counts_by_its_weight() -> None:
    rows = [
        row(0, "lake", kind="fact", importance=0.1),
        row(1, "lake", kind="fact", importance=0.9),
    ]
    found = ask(rows, "lake")

    assert ids(found) == [1, 0]
    assert found[0].score == pytest.approx(0.7 + 0.2 + 0.09)


def test_equals_come_older_first_whatever_they_are() -> None:
    rows = [row(0, "lake", kind="fact"), row(1, "lake", kind="fact"), row(2, "lake", kind="fact")]

    assert ids(ask(rows, "lake", weights=ALONE)) == [0, 1, 2]


def test_no_more_than_k_are_recalled() -> None:
    rows = [row(seq, "lake", session=str(seq)) for seq in range(20)]

    assert [len(ask(rows, "lake", k=k)) for k in (0, 1, 7, 100)] == [0, 1, 7, 20]


@pytest.mark.parametrize("weights", [Weights(), ALONE, Weights(0, 1, 0), Weights(0.1, 5, 3)])
def test_the_first_few_are_those_of_all(weights: Weights) -> None:
    random = Random(3)
    words = ["lake", "boat", "tree", "bird", "stone", "river", "cloud", "soup", "cat", "rose"]
    rows = [
        row(
            seq,
            " ".join(random.choices(words, k=random.randint(1, 9))),
            session=str(seq // 5),
            at=NOW - random.randint(0, 90) * DAY,
            importance=random.random(),
        )
        for seq in range(120)
    ]
    every = ask(rows, "lake soup cat", k=100, weights=weights)

    for k in (1, 5, 20):
        assert ask(rows, "lake soup cat", k=k, weights=weights) == every[:k]


def test_the_same_question_has_the_same_answer_to_the_last_digit() -> None:
    rows = talk(*SMALL_TALK, *SMALL_TALK)
    postings = Postings(rows)
    wanted = search(k=10)
    first = rank(postings, read("cat boat soup"), wanted)
    for query in ("train", "roses bread", "lake"):
        rank(postings, read(query), wanted)

    assert rank(postings, read("cat boat soup"), wanted) == first
    assert ask(rows, "cat boat soup", k=10) == first
    assert ask(rows[::-1], "cat boat soup", k=10) == first


@pytest.mark.parametrize(
    "given", [(-1, 1, 1), (0, 0, 0), (float("nan"), 1, 1), (1, 1, float("inf"))]
)
def test_weights_that_order_nothing_are_refused(given: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidInput):
        Weights(*given)


def test_what_is_near_in_meaning_is_relevant_without_a_word_in_common() -> None:
    rows = scattered()
    near = {"turn_0003": 0.6, "turn_0001": 0.1}

    assert ids(ask(rows, "flowers", cosines=near, k=1)) == [3]
    assert ask(rows, "flowers", cosines={"turn_0003": 0.3}) == []


def test_why_names_every_cue_and_a_sentence() -> None:
    day = (date(2023, 5, 7) - date(1970, 1, 1)).days * DAY
    rows = [
        row(0, "yesterday I prefer tabs", speaker="Ana", at=day, session="a"),
        row(1, "spaces", speaker="Bo", at=0, session="b"),
    ]
    (found,) = ask(rows, "When did Ana prefer tabs, 7 May?", k=1, weights=ALONE)

    assert found.why == {
        "terms": ["prefer", "tab"],
        "lexical": 1.0,
        "coverage": 0.6667,
        "cosine": None,
        "speaker": 0.4,
        "date": 0.8,
        "session": 0.3,
        "time": 0.15,
        "first_person": 0.15,
        "question": 0.0,
        "links": 0.0,
        "mode": "lexical",
        "text": 'matches "prefer, tab"; said by Ana; on the day asked about; tells a time; '
        "from a session about it",
    }


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Tabs\n  it is", "'Tabs it is'"),
        ("Ada prefers tabs over spaces, " * 9, f"'{('Ada prefers tabs over spaces, ' * 9)[:59]}…'"),
    ],
)
def test_a_result_shows_text_score_and_reason_in_a_short_line(text: str, shown: str) -> None:
    found = Recalled(
        item=None,
        turn=Turn(role="user", text=text),
        score=0.954,
        similarity=1.0,
        relevance=1.0,
        recency=1.0,
        importance=0.5,
        neighbours=None,
        why={"text": 'matches "tabs"', "lexical": 1.0},
    )

    assert repr(found) == f"Recalled({shown}, score=0.95, why='matches \"tabs\"')"


def test_why_tells_what_a_row_holds_from_what_was_said_before_it() -> None:
    rows = talk("Did you paint the boat?", "The boat is blue now", "Lovely")
    blue, lovely = (ask(rows, "boat paint", k=3)[place].why["text"] for place in (1, 2))

    assert blue == 'matches "boat"; follows "paint"; from a session about it'
    assert str(lovely).startswith('follows "')


def test_why_says_how_near_a_row_is_in_meaning() -> None:
    cosines = {"turn_0003": 0.61239, "turn_0001": 0.1}
    (found,) = ask(scattered(), "flowers", cosines=cosines, k=1)

    assert found.why["cosine"] == 0.6124
    assert found.why["mode"] == "hybrid"
    assert "close in meaning" in str(found.why["text"])


def test_why_says_that_an_item_names_a_participant() -> None:
    rows = [row(0, "Ana likes lakes", kind="fact"), row(1, "soup", speaker="Ana")]

    assert "names Ana" in str(ask(rows, "Ana lakes", k=1)[0].why["text"])
