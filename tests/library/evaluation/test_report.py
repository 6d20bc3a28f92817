"""What an evaluation prints: its shape, and what is counted where."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.library.evaluation import (
    SampleFile,
    evaluate,
    foreign_questions,
    read,
    remembered,
    report,
)

OVERALL = [
    "n", "recall@1", "recall@5", "recall@10", "recall@20", "recall@50",
    "any@10", "all@10", "ndcg@10", "mrr",
]  # fmt: skip


def told(subject: str) -> dict[str, Any]:
    texts = [f"I bought a {subject} yesterday", "Lovely!", "We had soup", f"The {subject} broke"]
    return {
        "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [
            {"speaker": "Ana", "dia_id": f"D1:{number}", "text": text}
            for number, text in enumerate(texts, 1)
        ],
    }


def sample(subject: str) -> dict[str, Any]:
    qa: list[dict[str, Any]] = [
        {"question": f"Who bought the {subject}?", "evidence": ["D1:1"], "category": 1},
        {"question": "What was for dinner, soup?", "evidence": ["D1:3"], "category": 2},
        {"question": f"Why did the {subject} sing?", "evidence": ["D1:4"], "category": 5},
        {"question": "Who?", "evidence": [], "category": 1},
    ]
    return {"sample_id": subject, "conversation": told(subject), "qa": qa}


@pytest.fixture
def given(tmp_path: Path) -> SampleFile:
    path = tmp_path / "file.json"
    path.write_text(json.dumps([sample("kettle"), sample("bicycle")]))
    return read(path)


def measured(given: SampleFile, k: int | None = None) -> dict[str, Any]:
    ticks = iter(range(1_000))
    outcome = evaluate(
        given,
        remembered,
        k=k or 1,
        watch=lambda: next(ticks) / 1_000,
        progress=lambda _: None,
    )
    return report(given, outcome, k=k, version="1.2.3")


def test_the_report_has_these_keys_in_this_order(given: SampleFile) -> None:
    found = measured(given)

    assert list(found) == [
        "file", "sha256", "version", "mode", "conversations", "turns", "questions", "skipped",
        "overall", "categories", "by_conversation", "as_shipped", "foreign", "off_topic", "noise",
        "baseline", "ms",
    ]  # fmt: skip
    assert list(found["overall"]) == OVERALL
    assert list(found["as_shipped"]) == [*OVERALL, "empty"]
    assert {name: list(each) for name, each in found["categories"].items()} == {
        "1": OVERALL,
        "2": OVERALL,
        "5": OVERALL,
    }
    assert list(found["by_conversation"][0]) == ["sample_id", "n", "recall@10"]
    assert list(found["foreign"]) == ["n", "empty"]
    assert list(found["off_topic"]) == ["n", "empty", "rows"]
    assert list(found["noise"]) == ["turns", "share"]
    assert list(found["baseline"]) == ["recall@5", "recall@10", "mrr"]
    assert list(found["ms"]) == ["insert", "query_p50", "query_p95"]


def test_what_is_counted(given: SampleFile) -> None:
    found = measured(given)

    assert (found["conversations"], found["turns"]) == (2, 8)
    assert (found["questions"], found["skipped"]) == (6, 2)
    assert (found["mode"], found["version"]) == ("lexical", "1.2.3")


def test_what_cannot_be_answered_stands_apart(given: SampleFile) -> None:
    found = measured(given)

    assert found["overall"]["n"] == 4
    assert found["as_shipped"]["n"] == 4
    assert found["categories"]["5"]["n"] == 2
    assert [each["n"] for each in found["by_conversation"]] == [2, 2]


def test_what_is_asked_for_is_found(given: SampleFile) -> None:
    found = measured(given)

    assert found["overall"]["recall@10"] == 1
    assert found["by_conversation"] == [
        {"sample_id": "kettle", "n": 2, "recall@10": 1},
        {"sample_id": "bicycle", "n": 2, "recall@10": 1},
    ]


def test_every_ninth_question_of_each_other_conversation_is_asked_here(given: SampleFile) -> None:
    found = measured(given)

    assert found["foreign"]["n"] == 2


def test_each_message_off_the_topic_is_asked_of_each_conversation(given: SampleFile) -> None:
    found = measured(given)

    assert found["off_topic"] == {"n": 120, "empty": 1, "rows": 0}


def test_turns_that_are_no_statement_are_counted(given: SampleFile) -> None:
    assert measured(given)["noise"] == {"turns": 2, "share": 0.25}


def test_of_very_many_foreign_questions_some_are_asked(given: SampleFile) -> None:
    every, some = foreign_questions(given, 100), foreign_questions(given, 1)

    assert [list(every(0)), list(every(1))] == [
        ["Who bought the bicycle?"],
        ["Who bought the kettle?"],
    ]
    assert len([*some(0), *some(1)]) == 1


def test_a_depth_of_ones_own_is_shown_with_the_others(given: SampleFile) -> None:
    found = measured(given, k=70)

    assert found["overall"]["recall@70"] == 1
    assert "recall@70" in found["as_shipped"]
    assert "recall@70" not in found["baseline"]


def test_times_are_milliseconds_a_turn_and_a_question(given: SampleFile) -> None:
    assert measured(given)["ms"] == {"insert": 0.25, "query_p50": 1.0, "query_p95": 1.0}


def test_nothing_to_ask_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("[]")

    assert measured(read(path))["overall"]["n"] == 0
