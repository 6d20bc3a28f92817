"""Reports of a run on their way: gathered while the keeper is away, made again, given up."""

import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.ground.errors import EngineFault, HoldfastError, NotFound, Unavailable
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.mirror import BEAT, WAITING_MOST, Mirror, Mirroring
from holdfast.memories.run.records.record import ReportedEvent, RunReport, RunStart

PATIENCE = 60.0
"""Seconds after which a test that waits has failed."""


class Keeper:
    """Keeps what is reported, once it is `open`; raises what it is to `fail` with, one a time."""

    pause = 0.0

    def __init__(self, *fail: HoldfastError) -> None:
        self.open, self.fail = threading.Event(), list(fail)
        self.reports: list[RunReport] = []
        self.begun: list[RunStart] = []

    def begin(self, opening: RunStart) -> None:
        """Note that a run begins."""
        assert self.open.wait(PATIENCE)
        self.begun.append(opening)

    def take(self, run_id: str, report: RunReport) -> None:
        """Note a report of the run *run_id*."""
        assert run_id
        self.reports.append(report)
        if self.fail:
            raise self.fail.pop(0)


@pytest.fixture
def mirroring() -> Iterator[Mirroring]:
    mirroring = Mirroring(strict=False)
    yield mirroring
    mirroring.close()


def mirrored(memory: RunMemory, keeper: Keeper, mirroring: Mirroring) -> Mirror:
    opening = RunStart(
        run_id=memory.run_id,
        holder="h",
        name="n",
        agent=None,
        metadata={},
        place="rock:7",
        started_at=1,
    )
    mirror = Mirror(memory, opening, keeper, ring=mirroring.ring)
    memory.on_event(
        lambda event: mirror.hear(ReportedEvent(type=event.type, at=event.at, data=event.data))
    )
    mirroring.add(mirror)
    return mirror


def lost() -> Unavailable:
    return Unavailable("The server cannot be reached.", reason="lost")


def test_what_happens_while_the_keeper_is_away_goes_in_reports_of_256(
    mirroring: Mirroring,
) -> None:
    memory, keeper = RunMemory(), Keeper()
    mirrored(memory, keeper, mirroring)
    for number in range(600):
        memory.set("shared:a", number)
    keeper.open.set()

    assert mirroring.flush(PATIENCE)
    assert [len(each.events) for each in keeper.reports] == [256, 256, 88]
    assert [each.number for each in keeper.reports] == [1, 2, 3]
    assert [entry.value for each in keeper.reports for entry in each.entries] == ["599"]


def test_a_report_that_failed_is_made_again_as_it_was(mirroring: Mirroring) -> None:
    memory, keeper = RunMemory(), Keeper(lost(), EngineFault("The server failed."))
    keeper.open.set()
    mirror = mirrored(memory, keeper, mirroring)
    memory.set("shared:a", 1)
    memory.set("shared:b", 2)
    mirror.end("completed")
    until(lambda: mirror.over)

    first = keeper.reports[0]
    assert keeper.reports[:3] == [first, first, first]
    assert keeper.reports[-1].ended == "completed"
    assert not keeper.fail


def test_what_is_refused_is_given_up(
    mirroring: Mirroring, caplog: pytest.LogCaptureFixture
) -> None:
    memory, keeper = RunMemory(), Keeper(NotFound("run", "run_1"))
    keeper.open.set()
    mirror = mirrored(memory, keeper, mirroring)
    memory.set("shared:a", 1)
    until(lambda: mirror.over)
    memory.set("shared:a", 2)

    assert mirroring.flush(PATIENCE)
    assert len(keeper.reports) == 1
    assert f"the run {memory.run_id} is no longer reported: NotFound" in caplog.text


def test_a_keeper_that_cannot_be_reached_holds_nobody_up(mirroring: Mirroring) -> None:
    memory, keeper = RunMemory(), Keeper(*(lost() for _ in range(100)))
    keeper.open.set()
    mirrored(memory, keeper, mirroring)
    memory.set("shared:a", 1)

    assert not mirroring.flush(0.1)
    assert keeper.fail
    keeper.fail.clear()


def test_of_too_much_that_waits_the_oldest_is_counted_as_missed(mirroring: Mirroring) -> None:
    memory, keeper = RunMemory(), Keeper()
    mirrored(memory, keeper, mirroring)
    for number in range(WAITING_MOST + 5):
        memory.set("shared:a", number)
    keeper.open.set()

    assert mirroring.flush(PATIENCE)
    assert sum(each.missed for each in keeper.reports) == 5
    assert sum(len(each.events) for each in keeper.reports) == WAITING_MOST


def test_the_end_is_told_after_all_else(mirroring: Mirroring) -> None:
    memory, keeper = RunMemory(), Keeper()
    mirror = mirrored(memory, keeper, mirroring)
    for number in range(300):
        memory.set(f"shared:{number}", "x" * 9_000)
    mirror.end("failed")
    memory.set("shared:late", 1)
    keeper.open.set()
    until(lambda: mirror.over)

    told = [entry.key for each in keeper.reports for entry in each.entries]
    assert told == [f"shared:{number}" for number in range(300)]
    assert [each.ended for each in keeper.reports[:-1]] == [None] * (len(keeper.reports) - 1)
    assert keeper.reports[-1].ended == "failed"


def test_a_run_in_which_nothing_happens_says_that_it_is_alive() -> None:
    now = [0.0]
    mirroring = Mirroring(strict=True, now=lambda: now[0])
    memory, keeper = RunMemory(), Keeper()
    keeper.open.set()
    mirrored(memory, keeper, mirroring)
    assert mirroring.flush(PATIENCE)
    before = len(keeper.reports)
    now[0] += BEAT
    mirroring.ring()
    until(lambda: len(keeper.reports) > before)
    mirroring.close()

    assert (keeper.reports[-1].events, keeper.reports[-1].entries) == ((), ())


def test_its_thread_ends_with_the_last_run(mirroring: Mirroring) -> None:
    memory, keeper = RunMemory(), Keeper()
    keeper.open.set()
    mirrored(memory, keeper, mirroring).end("completed")

    until(lambda: "holdfast-runs" not in {each.name for each in threading.enumerate()})


def until(true: Callable[[], bool]) -> None:
    """Wait until *true*() is so."""
    over = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if true():
            return
        over.wait(0.01)
    pytest.fail("it did not come to that")
