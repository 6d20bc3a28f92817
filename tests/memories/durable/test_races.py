"""Many writers at once, in threads and in processes: counts, caps and order stay exact."""

import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from threading import Barrier
from typing import Any

import durable_racing
import pytest
from durable_racing import ACTS, AGENT
from fork_server import forked_script
from memories.durable.beneath import everything, misfits

import holdfast
from holdfast.ground.errors import MemoryFull
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.serving import new_workspace

RACERS, TIMES = 4, 30
CAP = 10

Told = dict[str, Any]


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def durable(hf: Holdfast) -> DurableMemory:
    return hf.durable(AGENT)


class Racers:
    """What races, in threads of this process or in processes of their own."""

    def __init__(self, hf: Holdfast, target: str, *, processes: bool) -> None:
        self._hf, self._target, self._processes = hf, target, processes

    def race(self, act: str, times: int = TIMES) -> list[list[Told]]:
        """Return what each racer said of its acts, in its order."""
        return (
            self._processes_race(act, times) if self._processes else self._threads_race(act, times)
        )

    def _threads_race(self, act: str, times: int) -> list[list[Told]]:
        start = Barrier(RACERS)

        def one(number: int) -> list[Told]:
            start.wait()
            return list(ACTS[act](self._hf.durable(AGENT), f"racer {number}", times))

        with ThreadPoolExecutor(RACERS) as pool:
            return list(pool.map(one, range(RACERS)))

    def _processes_race(self, act: str, times: int) -> list[list[Told]]:
        racer, place = Path(durable_racing.__file__), (self._target, self._hf.workspace)
        racers = [
            subprocess.Popen(
                forked_script(racer, *place, act, f"racer {number}", str(times)),
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for number in range(RACERS)
        ]
        for each in racers:
            assert each.stdout is not None
            assert each.stdout.readline() == "ready\n"
        for each in racers:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        said = [each.communicate()[0] for each in racers]
        assert [each.returncode for each in racers] == [0] * RACERS
        return [[json.loads(line) for line in text.splitlines()] for text in said]


@pytest.fixture(params=["threads", "processes"])
def racers(request: pytest.FixtureRequest, hf: Holdfast, target: str) -> Racers:
    return Racers(hf, target, processes=request.param == "processes")


def in_order(said: list[list[Told]]) -> list[Told]:
    """Return all that was *said*, by number; each racer's own rose, and none was given twice."""
    for own in said:
        assert all(one["seq"] < next["seq"] for one, next in pairwise(own))
    every = sorted((each for own in said for each in own), key=lambda each: each["seq"])
    assert len({each["seq"] for each in every}) == len(every)
    return every


def check_whole(hf: Holdfast) -> None:
    assert misfits(hf) == []
    assert hf.verify().findings == ()


def test_of_many_writers_of_one_key_each_writes_once(
    hf: Holdfast, durable: DurableMemory, racers: Racers
) -> None:
    every = in_order(racers.race("one_key"))

    entry = durable.get("key")
    assert entry is not None
    assert [each["outcome"] for each in every] == ["created"] + ["replaced"] * (RACERS * TIMES - 1)
    assert {each["id"] for each in every} == {entry.id}
    assert entry.seq == every[-1]["seq"]
    logged = [change.seq for change in durable.history("key").data]
    assert logged == [each["seq"] for each in every[::-1][:20]]
    check_whole(hf)


def test_of_many_keys_as_many_are_kept_as_may_be(
    hf: Holdfast, durable: DurableMemory, racers: Racers
) -> None:
    durable.set_limits(cap=CAP)

    said = racers.race("many_keys")

    every = in_order(said)
    kept = [entry.seq for entry in durable.list(limit=1000).data]
    assert kept == [each["seq"] for each in every[::-1][:CAP]]
    order = {
        f"racer {number} {time}": each["seq"]
        for number, own in enumerate(said)
        for time, each in enumerate(own)
    }
    # Each that goes is the coldest there is: so all go in the order in which they came.
    evicted = [order[key] for each in every for key in each["evicted"]]
    assert evicted == [each["seq"] for each in every[:-CAP]]
    assert hf.durable_agents().data[0].entries == CAP
    check_whole(hf)


def test_a_key_that_moves_to_and_fro_is_in_one_place_of_the_agents_at_a_time(
    hf: Holdfast, durable: DurableMemory, racers: Racers
) -> None:
    every = in_order(racers.race("shared_and_own"))

    entries = durable.list(limit=1000).data
    assert [entry.seq for entry in entries][:1] == [every[-1]["seq"]]
    assert len(entries) <= 2
    assert len({entry.scope for entry in entries}) == len(entries)
    check_whole(hf)


def test_of_all_who_race_to_open_a_lane_exactly_one_stays_live(
    hf: Holdfast, durable: DurableMemory, racers: Racers
) -> None:
    said = racers.race("lane", times=8)

    opened = sorted(each["token"] for own in said for each in own if "opened" in each)
    live = [run for run in everything(hf)["durable_runs"] if run["ended_at"] is None]
    assert len(set(opened)) == RACERS * 8
    assert [run["token"] for run in live] == [opened[-1]]
    for own in said:
        for each in own:
            if "live" in each:
                assert each["live"] > each["token"]
            elif "seq" in each:
                # It wrote before the next in line had opened, and not a moment later.
                later = [token for token in opened if token > each["token"]]
                assert all(each["seq"] < token for token in later[:1])
    check_whole(hf)
    assert durable.run(lane="one").token > opened[-1]


def test_what_all_agents_share_has_one_cap_for_all(hf: Holdfast) -> None:
    hf.set_durable_limits(workspace_cap=CAP)
    start = Barrier(RACERS)

    def write(number: int) -> list[str]:
        start.wait()
        durable = hf.durable(f"agent_{number}")
        sets = [durable.set(f"{number} {n}", "x", category="workspace") for n in range(TIMES)]
        return [gone.key for stored in sets for gone in stored.evicted]

    with ThreadPoolExecutor(RACERS) as pool:
        evicted = [key for keys in pool.map(write, range(RACERS)) for key in keys]

    assert len(evicted) == len(set(evicted)) == RACERS * TIMES - CAP
    assert len(hf.durable("agent_0").list(category="workspace").data) == CAP
    check_whole(hf)


def test_where_all_is_core_no_writer_takes_a_place(hf: Holdfast, durable: DurableMemory) -> None:
    durable.set_limits(cap=2)
    durable.set("core 1", "x", category="core")
    start = Barrier(RACERS)

    def write(number: int) -> str:
        start.wait()
        try:
            return durable.set(f"{number}", "x", category="core" if number else "note").outcome
        except MemoryFull:
            return "full"

    with ThreadPoolExecutor(RACERS) as pool:
        outcomes = list(pool.map(write, range(RACERS)))

    assert outcomes[1:] == ["created"] * (RACERS - 1)
    assert len(durable.list(category="core").data) == 2
    check_whole(hf)


def test_one_idempotency_key_writes_once_however_many_ask(
    hf: Holdfast, durable: DurableMemory
) -> None:
    start = Barrier(RACERS)

    def write(_: int) -> int:
        start.wait()
        return durable.set("key", "x", category="core", idempotency_key="once").seq

    with ThreadPoolExecutor(RACERS) as pool:
        numbers = list(pool.map(write, range(RACERS)))

    assert len(set(numbers)) == 1
    assert len(durable.history("key").data) == 1
    check_whole(hf)


def test_forgetting_and_storing_at_once_leave_one_of_the_two(
    hf: Holdfast, durable: DurableMemory
) -> None:
    for number in range(5):
        durable.set("key", "before", category="core")
        start = Barrier(RACERS)

        def act(turn: int, start: Barrier = start) -> None:
            start.wait()
            if turn % 2:
                durable.forget("key")
            else:
                hf.durable(f"agent_{turn}").set(f"key {turn}", "x", category="workspace")
                durable.set("key", f"after {turn}", category="workspace")

        with ThreadPoolExecutor(RACERS) as pool:
            list(pool.map(act, range(RACERS)))

        assert misfits(hf) == [], number
    assert hf.verify().findings == ()
