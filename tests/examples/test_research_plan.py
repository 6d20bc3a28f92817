"""The example of two pieces of research and a report, run as it stands."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "research_plan.py"
VALUES = ("rises 4.2 m", "31 berths")


@pytest.fixture(scope="module")
def shown() -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def after(shown: str, start: str) -> str:
    """Return what the trace shows from *start* to the next thing."""
    return shown[shown.index(start) :].partition("\n[")[0].partition("\n\nFor skippers")[0]


def test_the_report_waits_for_both_pieces_of_research(shown: str) -> None:
    finishes = [shown.index(f"[Look up {each}] calls finish_step") for each in ("tides", "berths")]

    assert max(finishes) < shown.index("[Write a note] is told")


@pytest.mark.parametrize("start", ["[Write a note] is told", "[Write a note] memory_list gives"])
def test_what_is_there_is_told_without_its_values(shown: str, start: str) -> None:
    told = after(shown, start)

    assert "task:tides" in told
    assert "task:berths" in told
    assert not any(value in told for value in VALUES)


def test_values_are_there_once_they_are_read(shown: str) -> None:
    told = after(shown, "[Write a note] memory_read gives")

    assert all(value in told for value in VALUES)


def test_the_result_is_shown_with_what_became_of_each_task(shown: str) -> None:
    result = shown[shown.index("\nFor skippers: ") :]

    assert all(value in result for value in VALUES)
    assert result.count("completed") >= 3
