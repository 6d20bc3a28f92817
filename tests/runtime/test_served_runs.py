"""A run that is seen, cancelled and spoken to over HTTP, by a server in the same process."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from runtime.plans.workers import Workers, plan, task
from stepping import Stepping, names

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.memory import RunMemory
from holdfast.runtime import Context, ParallelTaskExecutor
from holdfast.testing import call
from holdfast.testing.serving import serving

pytestmark = pytest.mark.anyio

BOUND = 60


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "a.db") as hf:
        yield hf


@pytest.fixture
async def http(hf: Holdfast) -> AsyncIterator[httpx.AsyncClient]:
    with serving(hf, clock=SystemClock()) as url:
        async with httpx.AsyncClient(base_url=url) as client:
            yield client


class Looking:
    """A step that looks until it is let go, as a task of the test's."""

    def __init__(self, hf: Holdfast) -> None:
        self._begun, self._enough = asyncio.Event(), asyncio.Event()
        self.stepping = Stepping(
            [call("look"), "Three."], context=Context(hf=hf), tools=[self.look]
        )
        self.path = f"/api/runs/{self.stepping.context.run_id}"

    async def look(self) -> str:
        """Look."""
        self._begun.set()
        await self._enough.wait()
        return "Ships."

    async def begin(self) -> "asyncio.Task[list[Any]]":
        work = asyncio.create_task(self.stepping.events())
        await asyncio.wait_for(self._begun.wait(), BOUND)
        return work

    def let_go(self) -> None:
        self._enough.set()


async def test_a_run_is_shown_while_it_lasts_and_cancelled(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    looking = Looking(hf)
    work = await looking.begin()

    before = await http.get(looking.path)
    said = await http.post(f"{looking.path}/cancel", json={"reason": "enough"})
    events = await asyncio.wait_for(work, BOUND)
    after = await http.post(f"{looking.path}/cancel")

    assert (before.json()["state"], said.status_code) == ("running", 202)
    assert names(events)[-2:] == ["step_cancelled", "cancelled"]
    assert events[-1].reason == "enough"
    assert (after.status_code, after.json()["error"]["reason"]) == (409, "ended")
    assert (await http.get(looking.path)).json()["state"] == "cancelled"


async def test_a_running_step_is_spoken_to(hf: Holdfast, http: httpx.AsyncClient) -> None:
    looking = Looking(hf)
    work = await looking.begin()

    said = await http.post(f"{looking.path}/steer", json={"text": "Only the big ones."})
    nobody = await http.post(f"{looking.path}/steer", json={"text": "Hurry.", "step": "no"})
    looking.let_go()
    await asyncio.wait_for(work, BOUND)

    assert (said.status_code, said.json()) == (200, {"steps": ["count"]})
    assert (nobody.status_code, nobody.json()["error"]["id"]) == (404, "no")
    assert "Only the big ones." in looking.stepping.model.asked[1].text


async def test_a_run_begun_with_another_handle_of_the_process_is_reached(
    http: httpx.AsyncClient, tmp_path: Path
) -> None:
    with holdfast.open(tmp_path / "a.db") as other:
        looking = Looking(other)
        work = await looking.begin()
        other.run_attachments.flush()

        steered = await http.post(f"{looking.path}/steer", json={"text": "Hurry."})
        said = await http.post(f"{looking.path}/cancel", json={"reason": "enough"})
        events = await asyncio.wait_for(work, BOUND)

    assert steered.json() == {"steps": ["count"]}
    assert said.status_code == 202
    assert events[-1].reason == "enough"


async def test_a_run_of_the_same_id_in_another_database_is_left_alone(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    with holdfast.open(":memory:") as other:
        looking = Looking(other)
        over = hf.runs.attach(RunMemory(run_id=looking.stepping.context.run_id), name="n")
        work = await looking.begin()

        said = await http.post(f"{looking.path}/cancel")
        looking.let_go()
        events = await asyncio.wait_for(work, BOUND)
        over()

    assert (said.status_code, said.json()["error"]["reason"]) == (409, "not_held")
    assert names(events)[-1] == "completed"


async def test_a_plan_keeps_what_was_done_when_it_is_cancelled(
    hf: Holdfast, http: httpx.AsyncClient
) -> None:
    workers, begun = Workers(), asyncio.Event()
    workers.wait("b1")
    workers.on_begin = lambda id: begun.set() if id == "b1" else None
    tasks = plan(task("a"), task("b", depends_on=["a"]), title="x" * 500)
    run = ParallelTaskExecutor(plan=tasks, context=workers.context(hf=hf))
    path = f"/api/runs/{run.context.run_id}"

    async def events() -> list[Any]:
        return [event async for event in run.execute()]

    work = asyncio.create_task(events())
    await asyncio.wait_for(begun.wait(), BOUND)
    assert (await http.post(f"{path}/cancel")).status_code == 202
    told = await asyncio.wait_for(work, BOUND)

    assert told[-1].event == "cancelled"
    record = (await http.get(path)).json()
    assert (record["state"], len(record["name"])) == ("cancelled", 256)
    listed = (await http.get(f"{path}/entries")).json()
    assert [each["key"] for each in listed["entries"]] == ["task:a", "step:a1"]
