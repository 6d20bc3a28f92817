"""Runs through a server: a remote handle is a place for them as good as a database."""

from pathlib import Path

import pytest
from runtime.lives import KINDS, Life, lived
from runtime.test_lives import killed, replies

import holdfast
from holdfast.testing.serving import Server, new_workspace

pytestmark = pytest.mark.anyio


@pytest.fixture
def target(server: Server) -> str:
    return f"{new_workspace()}@{server.url}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


async def test_a_plan_of_six_tasks_killed_three_times_asks_for_each_once(
    target: str, log: Path
) -> None:
    for done in (1, 2, 3):
        killed("plan", target, log, 2)
        assert replies(log) == done

    assert await lived("plan", target, Life(log)) == "done"

    assert replies(log) == 6
    workspace, _, url = target.partition("@")
    with holdfast.open(url, workspace=workspace) as hf:
        emitted = [event.type for event in hf.runs.follow("run_1")]
        run = hf.runs.retrieve("run_1")
    assert emitted.count("run.completed") == 1
    assert emitted.count("run.taken_over") == 3
    assert (run.status, run.fence) == ("completed", 4)


@pytest.mark.parametrize("kind", ["workflow", "network", "agent"])
async def test_killed_at_its_second_request_another_process_asks_nothing_again(
    kind: str, target: str, log: Path
) -> None:
    _, result, requests = KINDS[kind]
    killed(kind, target, log, 2)
    assert replies(log) == 1

    assert await lived(kind, target, Life(log)) == result

    assert replies(log) == requests
