"""Related words: `dog` for `pet`, from the table that ships with the package."""

from typing import Any

import msgspec
import pytest
from contracts.longterm_items import memory_of, said, texts
from memories.longterm.spoken import ALONE, ask, ids, row

import holdfast
from holdfast.memories.longterm.recall.analyze import VERSION, analyze
from holdfast.memories.longterm.recall.index import Postings
from holdfast.memories.longterm.recall.query import (
    LEAST,
    MOST,
    chosen,
    related,
    version_of_table,
)
from holdfast.memories.longterm.recall.score import related_terms
from holdfast.memories.longterm.records import LongTermOptions, Ranked

DOG = ("My dog sleeps by the fire", "The train leaves at noon", "We had soup for dinner")
CHINESE = ("我喜欢喝绿茶", "火车中午出发", "我们晚饭喝了汤")


def recalled(rows: tuple[str, ...], query: str, **wanted: Any) -> list[Ranked]:
    """Return what is recalled of sentences, each of its own session."""
    return ask([row(seq, text, session=str(seq)) for seq, text in enumerate(rows)], query, **wanted)


def test_the_table_is_of_the_analyzer_in_use() -> None:
    assert version_of_table() == VERSION


def test_the_table_names_stems_nearest_first() -> None:
    near = related("pet")

    assert near[0] == ("dog", 0.74)
    assert len(near) <= MOST
    assert [share for _, share in near] == sorted((share for _, share in near), reverse=True)
    assert all(LEAST <= share < 1 for _, share in near)
    assert all(analyze(stem) for stem, _ in near)


def test_a_stem_that_the_table_lacks_has_no_related_ones() -> None:
    assert related("zzyzx") == related("茶") == ()


def test_a_row_that_has_only_a_related_word_is_found_and_says_so() -> None:
    (found,) = recalled(DOG, "Do I have a pet?")

    assert ids([found]) == [0]
    assert (found.why["terms"], found.why["related"]) == (["pet"], [["pet", "dog"]])
    assert str(found.why["text"]).startswith('matches "pet" by "dog"')
    assert recalled(DOG, "Do I have a pet?", related=False) == []


def test_a_turn_after_the_related_word_follows_it() -> None:
    rows = [row(0, "A dog came by"), row(1, "It was hungry"), row(2, "soup", session="b")]
    found = {each.id: each.why["text"] for each in ask(rows, "pet", min_relevance=0)}

    assert str(found["turn_0001"]).startswith('follows "pet" by "dog"')


def test_an_exact_word_beats_a_related_one_of_the_same_rarity() -> None:
    found = recalled(("A dog is asleep", "A pet is asleep", *DOG[1:]), "pet", weights=ALONE)

    assert ids(found) == [1, 0]
    assert found[0].why["related"] == []


def test_the_word_itself_and_a_related_one_count_once() -> None:
    both, one = "pet dog", "pet lamp"
    found = recalled((both, one, *DOG[1:]), "pet", weights=ALONE)

    assert [each.why["terms"] for each in found] == [["pet"], ["pet"]]
    assert found[0].score == found[1].score


def test_what_is_related_covers_less_of_the_query() -> None:
    exact, near = (
        recalled((text, *DOG[1:]), "pet", min_relevance=0)[0]
        for text in ("One pet and much else", "One dog and much else")
    )

    assert exact.relevance == 1
    assert near.relevance == pytest.approx(0.6 * 0.74)


def test_the_nearest_five_that_are_there_count() -> None:
    held = {stem for stem, _ in related("pet")[3:]}
    found = chosen("pet", lambda stem: stem in held)

    assert found == related("pet")[3:8]


def test_a_frequent_one_is_left_out_where_there_is_a_limit() -> None:
    rows = {stem: 100 for stem, _ in related("pet")}

    assert chosen("pet", rows.__getitem__, 99) == ()
    assert len(chosen("pet", rows.__getitem__, 100)) == 5


def test_a_word_that_no_row_has_lends_by_its_own_rarity() -> None:
    postings = Postings([row(seq, text) for seq, text in enumerate(DOG)])

    assert related_terms(postings, "pet") == (("dog", 0.74, pytest.approx(0.6 * 0.74)),)


def test_a_language_that_is_not_in_the_table_is_recalled_as_without_it() -> None:
    with_table, without = (
        recalled(CHINESE, "喜欢喝什么茶?", k=3, min_relevance=0, related=related)
        for related in (True, False)
    )

    assert with_table
    assert msgspec.json.encode(with_table) == msgspec.json.encode(without)


def test_they_are_off_where_rows_are_compared_by_meaning() -> None:
    on, off = (
        recalled(DOG, "a pet", cosines={"turn_0001": 0.9}, min_relevance=0, related=related)
        for related in (True, False)
    )

    assert ids(on) == [1]
    assert msgspec.json.encode(on) == msgspec.json.encode(off)


def test_a_collection_may_switch_them_off() -> None:
    with holdfast.open(":memory:") as hf:
        memory_of(hf, "ada").record([said(text) for text in DOG])
        off = memory_of(hf, "ada", options=LongTermOptions(related=False))

        assert texts(memory_of(hf, "ada").recall("Do I have a pet?"))[:1] == [DOG[0]]
        assert off.recall("Do I have a pet?") == []
