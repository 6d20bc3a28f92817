"""Runs of every kind that are killed, and gone on with by another process."""

from pathlib import Path

import pytest
from runtime.lives import KINDS, Death, Life, killed, lived

import holdfast
from holdfast.testing.serving import new_workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"{new_workspace()}@{tmp_path / 'h.db'}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def lines(log: Path) -> list[str]:
    """Return what is in the log."""
    return log.read_text().splitlines() if log.exists() else []


def replies(log: Path) -> int:
    """Return how many replies of models are in the log."""
    return lines(log).count("reply")


@pytest.mark.parametrize("kind", [each for each in KINDS if each != "team"])
async def test_killed_at_its_second_request_another_process_asks_nothing_again(
    kind: str, sqlite: str, log: Path
) -> None:
    _, result, requests = KINDS[kind]
    killed(kind, sqlite, Life(log, Death("request", 2)))
    assert replies(log) == 1

    assert await lived(kind, sqlite, Life(log)) == result

    assert replies(log) == requests


@pytest.mark.parametrize("kind", ["step", "plan", "workflow", "team", "network", "agent"])
async def test_a_run_is_gone_on_with_from_files(kind: str, tmp_path: Path, log: Path) -> None:
    target = f"files:{tmp_path / 'kept'}"
    killed(kind, target, Life(log, Death("request", 2)))
    before = replies(log)

    assert await lived(kind, target, Life(log)) == KINDS[kind][1]

    assert before == 1
    if KINDS[kind][2]:
        assert replies(log) == KINDS[kind][2]


@pytest.mark.parametrize("kind", ["step", "agent"])
async def test_killed_inside_a_tool_its_reply_is_not_requested_again(
    kind: str, sqlite: str, log: Path
) -> None:
    killed(kind, sqlite, Life(log, Death("tool", 1)))
    assert replies(log) == 1

    assert await lived(kind, sqlite, Life(log)) == "done"

    assert lines(log) == ["reply", "dies", "look", "reply"]


async def test_a_function_of_a_workflow_that_is_complete_is_not_called_again(
    sqlite: str, log: Path
) -> None:
    killed("workflow", sqlite, Life(log, Death("request", 1)))

    assert await lived("workflow", sqlite, Life(log)) == "done"

    assert lines(log).count("node") == 1


async def test_a_decision_of_a_router_is_not_made_again_for_the_agent_that_was_cut_off(
    sqlite: str, log: Path
) -> None:
    killed("network", sqlite, Life(log, Death("request", 2)))

    await lived("network", sqlite, Life(log))

    assert lines(log).count("route") == 4


@pytest.mark.parametrize("dies_at", [1, 2, 3, 4])
async def test_a_team_goes_on_with_its_board_and_the_turn_that_was_cut_off(
    sqlite: str, log: Path, tmp_path: Path, dies_at: int
) -> None:
    whole = tmp_path / "whole"
    await lived("team", f"{new_workspace()}@{tmp_path / 'other.db'}", Life(whole))
    killed("team", sqlite, Life(log, Death("request", dies_at)))
    assert replies(log) == dies_at - 1

    assert await lived("team", sqlite, Life(log)) == ["Count", "Report"]

    assert replies(log) == replies(whole)


async def test_a_run_that_is_killed_and_gone_on_with_has_one_end_and_one_record(
    sqlite: str, log: Path
) -> None:
    killed("task", sqlite, Life(log, Death("request", 2)))

    await lived("task", sqlite, Life(log))

    workspace, _, database = sqlite.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        told = [event.type for event in hf.runs.follow("run_1")]
        run = hf.runs.retrieve("run_1")
    assert told.count("run.completed") == 1
    assert told.index("run.taken_over") < told.index("run.resumed") < told.index("run.completed")
    assert told.count("version.kept") >= 3
    assert (run.status, run.fence) == ("completed", 2)
