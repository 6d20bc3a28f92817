"""A process that is killed while it runs a plan, and another that goes on with it."""

import multiprocessing
import signal
from pathlib import Path

import pytest
from runtime.plans.dying import run, run_until
from runtime.plans.workers import Workers

from holdfast.testing.serving import new_workspace

FORKED = multiprocessing.get_context("forkserver")
FORKED.set_forkserver_preload(
    ["holdfast.testing.scripted", "holdfast.runtime.plans.executor", "holdfast.library.open"]
)
STEPS = ["list", "e0", "e1", "sum", "b1"]

pytestmark = pytest.mark.anyio


@pytest.fixture(params=["files", "sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give where the run is kept."""
    match request.param:
        case "files":
            return f"files:{tmp_path}"
        case "sqlite":
            return f"{new_workspace()}@{tmp_path / 'h.db'}"
        case _:
            return f"{new_workspace()}@{request.getfixturevalue('postgres_url')}"


def kill_at(target: str, where: str) -> None:
    """Run the plan in another process that is killed when *where* is begun."""
    process = FORKED.Process(target=run_until, args=(target, where))
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


@pytest.mark.parametrize("where", STEPS)
async def test_killed_in_any_step_no_completed_one_is_done_again(target: str, where: str) -> None:
    kill_at(target, where)
    workers = Workers()

    assert await run(target, workers) == "done b1"

    # An item of a fan-out is kept as soon as can be, a step before anything that needs it.
    surely = STEPS.index("e0" if where in ("e0", "e1") else where)
    assert workers.began in (STEPS[STEPS.index(where) :], STEPS[surely:])


async def test_killed_twice_it_is_still_gone_on_with(target: str) -> None:
    kill_at(target, "e0")
    kill_at(target, "b1")
    workers = Workers()

    assert await run(target, workers) == "done b1"

    assert workers.began == ["b1"]
