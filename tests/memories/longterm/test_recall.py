"""Recall: its order and its scores, postings, and large collections."""

from collections.abc import Iterator
from datetime import date
from math import isclose, log
from random import Random
from typing import Any

import pytest
from contracts.longterm_items import kept, memory_of, said, texts
from memories.longterm.spoken import (
    ALONE,
    NOW,
    ask,
    fit_of,
    fits_of,
    ids,
    large_above,
    row,
    search,
    talk,
)

import holdfast
from holdfast.engines.base import Engine
from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.recall.index import DAY, Postings, Row, Statistics, is_machine
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import rank
from holdfast.memories.longterm.recall.recall import MOST_ALSO
from holdfast.memories.longterm.recall.score import CITED, means_of, rare_terms
from holdfast.memories.longterm.records import Recalled, Turn, Weights
from holdfast.memories.longterm.transaction import LARGE, first_rows
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

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
        "related": [],
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
        "also": 0,
        "tier": "said",
        "mode": "lexical",
        "text": 'matches "prefer, tab"; said by Ana; on the day asked about; tells a time',
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


PLAIN = "lake boat"


def apart(*texts: str, **given: Any) -> list[Row]:
    """Return turns of a session each."""
    return [row(seq, text, session=str(seq), **given) for seq, text in enumerate(texts)]


def gain(rows: list[Row], query: str, than: int = 1, of: int = 0) -> float:
    """Return by how much row *of* fits better than row *than*, which is like it but for a cue."""
    fits = fits_of(rows, query)
    return round(fits[of] - fits[than], 9)


def test_only_rows_with_a_word_of_the_query_are_looked_at() -> None:
    assert set(fits_of(apart("lake", "boat", "lake tree"), "the lake")) == {0, 2}


def test_the_best_words_count_as_one_and_the_best_session_as_much_as_it_may() -> None:
    fits = fits_of(apart("lake", "boat"), "lake")

    assert fits == {0: pytest.approx(1.3)}


def test_what_is_answered_to_a_turn_counts_for_it() -> None:
    rows = [
        *(row(seq, "lake", session="a") for seq in range(3)),
        row(3, "lake", session="b"),
    ]
    found = fit_of(rows, "lake")
    one, two, three, alone = found.lexical

    assert one > alone
    assert three == pytest.approx(found.lexical[2])
    assert two > three


def test_a_session_counts_by_the_mean_of_its_best_three() -> None:
    rows = [
        row(0, "lake", session="a"),
        row(1, "boat", session="b"),
        row(2, "tree", session="b"),
        row(3, "stone", session="b"),
        row(4, "lake", session="b"),
    ]
    session = fit_of(rows, "lake").session

    assert session[0] == 1
    assert session[1] == pytest.approx(1 / 3, abs=0.05)


def test_a_session_of_one_turn_is_not_held_against_it() -> None:
    assert fit_of(apart("lake", "lake"), "lake").session == {0: 1, 1: 1}


def test_who_is_named_is_preferred_as_speaker() -> None:
    rows = [
        row(0, PLAIN, session="a", speaker="Ana"),
        row(1, PLAIN, session="b", speaker="Bo"),
    ]

    assert gain(rows, "Ana lake") == 0.4
    assert gain(rows, "Ana Bo lake") == 0
    assert gain(rows, "lake") == 0


@pytest.mark.parametrize(
    ("days", "much"), [(0, 0.8), (1, 0.8), (5, 0.48), (20, 0.16), (-5, 0.16), (60, 0), (-20, 0)]
)
def test_a_row_is_preferred_by_how_close_it_is_to_the_date_asked_about(
    days: int, much: float
) -> None:
    day = (date(2023, 5, 7) - date(1970, 1, 1)).days
    rows = [
        row(0, PLAIN, session="a", at=(day + days) * DAY),
        row(1, PLAIN, session="b", at=(day + 400) * DAY),
    ]

    assert gain(rows, "lake on 7 May 2023") == much


def test_a_date_brings_rows_that_hold_no_word_of_the_query() -> None:
    day = (date(2023, 5, 7) - date(1970, 1, 1)).days
    rows = [row(0, "boat", session="a", at=day * DAY), row(1, "lake", session="b", at=0)]

    fits = fits_of(rows, "lake 2023-05-07")

    assert fits[0] == pytest.approx(0.8)
    assert fit_of(rows, "lake 2023-05-07").lexical[0] == 0


def test_a_row_that_tells_a_time_is_preferred_when_one_is_asked_for() -> None:
    rows = [row(0, PLAIN, session="a", time=True), row(1, PLAIN, session="b")]

    assert gain(rows, "When lake?") == 0.15
    assert gain(rows, "What lake?") == 0


def test_a_row_about_oneself_is_preferred() -> None:
    rows = [row(0, PLAIN, session="a", first_person=True), row(1, PLAIN, session="b")]

    assert gain(rows, "lake") == 0.15


def test_a_question_is_no_answer() -> None:
    rows = [row(0, PLAIN, session="a", question=True), row(1, PLAIN, session="b")]

    assert gain(rows, "lake") == -0.05


def test_what_people_say_is_preferred_to_what_a_machine_says() -> None:
    rows = [row(0, PLAIN, session="a"), row(1, PLAIN, session="b", role="assistant")]

    assert gain(rows, "lake") == 0.35
    assert gain(rows, "What lake did you suggest?") == -0.2


def test_where_no_machine_speaks_nobody_is_preferred_for_being_none() -> None:
    assert fits_of(apart("lake"), "lake") == {0: pytest.approx(1.3)}
    assert fits_of(apart("lake"), "What lake did you suggest?") == {0: pytest.approx(1.3)}


def test_an_item_and_the_turn_it_cites_help_each_other() -> None:
    rows = [
        row(0, PLAIN, session="a"),
        row(1, PLAIN, session="b"),
        row(2, "lake lake", kind="fact", session="c", cites=("turn_0000",)),
    ]
    found = fit_of(rows, "lake")
    best = max(found.lexical)

    cited, other, _ = found.fit
    assert cited == pytest.approx(CITED * (other + 0.3 * found.link[0]))
    assert found.link[0] == pytest.approx(found.lexical[2] / best)
    assert found.link[2] == pytest.approx(found.lexical[0] / best)
    assert 1 not in found.link


def test_an_item_counts_as_said_by_the_user_of_oneself() -> None:
    rows = [row(0, PLAIN, kind="fact"), row(1, PLAIN, session="b", role="assistant")]

    assert gain(rows, "lake") == pytest.approx(0.35 + 0.15)


def test_an_item_is_of_whom_it_cites_or_names() -> None:
    rows = [
        row(0, "Ana lake boat", kind="fact"),
        row(1, "Cat lake boat", kind="fact", session="a", cites=("turn_9",), speakers=("Ana",)),
        row(2, "Dan lake boat", kind="fact"),
        row(3, "tree", speaker="Ana"),
    ]
    fits = fits_of(rows, "Ana lake")

    assert round(fits[0] - fits[2], 9) == 0.4
    assert round(fits[1] - fits[2], 9) == 0.4


def test_an_item_without_a_turn_is_a_session_of_its_own() -> None:
    rows = [row(0, PLAIN, kind="fact"), row(1, PLAIN, kind="fact"), row(2, "tree")]

    assert len(fit_of(rows, "lake").session) == 2


def test_cosines_count_from_the_least_to_the_largest() -> None:
    rows = apart(PLAIN, PLAIN, PLAIN)
    cosines = {"turn_0000": 0.8, "turn_0001": 0.2, "turn_0002": 0.5}
    fits = fits_of(rows, "lake", cosines=cosines)

    assert fits[0] - fits[1] == pytest.approx(0.75)
    assert fits[2] - fits[1] == pytest.approx(0.375)


def test_nearness_counts_more_where_the_participant_named_speaks() -> None:
    rows = [*apart(PLAIN, PLAIN, speaker="Ana"), row(2, "tree", speaker="Bo", session="c")]
    cosines = {"turn_0000": 0.8, "turn_0001": 0.3}
    fits = fits_of(rows, "Ana lake", cosines=cosines)
    found = ask(rows, "Ana lake", cosines=cosines, weights=ALONE, min_relevance=0)

    assert fits[0] - fits[1] == pytest.approx(0.75 + 0.30)
    assert [each.why["speaker"] for each in found[:2]] == [0.7, 0.4]


def test_cosines_that_hardly_differ_count_as_they_are() -> None:
    found = fit_of(apart(PLAIN, PLAIN), "lake", cosines={"turn_0000": 0.52, "turn_0001": 0.5})

    assert found.near == {0: 0.52, 1: 0.5}


def test_a_near_row_is_looked_at_though_it_holds_no_word() -> None:
    rows = apart("lake", "boat", "tree")
    fits = fits_of(rows, "lake", cosines={"turn_0000": 0.1, "turn_0001": 0.9})

    assert set(fits) == {0, 1}
    assert fits[1] == pytest.approx(0.75)


@pytest.mark.parametrize(
    ("wanted", "rows"),
    [
        ({"what": "all"}, {0, 1, 2}),
        ({"what": "turns"}, {0}),
        ({"what": "items"}, {1, 2}),
        ({"kinds": frozenset({"fact"})}, {1}),
        ({"what": "turns", "kinds": frozenset({"fact"})}, set[int]()),
    ],
)
def test_only_what_is_wanted_is_looked_at(wanted: dict[str, Any], rows: set[int]) -> None:
    given = [row(0, "lake"), row(1, "lake", kind="fact"), row(2, "lake", kind="event")]

    assert set(fits_of(given, "lake", **wanted)) == rows


def test_a_row_that_is_only_context_lends_and_is_not_found() -> None:
    rows = [row(0, "lake", context=True), row(1, "boat")]

    assert set(fits_of(rows, "lake")) == {1}


def test_of_very_many_rows_the_best_few_hundred_are_looked_at() -> None:
    rows = apart(*(["lake"] * 450), "lake lake lake")

    looked = fit_of(rows, "lake").rows

    assert len(looked) == 400
    assert looked == [*range(399), 450]


def test_common_words_go_only_if_enough_rarer_ones_remain() -> None:
    df = {"a": 200, "b": 5, "c": 7, "d": 1}.__getitem__

    assert rare_terms(("a", "b", "c", "d"), df, 1_000) == ("b", "c", "d")
    assert rare_terms(("a", "b", "c"), df, 1_000) == ("a", "b", "c")


def test_neither_first_nor_last_terms_matter_more() -> None:
    rows = talk("lake boat", "boat tree", "tree lake")
    one, other = fits_of(rows, "lake tree"), fits_of(rows, "tree lake")

    assert all(isclose(one[number], other[number]) for number in one)


def bm25(tf: float, df: int, rows: int, share: float) -> float:
    """Return the weight of a term where windows are *share* of their mean."""
    idf = log(1 + (rows - df + 0.5) / (df + 0.5))
    return idf * tf * 2.2 / (tf + 1.2 * (0.6 + 0.4 * share))


def test_a_turn_lends_its_words_to_the_three_after_it() -> None:
    postings = Postings(talk("lake", "boat", "boat", "boat", "boat"))
    windows = [1, 1.5, 1.75, 1.875, 1.875]
    mean = sum(windows) / 5

    weights = postings.weights("lake")

    assert sorted(weights) == [0, 1, 2, 3]
    for number, lent in enumerate((1, 0.5, 0.25, 0.125)):
        assert isclose(weights[number], bm25(lent, 1, 5, windows[number] / mean))


def test_a_word_said_twice_counts_twice() -> None:
    postings = Postings([row(0, "lake lake", session="a"), row(1, "boat boat", session="b")])

    assert isclose(postings.weights("lake")[0], bm25(2, 1, 2, 1))


def test_nothing_is_lent_into_another_session_or_thread() -> None:
    rows = [
        row(0, "lake", session="1", thread="t"),
        row(1, "boat", session="2", thread="t"),
        row(2, "boat", session="1", thread="u"),
        row(3, "boat", session="1", thread="t"),
    ]

    assert sorted(Postings(rows).weights("lake")) == [0, 3]


def test_a_thread_is_a_session_where_none_is_given() -> None:
    rows = [row(0, "lake", thread="t"), row(1, "boat", thread="u"), row(2, "boat", thread="t")]

    assert sorted(Postings(rows).weights("lake")) == [0, 2]


def test_a_machine_lends_nothing_and_is_lent_to() -> None:
    rows = [row(0, "lake", role="assistant"), row(1, "boat"), row(2, "tree", role="assistant")]
    postings = Postings(rows)

    assert sorted(postings.weights("lake")) == [0]
    assert sorted(postings.weights("boat")) == [1, 2]


@pytest.mark.parametrize(
    ("role", "speaker", "machine"),
    [
        ("assistant", None, True),
        ("user", None, False),
        ("user", "Bot", True),
        ("user", "Ana", False),
        ("assistant", "Claude", True),
        ("assistant", "Human", False),
    ],
)
def test_a_machine_is_known_by_its_role_or_its_name(
    role: str, speaker: str | None, machine: bool
) -> None:
    assert is_machine(role, speaker) is machine


def test_an_item_has_no_window() -> None:
    rows = [row(0, "lake"), row(1, "boat", kind="fact", cites=("turn_0000",)), row(2, "boat")]

    assert sorted(Postings(rows).weights("lake")) == [0, 2]


def test_a_long_turn_does_not_drown_its_neighbours() -> None:
    long = "lake " + " ".join(f"word{number}" for number in range(400))
    short = Postings([*talk("lake", "boat")])
    drowned = Postings([row(0, long), row(1, "boat")])

    assert drowned.weights("lake")[1] < short.weights("lake")[1]
    assert drowned.weights("boat")[1] > 0


def test_rows_added_later_count_as_if_they_had_always_been_there() -> None:
    random = Random(7)
    words = ["lake", "boat", "tree", "bird", "stone", "river", "cloud"]
    rows = [
        row(seq, " ".join(random.choices(words, k=random.randint(0, 30))), session=str(seq % 3))
        for seq in range(60)
    ]
    grown = Postings(rows[:10])
    for word in words:
        grown.weights(word)
    grown.add(rows[10:11])
    grown.add(rows[11:])

    assert {word: grown.weights(word) for word in words} == {
        word: Postings(rows).weights(word) for word in words
    }


def test_a_stretch_of_rows_weighs_as_within_the_whole_when_its_figures_are_given() -> None:
    rows = talk(*("boat tree", "lake", "lake boat", "tree", "stone", "lake tree", "bird", "boat"))
    whole = Postings(rows)
    given = Statistics(
        rows=len(rows),
        mean_length=whole.mean_length,
        mean_window=whole.mean_window,
        has_machine=False,
        participants=(),
        df=whole.df,
    )
    part = Postings(rows[2:7], given)

    assert part.weights("tree")[3] == whole.weights("tree")[5]
    assert part.idf("lake") == whole.idf("lake")
    assert part.telling("absent") == whole.telling("absent")


def test_a_row_apart_is_no_neighbour_of_the_one_before() -> None:
    rows = [row(0, "lake"), row(7, "boat", apart=True), row(8, "tree")]
    postings = Postings(rows)

    assert sorted(postings.weights("lake")) == [0]
    assert sorted(postings.weights("boat")) == [1, 2]


def test_participants_are_speakers_and_not_roles() -> None:
    rows = [
        row(0, "a", speaker="Ana"),
        row(1, "b", speaker="User"),
        row(2, "c", speaker=None),
        row(3, "d", speaker="Bo"),
        row(4, "e", speaker="Ana"),
    ]

    assert Postings(rows).participants == ("Ana", "Bo")


@pytest.mark.parametrize("rows", [[], [row(0, "the")], [row(0, "the"), row(1, "lake")]])
def test_bodies_without_terms_do_no_harm(rows: list[Row]) -> None:
    postings = Postings(rows)

    assert postings.weights("nothing") == {}
    assert postings.size_bytes >= 0


def test_of_terms_that_are_not_asked_for_nothing_is_kept() -> None:
    rows = talk("boat lake boat", "lake", "tree", "boat")
    whole = Postings(rows)
    learnt: list[str] = []
    given = Statistics(
        rows=4,
        mean_length=whole.mean_length,
        mean_window=whole.mean_window,
        has_machine=False,
        participants=(),
        df=whole.df,
        learn=learnt.extend,
        terms=frozenset({"boat"}),
    )
    part = Postings(rows, given)
    part.learn([0, 2])

    assert part.weights("boat") == whole.weights("boat")
    assert part.weights("lake") == {}
    assert part.brief_weight(0) == whole.brief_weight(0)
    assert sorted(learnt) == ["boat", "lake", "tree"]


def test_terms_asked_for_weigh_as_much_as_when_all_are_kept() -> None:
    bodies = ["lake lake lake", "", "boat", "lakeside lake", "é lake é", "boat lake boat", "lak"]
    rows = [row(number, body) for number, body in enumerate(bodies)]
    whole, asked = Postings(rows), frozenset({"lake", "boat", "é", "absent"})
    given = Statistics(
        rows=len(rows),
        mean_length=whole.mean_length,
        mean_window=whole.mean_window,
        has_machine=False,
        participants=(),
        df=whole.df,
        terms=asked,
    )

    some = Postings(rows, given)

    for term in asked:
        assert some.weights(term) == whole.weights(term)


WET = ["lake", "river", "island", "harbour", "glacier"]
THINGS = [*WET, "forest", "mountain", "desert", "village", "meadow"]
DEEDS = ["painted", "crossed", "photographed", "described", "mapped", "visited", "remembered"]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def hf(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Holdfast]:
    path = tmp_path_factory.mktemp("large") / "h.db"
    sqlite = request.param == "sqlite"
    target = str(path) if sqlite else request.getfixturevalue("postgres_url")
    with holdfast.open(target, workspace=new_workspace(), clock=FrozenClock()) as hf:
        yield hf


def walks(count: int) -> list[Turn]:
    """Return turns of many sessions, some of which stand out."""
    turns: list[Turn] = []
    for number in range(count):
        thing, deed = THINGS[number % 10], DEEDS[number % 7]
        text = f"On walk {number} we {deed} the {thing}"
        turns.append(said(text, speaker="Ana", session=f"s{number // 12}"))
    return turns


@pytest.fixture(scope="module")
def large(hf: Holdfast) -> LongTermMemory:
    """Give a memory of more turns than are held."""
    ltm = memory_of(hf, "ada")
    ltm.record(walks(LARGE + 20), thread_id="t1")
    return ltm


def indexed(engine: Engine) -> int:
    """Return how many terms are in the index of words, of all collections."""
    table = "ltm_terms" if engine.dialect == "sqlite" else "ltm_df"
    return engine.scoped(EVERYBODY).one(dict[str, int], f"select count(*) as n from {table}")["n"]  # pyright: ignore[reportArgumentType] - one of two names


def test_the_row_that_answers_best_comes_first(large: LongTermMemory) -> None:
    assert texts(large.recall("walk 4321", k=1)) == ["On walk 4321 we photographed the river"]


def test_neighbours_are_those_of_its_session(large: LongTermMemory) -> None:
    found = large.recall("walk 3000", k=1)[0]

    assert found.neighbours is not None
    assert found.neighbours[0] is None
    assert found.neighbours[1] is not None
    assert found.neighbours[1].text.startswith("On walk 3001 ")


def test_what_has_nothing_to_do_with_it_is_not_recalled(large: LongTermMemory) -> None:
    assert large.recall("quantum chromodynamics") == []


def test_a_related_word_is_found_among_many_turns(large: LongTermMemory) -> None:
    item = kept(large, "Ana owns a dog")

    (found,) = large.recall("Which pet does she own?", k=1)

    assert (found.item, found.why["related"]) == (item, [["pet", "dog"]])
    large.forget(item.id)


def test_among_many_turns_a_question_asked_very_often_hides_no_statement(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_above(1_000, monkeypatch)
    asked = [said("Which blacksmith do I like?", session=f"q{number}") for number in range(600)]
    told = [said("My blacksmith lives by the old mill in the north of the valley", session="b")]
    ltm = memory_of(hf, "eve")
    ltm.record([*walks(1_000), *asked, *told], thread_id="t1")

    assert texts(ltm.recall("Who is my blacksmith?")) == [told[0].text]
    assert len(ltm.recall("Who is my blacksmith?", noise=True)[0].also) == MOST_ALSO


def test_an_item_is_found_by_its_words_and_by_its_turn(large: LongTermMemory) -> None:
    turn = large.recall("walk 4000", k=1)[0]
    item = kept(large, "Ana proposed marriage near a glacier", turns=[turn.id])

    assert large.recall("proposed marriage", k=1)[0].item == item
    assert large.recall("walk 4000 marriage", k=1, what="turns")[0].why["links"]
    large.update(item.id, text="Ana proposed a toast")
    assert large.recall("marriage") == []
    assert texts(large.recall("toast")) == ["Ana proposed a toast"]


def test_a_new_turn_is_found_and_a_forgotten_one_is_not(large: LongTermMemory) -> None:
    turn = large.record([said("A zeppelin landed")], thread_id="t2").turns[0]
    assert texts(large.recall("zeppelin")) == ["A zeppelin landed"]

    large.forget(turn.id)

    assert large.recall("zeppelin", min_relevance=0) == []


def test_what_was_kept_of_it_answers_as_what_is_read_anew(
    hf: Holdfast, large: LongTermMemory
) -> None:
    asked = ["the walk on which Ana visited the lake", "a comet over the walk"]
    for each in asked:
        large.recall(each, touch=False)
    large.record([said("A comet stood over the lake", session="s416")], thread_id="t1")
    large.record([said("And the comet was green", session="s416")], thread_id="t1")
    large.recall(asked[1])
    large.flush()

    warm = [large.recall(each, k=20, touch=False) for each in asked]
    hf.longterm_shared.kept.clear()

    assert warm == [large.recall(each, k=20, touch=False) for each in asked]
    assert texts(warm[1])[0] == "A comet stood over the lake"


def test_its_answer_is_nearly_that_of_the_exact_rule(
    hf: Holdfast, large: LongTermMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [
        f"who {deed} the {thing} on walk {77 * n}"
        for n, (deed, thing) in enumerate(zip(DEEDS, THINGS, strict=False))
    ]
    proposed = [set(texts(large.recall(each, k=3, touch=False))) for each in asked]

    monkeypatch.setattr("holdfast.memories.longterm.recall.recall.LARGE", 10**9)
    exact = [set(texts(large.recall(each, k=3, touch=False))) for each in asked]

    assert sum(len(one & two) for one, two in zip(proposed, exact, strict=True)) >= 18
    hf.longterm_shared.kept.clear()


def test_nothing_of_it_is_left_in_the_index_once_it_is_cleared(
    hf: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_above(1_000, monkeypatch)
    before = indexed(hf.engine)
    ltm = memory_of(hf, "carol")
    ltm.record([said(f"Word{number} again") for number in range(1_001)])
    assert indexed(hf.engine) > before

    ltm.clear()

    assert indexed(hf.engine) == before


def test_a_power_of_a_tenth_more_is_whole_and_not_above() -> None:
    assert [first_rows(rows) for rows in (0, 1, 2, 10, 5_021)] == [0, 1, 2, 10, 4_830]
    for rows in range(1, 3_000, 7):
        assert rows / 1.2 - 1 < first_rows(rows) <= rows


def test_the_means_are_those_of_postings() -> None:
    rows = [
        Row(
            id=f"turn_{number}",
            seq=number,
            body=" ".join(["word"] * (number % 31)),
            at=0,
            role="assistant" if number % 3 == 0 else "user",
            thread="t",
            session=f"s{number % 4}" if number % 2 else None,
        )
        for number in range(200)
    ]
    told = [(1, len(row.body.split()), row.thread, row.session or "", row.role, "") for row in rows]

    found, exact = means_of(told), Postings(rows)

    assert (found.length, found.window) == pytest.approx((exact.mean_length, exact.mean_window))
