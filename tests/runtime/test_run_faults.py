"""Runs whose database fails for a while: batches of events are late, and nothing else fails."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import pytest
from runtime.plans.workers import plan, task

import holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.errors import RunWaiting, Unavailable
from holdfast.ground.clock import SystemClock
from holdfast.ground.ids import Ids
from holdfast.ground.scope import LOCAL, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.event import ENDS, LIVE, RunEvent
from holdfast.memories.run.records.mirror import PAUSE
from holdfast.memories.stores.rows import StoresContext
from holdfast.runtime import Agent, Context, ParallelTaskExecutor, ToolContext, ask_human
from holdfast.testing.scripted import Asked, ScriptedModel, call

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Fault:
    """Whether writes fail, and how many have."""

    def __init__(self) -> None:
        self.there, self.refused = False, 0

    def check(self) -> None:
        """Raise Unavailable while there is a fault."""
        if self.there:
            self.refused += 1
            raise Unavailable("No space.", reason="full", written=False)


class Faulty:
    """*engine*, whose writes fail while there is a *fault*."""

    def __init__(self, engine: Engine, fault: Fault) -> None:
        self._engine, self._fault = engine, fault

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def scoped(self, scope: Scope) -> "Faulty":
        """Return it with *scope*'s owner in every statement."""
        return Faulty(self._engine.scoped(scope), self._fault)

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        """Run *work* in a transaction, unless there is a fault."""
        self._fault.check()
        return self._engine.write(work, timeout=timeout)


@pytest.fixture
def fault() -> Fault:
    return Fault()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
def hf(path: Path, fault: Fault) -> Iterator[Holdfast]:
    engine: Any = Faulty(SQLiteEngine.open(path, clock=SystemClock()), fault)
    caller = StoresContext(
        engine=engine.scoped(Scope(workspace="default")),
        workspace="default",
        actor=LOCAL,
        clock=SystemClock(),
        ids=Ids(),
    )
    with Holdfast(engine, caller) as opened:
        yield opened


async def missed(fault: Fault) -> None:
    """Wait until a write has failed."""
    async with asyncio.timeout(60):
        while not fault.refused:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(PAUSE / 10)


def executor(hf: Holdfast, fault: Fault, seen: list[RunEvent]) -> ParallelTaskExecutor:
    """Return a plan of three steps: writes fail from within the first to within the last."""

    async def fall(ctx: ToolContext) -> str:
        """Fail from now on."""
        assert ctx.memory is not None
        fault.there = True
        ctx.memory.set("shared:level", 1)
        await missed(fault)
        return "fallen"

    def rise(ctx: ToolContext) -> str:
        """Fail no more."""
        assert ctx.memory is not None
        ctx.memory.set("shared:level", 2)
        fault.there = False
        return "risen"

    def act(asked: Asked) -> object:
        for id, name, done in (("a1", "fall", "fallen"), ("c1", "rise", "risen")):
            if f"Work on {id}." in asked.text and done not in asked.text:
                return call(name)
        return "done"

    tasks = plan(task("a"), task("b", depends_on=["a"]), task("c", depends_on=["b"]))
    context = Context(run_id="run_1", model=ScriptedModel(act), hf=hf)
    return ParallelTaskExecutor(
        plan=tasks, context=context, tools=[fall, rise], on_event=seen.append
    )


async def test_a_batch_that_cannot_be_stored_delays_events_and_fails_nothing(
    hf: Holdfast, fault: Fault
) -> None:
    seen: list[RunEvent] = []

    assert await executor(hf, fault, seen).run() == "done"

    assert fault.refused
    stored = {each.seq: each for each in hf.runs.follow("run_1")}
    assert list(stored) == list(range(1, len(stored) + 1))
    emitted = {each.seq: each for each in seen if each.type not in LIVE}
    assert list(emitted) == list(stored)
    gaps = [seq for seq, each in stored.items() if each.type == "gap"]
    # A version is stored with its event, or later with another one.
    assert {emitted[seq].type for seq in gaps} == {"version.kept"}
    assert all(stored[seq] == emitted[seq] for seq in stored if seq not in gaps)
    assert hf.runs.entry("run_1", "shared:level").value == 2


async def test_what_no_version_could_hold_is_in_the_next_one(hf: Holdfast, fault: Fault) -> None:
    await executor(hf, fault, []).run()

    versions = list(hf.runs.versions("run_1"))
    kept = [each for each in hf.runs.follow("run_1") if each.type == "version.kept"]
    state = hf.runs.at("run_1")
    assert [each.data["version"] for each in kept] == [each.number for each in versions][::-1]
    assert {key for each in versions for key in each.changed} >= {"step:a1", "step:b1", "step:c1"}
    assert state.pending == ()
    level = state.memory.get("shared:level")
    assert level is not None
    assert level.value == 2


async def test_an_end_that_cannot_be_stored_is_stored_later(hf: Holdfast, fault: Fault) -> None:
    async def fall() -> str:
        """Fail from now on."""
        fault.there = True
        return "fallen"

    turns = [call("fall"), "Done."]
    ada = Agent("ada", instructions="", model=ScriptedModel(turns), tools=[fall])
    result = await ada.run("Go.", hf=hf, run_id="run_1")
    before = hf.runs.retrieve("run_1").status
    fault.there = False

    assert (result.stop_reason, before) == ("done", "running")
    ends = [each.type for each in hf.runs.follow("run_1") if each.type in ENDS]
    assert ends == ["run.completed"]
    assert hf.runs.retrieve("run_1").reason == "done"


async def test_a_run_that_cannot_be_acquired_requests_nothing_of_a_model(
    hf: Holdfast, fault: Fault
) -> None:
    fault.there, seen = True, list[RunEvent]()
    whole = executor(hf, fault, seen)

    with pytest.raises(Unavailable):
        await whole.run()

    fault.there = False
    assert "model.requested" not in {each.type for each in seen}
    assert list(hf.runs.list()) == []


TRUE: dict[str, Callable[[Holdfast, RunEvent], bool]] = {
    "run.started": lambda hf, event: hf.runs.retrieve(event.run_id).fence > 0,
    "version.kept": lambda hf, event: hf.runs.at("run_1", event.data["version"]).number > 0,
    "question.asked": lambda hf, event: (
        hf.runs.question(event.data["question"]).status in ("open", "answered")
    ),
    "question.answered": lambda hf, event: (
        hf.runs.question(event.data["question"]).status == "answered"
    ),
    "run.waiting": lambda hf, _: hf.runs.retrieve("run_1").status != "running",
    "run.completed": lambda hf, _: hf.runs.retrieve("run_1").status == "completed",
}
"""What is true once an event of each type is stored."""


async def test_what_an_event_tells_is_true_when_a_follower_sees_it(
    hf: Holdfast, path: Path
) -> None:
    def berth() -> str:
        """Ask for a berth."""
        return f"berth {ask_human('Which berth?')}"

    def go_on() -> ParallelTaskExecutor:
        model = ScriptedModel(lambda asked: "moored" if "berth 7" in asked.text else call("berth"))
        context = Context(run_id="run_1", model=model, hf=hf)
        return ParallelTaskExecutor(plan=plan(task("a")), context=context, tools=[berth])

    waiting = Event()

    def watch() -> list[str]:
        found = list[str]()
        with holdfast.open(path) as other:
            for event in other.runs.follow("run_1", wait=60):
                if event.type in TRUE:
                    assert TRUE[event.type](other, event), event
                    found.append(event.type)
                if event.type == "run.waiting":
                    waiting.set()
        return found

    watching = asyncio.create_task(asyncio.to_thread(watch))
    with pytest.raises(RunWaiting):
        await go_on().run()
    # It is true until the run goes on.
    await asyncio.to_thread(waiting.wait, 60)
    hf.runs.answer("run_1", "7")
    await go_on().run()

    assert {*await watching} == {*TRUE}
