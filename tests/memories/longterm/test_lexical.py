"""How well each row answers: each cue, apart from the others."""

from datetime import date
from math import isclose
from typing import Any

import pytest
from memories.longterm.spoken import fit_of, fits_of, row, talk

from holdfast.memories.longterm.recall.index import DAY, Row
from holdfast.memories.longterm.recall.score import rare_terms

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

    assert gain(rows, "lake") == pytest.approx(0.3 * found.link[0])
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

    assert fits[0] - fits[1] == pytest.approx(0.5)
    assert fits[2] - fits[1] == pytest.approx(0.25)


def test_cosines_that_hardly_differ_count_as_they_are() -> None:
    found = fit_of(apart(PLAIN, PLAIN), "lake", cosines={"turn_0000": 0.52, "turn_0001": 0.5})

    assert found.near == {0: 0.52, 1: 0.5}


def test_a_near_row_is_looked_at_though_it_holds_no_word() -> None:
    rows = apart("lake", "boat", "tree")
    fits = fits_of(rows, "lake", cosines={"turn_0000": 0.1, "turn_0001": 0.9})

    assert set(fits) == {0, 1}
    assert fits[1] == pytest.approx(0.5)


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
