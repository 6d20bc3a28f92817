"""Collapse of rows that say the same, and the order of items and turns."""

from datetime import timedelta
from typing import Any

import pytest
from memories.longterm.found import NOW, item, recalled, turn
from memories.longterm.spoken import ids, row, search
from msgspec.structs import replace

from holdfast.memories.longterm.recall.index import Postings
from holdfast.memories.longterm.recall.query import read
from holdfast.memories.longterm.recall.rank import covers, may_repeat, ranking
from holdfast.memories.longterm.recall.recall import MOST_ALSO, Collapse, collapse
from holdfast.memories.longterm.records import Item, Turn

LONG = (
    "The red boat of my older sister lies in the small harbour behind the old church of Porto"
    " until the cold winter ends in spring"
)


def said(number: int, text: str, **given: Any) -> Turn:
    return turn(text, id=f"turn_{number}", **given)


def collapsed(*rows: Item | Turn, query: str = "?", k: int = 5, echo: bool = False) -> Collapse:
    found = [(recalled(each, 1 - place / 100), place) for place, each in enumerate(rows)]
    return collapse(found, query, k=k, echo=echo)


def texts(found: Collapse) -> list[str]:
    return [each.text for each in found.recalled]


def test_rows_that_differ_stand() -> None:
    found = collapsed(said(1, "I like tea"), said(2, "I like coffee"))

    assert texts(found) == ["I like tea", "I like coffee"]
    assert found.numbers == [0, 1]
    assert (found.duplicates, found.echoes) == (0, 0)
    assert [each.also for each in found.recalled] == [(), ()]


@pytest.mark.parametrize(
    "other",
    ["i like TEA!", "I  like -- tea", LONG.replace("small", "little")],
)
def test_rows_that_say_the_same_are_one_with_the_other_ids(other: str) -> None:
    first = LONG if "boat" in other else "I like tea"
    found = collapsed(said(1, first), said(2, other))

    assert len(found.recalled) == 1
    assert found.recalled[0].also == ("turn_2",)
    assert found.recalled[0].why["also"] == 1
    assert found.duplicates == 1


@pytest.mark.parametrize(
    "other",
    [
        "I do not like tea",
        LONG.replace("lies in", "does not lie in"),
        f"{LONG} 3",
        "Tea I like, and coffee",
    ],
)
def test_another_number_negation_or_order_is_something_else(other: str) -> None:
    assert len(collapsed(said(1, LONG), said(2, "I like tea"), said(3, other)).recalled) == 3


def test_k_is_filled_from_below() -> None:
    rows = [said(number, "I like tea") for number in range(10)]
    found = collapsed(*rows, said(10, "I like coffee"), said(11, "I run"), k=3)

    assert texts(found) == ["I like tea", "I like coffee", "I run"]


def test_no_row_beyond_the_last_result_counts() -> None:
    assert collapsed(said(1, "I run"), said(2, "I like tea"), said(3, "I run"), k=1).duplicates == 0


def test_at_most_twenty_ids_are_named_and_all_counted() -> None:
    (found,) = collapsed(*(said(number, "I like tea") for number in range(31))).recalled

    assert len(found.also) == MOST_ALSO == 20
    assert found.why["also"] == 30


def test_of_equals_an_item_stands_before_a_turn_and_the_newer_before_the_older() -> None:
    old, new = said(1, "I like tea"), said(2, "I like tea", at=NOW + timedelta(days=1))

    assert [each.id for each in collapsed(old, new).recalled] == ["turn_2"]
    assert [each.id for each in collapsed(new, old).recalled] == ["turn_2"]
    (found,) = collapsed(old, item("I like tea"), new).recalled
    assert (found.id, found.also) == ("item_1", ("turn_1", "turn_2"))


def test_no_row_of_a_lower_tier_speaks_for_one_of_a_higher() -> None:
    echo = said(2, "You like tea", role="assistant", tier="assistant", at=NOW + timedelta(days=1))
    guess = item("Like tea", tier="imported")

    (found,) = collapsed(echo, guess, said(1, "I like tea", tier="said")).recalled
    assert (found.id, found.also) == ("turn_1", ("turn_2", "item_1"))


def test_two_people_who_say_the_same_say_it_of_themselves() -> None:
    found = collapsed(said(1, "I like tea", speaker="Ana"), said(2, "I like tea", speaker="Bo"))

    assert len(found.recalled) == 2
    assert len(collapsed(said(1, "I run", speaker="Ana"), said(2, "I run")).recalled) == 1


def test_the_same_words_beside_two_images_are_two_things() -> None:
    found = collapsed(said(1, "Look", caption="a frozen lake"), said(2, "Look", caption="a boat"))

    assert len(found.recalled) == 2


def test_a_turn_that_is_the_query_is_no_answer() -> None:
    rows = said(1, "where do I work"), said(2, "I work at Acme")

    found = collapsed(*rows, query="Where do I work?")
    assert (texts(found), found.echoes) == (["I work at Acme"], 1)
    assert len(collapsed(*rows, query="Where do I work?", echo=True).recalled) == 2


def test_an_item_that_is_the_query_is_an_answer() -> None:
    assert texts(collapsed(item("Prefers tabs"), query="prefers tabs")) == ["Prefers tabs"]


def test_bodies_alone_show_where_texts_need_to_be_compared() -> None:
    tea, coffee = row(0, "I like tea"), row(1, "I like coffee")
    long, other = row(2, LONG), row(3, LONG.replace("small", "little"))

    assert may_repeat([long, tea, other])
    assert not may_repeat([long, tea, coffee, row(4, ""), row(5, "")])
    assert may_repeat([tea], "tea")
    assert not may_repeat([tea], "coffee")
    assert not may_repeat([row(6, "I like tea", kind="fact")], "tea")


MINED = [
    row(0, "I finally moved to Lisbon with my cat", session="a"),
    row(1, "Lives in Lisbon with a cat since moving", kind="fact", cites=("turn_0000",)),
    row(2, "Lisbon is sunny", session="c"),
]


def test_of_an_item_and_the_turn_it_was_mined_from_only_the_item_stands() -> None:
    found = ranking(Postings(MINED), read("moved to Lisbon"), replace(search(k=2), reach=12))

    assert ids(found.found) == [1, 2]
    assert found.found[0].also == ("turn_0000",)
    assert found.suppressed["duplicate"] == 1


def test_an_item_of_a_lower_tier_stands_for_no_turn() -> None:
    guessed = [MINED[0], replace(MINED[1], tier="assistant"), MINED[2]]

    assert covers(Postings(MINED), 1, 0)
    assert not covers(Postings(guessed), 1, 0)


def test_a_turn_that_says_much_more_than_its_item_stands_too() -> None:
    much = f"I moved to Lisbon, and {LONG}"
    rows = [row(0, much, session="a"), *MINED[1:]]
    postings = Postings(rows)

    found = ranking(postings, read("moved Lisbon"), replace(search(k=3), reach=14))

    assert not covers(postings, 1, 0)
    assert set(ids(found.found)) == {0, 1, 2}


def test_where_only_turns_are_wanted_the_turn_stands() -> None:
    wanted = replace(search(k=3, what="turns"), reach=14)
    found = ranking(Postings(MINED), read("moved Lisbon"), wanted)

    assert 0 in ids(found.found)


def test_where_nothing_is_left_out_the_turn_stands_too() -> None:
    found = ranking(Postings(MINED), read("moved Lisbon"), search(k=3, min_relevance=0))

    assert set(ids(found.found)) == {0, 1, 2}


NOISY = [
    row(0, "Where is the lake house?", session="a", noise=True),
    row(1, "The lake house is in Graz", session="b"),
    row(2, "Lake house, lake house?", session="c", noise=True),
    row(3, "The lake is cold", session="d"),
]


def test_rows_that_are_no_statement_are_left_out_and_counted() -> None:
    found = ranking(Postings(NOISY), read("lake house"), search(k=5))

    assert ids(found.found) == [1, 3]
    assert found.found[0].similarity == 1
    assert found.suppressed == {"noise": 2}


def test_where_nothing_is_left_out_they_come_last() -> None:
    found = ranking(Postings(NOISY), read("lake house"), search(k=5, min_relevance=0))

    assert ids(found.found)[:2] == [1, 3]
    assert set(ids(found.found)) == {0, 1, 2, 3}
    assert found.suppressed == {}


def test_where_they_are_wanted_they_are_ranked_like_others() -> None:
    found = ranking(Postings(NOISY), read("lake house"), replace(search(k=5), noise=True))

    assert set(ids(found.found)) == {0, 1, 2, 3}


def test_however_many_ask_a_statement_is_a_candidate() -> None:
    asked = [row(seq, "lake house lake house?", session="a", noise=True) for seq in range(900)]
    rows = [*asked, row(900, "The lake house which we rented for the summer", session="b")]

    assert ids(ranking(Postings(rows), read("lake house"), search(k=5)).found) == [900]
