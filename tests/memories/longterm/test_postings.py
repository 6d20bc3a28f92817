"""Which rows hold a term, and how much each is about it."""

from math import isclose, log
from random import Random

import pytest
from memories.longterm.spoken import row, talk

from holdfast.memories.longterm.recall.index import Postings, Row, Statistics, is_machine


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
        asked=frozenset({"boat"}),
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
        asked=asked,
    )

    some = Postings(rows, given)

    for term in asked:
        assert some.weights(term) == whole.weights(term)
