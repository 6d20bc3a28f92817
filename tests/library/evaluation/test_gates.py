"""What recall must reach on the conversations that it was set on, as docs/recall.md says.

The file is not of this repository: HOLDFAST_LOCOMO is its path.
"""

import os
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

from holdfast.library.evaluation import evaluate, read, remembered, report

pytestmark = pytest.mark.locomo

LEAST = {
    "recall@5": 0.735,
    "recall@10": 0.800,
    "recall@20": 0.850,
    "mrr": 0.635,
    "all@10": 0.740,
}


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    sample = read(Path(os.environ["HOLDFAST_LOCOMO"]))
    outcome = evaluate(sample, remembered, k=1, watch=perf_counter, progress=lambda _: None)
    return report(sample, outcome, k=None, version="")


@pytest.mark.parametrize("measure", LEAST)
def test_recall_by_words_reaches_its_figures(found: dict[str, Any], measure: str) -> None:
    assert found["overall"][measure] >= LEAST[measure]


def test_what_cannot_be_answered_as_asked_is_found_too(found: dict[str, Any]) -> None:
    assert found["categories"]["5"]["recall@10"] >= 0.845


def test_as_shipped_it_loses_little(found: dict[str, Any]) -> None:
    assert found["as_shipped"]["recall@10"] >= 0.750
    assert found["as_shipped"]["empty"] <= 0.03


def test_what_belongs_elsewhere_has_no_answer(found: dict[str, Any]) -> None:
    assert found["foreign"]["empty"] >= 0.55
    assert found["off_topic"]["empty"] >= 0.85


def test_it_is_far_above_plain_full_text(found: dict[str, Any]) -> None:
    assert found["overall"]["recall@10"] >= found["baseline"]["recall@10"] + 0.12
