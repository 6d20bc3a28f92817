"""Faults at each statement of a write of runs: a fact is stored with its events, or neither."""

from collections.abc import Callable, Iterator
from typing import Any, LiteralString, cast

import apsw
import pytest
from memories.durable.faults import Failing, FailingPostgres, FailingSQLite, numbers_until
from msgspec import Struct

from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import Unavailable
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.versions import StateRow, VersionSave, save_version
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.lease import (
    ClaimTerms,
    KnownDefinition,
    claim,
    free_lost,
    give_back,
)
from holdfast.memories.run.records.question import Question
from holdfast.memories.run.records.record import (
    LeaseGrant,
    RunAcquisition,
    RunReport,
    RunsContext,
    TakeOver,
)
from holdfast.memories.run.records.write import begin, take
from holdfast.memories.stores.rows import StoresContext
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.serving import new_workspace

TABLES = {
    "runs": "id",
    "run_events": "run_id, seq",
    "run_parts": "run_id, id",
    "run_versions": "run_id, number",
    "run_version_rows": "run_id, kind, key, number",
    "run_turns": "run_id, part, n",
    "run_questions": "id",
}
"""The tables of runs and what they are ordered by."""

LAPSE = 61
"""Seconds, longer than a lease."""

TERMS = ClaimTerms(
    known=(KnownDefinition(name="report", version="1", queue="default", versions=("1",)),)
)


class Given(Struct, frozen=True):
    """A workspace in which a run is written."""

    hf: Holdfast
    clock: FrozenClock

    @property
    def context(self) -> RunsContext:
        """Where runs are stored."""
        return self.hf.runs.context

    def rows(self) -> dict[str, list[Any]]:
        """Return every row of runs."""
        return {table: self._of(table, "*", order) for table, order in TABLES.items()}

    def types(self, run: str) -> list[str]:
        """Return the types of the events of *run*."""
        found = self._of("run_events", "run_id, type", "run_id, seq")
        return [type for run_id, type in found if run_id == run]

    def _of(self, table: str, columns: str, order: str) -> list[Any]:
        where = f"where workspace = '{self.hf.workspace}' order by {order}"
        statement = cast("LiteralString", f"select {columns} from {table} {where}")
        return [tuple(row) for row in self.context.engine.rows(statement)]

    def begun(self, take_over: TakeOver = "expired", holder: str = "holder-1") -> LeaseGrant:
        """Acquire the run `run_1`."""
        opening = RunAcquisition(
            run_id="run_1",
            holder=holder,
            name="n",
            kind="task",
            definition="report",
            place="rock:7",
            started_at=1,
            take_over=take_over,
        )
        return begin(self.context, opening)

    def save(self, **facts: Any) -> VersionSave:
        """Return a version of the run, which its owner stores."""
        rows = (StateRow("value", "a", b"1"),)
        return VersionSave(run_id="run_1", fence=1, at=1, rows=rows, **facts)

    def asked(self, timeout: int | None = None) -> VersionSave:
        """Return a version with which the run waits for an answer."""
        now = self.clock.now()
        question = Question(
            id="question_000000000000000000000001",
            run_id="run_1",
            kind="question",
            key="k",
            text="Which?",
            asked_at=now,
            expires_at=None if timeout is None else FrozenClock(now).tick(timeout),
        )
        return self.save(cause="question", questions=(question,), status="waiting")

    def report(self, **facts: Any) -> RunReport:
        """Return a report of the owner of the run."""
        return RunReport(holder="holder-1", fence=1, number=1, **facts)


Act = Callable[[], object]


def starting(given: Given) -> Act:
    return given.begun


def taking_over(given: Given) -> Act:
    given.begun()
    return lambda: given.begun("always", "holder-2")


def ending(given: Given) -> Act:
    given.begun()
    end = RunEvent(type="run.completed", seq=2, at=1, run_id="run_1", data={"reason": "done"})
    return lambda: take(given.context, "run_1", given.report(events=(end,), ended="completed"))


def keeping(given: Given) -> Act:
    given.begun()
    return lambda: save_version(given.context, given.save(cause="step"))


def asking(given: Given) -> Act:
    given.begun()
    save = given.asked()
    return lambda: save_version(given.context, save)


def answering(given: Given) -> Act:
    asking(given)()
    return lambda: given.hf.runs.answer("run_1", "b7")


def expiring(given: Given) -> Act:
    given.begun()
    save_version(given.context, given.asked(timeout=5))
    given.clock.tick(6)
    return lambda: given.hf.runs.question("question_000000000000000000000001")


def cancelling(given: Given) -> Act:
    asking(given)()
    return lambda: given.hf.runs.cancel("run_1", "enough")


def losing(given: Given) -> Act:
    submitting(given)()
    given.begun()
    given.clock.tick(LAPSE)
    return lambda: given.hf.runs.retrieve("run_1")


def freeing(given: Given) -> Act:
    losing(given)()
    return lambda: free_lost(given.context, TERMS)


def submitting(given: Given) -> Act:
    return lambda: given.hf.runs.start("report", run_id="run_1")


def claiming(given: Given) -> Act:
    submitting(given)()
    return lambda: claim(given.context, TERMS)


def giving_back(given: Given) -> Act:
    given.begun()
    return lambda: give_back(given.context, "run_1", "holder-1")


def forking(given: Given) -> Act:
    ending(given)()
    return lambda: given.hf.runs.fork("run_1", run_id="run_2")


STORED: dict[Callable[[Given], Act], tuple[str, list[str]]] = {
    starting: ("running", ["run.started"]),
    taking_over: ("running", ["run.taken_over", "run.resumed"]),
    ending: ("completed", ["run.completed"]),
    keeping: ("running", ["version.kept"]),
    asking: ("waiting", ["version.kept", "question.asked", "run.waiting"]),
    answering: ("queued", ["question.answered", "run.queued"]),
    expiring: ("queued", ["question.expired", "run.queued"]),
    cancelling: ("cancelled", ["question.withdrawn", "run.cancelled"]),
    losing: ("lost", ["run.lost"]),
    freeing: ("queued", ["run.queued"]),
    submitting: ("queued", ["run.queued"]),
    claiming: ("queued", ["run.queued"]),
    giving_back: ("queued", ["run.queued"]),
    forking: ("completed", ["run.forked", "version.kept"]),
}
"""Each write with the status that it leaves, and the last events of its run."""


@pytest.fixture(scope="module")
def fault_clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def failing(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    fault_clock: FrozenClock,
) -> Iterator[Failing]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        url = server.url(server.new_database(TEMPLATE))
        failing = FailingPostgres(url, fault_clock, lost=False)
    else:
        path = tmp_path_factory.mktemp("faults") / "h.db"
        failing = FailingSQLite(SQLiteEngine.open(path, clock=fault_clock), apsw.SQLITE_FULL)
    yield failing
    failing.close()


@pytest.fixture
def given(failing: Failing, fault_clock: FrozenClock) -> Callable[[], Given]:
    """Give what makes a workspace of its own, each time."""

    def make() -> Given:
        workspace = new_workspace()
        caller = StoresContext(
            engine=failing.engine.scoped(Scope(workspace=workspace)),
            workspace=workspace,
            actor=LOCAL,
            clock=fault_clock,
            ids=Ids(),
        )
        return Given(Holdfast(failing.engine, caller), fault_clock)

    return make


@pytest.mark.parametrize("prepared", STORED)
def test_a_fact_of_a_run_is_stored_with_its_events_or_not_at_all(
    failing: Failing, given: Callable[[], Given], prepared: Callable[[Given], Act]
) -> None:
    status, types = STORED[prepared]

    def untouched(number: int) -> bool:
        one = given()
        act = prepared(one)
        before = one.rows()
        with failing.at(number) as fired:
            try:
                act()
            except Unavailable:
                assert fired
                # A read after the write may have failed.
                if one.rows() == before:
                    act()
        run = "run_2" if prepared is forking else "run_1"
        assert one.hf.runs.retrieve("run_1").status == status
        assert one.types(run)[-len(types) :] == types
        return not fired

    assert numbers_until(untouched)
