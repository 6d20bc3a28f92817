"""Followers of runs through a server that is killed and started again in the middle."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from followers import SECONDS, Follower, following, ordered
from runtime.plans.workers import plan, step, task
from served import served
from teams import LAY_OUT, a_team, an_agent, create, opening, work

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Context, ParallelTaskExecutor, ToolContext
from holdfast.testing.postgres import TEMPLATE
from holdfast.testing.scripted import Asked, ScriptedModel, call

WAYS = ("remote", "stream")
RUNS = ("run_plan", "run_team", "run_later")


class Gate:
    """A tool in which a run stops until it is opened."""

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


async def of_a_plan(hf: Holdfast, gate: Gate, run_id: str = RUNS[0]) -> None:
    """Execute a plan that stops in *gate*."""

    def act(asked: Asked) -> object:
        stops = not gate.reached.is_set() and "Work on a1." in asked.text
        return ["I wait.", call("gate")] if stops else "done"

    context = Context(run_id=run_id, model=ScriptedModel(act), hf=hf)
    plans = plan(task("a", step("a1"), step("a2", "a1")), task("b", depends_on=["a"]))
    await ParallelTaskExecutor(plan=plans, context=context, tools=[gate.gate]).run()


async def of_a_team(hf: Holdfast, gate: Gate) -> None:
    """Execute a team that stops in *gate*, and sends messages before and after."""
    sent: list[str] = []

    def message(subject: str) -> object:
        sent.append(subject)
        return call("send_message", to="bob", subject=subject, body="Go on.")

    def act(asked: Asked) -> object:
        if LAY_OUT in opening(asked):
            return [create("Count"), message("First")]
        if not gate.reached.is_set():
            return call("gate")
        return message("Second") if len(sent) == 1 else work(asked)

    ada = an_agent("ada", act, tools=[gate.gate])
    await a_team(ada, an_agent("bob"), context=Context(run_id=RUNS[1], hf=hf)).run()


async def of_a_plan_later(hf: Holdfast, gate: Gate) -> None:
    """Execute a plan that does not stop."""
    gate.opened.set()
    await of_a_plan(hf, gate, RUNS[2])


class Running:
    """A run on a thread, with its own handle on the database at *target*."""

    def __init__(self, target: str, execute: Callable[[Holdfast, Gate], Awaitable[None]]) -> None:
        self.gate = Gate()

        def run() -> None:
            with holdfast.open(target) as hf, asyncio.Runner() as runner:
                runner.run(execute(hf, self.gate))  # pyright: ignore[reportArgumentType] - a coroutine

        self._thread = Thread(target=run, daemon=True)
        self._thread.start()

    def end(self) -> None:
        """Open the gate, and wait for the end of the run."""
        self.gate.opened.set()
        self._thread.join(SECONDS)
        assert not self._thread.is_alive()


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "h.db")
    server: Any = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))


def test_followers_see_each_event_once_over_a_restart_of_the_server(target: str) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(served(target))
        followers: dict[tuple[str, str], Follower] = {
            (way, run_id): following(way, first.url, run_id, wait=SECONDS)
            for way in WAYS
            for run_id in RUNS
        }
        stopped = [Running(target, of_a_plan), Running(target, of_a_team)]
        for (_, run_id), follower in followers.items():
            if run_id != RUNS[2]:
                follower.until("tool.called", name="gate")
        first.kill()
        second = stack.enter_context(served(target, port=first.port))
        assert second.url == first.url
        for running in (*stopped, Running(target, of_a_plan_later)):
            running.end()
        got = {each: follower.all() for each, follower in followers.items()}

    with holdfast.open(target) as hf:
        stored = {id: [each.to_dict() for each in hf.runs.follow(id)] for id in RUNS}
    for (_, run_id), seen in got.items():
        assert seen == stored[run_id]
    for events in stored.values():
        ordered(events)
    sent = [each for each in stored[RUNS[1]] if each["type"] == "message.sent"]
    assert [each["data"]["subject"] for each in sent] == ["First", "Second"]
