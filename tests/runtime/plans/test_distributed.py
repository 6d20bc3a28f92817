"""Steps whose items are runs of their own, for any worker."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ToolReturnPart

import holdfast
from holdfast import Holdfast
from holdfast.ground.errors import InvalidPlan
from holdfast.runtime import (
    Context,
    Definition,
    ParallelTaskExecutor,
    RunStart,
    Step,
    Task,
    TaskPlan,
    Worker,
    ask_human,
    definition,
)
from holdfast.testing.scripted import Asked, ScriptedModel, call

PORTS = ["Bergen", "Hull", "Ostend"]


@pytest.fixture(params=["sqlite", "postgres"])
def hf(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    if request.param == "sqlite":
        target = str(tmp_path / "h.db")
    else:
        target = request.getfixturevalue("fresh_postgres_url")
    with holdfast.open(target) as opened:
        yield opened


def plan(**options: Any) -> TaskPlan:
    """Return a plan that lists ports, sounds each one in a run of its own, and sums up."""
    steps = [
        Step(
            id="list",
            instructions="List the ports.",
            output_schema={"type": "array", "items": {"type": "string"}},
        ),
        Step(
            id="sound",
            instructions="Sound {item}.",
            depends_on=["list"],
            mode="process",
            distribute=True,
            **options,
        ),
        Step(id="sum", instructions="Sum up.", depends_on=["sound"]),
    ]
    return TaskPlan(title="Ports", tasks=[Task(id="ports", title="Ports", steps=steps)])


_WORK = re.compile(r"(List the ports|Sum up|Sound (\w+))\.")


def work_of(asked: Asked) -> str:
    """Return which step is *asked* for: list, sum, or the port of an item."""
    found = _WORK.search(asked.text)
    assert found is not None, asked.text
    return {"List the ports": "list", "Sum up": "sum"}.get(found[1], found[2])


def returned(asked: Asked) -> list[str]:
    """Return what tools returned to the step so far."""
    parts = (part for message in asked.messages for part in message.parts)
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


def finished(asked: Asked, result: Any) -> Any:
    """Return the answer that ends a step with *result*."""
    return call("finish_step", result=result) if "finish_step" in asked.offered else result


class Log:
    """What a plan of ports asks its model, and a definition of it."""

    def __init__(self, *refused: str, options: dict[str, Any] | None = None) -> None:
        self.asked: list[str] = []
        self.refused, self.options = refused, options or {}

    def _answer(self, asked: Asked) -> Any:
        what = work_of(asked)
        self.asked.append(what)
        if what in self.refused:
            raise RuntimeError(f"no soundings of {what}")
        results = {"list": PORTS, "sum": "summed"}
        return finished(asked, results.get(what, f"{what} is deep"))

    @property
    def model(self) -> ScriptedModel:
        """Answers each step."""
        return ScriptedModel(self._answer)

    @property
    def definition(self) -> Definition:
        """The plan as a definition."""

        @definition("ports")
        def ports(start: RunStart) -> ParallelTaskExecutor:
            start.context.model = self.model
            return ParallelTaskExecutor(plan=plan(**self.options), context=start.context)

        return ports


async def ended(worker: Worker, hf: Holdfast, run_id: str = "run_1") -> None:
    """Let *worker* work until the run is over."""
    async with asyncio.timeout(60):
        while not hf.runs.retrieve(run_id).ended:
            await worker.turn()
            await worker.join()


def finish(hf: Holdfast, *definitions: Definition) -> None:
    """Let a worker with room for one run end `run_1`."""
    asyncio.run(ended(Worker(hf, definitions, concurrency=1), hf))


def items(hf: Holdfast) -> dict[str, str]:
    """Return the statuses of the runs of items, by id."""
    return {each.id: each.status for each in hf.runs.list(parent="run_1")}


def test_a_worker_with_room_for_one_run_does_each_item_in_a_run_of_its_own(hf: Holdfast) -> None:
    log = Log()
    hf.runs.start("ports", run_id="run_1", metadata={"user": "ada"})
    finish(hf, log.definition)

    assert sorted(log.asked) == ["Bergen", "Hull", "Ostend", "list", "sum"]
    assert items(hf) == {f"run_1.sound.{n}": "completed" for n in range(3)}
    sound: Any = hf.runs.at("run_1").memory.get_value("step:sound")
    assert [each["result"] for each in sound] == [f"{port} is deep" for port in PORTS]
    item, run = hf.runs.retrieve("run_1.sound.1"), hf.runs.retrieve("run_1")
    assert (item.parent_id, item.definition, item.metadata) == ("run_1", "ports", {"user": "ada"})
    assert (item.usage.requests, run.usage.requests) == (1, 5)
    assert run.status == "completed"


def test_items_are_done_under_dbos_with_room_for_one_run(hf: Holdfast) -> None:
    log = Log()
    hf.runs.start("ports", run_id="run_1")

    async def work() -> None:
        worker = Worker(hf, log.definition, concurrency=1, engine="dbos")
        working = asyncio.create_task(worker.work())
        async with asyncio.timeout(120):
            await asyncio.to_thread(list, hf.runs.follow("run_1"))
        worker.stop()
        await working

    asyncio.run(work())

    assert sorted(log.asked) == ["Bergen", "Hull", "Ostend", "list", "sum"]
    assert set(items(hf).values()) == {"completed"}


def test_the_run_waits_for_its_items_and_says_so(hf: Holdfast) -> None:
    log = Log()
    hf.runs.start("ports", run_id="run_1")

    async def one_stay() -> None:
        worker = Worker(hf, log.definition, concurrency=1)
        await worker.turn()
        await worker.join()

    asyncio.run(one_stay())

    assert hf.runs.retrieve("run_1").status == "waiting"
    assert set(items(hf).values()) == {"queued"}
    finish(hf, log.definition)
    types = [each.type for each in hf.runs.follow("run_1")]
    assert types.count("run.completed") == 1
    assert types.index("run.waiting") < types.index("run.resumed") < types.index("run.completed")
    told = [each for each in hf.runs.follow("run_1") if each.part == "sound.2"]
    assert [each.type for each in told] == [
        "step.started",
        "version.kept",
        "step.completed",
        "step.result",
    ]


def test_two_workers_share_the_items(hf: Holdfast) -> None:
    logs = [Log(), Log()]
    hf.runs.start("ports", run_id="run_1")

    async def work() -> None:
        workers = [Worker(hf, each.definition, concurrency=1) for each in logs]
        async with asyncio.timeout(60):
            while not hf.runs.retrieve("run_1").ended:
                for each in workers:
                    await each.turn()
                await asyncio.gather(*(each.join() for each in workers))

    asyncio.run(work())

    assert all(set(each.asked) & set(PORTS) for each in logs)
    assert sorted(logs[0].asked + logs[1].asked) == ["Bergen", "Hull", "Ostend", "list", "sum"]


def test_an_item_that_fails_is_one_of_the_step(hf: Holdfast) -> None:
    log = Log("Hull", options={"on_item_error": "skip"})
    hf.runs.start("ports", run_id="run_1")
    finish(hf, log.definition)

    assert hf.runs.retrieve("run_1.sound.1").status == "failed"
    sound: Any = hf.runs.at("run_1").memory.get_value("step:sound")
    assert [each["ok"] for each in sound] == [True, False, True]
    assert "no soundings of Hull" in sound[1]["error"]
    assert hf.runs.retrieve("run_1").status == "completed"


def test_a_step_whose_items_fail_fails_its_run(hf: Holdfast) -> None:
    log = Log("Hull")
    hf.runs.start("ports", run_id="run_1")
    finish(hf, log.definition)

    run = hf.runs.retrieve("run_1")
    assert (run.status, run.reason) == ("failed", "steps")
    assert "1 of 3 items failed (1)" in (run.detail or "")
    assert "sum" not in log.asked


def test_an_item_reads_what_its_run_knew(hf: Holdfast) -> None:
    seen: list[str] = []

    def answer(asked: Asked) -> Any:
        if (what := work_of(asked)) in ("list", "sum"):
            return finished(asked, PORTS[:1] if what == "list" else "summed")
        if not returned(asked):
            return call("memory_read", keys=["step:list"])
        seen.append(str(returned(asked)))
        return finished(asked, "deep")

    @definition("ports")
    def ports(start: RunStart) -> ParallelTaskExecutor:
        start.context.model = ScriptedModel(answer)
        return ParallelTaskExecutor(plan=plan(), context=start.context)

    hf.runs.start("ports", run_id="run_1")
    finish(hf, ports)

    assert hf.runs.retrieve("run_1").status == "completed"
    assert len(seen) == 1
    assert "Bergen" in seen[0]
    # What the item was given is not stored once more.
    kept = hf.runs.at("run_1.sound.0").memory
    assert [entry.key for entry in kept.snapshot()] == ["step:sound.0"]


def test_an_item_asks_a_person_and_its_run_goes_on_after_the_answer(hf: Holdfast) -> None:
    def sound() -> str:
        return f"{ask_human('How deep?')} fathoms"

    def answer(asked: Asked) -> Any:
        if (what := work_of(asked)) in ("list", "sum"):
            return finished(asked, PORTS[:1] if what == "list" else "summed")
        return finished(asked, "deep") if returned(asked) else call("sound")

    @definition("ports")
    def ports(start: RunStart) -> ParallelTaskExecutor:
        start.context.model = ScriptedModel(answer)
        return ParallelTaskExecutor(plan=plan(), context=start.context, tools=[sound])

    async def until_asked() -> None:
        worker = Worker(hf, ports, concurrency=1)
        async with asyncio.timeout(60):
            while not hf.runs.questions().data:
                await worker.turn()
                await worker.join()

    hf.runs.start("ports", run_id="run_1")
    asyncio.run(until_asked())
    assert (hf.runs.retrieve("run_1").status, items(hf)) == (
        "waiting",
        {"run_1.sound.0": "waiting"},
    )
    hf.runs.answer("run_1.sound.0", "seven")
    finish(hf, ports)

    assert hf.runs.retrieve("run_1").status == "completed"


def test_the_items_of_a_cancelled_run_are_cancelled(hf: Holdfast) -> None:
    log = Log()
    hf.runs.start("ports", run_id="run_1")

    async def stay_then_look() -> None:
        worker = Worker(hf, log.definition, concurrency=1)
        await worker.turn()
        await worker.join()
        hf.runs.cancel("run_1", "enough")
        await worker.turn()
        await worker.join()

    asyncio.run(stay_then_look())

    assert set(items(hf).values()) == {"cancelled"}
    assert not set(log.asked) & set(PORTS)


def test_without_a_worker_items_are_done_in_this_process(hf: Holdfast) -> None:
    log = Log()
    context = Context(run_id="run_1", hf=hf, model=log.model)
    asyncio.run(ParallelTaskExecutor(plan=plan(), context=context).run())

    assert sorted(log.asked) == ["Bergen", "Hull", "Ostend", "list", "sum"]
    assert items(hf) == {}


def test_only_a_step_that_processes_items_is_distributed() -> None:
    alone = Task(id="a", title="A", steps=[Step(id="s", instructions="Do it.", distribute=True)])
    with pytest.raises(InvalidPlan, match="distribute: is only for a step with mode process"):
        ParallelTaskExecutor(
            plan=TaskPlan(title="P", tasks=[alone]), context=Context(model=Log().model)
        )
