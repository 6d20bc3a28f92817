"""Records of runs: their removal, their mirror, and awaited runs."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest

import holdfast
from holdfast.ground.errors import (
    Conflict,
    EngineFault,
    HoldfastError,
    InvalidInput,
    NotFound,
    NotPermitted,
    Unavailable,
)
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import SavedVersion, StateRow, VersionSave
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import Ending, RunEvent, of_memory
from holdfast.memories.run.records.mirror import BEAT, WAITING_MOST, Mirror, Mirroring
from holdfast.memories.run.records.record import (
    HeldRun,
    LeaseGrant,
    ReportedEntry,
    ReportReceipt,
    RunAcquisition,
    RunReport,
)
from holdfast.memories.run.records.write import begin, take
from holdfast.testing.fakes import FrozenClock

MARK = "zqvalueMARKERwvk"


def opening(run: str, holder: str = "h") -> RunAcquisition:
    return RunAcquisition(
        run_id=run,
        holder=holder,
        name="n",
        agent=None,
        metadata={},
        place="rock:7",
        started_at=1,
    )


def entry(key: str = "shared:a", value: str = "1") -> ReportedEntry:
    return ReportedEntry(
        key=key,
        kind="shared",
        source=None,
        title=None,
        description=None,
        failed=False,
        version=1,
        created_at=1,
        updated_at=1,
        value=value,
        value_bytes=len(value),
    )


def report(number: int, *entries: ReportedEntry, ended: Ending | None = None) -> RunReport:
    return RunReport(holder="h", number=number, entries=entries, ended=ended)


def ended(hf: Holdfast, run: str, *, cap: int = 1_000) -> None:
    begin(hf.runs.context, opening(run), cap=cap)
    take(hf.runs.context, run, report(1, entry(), ended="completed"), cap=cap)


def evicted() -> float:
    return REGISTRY.flat()["run_records_evicted_total"]


def test_a_report_is_taken_once(kept: Holdfast) -> None:
    begin(kept.runs.context, opening("run_1"))
    take(kept.runs.context, "run_1", report(1, entry()))
    take(kept.runs.context, "run_1", report(2, entry(value="22")))
    take(kept.runs.context, "run_1", report(1, entry()))

    assert kept.runs.entry("run_1", "shared:a").value == 22
    assert kept.runs.retrieve("run_1").bytes == 2


def test_beginning_twice_loses_nothing(kept: Holdfast) -> None:
    begin(kept.runs.context, opening("run_1"))
    take(kept.runs.context, "run_1", report(1, entry()))
    begin(kept.runs.context, opening("run_1"))

    assert kept.runs.retrieve("run_1").entries == 1


def test_a_run_that_was_taken_over_is_reported_by_its_new_holder_alone(kept: Holdfast) -> None:
    begin(kept.runs.context, opening("run_1"))
    begin(kept.runs.context, opening("run_1", "other"))

    with pytest.raises(Conflict) as caught:
        take(kept.runs.context, "run_1", report(1, entry()))
    assert caught.value.reason == "superseded"


def test_the_oldest_of_too_many_that_are_over_make_room(kept: Holdfast, clock: FrozenClock) -> None:
    heard: list[Event] = []
    before = evicted()
    kept.events.subscribe(heard.append, types={"run.record_evicted"})
    for number in range(5):
        clock.tick()
        ended(kept, f"run_{number}", cap=3)

    assert [run.id for run in kept.runs.list()] == ["run_4", "run_3", "run_2"]
    assert [each.ids for each in heard] == [{"run_id": "run_0"}, {"run_id": "run_1"}]
    assert evicted() - before == 2
    assert kept.verify().ok


def test_lost_runs_make_room_and_live_ones_do_not(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, opening("run_lost"))
    clock.tick(61)
    begin(kept.runs.context, opening("run_live"))
    for number in range(2):
        clock.tick()
        ended(kept, f"run_{number}", cap=2)

    assert {run.id for run in kept.runs.list()} == {"run_live", "run_0", "run_1"}


def test_a_thousand_that_are_over_are_kept() -> None:
    with holdfast.open(":memory:") as hf:
        for number in range(1_002):
            ended(hf, f"run_{number:04}")

        assert len(list(hf.runs.list(limit=100).all())) == 1_000


def test_a_lost_run_still_shows_which_part_was_running(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, opening("run_1"))
    event = RunEvent(type="step.started", seq=2, at=1, run_id="run_1", part="read")
    take(kept.runs.context, "run_1", RunReport(holder="h", number=1, events=(event,)))
    clock.tick(61)

    run = kept.runs.retrieve("run_1")
    assert (run.status, run.parts) == ("lost", {"running": 1})


def kept_version(hf: Holdfast, run_id: str = "run_1", body: bytes = b"1") -> None:
    rows = (StateRow("entry", "shared:a", body),)
    turns = (KeptTurn("read", 1, body),)
    hf.runs.checkpoints.replace(
        VersionSave(run_id=run_id, fence=0, at=1, cause="step", rows=rows, turns=turns)
    )


def test_a_version_is_of_one_workspace(kept: Holdfast) -> None:
    kept_version(kept)

    assert kept.acting(workspace="elsewhere").runs.checkpoints.load("run_1") is None


def test_a_deleted_run_takes_its_versions_along(kept: Holdfast) -> None:
    ended(kept, "run_1")
    kept_version(kept)
    kept.runs.delete("run_1")

    assert kept.runs.checkpoints.load("run_1") is None
    assert kept.verify().ok


def test_a_version_has_the_name_of_a_run(kept: Holdfast) -> None:
    with pytest.raises(InvalidInput):
        kept_version(kept, "")


def test_a_session_reaches_no_run(kept: Holdfast) -> None:
    store = kept.memory_stores.create(name="s")
    session = kept.sessions.create(
        agent="a",
        environment_id="e",
        resources=[{"type": "memory_store", "memory_store_id": store.id}],
    )
    narrowed = kept.for_session(session.id)

    for ask in (
        narrowed.runs.list,
        lambda: narrowed.runs.retrieve("run_1"),
        lambda: narrowed.runs.attach(RunMemory(), name="n"),
        lambda: narrowed.runs.delete("run_1"),
        lambda: narrowed.runs.cancel("run_1"),
        lambda: narrowed.runs.checkpoints,
    ):
        with pytest.raises(NotPermitted):
            ask()


def test_what_happens_in_an_attached_run_goes_through_the_bus(kept: Holdfast) -> None:
    heard: list[Event] = []
    memory = RunMemory(run_id="run_1")
    over = kept.runs.attach(memory, name="n")
    kept.events.subscribe(heard.append, types={"run.entry_written", "run.entry_deleted"})
    memory.set("shared:a", "secret", source="ada")
    memory.delete("shared:a")
    over()
    memory.set("shared:late", 1)

    assert [each.type for each in heard] == ["run.entry_written", "run.entry_deleted"]
    assert heard[0].ids == {"run_id": "run_1", "key": "shared:a"}
    assert heard[0].workspace == kept.workspace
    assert "secret" not in repr(heard)


def test_of_a_deleted_run_no_byte_is_left(sqlite_file: Path) -> None:
    def left() -> set[str]:
        files = sqlite_file.parent.iterdir()
        return {each.name for each in files if MARK.encode() in each.read_bytes()}

    with holdfast.open(sqlite_file) as hf:
        memory = RunMemory()
        over = hf.runs.attach(memory, name=MARK, agent=MARK, metadata={MARK: MARK})
        memory.set(f"shared:{MARK}", MARK * 9_000, title=MARK, description=MARK, source=MARK)
        over()
        kept_version(hf, memory.run_id, MARK.encode())
        assert hf.runs.retrieve(memory.run_id).name == MARK
        there = left()
        hf.runs.delete(memory.run_id)

        assert there
        assert left() == set()


PATIENCE = 60.0
"""Seconds after which a test that waits has failed."""


class Keeper:
    """Keeps what is reported, once it is `open`; raises what it is to `fail` with, one a time."""

    pause, keeps, scope = 0.0, False, ""

    def __init__(self, *fail: HoldfastError) -> None:
        self.open, self.fail = threading.Event(), list(fail)
        self.renewed: list[tuple[HeldRun, ...]] = []
        self.signs: dict[str, str | None] = {"h": None}
        self.reports: list[RunReport] = []
        self.begun: list[RunAcquisition] = []

    def begin(self, opening: RunAcquisition) -> LeaseGrant:
        """Note that a run begins."""
        assert self.open.wait(PATIENCE)
        self.begun.append(opening)
        return LeaseGrant(fence=1, seq=1)

    def take(self, run_id: str, report: RunReport) -> ReportReceipt:
        """Note a report of the run *run_id*."""
        assert run_id
        self.reports.append(report)
        if self.fail:
            raise self.fail.pop(0)
        return ReportReceipt(seq=1)

    def keep(self, save: VersionSave) -> SavedVersion:
        """Refuse a version: it keeps none."""
        raise AssertionError(save)

    def replace(self, save: VersionSave) -> SavedVersion:
        """Refuse a version: it keeps none."""
        raise AssertionError(save)

    def release(self, held: HeldRun, ending: Ending | None) -> None:
        """Refuse a release: its runs end by a report."""
        raise AssertionError(held, ending)

    def renew(self, held: Sequence[HeldRun], *, extend: bool = True) -> dict[str, str | None]:
        """Note a renewal."""
        if extend:
            self.renewed.append(tuple(held))
        return self.signs


@pytest.fixture
def mirroring() -> Iterator[Mirroring]:
    mirroring = Mirroring(strict=False)
    yield mirroring
    mirroring.close()


def mirrored(memory: RunMemory, keeper: Keeper, mirroring: Mirroring) -> Mirror:
    opening = RunAcquisition(
        run_id=memory.run_id,
        holder="h",
        name="n",
        agent=None,
        metadata={},
        place="rock:7",
        started_at=1,
    )
    mirror = Mirror(memory, opening, keeper, ring=mirroring.ring)
    numbers = count(1)

    def hear(event: RunMemoryEvent) -> None:
        mirror.hear(event)
        mirror.emit(of_memory(event, seq=next(numbers)))

    memory.on_event(hear)
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
    assert keeper.reports[0].events[0].seq == 7
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
    now[0] += BEAT
    mirroring.ring()
    until(lambda: bool(keeper.renewed))
    mirroring.close()

    (held,) = keeper.renewed[0]
    assert (held.run_id, held.holder, held.fence) == (memory.run_id, "h", 1)


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


@pytest.mark.anyio
async def test_a_run_is_followed_while_it_lasts(sqlite_file: Path) -> None:
    memory = RunMemory()
    async with await holdfast.aio.open(sqlite_file) as hf:
        over = await hf.runs.attach(memory, name="research")
        memory.set("shared:a", 1)
        told: list[object] = []
        async for event in await hf.runs.follow(memory.run_id):
            told.append(event.data.get("key", event.type))
            if len(told) == 2:
                memory.set("shared:b", 2)
                over("failed")

        assert told == ["run.started", "shared:a", "shared:b", "run.failed"]
        assert (await hf.runs.retrieve(memory.run_id)).status == "failed"
        entries = await hf.runs.entries(memory.run_id)
        assert [entry.key async for entry in entries.all()] == ["shared:b", "shared:a"]
        assert (await hf.runs.entry(memory.run_id, "shared:b")).value == 2
