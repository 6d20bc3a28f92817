"""Leases on runs: one owner at a time, and nothing of a former owner is written."""

import multiprocessing
import os
import signal
import sqlite3
from datetime import datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event as Signal
from typing import Any

import pytest
from contracts.runs import Held
from msgspec.structs import replace

import holdfast
from holdfast.engines.postgres import PostgresEngine
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.clock import SystemClock, to_microseconds
from holdfast.ground.errors import Conflict, RunTaken, StaleRun
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.lease import renew, sweep_lost
from holdfast.memories.run.records.read import LOOKS_EVERY, gauges
from holdfast.memories.run.records.record import (
    HeldRun,
    RunAcquisition,
    RunReport,
    TakeOver,
)
from holdfast.memories.run.records.write import TAKEOVERS, begin, take
from holdfast.memories.run.records.writer import InEngine, RunOpening, RunWriter
from holdfast.testing.fakes import FrozenClock

LONG = 61
"""Seconds after which a lease has run out."""

PATIENCE = 60.0
"""Seconds after which a test that waits has failed."""


def opening(take_over: TakeOver = "expired", **more: Any) -> RunOpening:
    return RunOpening(kind="task", name="research", take_over=take_over, **more)


def acquired(hf: Holdfast, take_over: TakeOver = "expired", **more: Any) -> RunWriter:
    return hf.runs.open_run(RunMemory(run_id="run_1"), opening(take_over), **more)


def start(holder: str, take_over: TakeOver = "expired") -> RunAcquisition:
    return RunAcquisition(
        run_id="run_1",
        holder=holder,
        name="n",
        kind="task",
        place="rock:7",
        started_at=1,
        take_over=take_over,
    )


def types(hf: Holdfast, **options: Any) -> list[str]:
    return [each.type for each in hf.runs.follow("run_1", rest=True, **options)]


def event(writer: RunWriter, type: str = "step.started", **data: Any) -> RunEvent:
    return RunEvent(type=type, seq=writer.seq + 1, at=1, run_id="run_1", part="read", data=data)


def test_a_run_with_an_owner_is_not_taken(kept: Holdfast) -> None:
    writer = acquired(kept)

    for take_over in ("expired", "never"):
        with pytest.raises(RunTaken) as caught:
            acquired(kept, take_over)
    writer.end("completed")

    run = kept.runs.retrieve("run_1")
    assert (caught.value.run_id, caught.value.place) == ("run_1", run.place)
    assert caught.value.until is not None
    assert (run.fence, run.status) == (1, "completed")


def test_a_run_is_taken_at_once_where_that_is_asked_for(kept: Holdfast) -> None:
    lost = Signal()

    def hear(_: StaleRun) -> None:
        lost.set()

    first = acquired(kept, on_stale=hear)
    second = acquired(kept, "always")
    first.emit(event(first))
    assert lost.wait(PATIENCE)
    first.end("completed")
    second.end("failed", reason="internal")

    run = kept.runs.retrieve("run_1")
    assert (first.fence, second.fence, run.fence) == (1, 2, 2)
    assert first.stale is not None
    assert (run.status, run.reason) == ("failed", "internal")
    assert types(kept) == ["run.started", "run.taken_over", "run.resumed", "run.failed"]


def test_takeovers_are_counted_by_how_they_came_about(kept: Holdfast, clock: FrozenClock) -> None:
    def counted() -> list[float]:
        return [TAKEOVERS.value(how) for how in ("expired", "always")]

    before = counted()
    begin(kept.runs.context, start("gone"))
    begin(kept.runs.context, start("force", "always"))
    clock.tick(LONG)
    begin(kept.runs.context, start("next"))

    assert [now - then for now, then in zip(counted(), before, strict=True)] == [1, 1]


def test_a_run_whose_lease_ran_out_is_taken_over(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, start("gone"))
    clock.tick(LONG)
    writer = acquired(kept)

    assert [each.type for each in writer.opened] == ["run.taken_over", "run.resumed"]
    assert writer.opened[0].data == {"from": "rock:7", "fence": 2}
    assert writer.seq == 3
    writer.end("completed")
    assert kept.runs.retrieve("run_1").fence == 2


def test_a_status_and_its_event_are_stored_together_and_the_lease_is_given_back(
    kept: Holdfast,
) -> None:
    writer = acquired(kept)
    writer.emit(event(writer))
    told = writer.end("failed", reason="timeout", detail="too long", usage={"requests": 2})

    run = kept.runs.retrieve("run_1")
    stored = list(kept.runs.follow("run_1"))
    assert (run.status, run.reason, run.detail, run.usage.requests) == (
        "failed",
        "timeout",
        "too long",
        2,
    )
    assert stored[-1] == told
    assert [each.seq for each in stored] == [1, 2, 3]
    assert acquired(kept).fence == 2


def test_events_are_stored_as_they_were_emitted_without_deltas(kept: Holdfast) -> None:
    writer = acquired(kept)
    sent = [event(writer, n=1)]
    writer.emit(sent[0])
    writer.emit(RunEvent(type="text.delta", seq=writer.seq, at=1, run_id="run_1"))
    sent.append(event(writer, "tool.called", input="x", name="look"))
    writer.emit(sent[1])
    sent.append(writer.end("completed"))

    assert list(kept.runs.follow("run_1", after=1)) == sent
    assert types(kept, types=["tool.called"]) == ["tool.called"]


def test_an_event_that_cannot_be_stored_whole_is_stored_with_its_size(kept: Holdfast) -> None:
    writer = acquired(kept)
    writer.emit(event(writer, value="x" * 70_000))
    writer.emit(event(writer, value="\ud800"))
    writer.end("completed")

    large, odd = list(kept.runs.follow("run_1"))[1:3]
    assert large.data == {"omitted": 70_012}
    assert odd.data == {"omitted": "not JSON"}


def test_a_lost_run_is_stored_as_such_with_one_event(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, start("gone"))
    clock.tick(LONG)
    for _ in range(2):
        assert kept.runs.retrieve("run_1").status == "lost"
        assert [run.id for run in kept.runs.list("lost")] == ["run_1"]

    assert types(kept) == ["run.started", "run.lost"]


def test_a_sweep_stores_what_is_lost(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, start("gone"))
    sweep_lost(kept.engine, clock)
    clock.tick(LONG)
    sweep_lost(kept.engine, clock)
    sweep_lost(kept.engine, clock)

    assert types(kept) == ["run.started", "run.lost"]


def test_a_renewed_run_is_not_lost(kept: Holdfast, clock: FrozenClock) -> None:
    grant = begin(kept.runs.context, start("ada"))
    held = HeldRun(run_id="run_1", holder="ada", fence=grant.fence, number=0)
    clock.tick(LONG - 5)
    assert renew(kept.runs.context, [held]) == {"ada": None}
    clock.tick(LONG - 5)

    assert kept.runs.retrieve("run_1").status == "running"


def test_renewing_any_number_of_runs_is_one_statement(kept: Holdfast) -> None:
    held: list[HeldRun] = []
    for number in range(30):
        begin(kept.runs.context, RunAcquisition(
            run_id=f"run_{number}", holder=f"h{number}", name="n", place="p", started_at=1
        ))  # fmt: skip
        held.append(HeldRun(run_id=f"run_{number}", holder=f"h{number}", fence=1, number=0))
    engine = kept.engine
    assert isinstance(engine, SQLiteEngine | PostgresEngine)
    before = engine.statements

    assert len(renew(kept.runs.context, held)) == 30
    assert engine.statements - before == 1


def test_a_cancellation_from_elsewhere_reaches_the_owner(kept: Holdfast) -> None:
    grant = begin(kept.runs.context, start("ada"))
    kept.runs.cancel("run_1", "enough")
    held = HeldRun(run_id="run_1", holder="ada", fence=grant.fence, number=0)

    assert renew(kept.runs.context, [held], extend=False) == {"ada": "enough"}
    report = RunReport(holder="ada", fence=1, number=1)
    assert take(kept.runs.context, "run_1", report).cancel == "enough"
    assert kept.runs.retrieve("run_1").status == "running"


def test_an_owner_in_this_process_obeys_what_was_stored_for_it(kept: Holdfast) -> None:
    obeyed = Signal()

    class Obeying(Held):
        def cancel(self, reason: str = "cancelled") -> None:
            super().cancel(reason)
            obeyed.set()

    control = Obeying()
    writer = kept.runs.open_run(RunMemory(run_id="run_1"), opening(), control=control)

    def store(tx: Any) -> None:
        tx.run(kept.engine.queries("holdfast.memories.run").want_cancel, run="run_1", reason="no")

    kept.runs.context.engine.write(store)
    assert obeyed.wait(PATIENCE)
    writer.end("cancelled", reason="cancelled")

    assert control.asked == [("cancel", "no")]


def test_a_run_without_an_owner_is_cancelled_at_once(kept: Holdfast, clock: FrozenClock) -> None:
    begin(kept.runs.context, start("gone"))
    clock.tick(LONG)
    kept.runs.cancel("run_1", "enough")

    run = kept.runs.retrieve("run_1")
    assert (run.status, run.reason, run.detail) == ("cancelled", "cancelled", "enough")
    assert types(kept)[-1] == "run.cancelled"
    with pytest.raises(StaleRun):
        take(kept.runs.context, "run_1", RunReport(holder="gone", fence=1, number=1))
    with pytest.raises(Conflict):
        kept.runs.cancel("run_1")


class Ahead(SystemClock):
    """A clock that is past the leases of now."""

    def now(self) -> datetime:
        """Return the instant in 61 s."""
        return super().now() + timedelta(seconds=LONG)


def own_and_go_on(path: Path, parent: Connection) -> None:
    """Own a run, and go on with it when told to; runs in a process of its own."""
    memory = RunMemory(run_id="run_1")
    with holdfast.open(path) as hf:
        writer = hf.runs.open_run(memory, opening())
        memory.set("shared:a", "first")
        hf.run_attachments.flush()
        parent.send("begun")
        parent.recv()
        memory.set("shared:a", "late")
        writer.emit(event(writer))
        writer.end("completed")
        parent.send(writer.stale is not None)


def rows(path: Path) -> list[Any]:
    with sqlite3.connect(path) as database:
        return [
            database.execute(f"select * from {table} order by 1, 2, 3").fetchall()
            for table in ("runs", "run_entries", "run_events")
        ]


def test_a_process_that_was_stopped_past_its_lease_changes_nothing(sqlite_file: Path) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=own_and_go_on, args=(sqlite_file, there)
    )
    process.start()
    assert here.poll(PATIENCE)
    assert here.recv() == "begun"
    assert process.pid is not None
    os.kill(process.pid, signal.SIGSTOP)
    with holdfast.open(sqlite_file, clock=Ahead()) as hf:
        memory = RunMemory(run_id="run_1")
        memory.set("shared:a", "second")
        writer = hf.runs.open_run(memory, opening())
        writer.end("completed", reason="done")
    before = rows(sqlite_file)
    os.kill(process.pid, signal.SIGCONT)
    here.send("go on")

    assert here.poll(PATIENCE)
    assert here.recv() is True
    process.join(PATIENCE)
    assert rows(sqlite_file) == before
    assert before[0][0][2:5] == ("task", "research", None)


def rise(before: dict[str, float]) -> dict[str, float]:
    after = REGISTRY.flat()
    changes = {name: after[name] - before.get(name, 0) for name in after}
    return {name: each for name, each in changes.items() if each and name.startswith("run_")}


def test_leases_ends_and_refused_writes_are_counted(kept: Holdfast) -> None:
    before = REGISTRY.flat()
    former = acquired(kept)
    with pytest.raises(RunTaken):
        acquired(kept)
    owner = acquired(kept, "always")
    with pytest.raises(StaleRun):
        kept.runs.put(replace(kept.runs.retrieve("run_1"), fence=former.fence))
    owner.end("failed", reason="timeout")

    counted = rise(before)
    assert counted['run_leases_total{outcome="acquired"}'] == 2
    assert counted['run_leases_total{outcome="refused"}'] == 1
    assert counted['run_leases_total{outcome="released"}'] == 1
    assert counted['run_refused_total{reason="taken"}'] == 1
    assert counted['run_refused_total{reason="superseded"}'] >= 1
    assert counted['run_ended_total{kind="task",status="failed",reason="timeout"}'] == 1


def test_runs_are_counted_by_status_and_a_lapsed_one_as_lost(
    kept: Holdfast, clock: FrozenClock
) -> None:
    acquired(kept).end("completed")
    kept.runs.open_run(RunMemory(run_id="run_2"), opening())
    engine = kept.runs.context.engine

    live = gauges(engine, to_microseconds(clock.now()))
    later = gauges(engine, to_microseconds(clock.now() + timedelta(seconds=LONG)))

    assert (live['status{status="completed"}'], live['status{status="running"}']) == (1, 1)
    assert (later['status{status="lost"}'], later['status{status="running"}']) == (1, 0)


def test_events_that_make_room_for_newer_ones_are_counted(kept: Holdfast) -> None:
    context = kept.runs.context
    begin(context, start("ada"))
    events = [
        RunEvent(type="log", seq=0, at=1, run_id="run_1", data={"content": "x" * 1_000_000})
        for _ in range(18)
    ]
    before = REGISTRY.flat()

    for number, each in enumerate(events, start=1):
        take(context, "run_1", RunReport(holder="ada", number=number, fence=1, events=(each,)))

    assert rise(before)["run_events_dropped_total"] == 2


def test_an_event_is_reported_and_read_in_half_a_second_at_most() -> None:
    until_it_is_reported, until_it_is_read = InEngine.pause, LOOKS_EVERY

    assert until_it_is_reported + until_it_is_read < 0.5
