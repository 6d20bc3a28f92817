"""Runs that are taken over when all is done but the last save: they have failed here."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, LiteralString

import pytest
from runtime.networks.played import agent, in_turn, network
from runtime.plans.workers import Workers, plan, step, task

import holdfast
from holdfast.errors import RunFailed, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import RunEvent
from holdfast.runtime import EngineHistory, InMemoryHistory, ask_human
from holdfast.runtime.plans.executor import ParallelTaskExecutor
from holdfast.runtime.plans.leases import LeaseRequest
from holdfast.runtime.runs.checkpoints import FileCheckpoints, MemoryCheckpoints
from holdfast.runtime.runs.run_record import EngineCheckpoints
from holdfast.testing import call

pytestmark = pytest.mark.anyio

STORED: tuple[LiteralString, ...] = (
    "select * from runs order by id",
    "select * from run_events order by run_id, seq",
    "select * from run_parts order by run_id, id",
    "select * from run_versions order by run_id, number",
    "select * from run_questions order by id",
)

STOLEN = LeaseRequest(run_id="run_1", name="b", holder="b", place="rock:7", take_over="always")


class Place:
    """Where a run is kept, and an observer that takes it over at the first event of *type*."""

    def __init__(self, place: Any, hf: Holdfast, *, recorded: bool = False) -> None:
        self.place, self.hf, self.type = place, hf, ""
        self.given: dict[str, Any] = {"hf": hf} if recorded else {"checkpoint": place}
        self.before: object = None
        self.seen: list[str] = []

    def stored(self) -> object:
        """Return all that is stored of the run."""
        rows = [self.hf.engine.rows(each) for each in STORED]
        return self.place.load("run_1"), rows

    def watch(self, event: RunEvent) -> None:
        """Take the run over at its time."""
        self.seen.append(event.type)
        if event.type == self.type:
            self.steal()

    def steal(self) -> None:
        """Take the run over, once what happened so far is stored."""
        if self.before is None:
            self.hf.runs.list()
            self.place.acquire(STOLEN)
            self.before = self.stored()

    def ask(self) -> str:
        """Ask a person, and take the run over where that is its time."""
        if self.type == "tool.called":
            self.steal()
        return str(ask_human("Which berth?"))

    def check(self) -> None:
        """Check that nothing was stored since it was taken over, and no other end emitted."""
        assert self.before is not None
        assert self.stored() == self.before
        assert not {"run.completed", "run.cancelled", "run.waiting"} & {*self.seen}


@pytest.fixture(params=["memory", "files", "database", "record"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    with holdfast.open(":memory:") as hf:
        match request.param:
            case "memory":
                yield Place(MemoryCheckpoints(), hf)
            case "files":
                yield Place(FileCheckpoints(tmp_path / "kept"), hf)
            case "database":
                yield Place(EngineCheckpoints(hf), hf)
            case _:
                yield Place(EngineCheckpoints(hf), hf, recorded=True)


def a_plan(place: Place, **fields: Any) -> ParallelTaskExecutor:
    workers, given = Workers(), dict(place.given)
    context = workers.context(run_id="run_1", hf=given.pop("hf", None))
    tasks = plan(task("a", step("a1", **fields)))
    return ParallelTaskExecutor(plan=tasks, context=context, on_event=place.watch, **given)


@pytest.mark.parametrize(
    ("type", "fields"),
    [("task.completed", {}), ("step.waiting", {"mode": "ask"})],
    ids=["completes", "waits"],
)
async def test_a_plan_that_was_taken_over_before_its_last_save_has_failed(
    place: Place, type: str, fields: dict[str, Any]
) -> None:
    place.type = type

    told = [event async for event in a_plan(place, **fields).stream()]

    assert (told[-1].type, told[-1].data["reason"]) == ("run.failed", "taken_over")
    place.check()


@pytest.mark.parametrize(
    ("type", "fields"),
    [("task.completed", {}), ("step.waiting", {"mode": "ask"})],
    ids=["completes", "waits"],
)
async def test_its_run_raises_that_it_is_stale(
    place: Place, type: str, fields: dict[str, Any]
) -> None:
    place.type = type

    with pytest.raises(StaleRun):
        await a_plan(place, **fields).run()


TURNS: Any = {"agent.finished": ["Done."], "tool.called": [call("ask")]}


@pytest.mark.parametrize("type", TURNS)
async def test_an_agent_that_was_taken_over_before_its_last_save_has_failed(
    place: Place, type: str
) -> None:
    place.type, history = type, InMemoryHistory()
    ada = agent("ada", TURNS[type], tools=[place.ask], history=history)

    with pytest.raises(RunFailed) as raised:
        await ada.run("Go.", run_id="run_1", on_event=place.watch, thread_id="t", **place.given)

    assert raised.value.stop_reason == "taken_over"
    place.check()


@pytest.mark.parametrize("type", TURNS)
async def test_a_network_that_was_taken_over_before_its_last_save_has_failed(
    place: Place, type: str
) -> None:
    place.type = type
    ada = agent("ada", TURNS[type], tools=[place.ask])
    desk = network(ada, router=in_turn("ada"))
    options: dict[str, Any] = {"on_event": place.watch, "raises": False, **place.given}

    run = await desk.run("Go.", run_id="run_1", **options)

    assert (run.status, run.stop_reason) == ("failed", "taken_over")
    place.check()


async def test_a_run_that_was_taken_over_after_its_last_version_stores_no_end() -> None:
    with holdfast.open(":memory:") as hf:
        place = Place(EngineCheckpoints(hf), hf, recorded=True)
        place.type = "version.kept"
        history = EngineHistory(hf)
        ada = agent("ada", ["Done."], history=history)

        with pytest.raises(RunFailed) as raised:
            await ada.run("Go.", run_id="run_1", on_event=place.watch, hf=hf, thread_id="t")

        assert raised.value.stop_reason == "taken_over"
        place.check()
