"""Workers on DBOS: they keep the contract of workers, and hold limits over all machines."""

import asyncio
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contracts.stores import invalid
from contracts.worker import (
    GivenAWorker,
    Ledger,
    Made,
    OneNode,
    WorkerClaimContract,
    WorkerEngineContract,
    WorkerFailureContract,
    WorkerStartContract,
    WorkerStopContract,
    WorkerVersionContract,
    WorkerWaitContract,
    drain,
    workflow,
)
from dbos import DBOS, DBOSConfig

import holdfast
from holdfast.errors import Unsupported
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Agent, Definition, Network, RunStart, Worker, definition
from holdfast.runtime.plans.dbos import place_of, run_of, workflow_id
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import new_workspace

PACKAGE = Path(holdfast.__file__).parent


@pytest.fixture(scope="module", autouse=True)
def application(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Launch a DBOS as an application does, with which workers register."""
    config: DBOSConfig = {
        "name": "application",
        "system_database_url": f"sqlite:///{tmp_path_factory.mktemp('dbos') / 'system.db'}",
        "application_version": "7",
        "executor_id": "first",
        "log_level": "ERROR",
    }
    DBOS(config=config)
    DBOS.launch()
    yield
    DBOS.destroy()


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def embedded(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture
def hf(embedded: Holdfast) -> Holdfast:
    return embedded.acting(workspace=new_workspace())


class OnDbos:
    """Fixtures of the contract of workers, with DBOS as their engine."""

    @pytest.fixture
    def made(self, here: Holdfast) -> Made:
        def make(*definitions: Definition | Network | Agent, **options: Any) -> Worker:
            options = {"concurrency": 1, "engine": "dbos", **options}
            return Worker(here, list(definitions), **options)

        return make


class TestStart(OnDbos, WorkerStartContract):
    pass


class TestClaim(OnDbos, WorkerClaimContract):
    pass


class TestVersion(OnDbos, WorkerVersionContract):
    pass


class TestFailure(OnDbos, WorkerFailureContract):
    pass


class TestStop(OnDbos, WorkerStopContract):
    pass


class TestWait(OnDbos, WorkerWaitContract):
    pass


class TestEngine(OnDbos, WorkerEngineContract):
    pass


async def settled(worker: Worker, hf: Holdfast, count: int) -> None:
    """Let *worker* look until *count* runs are over, and once more."""
    async with asyncio.timeout(60):
        while len(hf.runs.list("completed", limit=None)) < count:
            await worker.turn()
            await asyncio.sleep(0.01)
    await worker.turn()


class AtOnce:
    """A definition `counted`; how many of its runs were at work at once, by their metadata."""

    def __init__(self) -> None:
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    def definition(self) -> Definition:
        @definition("counted")
        def counted(start: RunStart) -> OneNode:
            async def work() -> None:
                for name in ("all", start.metadata.get("user", "-")):
                    self.now[name] += 1
                    self.most[name] = max(self.most[name], self.now[name])
                await asyncio.sleep(0.05)
                for name in ("all", start.metadata.get("user", "-")):
                    self.now[name] -= 1

            return workflow(start, work)

        return counted


class TestLimits(OnDbos, GivenAWorker):
    """Limits of a queue hold over all workers."""

    def start(self, hf: Holdfast, *users: str) -> None:
        for number, user in enumerate(users):
            metadata = {"user": user} if user else {}
            hf.runs.start("counted", run_id=f"run_{number}", queue=hf.workspace, metadata=metadata)

    def work(self, hf: Holdfast, made: Made, count: int, *, workers: int = 1) -> AtOnce:
        """Let *workers* work until *count* runs are over."""
        seen = AtOnce()

        async def work() -> None:
            every = [made(seen.definition(), concurrency=9) for _ in range(workers)]
            await asyncio.gather(*(settled(each, hf, count) for each in every))

        asyncio.run(work())
        return seen

    def test_no_more_runs_than_the_concurrency_are_at_work_in_all_workers(
        self, hf: Holdfast, here: Holdfast, made: Made
    ) -> None:
        self.start(hf, "", "", "", "")
        here.runs.configure_queue(hf.workspace, concurrency=1)

        assert self.work(hf, made, 4, workers=2).most["all"] == 1

    def test_without_a_limit_they_are_at_work_at_once(self, hf: Holdfast, made: Made) -> None:
        self.start(hf, "", "", "", "")

        assert self.work(hf, made, 4).most["all"] > 1

    def test_no_more_runs_than_the_rate_begin(
        self, hf: Holdfast, here: Holdfast, made: Made
    ) -> None:
        self.start(hf, "", "", "")
        here.runs.configure_queue(hf.workspace, rate=(2, 3600))

        self.work(hf, made, 2)

        assert [each.status for each in hf.runs.list(limit=None)].count("queued") == 1

    def test_a_partition_has_the_limit_for_itself(
        self, hf: Holdfast, here: Holdfast, made: Made
    ) -> None:
        self.start(hf, "ada", "ada", "bob", "bob")
        here.runs.configure_queue(hf.workspace, concurrency=1, partition="user")

        seen = self.work(hf, made, 4)

        assert (seen.most["ada"], seen.most["bob"]) == (1, 1)
        assert seen.most["all"] == 2
        rows = DBOS.list_workflows(workflow_id_prefix=hf.workspace)
        parts = {each.queue_partition_key for each in rows}
        assert len(parts) == 2
        assert not parts & {"ada", "bob", None}

    def test_the_own_engine_refuses_a_limit_over_all_machines(
        self, here: Holdfast, ledger: Ledger
    ) -> None:
        worker = Worker(here, ledger.definition())
        here.runs.configure_queue("narrow", concurrency=1)

        with pytest.raises(Unsupported, match="narrow"):
            asyncio.run(worker.work())
        with pytest.raises(Unsupported):
            asyncio.run(worker.turn())

    def test_an_unknown_engine_is_refused(self, here: Holdfast, ledger: Ledger) -> None:
        engine: Any = "temporal"
        with invalid("engine"):
            Worker(here, ledger.definition(), engine=engine)


class TestRows(OnDbos, GivenAWorker):
    """DBOS stores ids and numbers of a run, as long as there is the run."""

    def test_a_workflow_has_the_ids_of_its_run_and_no_content(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", {"secret": "kelp"}, run_id="run_1", metadata={"ticket": "42"})
        drain(made(ledger.definition()))

        (found,) = DBOS.list_workflows(workflow_ids=[workflow_id(hf.workspace, "run_1")])
        assert found.input is not None
        assert (found.input["args"], found.input["kwargs"]) == ((hf.workspace, "run_1"), {})
        assert found.output == {
            "status": "completed",
            "version": hf.runs.retrieve("run_1").versions,
        }
        assert found.priority == 6

    def test_the_workflow_of_a_run_of_the_default_workspace_has_its_id(self) -> None:
        assert workflow_id("default", "run_1") == "run_1"
        assert run_of("run_1") == ("default", "run_1")
        assert run_of(workflow_id("other", "run_1")) == ("other", "run_1")

    def test_the_workflow_of_a_run_that_is_deleted_is_deleted(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        for run_id in ("run_1", "run_2"):
            hf.runs.start("report", run_id=run_id)
        drain(made(ledger.definition()))
        hf.runs.delete("run_1")

        asyncio.run(made(ledger.definition()).turn())

        found = DBOS.list_workflows(workflow_id_prefix=hf.workspace)
        assert [each.workflow_id for each in found] == [workflow_id(hf.workspace, "run_2")]

    def test_a_workflow_that_was_cancelled_there_runs_all_the_same(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        worker = made(ledger.definition())
        asyncio.run(worker.turn())
        DBOS.cancel_workflow(workflow_id(hf.workspace, "run_1"))

        drain(worker)

        assert hf.runs.retrieve("run_1").status == "completed"

    def test_a_database_in_memory_needs_a_dbos_of_the_application(self, here: Holdfast) -> None:
        with pytest.raises(Unsupported, match="memory"):
            place_of(here)


IMPORTING = """
import sys
import holdfast
from holdfast.errors import MissingExtra
from holdfast.runtime import *
from holdfast.runtime import Worker

hf = holdfast.open(":memory:")
Worker(hf, [])
print([each for each in ("dbos", "sqlalchemy") if each in sys.modules])

sys.modules["dbos"] = None
try:
    Worker(hf, [], engine="dbos")
except MissingExtra as error:
    print(error.extra, error.command)
"""


@pytest.fixture(scope="module")
def said() -> list[str]:
    """Give the lines of a process of its own: what it imported, and the error without DBOS."""
    command = [sys.executable, "-c", IMPORTING]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_error_without_dbos_names_the_extra_and_the_command(said: list[str]) -> None:
    assert said[1:] == ["durable-runs pip install 'holdfast[durable-runs]'"]


def test_dbos_is_imported_for_its_engine_alone(said: list[str]) -> None:
    assert said[0] == "[]"
    found = [
        str(each.relative_to(PACKAGE))
        for each in PACKAGE.rglob("*.py")
        if re.search(r"^\s*(from|import) dbos\b", each.read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert found == ["runtime/plans/dbos.py"]
