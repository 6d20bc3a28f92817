"""Runs under DBOS whose processes are killed, and that wait: each goes on in another process."""

import asyncio
import json
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import processes
import pytest
from contracts.worker import harbour
from runtime.lives import KINDS, Death, Life, watch
from sqlalchemy import create_engine, text

import holdfast
from holdfast.doors.cli.main import main
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.doctor import Check, has_dbos
from holdfast.runtime import Agent, Definition, RunStart, Worker, definition
from holdfast.runtime.plans.dbos import check_dbos, place_of
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import ScriptedModel
from holdfast.testing.serving import new_workspace

LONG = timedelta(seconds=61)
"""Longer than a lease."""


class Lived:
    """A run of a kind, in the context of its start."""

    def __init__(self, kind: str, start: RunStart, life: Life) -> None:
        self._execute, self._start, self._life = KINDS[kind][0], start, life

    async def run(self) -> object:
        """Run it, or go on with it."""

        def within(model: ScriptedModel) -> dict[str, Any]:
            self._start.context.model = model
            return {"context": self._start.context, "checkpoint": None}

        return await self._execute(within, self._life)


def living(kind: str, life: Life) -> Definition:
    """Return the definition `life` of a run of *kind*."""

    @definition("life")
    def build(start: RunStart) -> Lived:
        return Lived(kind, start, life)

    return build


def opened(target: str, lives: int) -> Holdfast:
    """Open the database of *target*, so late that the leases of *lives* processes ran out."""
    workspace, _, database = target.partition("@")
    clock = FrozenClock(SystemClock().now() + lives * LONG)
    return holdfast.open(database, workspace=workspace, clock=clock)


async def worked(hf: Holdfast, done: Callable[[], object], *definitions: Any) -> None:
    """Let a worker on DBOS work until *done* returns."""
    worker = Worker(hf, list(definitions), engine="dbos")
    working = asyncio.create_task(worker.work())
    async with asyncio.timeout(90):
        await asyncio.to_thread(done)
    worker.stop()
    await working


def over(hf: Holdfast) -> Callable[[], object]:
    """Return what waits until `run_1` has ended."""
    return lambda: list(hf.runs.follow("run_1"))


def lived(kind: str, target: str, lives: int, life: Life) -> None:
    """Work on `run_1` until it is over, after *lives* other processes."""
    with opened(target, lives) as hf:
        life.store_in(hf)
        asyncio.run(worked(hf, over(hf), living(kind, life)))


def live(kind: str, target: str, lives: int, life: Life) -> None:
    """Do `lived` in this process, and pass by each version once it is stored."""
    watch(life)
    lived(kind, target, lives, life)


def begun(kind: str, target: str, lives: int, life: Life) -> ForkServerProcess:
    """Begin *life* in another process."""
    return processes.begun(live, kind, target, lives, life)


def killed(kind: str, target: str, lives: int, life: Life) -> None:
    """Let *life* be lived in another process, which kills itself."""
    process = begun(kind, target, lives, life)
    process.join(120)
    assert process.exitcode == -signal.SIGKILL


def replies(log: Path) -> int:
    """Return how many replies of models are in the log."""
    return log.read_text().splitlines().count("reply") if log.exists() else 0


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"{new_workspace()}@{tmp_path / 'h.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite: str) -> str:
    if request.param == "sqlite":
        return sqlite
    return f"{new_workspace()}@{request.getfixturevalue('fresh_postgres_url')}"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_a_plan_killed_three_times_goes_on_elsewhere_and_does_each_step_once(
    target: str, log: Path
) -> None:
    with opened(target, 0) as hf:
        hf.runs.start("life", run_id="run_1")
    for lives in range(3):
        killed("plan", target, lives, Life(log, Death("request", 2)))
        assert replies(log) == lives + 1

    with opened(target, 3) as hf:
        asyncio.run(worked(hf, over(hf), living("plan", Life(log))))
        run = hf.runs.retrieve("run_1")
        types = [each.type for each in hf.runs.follow("run_1")]
        parts = {each.id: each.state for each in hf.runs.parts("run_1") if each.kind == "step"}

    assert (run.status, run.reason, run.fence) == ("completed", "done", 4)
    assert replies(log) == 6
    assert list(parts.values()) == ["completed"] * 6
    assert types.count("run.lost") == types.count("run.resumed") == 3
    assert types.count("run.completed") == 1


@pytest.mark.parametrize("kind", ["workflow", "network", "agent"])
def test_other_kinds_that_are_killed_ask_nothing_again(kind: str, sqlite: str, log: Path) -> None:
    with opened(sqlite, 0) as hf:
        hf.runs.start("life", run_id="run_1")
    killed(kind, sqlite, 0, Life(log, Death("request", 2)))
    assert replies(log) == 1

    with opened(sqlite, 1) as hf:
        asyncio.run(worked(hf, over(hf), living(kind, Life(log))))
        run = hf.runs.retrieve("run_1")

    assert (run.status, run.kind) == ("completed", kind)
    assert replies(log) == KINDS[kind][2]


def test_a_run_that_is_answered_while_no_worker_runs_goes_on(target: str) -> None:
    with opened(target, 0) as hf:
        hf.runs.start("harbour", run_id="run_1")
        rests = list[str]()

        def resting() -> None:
            rests.extend(each.type for each in hf.runs.follow("run_1", rest=True))

        asyncio.run(worked(hf, resting, harbour("plan")))
        assert hf.runs.retrieve("run_1").status == "waiting"

        hf.runs.answer("run_1", "7")
        assert hf.runs.retrieve("run_1").status == "queued"
        asyncio.run(worked(hf, over(hf), harbour("plan")))
        run = hf.runs.retrieve("run_1")

    assert rests[-1] == "run.waiting"
    assert (run.status, run.fence) == ("completed", 2)


@pytest.fixture
def worked_on(target: str) -> Iterator[Holdfast]:
    """Give a handle on a database with the ended runs `run_1` and `run_2`, done on DBOS."""
    with opened(target, 0) as hf:
        for run_id in ("run_1", "run_2"):
            hf.runs.start("ada", "Hi?", run_id=run_id)

        def both() -> None:
            for run_id in ("run_1", "run_2"):
                list(hf.runs.follow(run_id))

        ada = Agent("ada", instructions="", model=ScriptedModel(lambda _: "Hello."))
        asyncio.run(worked(hf, both, ada))
        yield hf


def meddle(hf: Holdfast, statement: str) -> None:
    """Run *statement* in DBOS's tables for *hf*."""
    engine = create_engine(place_of(hf).replace("postgresql://", "postgresql+psycopg://"))
    schema = "" if engine.dialect.name == "sqlite" else "dbos."
    with engine.begin() as connection:
        connection.execute(text(statement.replace("workflow_status", schema + "workflow_status")))
    engine.dispose()


LONG_AGO = "update workflow_status set updated_at = 1"


def test_the_doctor_compares_runs_with_dbos(worked_on: Holdfast) -> None:
    hf = worked_on
    assert has_dbos(hf)
    meddle(hf, LONG_AGO)
    assert check_dbos(hf) == Check("runs on DBOS", True, "2 workflows agree with their runs")

    hf.runs.delete("run_1")
    meddle(hf, f"{LONG_AGO}, status = 'PENDING' where workflow_uuid like '%run_2'")

    found = check_dbos(hf)
    assert not found.ok
    assert found.says.startswith("1 active, of runs that are completed; 1 of runs that are gone;")


def test_the_doctor_says_nothing_of_dbos_where_it_has_no_tables(target: str) -> None:
    with opened(target, 0) as hf:
        assert not has_dbos(hf)


def test_the_command_doctor_names_what_differs(
    sqlite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace, _, database = sqlite.partition("@")
    with holdfast.open(database, workspace=workspace) as hf:
        ada = Agent("ada", instructions="", model=ScriptedModel(["Hello."]))
        hf.runs.start("ada", "Hi?", run_id="run_1")
        asyncio.run(worked(hf, over(hf), ada))
        hf.runs.delete("run_1")
        meddle(hf, LONG_AGO)

    code = main(["doctor", "--db", database, "--json"])

    (check,) = [
        each
        for each in json.loads(capsys.readouterr().out)["data"]
        if each["name"] == "runs on DBOS"
    ]
    assert (code, check["ok"]) == (1, False)
    assert check["says"].startswith("1 of runs that are gone")
