"""Leases on checkpoints: two processes never save the checkpoint of one run."""

import asyncio
import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from runtime.plans.workers import Workers, plan, task

import holdfast
from holdfast.errors import RunTaken, StaleRun
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.record import TakeOver
from holdfast.runtime.plans.executor import ParallelTaskExecutor
from holdfast.runtime.plans.leases import CheckpointLease, LeaseRequest, lease_of
from holdfast.runtime.runs.checkpoints import (
    Checkpoint,
    CheckpointChange,
    CheckpointLog,
    FileCheckpoints,
    MemoryCheckpoints,
)
from holdfast.runtime.runs.run_record import EngineCheckpoints
from holdfast.testing.contracts.checkpoints import change, checkpoint
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.serving import serving

LONG = timedelta(seconds=61)

AnyPlace = MemoryCheckpoints | FileCheckpoints | EngineCheckpoints


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(":memory:", clock=clock) as hf:
        yield hf


@pytest.fixture(params=["memory", "files", "engine", "server"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock, hf: Holdfast
) -> Iterator[AnyPlace]:
    match request.param:
        case "memory":
            yield MemoryCheckpoints(clock=clock)
        case "files":
            yield FileCheckpoints(tmp_path / "kept", clock=clock)
        case "engine":
            yield EngineCheckpoints(hf)
        case _:
            with serving(hf, clock=clock) as url, holdfast.open(url) as remote:
                yield EngineCheckpoints(remote)


def wanted(holder: str, take_over: TakeOver = "expired") -> LeaseRequest:
    return LeaseRequest(
        run_id="run_1", name="A plan", holder=holder, place="rock:7", take_over=take_over
    )


def of(lease: CheckpointLease, *steps: str) -> Checkpoint:
    return replace(checkpoint(), completed_steps=steps, fence=lease.fence)


def more(lease: CheckpointLease) -> CheckpointChange:
    return replace(change(), fence=lease.fence)


def test_a_checkpoint_with_an_owner_is_not_taken(place: AnyPlace) -> None:
    first = place.acquire(wanted("ada"))

    with pytest.raises(RunTaken) as caught:
        place.acquire(wanted("bob"))

    assert (caught.value.run_id, caught.value.place) == ("run_1", "rock:7")
    place.release(first, "completed")
    assert place.acquire(wanted("bob")).fence == 2


def test_one_whose_lease_ran_out_is_taken_and_its_former_owner_saves_nothing(
    place: AnyPlace, clock: FrozenClock
) -> None:
    first = place.acquire(wanted("ada"))
    log = place.begin(of(first, "a"))
    clock.tick(LONG.total_seconds())
    second = place.acquire(wanted("bob"))
    place.save(of(second, "a", "b"))

    for save in (
        lambda: place.save(of(first, "late")),
        lambda: log.append(more(first)),
        lambda: place.renew(first),
        lambda: place.release(first, "completed"),
    ):
        with pytest.raises(StaleRun):
            save()
    loaded = place.load("run_1")
    assert loaded is not None
    assert loaded.completed_steps == ("a", "b")


def test_a_renewed_lease_does_not_run_out(place: AnyPlace, clock: FrozenClock) -> None:
    lease = place.acquire(wanted("ada"))
    for _ in range(3):
        clock.tick(50)
        place.renew(lease)

    with pytest.raises(RunTaken):
        place.acquire(wanted("bob"))


def test_one_is_taken_at_once_where_that_is_asked_for(place: AnyPlace) -> None:
    first = place.acquire(wanted("ada"))
    second = place.acquire(wanted("bob", "always"))

    assert (first.fence, second.fence) == (1, 2)
    with pytest.raises(StaleRun):
        place.save(of(first))


def executor(workers: Workers, place: Any, take_over: TakeOver = "expired") -> ParallelTaskExecutor:
    tasks = plan(task("a"), task("b", depends_on=["a"]))
    context = workers.context(run_id="run_1", take_over=take_over)
    return ParallelTaskExecutor(plan=tasks, context=context, checkpoint=place)


async def begun(workers: Workers, id: str) -> None:
    """Wait until *workers* have begun *id*."""
    async with asyncio.timeout(60):
        while id not in workers.began:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0)


@pytest.mark.anyio
async def test_a_plan_that_runs_elsewhere_is_refused_before_a_model_is_asked(
    place: AnyPlace,
) -> None:
    here, there = Workers(), Workers()
    here.wait("a1")
    running = asyncio.create_task(executor(here, place).run())
    await begun(here, "a1")

    with pytest.raises(RunTaken):
        await executor(there, place).run()
    here.let_go("a1")

    assert await running == "done b1"
    assert there.began == []
    assert await executor(there, place).run() == "done b1"


@pytest.mark.anyio
async def test_a_plan_that_was_taken_over_ends_as_such_and_leaves_the_checkpoint(
    place: AnyPlace,
) -> None:
    here, there = Workers(), Workers()
    here.wait("b1")
    running = asyncio.create_task(executor(here, place).run())
    await begun(here, "b1")
    assert await executor(there, place, "always").run() == "done b1"
    before = place.load("run_1")
    here.let_go("b1")

    with pytest.raises(StaleRun):
        await running
    assert there.began == ["b1"]
    assert place.load("run_1") == before


@pytest.mark.anyio
async def test_a_checkpoint_beside_the_record_of_its_run_has_one_lease(hf: Holdfast) -> None:
    workers = Workers()
    tasks = plan(task("a"), task("b", depends_on=["a"]))
    context = workers.context(run_id="run_1", hf=hf)
    whole = ParallelTaskExecutor(plan=tasks, context=context, checkpoint=EngineCheckpoints(hf))

    assert await whole.run() == "done b1"

    run = hf.runs.retrieve("run_1")
    assert (run.status, run.fence) == ("completed", 1)
    ends = [each.type for each in hf.runs.follow("run_1") if each.type.startswith("run.")]
    assert ends == ["run.started", "run.completed"]


ACTS = ("acquire", "steal", "renew", "save", "append", "give_back", "wait")
STEPS = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), max_size=40)


class Owners:
    """Three owners of a checkpoint at *place*, and what they were allowed to save."""

    def __init__(self, place: MemoryCheckpoints | FileCheckpoints, clock: FrozenClock) -> None:
        self.place, self.clock = place, clock
        self.leases: dict[int, CheckpointLease] = {}
        self.logs: dict[int, CheckpointLog] = {}
        self.fence = self.saves = 0
        self.saved: list[str] = []

    def step(self, act: str, who: int) -> None:
        """Let *who* do *act*; what it writes is refused exactly where another has the run."""
        if act == "wait":
            self.clock.tick(LONG.total_seconds() / 2)
        elif act in {"acquire", "steal"}:
            self._acquire(who, "always" if act == "steal" else "expired")
        elif who in self.leases and (act != "append" or who in self.logs):
            owns = self.leases[who].fence == self.fence
            try:
                getattr(self, f"_{act}")(self.leases[who], who)
            except StaleRun:
                assert not owns
            else:
                assert owns

    def _acquire(self, who: int, take_over: TakeOver) -> None:
        try:
            lease = self.place.acquire(wanted(f"holder-{self.fence + 1}", take_over))
        except RunTaken:
            assert take_over == "expired"
            return
        assert lease.fence == self.fence + 1
        self.leases[who], self.fence = lease, lease.fence
        self.logs.pop(who, None)

    def _renew(self, lease: CheckpointLease, _: int) -> None:
        self.place.renew(lease)

    def _give_back(self, lease: CheckpointLease, _: int) -> None:
        self.place.release(lease, None)

    def _save(self, lease: CheckpointLease, who: int) -> None:
        self.saves += 1
        self.logs[who] = self.place.begin(of(lease, f"s{self.saves}"))
        self.saved = [f"s{self.saves}"]

    def _append(self, lease: CheckpointLease, who: int) -> None:
        self.saves += 1
        step = f"s{self.saves}"
        if self.logs[who].append(replace(more(lease), completed_steps=(step,))):
            self.saved.append(step)


@pytest.mark.parametrize("kind", ["memory", "files"])
@given(steps=STEPS)
@example(steps=[("acquire", 0), ("save", 0), ("steal", 1), ("append", 0), ("save", 0)])
@example(steps=[("acquire", 0), ("give_back", 0), ("acquire", 1), ("renew", 0), ("give_back", 0)])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_owners_in_any_order_save_what_one_could_have_saved(
    kind: str, steps: list[tuple[str, int]]
) -> None:
    clock = FrozenClock()
    with TemporaryDirectory() as folder:
        places = {
            "memory": MemoryCheckpoints(clock=clock),
            "files": FileCheckpoints(folder, clock=clock),
        }
        owners = Owners(places[kind], clock)
        for act, who in steps:
            owners.step(act, who)

        loaded = places[kind].load("run_1")
        assert list(loaded.completed_steps if loaded else ()) == owners.saved


class Elsewhere:
    """A place of checkpoints without leases."""

    def __init__(self) -> None:
        self._kept = MemoryCheckpoints()
        self.load, self.save, self.delete = self._kept.load, self._kept.save, self._kept.delete


@pytest.mark.anyio
async def test_a_place_without_leases_is_used_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "holdfast.runtime.plans.leases"):
        for _ in range(2):
            assert await executor(Workers(), Elsewhere()).run() == "done b1"

    assert [each.getMessage() for each in caplog.records] == [
        "the checkpoints of Elsewhere have no leases"
    ]
    assert await lease_of(Elsewhere(), wanted("ada"), lambda _: None) is None
