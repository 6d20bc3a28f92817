"""`holdfast eval locomo`: recall measured on a file, with no database and no network."""

import json
from pathlib import Path

import pytest
from doors.cli.lines import Run

TOLD = {
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ana", "dia_id": "D1:1", "text": "I bought a kettle yesterday"},
        {"speaker": "Bo", "dia_id": "D1:2", "text": "Lovely!"},
    ],
}
QA = [{"question": "What did Ana buy, a kettle?", "evidence": ["D1:1"], "category": 4}]


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps([{"sample_id": "c1", "conversation": TOLD, "qa": QA}]))
    return str(path)


def test_it_prints_one_object(line: Run, file: str) -> None:
    ran = line("eval", "locomo", file, "--json")
    found = json.loads(ran.out)

    assert (ran.code, ran.err, ran.out.count(b"\n")) == (0, "", 1)
    assert (found["file"], found["turns"], found["questions"]) == (file, 2, 1)
    assert found["overall"]["recall@1"] == 1
    assert found["as_shipped"]["empty"] == 0


def test_a_depth_of_ones_own_can_be_asked_for(line: Run, file: str) -> None:
    found = json.loads(line("eval", "locomo", file, "--json", "--k", "3").out)

    assert found["overall"]["recall@3"] == 1


def test_a_terminal_shows_tables(line: Run, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)

    shown = line("eval", "locomo", file).out.decode()

    assert "recall@10" in shown
    assert "FTS5" in shown
    assert "c1" in shown
    assert "query p95, ms" in shown


def test_a_file_that_is_not_there_is_one_line(line: Run, tmp_path: Path) -> None:
    ran = line("eval", "locomo", str(tmp_path / "none.json"))

    assert (ran.code, ran.out) == (1, b"")
    assert ran.err.count("\n") == 1
    assert "none.json" in ran.err


def test_a_file_of_another_form_is_one_line(line: Run, tmp_path: Path) -> None:
    path = tmp_path / "other.json"
    path.write_text("{}")
    ran = line("eval", "locomo", str(path))

    assert (ran.code, ran.out) == (1, b"")
    assert "sample_id" in ran.err


def test_switched_off_is_said_in_one_line(
    line: Run, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_LTM_ENABLED", "off")
    ran = line("eval", "locomo", file)

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)
    assert "HOLDFAST_LTM_ENABLED" in ran.err


def test_a_depth_beyond_what_recall_gives_is_wrong_usage(line: Run, file: str) -> None:
    assert line("eval", "locomo", file, "--k", "101").code == 2
