"""Commands for questions of runs, in this process and in others."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from contracts.questions import come_to_rest
from doors.cli.lines import Run

import holdfast
from holdfast.library.holdfast import Holdfast


@pytest.fixture
def hf(db: str) -> Iterator[Holdfast]:
    with holdfast.open(db) as hf:
        yield hf


def test_open_questions_are_listed_of_all_runs_or_of_one(hf: Holdfast, run: Run) -> None:
    (first,) = come_to_rest(hf.runs.context, {"text": "Which\x1b[31m?", "who": "user:anna"})
    (second,) = come_to_rest(hf.runs.context, run="run_2")

    assert run("runs", "questions").data == [second.export(), first.export()]
    assert run("runs", "questions", "--run", "run_1").data == [first.export()]
    assert run("runs", "questions", "--run", "run_3").data == []


def test_a_question_is_answered_with_text_json_yes_or_no(hf: Holdfast, run: Run) -> None:
    asked = come_to_rest(
        hf.runs.context, {}, {"schema": {"type": "integer"}}, *[{"kind": "approval"}] * 2
    )
    options = (("--text", "7"), ("--value", "7"), ("--approve",), ("--deny", "--note", "too deep"))

    answers = [
        run("runs", "answer", "run_1", each.id, *given).json
        for each, given in zip(asked, options, strict=True)
    ]

    assert [each["answer"] for each in answers] == ["7", 7, True, False]
    assert answers[-1]["note"] == "too deep"
    assert answers[0]["answered_by"].startswith("user:")
    assert run("runs", "show", "run_1").json["status"] == "queued"


def test_the_only_open_question_needs_no_name(hf: Holdfast, run: Run, fails: Run) -> None:
    come_to_rest(hf.runs.context, {}, {})

    assert "has 2 open" in fails("runs", "answer", "run_1", "--text", "7").err
    first = run("runs", "questions").data[0]["id"]
    run("runs", "answer", "run_1", first, "--text", "7")
    assert run("runs", "answer", "run_1", "--text", "8").json["answer"] == "8"


@pytest.mark.parametrize(
    "given", [[], ["--approve", "--deny"], ["--text", "7", "--value", "7"], ["--value", "{"]]
)
def test_an_answer_is_one_value(hf: Holdfast, line: Run, db: str, given: list[str]) -> None:
    come_to_rest(hf.runs.context)

    ran = line("runs", "answer", "run_1", *given, "--db", db)

    assert ran.code in {1, 2}
    assert (ran.out, len(hf.runs.questions())) == (b"", 1)


def test_another_answer_says_who_gave_the_first(hf: Holdfast, fails: Run) -> None:
    come_to_rest(hf.runs.context)
    hf.runs.answer("run_1", "7", by="user:anna")

    assert "was answered by user:anna" in fails("runs", "answer", "run_1", "--text", "8").err


def test_a_waiting_run_is_answered_from_another_process(hf: Holdfast, db: str) -> None:
    (asked,) = come_to_rest(hf.runs.context)
    command = [sys.executable, "-m", "holdfast.doors.cli.main", "runs", "answer", "run_1"]

    subprocess.run([*command, "--text", "7", "--db", db], check=True, timeout=60)

    assert hf.runs.question(asked.id).answer == "7"
    assert hf.runs.retrieve("run_1").status == "queued"
