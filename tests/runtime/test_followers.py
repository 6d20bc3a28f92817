"""What followers of a run receive: that which is stored, whenever and however they attach."""

import asyncio
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Event, Thread

import pytest
from followers import SECONDS, WAYS, Follower, Told, following, ordered
from runtime.plans.workers import plan, step, task

import holdfast
from holdfast.errors import NotFound, RunWaiting, Unavailable
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.library.remote import runs
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records import write
from holdfast.runtime import Context, ParallelTaskExecutor, ToolContext, ask_human
from holdfast.testing.postgres import TEMPLATE, PostgresServer
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.testing.serving import serving

TYPES = ["memory.written", "tool.called", "run.completed"]
MOMENTS: dict[str, Told] = {
    "before": {"wait": SECONDS},
    "before, types": {"wait": SECONDS, "types": TYPES},
    "during": {"after": 3},
    "after": {},
    "after, the rest": {"after": 3},
}
"""When followers of the run `run_1` attach, and with what."""

RESTS: dict[str, Told] = {"goes on": {"wait": SECONDS}, "rests": {"wait": SECONDS, "rest": True}}
"""Followers of the run `run_2`, which waits for an answer."""

WITHOUT = {("command", "after, the rest"), ("command", "goes on")}
"""Left out, because a process takes its time."""

ON = {"sqlite": tuple(WAYS), "postgres": ("library", "remote")}
SERVED = ("remote", "stream")
CASES = [(on, way) for on, ways in ON.items() for way in ways]


class Sluice:
    """A plan of two tasks with tools and writes; its run stops in a tool until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = Event(), Event()

    async def gate(self, ctx: ToolContext) -> str:
        """Wait until the gate is open."""
        assert ctx.memory is not None
        ctx.memory.set("shared:level", 1)
        self.reached.set()
        assert await asyncio.to_thread(self.opened.wait, SECONDS)
        ctx.memory.set("shared:level", 2)
        return "open"

    def act(self, asked: Asked) -> object:
        """Pass the gate in the first step, and finish."""
        first = not self.reached.is_set() and "Work on a1." in asked.text
        return ["I wait.", call("gate")] if first else "done"

    async def run(self, hf: Holdfast) -> None:
        """Execute the run `run_1`."""
        context = Context(run_id="run_1", model=ScriptedModel(self.act), hf=hf)
        steps = task("a", step("a1"), step("a2", "a1"))
        plans = plan(steps, task("b", depends_on=["a"]))
        await ParallelTaskExecutor(plan=plans, context=context, tools=[self.gate]).run()


def berth() -> str:
    """Ask for a berth."""
    return f"berth {ask_human('Which berth?')}"


async def ask(hf: Holdfast) -> None:
    """Execute the run `run_2` until it waits, or to its end."""
    model = ScriptedModel(lambda asked: "moored" if "berth 7" in asked.text else call("berth"))
    context = Context(run_id="run_2", model=model, hf=hf)
    await ParallelTaskExecutor(plan=plan(task("a")), context=context, tools=[berth]).run()


@contextmanager
def executed(target: str | Path, sluice: Sluice) -> Generator[None]:
    """Let the run of *sluice* stop in the middle; open the gate after the block."""

    def execute() -> None:
        with holdfast.open(target) as hf:
            asyncio.run(sluice.run(hf))

    running = Thread(target=execute, daemon=True)
    running.start()
    assert sluice.reached.wait(SECONDS)
    try:
        yield
    finally:
        sluice.opened.set()
        running.join(SECONDS)
    assert not running.is_alive()


class Received:
    """What followers got at *target*, by way and moment, and what is stored of each run."""

    def __init__(self, target: str | Path, ways: tuple[str, ...]) -> None:
        self.by: dict[tuple[str, str], list[Told]] = {}
        with holdfast.open(target) as hf, serving(hf, clock=SystemClock()) as url:
            self._at = {way: url if way in SERVED else target for way in ways}
            early = self._following("run_1", ["before", "before, types"])
            with executed(target, Sluice()):
                attached = early | self._following("run_1", ["during"])
                for follower in attached.values():
                    follower.until("tool.called", name="gate")
            self._collect(attached)
            self._collect(self._following("run_1", ["after", "after, the rest"]))
            self._rest(hf)
            self.stored, self.rested = (
                [each.to_dict() for each in hf.runs.follow(run_id)] for run_id in ("run_1", "run_2")
            )

    def _following(self, run_id: str, moments: Iterable[str]) -> dict[tuple[str, str], Follower]:
        return {
            (way, moment): following(way, target, run_id, **(MOMENTS | RESTS)[moment])
            for way, target in self._at.items()
            for moment in moments
            if (way, moment) not in WITHOUT
        }

    def _collect(self, followers: dict[tuple[str, str], Follower]) -> None:
        self.by |= {each: follower.all() for each, follower in followers.items()}

    def _rest(self, hf: Holdfast) -> None:
        """Follow a run that waits, and goes on once it is answered."""
        resting = self._following("run_2", RESTS)
        with pytest.raises(RunWaiting):
            asyncio.run(ask(hf))
        self._collect({each: found for each, found in resting.items() if each[1] == "rests"})
        for follower in resting.values():
            follower.until("run.waiting")
        hf.runs.answer("run_2", "7")
        asyncio.run(ask(hf))
        self._collect(resting)


Got = Callable[[str], Received]


@pytest.fixture(scope="module")
def got(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Got:
    """Give a function that returns what followers got on a database, of one run for all tests."""

    @cache
    def received(on: str) -> Received:
        if on == "sqlite":
            return Received(tmp_path_factory.mktemp("followed") / "h.db", ON[on])
        return Received(postgres_server.url(postgres_server.new_database(TEMPLATE)), ON[on])

    return received


@pytest.mark.parametrize(
    ("on", "way", "moment"),
    [(*case, each) for case in CASES for each in MOMENTS if (case[1], each) not in WITHOUT],
)
def test_a_follower_gets_what_is_stored(got: Got, on: str, way: str, moment: str) -> None:
    options, found = MOMENTS[moment], got(on)
    stored = found.stored

    assert [each["seq"] for each in stored] == list(range(1, len(stored) + 1))
    assert found.by[way, moment] == [
        each
        for each in stored[options.get("after", 0) :]
        if each["type"] in options.get("types", [each["type"]])
    ]


@pytest.mark.parametrize(("on", "way"), CASES)
def test_a_follower_ends_where_a_run_waits_or_goes_on_after_the_answer(
    got: Got, on: str, way: str
) -> None:
    found = got(on)
    waits = [each["type"] for each in found.rested].index("run.waiting") + 1

    assert found.by[way, "rests"] == found.rested[:waits]
    assert found.by.get((way, "goes on"), found.rested) == found.rested
    assert found.rested[-1]["type"] == "run.completed"


@pytest.mark.parametrize("on", ON)
def test_a_run_is_stored_in_causal_order(got: Got, on: str) -> None:
    stored = got(on).stored

    ordered(stored)
    assert not {"text.delta", "reasoning.delta"} & {each["type"] for each in stored}


KEPT = 1_500
"""Events that are stored of a run here."""
MANY = KEPT + 50
"""Writes in one step."""


async def much(hf: Holdfast) -> None:
    """Execute the run `run_3`, which emits more events than are stored."""

    def publish(ctx: ToolContext) -> str:
        """Write again and again."""
        assert ctx.memory is not None
        for number in range(MANY):
            ctx.memory.set("shared:level", number)
        return "written"

    model = ScriptedModel(lambda asked: "done" if "written" in asked.text else call("publish"))
    context = Context(run_id="run_3", model=model, hf=hf)
    await ParallelTaskExecutor(plan=plan(task("a")), context=context, tools=[publish]).run()


def test_more_events_than_are_stored_are_a_gap_through_a_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "EVENTS_KEPT", KEPT)
    path = tmp_path / "h.db"
    with holdfast.open(path) as hf, serving(hf, clock=SystemClock()) as url:
        early = [following(way, url, "run_3", wait=SECONDS) for way in SERVED]
        asyncio.run(much(hf))
        seen = [follower.all() for follower in early]
        late = [following(way, url, "run_3").all() for way in SERVED]
        stored = [each.to_dict() for each in hf.runs.follow("run_3")]

    (gap, *rest) = stored
    assert gap["type"] == "gap"
    assert gap["data"] == {"missed": gap["seq"]}
    assert len(rest) == KEPT
    assert [each["seq"] for each in rest] == list(range(gap["seq"] + 1, rest[-1]["seq"] + 1))
    assert rest[-1]["type"] == "run.completed"
    assert gap["seq"] + len(rest) > MANY
    assert late == [stored, stored]
    for each in seen:
        # One that followed from the start has every event, or a gap in its place.
        missed = sum(event["data"]["missed"] for event in each if event["type"] == "gap")
        there = [event for event in each if event["type"] != "gap"]
        assert missed + len(there) == rest[-1]["seq"]
        assert [event["seq"] for event in each] == sorted({event["seq"] for event in each})
        assert each[-1]["type"] == "run.completed"


def test_a_follower_waits_for_a_run_as_long_as_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "WAIT_AT_ONCE", 0.02)
    with (
        holdfast.open(tmp_path / "h.db") as hf,
        serving(hf, clock=SystemClock()) as url,
        holdfast.open(url) as remote,
        pytest.raises(NotFound),
    ):
        next(remote.runs.follow("run_none", wait=0.2))


def test_a_follower_of_a_server_that_stays_away_raises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "AWAY_MOST", 0.2)
    with holdfast.open(tmp_path / "h.db") as hf:
        over = hf.runs.attach(RunMemory(run_id="run_1"), name="research")
        with serving(hf, clock=SystemClock()) as url:
            remote = holdfast.open(url)
            events = remote.runs.follow("run_1")
            assert next(events).type == "run.started"
        with pytest.raises(Unavailable):
            next(events)
        remote.close()
        over()
