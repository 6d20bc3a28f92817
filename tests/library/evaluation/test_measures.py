"""What a ranking is worth."""

from math import log2

import pytest

from holdfast.library.evaluation import LocomoOutcome, LocomoQuestion, answered, figures


def answer(*ranking: int, evidence: tuple[int, ...] = (1,)) -> LocomoOutcome:
    asked = LocomoQuestion(question="?", evidence=frozenset((1, n) for n in evidence), category="1")
    return answered(0, asked, [(1, n) for n in ranking])


def test_recall_is_the_share_of_the_evidence_that_is_shown() -> None:
    found = figures([answer(1, 9, 8, 7, 6, 2, evidence=(1, 2, 3, 4))])

    assert (found["recall@1"], found["recall@5"], found["recall@10"]) == (0.25, 0.25, 0.5)


def test_any_and_all_are_about_the_first_ten() -> None:
    one = answer(1, *range(10, 20), 2, evidence=(1, 2))
    found = figures([one, answer(1)])

    assert (found["any@10"], found["all@10"]) == (1, 0.5)


def test_the_first_piece_of_evidence_counts_by_its_rank_down_to_fifty() -> None:
    deep = answer(*range(2, 51), 1)
    deeper = answer(*range(2, 52), 1)

    assert figures([answer(5, 1)])["mrr"] == 0.5
    assert figures([deep])["mrr"] == 0.02
    assert figures([deeper])["mrr"] == 0


def test_gain_is_discounted_and_a_share_of_the_best_possible() -> None:
    found = figures([answer(9, 1, 2, evidence=(1, 2))])

    gained = 1 / log2(3) + 1 / log2(4)
    assert found["ndcg@10"] == round(gained / (1 + 1 / log2(3)), 4)


def test_a_turn_that_is_recalled_twice_counts_once() -> None:
    assert figures([answer(1, 1, evidence=(1, 2))])["recall@10"] == 0.5


def test_questions_count_alike() -> None:
    assert figures([answer(1), answer(2), answer(3)])["recall@10"] == pytest.approx(1 / 3, abs=1e-4)


def test_another_depth_is_shown_when_asked_for() -> None:
    assert "recall@7" in figures([answer(1)], 7)
    assert figures([answer(1)], 5) == figures([answer(1)])


def test_of_no_questions_all_figures_are_nothing() -> None:
    assert set(figures([]).values()) == {0}
