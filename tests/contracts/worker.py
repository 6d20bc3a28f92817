"""Contract of workers: queued runs are taken once, in order, and go on elsewhere."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest

from contracts.questions import GivenAWaitingRun, Rest
from contracts.stores import invalid
from holdfast.ground.errors import Conflict, InvalidInput, NotFound, RunTaken, Unsupported
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.turns import KeptTurn
from holdfast.memories.run.history.versions import StateRow, VersionSave
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.lease import (
    ClaimTerms,
    claim,
    free_lost,
    renew,
    sweep_lost,
)
from holdfast.memories.run.records.read import FollowOptions, look
from holdfast.memories.run.records.run import Run
from holdfast.memories.run.records.writer import RunOpening, RunWriter
from holdfast.runtime import (
    Agent,
    Definition,
    FunctionNode,
    Network,
    ParallelTaskExecutor,
    RunStart,
    Step,
    Task,
    TaskPlan,
    Worker,
    Workflow,
    WorkflowRunner,
    ask_human,
    definition,
    resume,
)
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked, ScriptedModel, call

LONG = 61
"""Seconds, more than a lease has."""

Made = Callable[..., Worker]


class Ledger:
    """A definition `report`, and the ids of the runs that it built, in order."""

    def __init__(self) -> None:
        self.built: list[str] = []
        self.inputs: list[Any] = []

    def definition(
        self, *, version: str = "1", queue: str = "default", accepts: tuple[str, ...] = ()
    ) -> Definition:
        @definition("report", version=version, queue=queue, accepts=accepts)
        def report(start: RunStart) -> OneNode:
            self.built.append(start.run_id)
            self.inputs.append(start.input)
            return workflow(start)

        return report


class OneNode:
    """A workflow of one node without inputs."""

    def __init__(self, runner: WorkflowRunner) -> None:
        self._runner = runner

    async def run(self) -> object:
        """Run it."""
        return await self._runner.run()


def workflow(start: RunStart, work: Callable[[], Any] | None = None) -> OneNode:
    """Return a run of one node, which does *work*."""

    async def node(_inputs: object, _context: object) -> dict[str, Any]:
        if work is not None:
            await work()
        return {"said": "done"}

    runner = WorkflowRunner(
        Workflow([FunctionNode("only", node)]), context=start.context, on_mismatch="restart"
    )
    return OneNode(runner)


async def drained(worker: Worker) -> None:
    """Let *worker* take all runs that it may take now, to their ends."""
    while await worker.turn():
        await worker.join()


def drain(worker: Worker) -> None:
    """Do as `drained` does, without an event loop."""
    asyncio.run(drained(worker))


async def begun_by(worker: Worker, count: int) -> int:
    """Let *worker* look, and wait until it has *count* runs; return how many it has."""
    await worker.turn()
    async with asyncio.timeout(60):
        while worker.working < count:  # noqa: ASYNC110 - an engine has no sign for it
            await asyncio.sleep(0.01)
    return worker.working


def types(hf: Holdfast, run_id: str) -> list[str]:
    """Return the types of the run's own events."""
    if hf.runs.retrieve(run_id).ended:
        events = list(hf.runs.follow(run_id))
    else:
        events = look(hf.runs.context, run_id, FollowOptions()).events
    return [each.type for each in events if each.type.startswith("run.")]


def killed(writer: RunWriter) -> None:
    """Let *writer* write nothing any more, as if its process had died."""
    writer._mirror.over = True  # pyright: ignore[reportPrivateUsage] - its thread would go on
    writer._close()  # pyright: ignore[reportPrivateUsage] - its process would have it no more


class GivenAWorker:
    """Fixtures: the handle of this process, a ledger."""

    @pytest.fixture
    def here(self, embedded: Holdfast, hf: Holdfast) -> Holdfast:
        """Return a handle on the database itself, for the workspace of `hf`."""
        return embedded.acting(workspace=hf.workspace)

    @pytest.fixture
    def ledger(self) -> Ledger:
        return Ledger()

    @pytest.fixture
    def made(self, here: Holdfast) -> Made:
        """Return what makes a worker of one run at a time."""

        def make(*definitions: Definition | Network | Agent, **options: Any) -> Worker:
            options = {"concurrency": 1, **options}
            return Worker(here, list(definitions), **options)

        return make


@pytest.mark.surface("http", "a client of a server starts runs that its worker takes")
class WorkerStartContract(GivenAWorker):
    """A run is started by the name of its definition, and a worker takes it."""

    def test_a_started_run_is_queued(self, hf: Holdfast) -> None:
        run = hf.runs.start("report", {"week": 7}, run_id="run_1", metadata={"ticket": "42"})

        assert (run.id, run.status, run.definition, run.priority) == (
            "run_1",
            "queued",
            "report",
            5,
        )
        assert (run.metadata, run.place, run.fence) == ({"ticket": "42"}, None, 0)
        assert [each.id for each in hf.runs.list("queued")] == ["run_1"]

    def test_a_run_without_an_id_gets_one(self, hf: Holdfast) -> None:
        assert hf.runs.start("report").id.startswith("run_")

    def test_the_same_start_again_is_the_same_run(self, hf: Holdfast) -> None:
        first = hf.runs.start("report", {"a": 1, "b": 2}, run_id="run_1")

        assert hf.runs.start("report", {"b": 2, "a": 1}, run_id="run_1") == first
        assert len(hf.runs.list("queued").data) == 1

    def test_another_input_or_definition_under_its_id_is_a_conflict(self, hf: Holdfast) -> None:
        hf.runs.start("report", {"week": 7}, run_id="run_1")

        with pytest.raises(Conflict, match="run_1"):
            hf.runs.start("report", {"week": 8}, run_id="run_1")
        with pytest.raises(Conflict, match="run_1"):
            hf.runs.start("letter", {"week": 7}, run_id="run_1")

    @pytest.mark.parametrize(
        ("field", "options"),
        [
            ("priority", {"priority": -1}),
            ("priority", {"priority": 1_001}),
            ("run_id", {"run_id": "a/b"}),
            ("queue", {"queue": ""}),
            ("metadata", {"metadata": {"": "x"}}),
        ],
    )
    def test_what_cannot_be_queued_is_refused(
        self, hf: Holdfast, field: str, options: dict[str, Any]
    ) -> None:
        with invalid(field):
            hf.runs.start("report", **options)

    def test_a_worker_takes_a_queued_run_with_its_input(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", {"week": 7}, run_id="run_1", metadata={"ticket": "42"})

        drain(made(ledger.definition()))

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.reason, run.kind) == ("completed", "done", "workflow")
        assert (run.definition, run.queue, run.priority) == ("report", "default", 5)
        assert run.metadata == {"ticket": "42"}
        assert ledger.inputs == [{"week": 7}]
        assert types(hf, "run_1") == ["run.queued", "run.started", "run.completed"]

    def test_networks_and_agents_are_definitions_by_their_name(
        self, hf: Holdfast, made: Made
    ) -> None:
        ada = Agent("ada", instructions="", model=ScriptedModel(["Hello.", "Bye."]))
        desk = Network("desk", [ada], router=lambda ctx: None if ctx.call_count else "ada")
        hf.runs.start("ada", "Hi?", run_id="run_1")
        hf.runs.start("desk", {"input": "Hi?", "thread_id": "t"}, run_id="run_2", priority=6)

        drain(made(ada, desk))

        runs = [hf.runs.retrieve("run_1"), hf.runs.retrieve("run_2")]
        assert [(each.kind, each.status, each.definition) for each in runs] == [
            ("agent", "completed", "ada"),
            ("network", "completed", "desk"),
        ]
        assert runs[1].thread_id == "t"
        assert [each.kind for each in hf.threads.turns("t")] == ["user", "result"]


class WorkerClaimContract(GivenAWorker):
    """Runs are claimed once each: by priority, then age, of known definitions alone."""

    def test_a_lower_priority_goes_first_then_the_older_run(
        self, hf: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        for run_id, priority in (("last", 9), ("older", 5), ("newer", 5), ("first", 1)):
            hf.runs.start("report", run_id=run_id, priority=priority)
            clock.tick()

        drain(made(ledger.definition()))

        assert ledger.built == ["first", "older", "newer", "last"]

    def test_a_run_is_not_taken_before_its_time(
        self, hf: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        at = clock.now() + timedelta(hours=1)
        hf.runs.start("report", run_id="run_1", not_before=at)
        worker = made(ledger.definition())

        drain(worker)
        assert hf.runs.retrieve("run_1").status == "queued"
        clock.tick(3600)
        drain(worker)
        assert hf.runs.retrieve("run_1").status == "completed"

    def test_an_instant_without_a_zone_is_refused(self, hf: Holdfast, clock: FrozenClock) -> None:
        with invalid("not_before"):
            hf.runs.start("report", not_before=clock.now().replace(tzinfo=None))

    def test_a_run_of_an_unknown_definition_is_left_alone(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("letter", run_id="run_1")

        drain(made(ledger.definition()))

        assert hf.runs.retrieve("run_1").status == "queued"

    def test_a_worker_of_some_queues_takes_no_others(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="slow", queue="slow")
        hf.runs.start("report", run_id="own")
        report = ledger.definition(queue="fast")

        drain(made(report, queues=["fast"]))

        assert ledger.built == ["own"]
        assert hf.runs.retrieve("own").queue == "fast"
        drain(made(report, queues="slow"))
        assert ledger.built == ["own", "slow"]

    def test_a_fork_is_taken_once_it_is_started(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        report = ledger.definition()
        hf.runs.start("report", run_id="run_1")
        drain(made(report))

        hf.runs.fork("run_1", run_id="kept")
        hf.runs.fork("run_1", run_id="started", start=True)
        drain(made(report))

        assert ledger.built == ["run_1", "started"]
        assert hf.runs.retrieve("kept").status == "queued"

    def test_two_workers_take_each_run_once(self, hf: Holdfast, made: Made, ledger: Ledger) -> None:
        runs = [hf.runs.start("report", run_id=f"run_{number}").id for number in range(20)]

        with ThreadPoolExecutor(2) as both:
            list(both.map(drain, [made(ledger.definition(), concurrency=3) for _ in range(2)]))

        assert sorted(ledger.built) == sorted(runs)
        assert {each.status for each in hf.runs.list(limit=None)} == {"completed"}
        assert {each.fence for each in hf.runs.list(limit=None)} == {1}

    def test_a_worker_has_no_more_runs_at_once_than_it_may(self, hf: Holdfast, made: Made) -> None:
        slow, _ = waiting()
        for number in range(3):
            hf.runs.start("slow", run_id=f"run_{number}")

        async def work() -> tuple[int, int]:
            worker = made(slow, concurrency=2)
            began = await begun_by(worker, 2)
            await worker.turn()
            again = worker.working
            worker.stop()
            await worker.work()
            return began, again

        assert asyncio.run(work()) == (2, 2)

    @pytest.mark.embedded("limits of queues are set where the worker is")
    def test_a_queue_may_have_a_limit_for_each_worker(self, hf: Holdfast, made: Made) -> None:
        slow, _ = waiting()
        hf.runs.configure_queue("narrow", per_worker=1)
        for number in range(3):
            hf.runs.start("slow", run_id=f"run_{number}", queue="narrow" if number else None)

        async def work() -> tuple[int, int]:
            worker = made(slow, concurrency=9)
            began = await begun_by(worker, 2)
            await worker.turn()
            again = worker.working
            worker.stop()
            await worker.work()
            return began, again

        assert asyncio.run(work()) == (2, 2)

    @pytest.mark.embedded("limits of queues are set where the worker is")
    @pytest.mark.parametrize(
        ("field", "limits"),
        [
            ("per_worker", {"per_worker": 0}),
            ("concurrency", {"concurrency": 0}),
            ("rate", {"rate": (0, 1)}),
            ("rate", {"rate": (1, 0)}),
            ("rate", {"rate": 5}),
            ("partition", {"partition": "user"}),
            ("partition", {"partition": "", "concurrency": 1}),
        ],
    )
    def test_a_limit_of_a_queue_is_checked(
        self, hf: Holdfast, field: str, limits: dict[str, Any]
    ) -> None:
        with invalid(field):
            hf.runs.configure_queue("narrow", **limits)

    def test_a_claim_that_does_not_begin_is_free_again(
        self, hf: Holdfast, here: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        report = ledger.definition()
        hf.runs.start("report", run_id="run_1")
        found = claim(here.runs.context, ClaimTerms(known=(report.known,)))

        drain(made(report))
        assert (found and found.id, ledger.built) == ("run_1", [])
        assert hf.runs.retrieve("run_1").status == "queued"
        clock.tick(LONG)
        drain(made(report))

        assert hf.runs.retrieve("run_1").status == "completed"

    def test_a_run_that_was_cancelled_in_its_queue_is_not_taken(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        hf.runs.cancel("run_1")

        drain(made(ledger.definition()))

        assert (ledger.built, hf.runs.retrieve("run_1").status) == ([], "cancelled")

    def test_a_run_that_is_cancelled_while_it_is_built_does_not_begin(
        self, hf: Holdfast, made: Made
    ) -> None:
        @definition("report")
        async def report(start: RunStart) -> OneNode:
            await asyncio.to_thread(hf.runs.cancel, start.run_id)
            return workflow(start)

        hf.runs.start("report", run_id="run_1")
        drain(made(report))

        assert hf.runs.retrieve("run_1").status == "cancelled"
        assert types(hf, "run_1") == ["run.queued", "run.cancelled"]

    def test_the_time_in_a_queue_is_measured(
        self, hf: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        name = 'run_queue_wait_seconds_sum{queue="measured"}'
        before = REGISTRY.flat().get(name, 0)
        hf.runs.start("report", run_id="run_1", queue="measured")
        clock.tick(3)
        drain(made(ledger.definition()))

        assert REGISTRY.flat()[name] == before + 3


def waiting() -> tuple[Definition, asyncio.Event]:
    """Return a definition `slow` whose runs last until they are cancelled, and its sign."""
    begun = asyncio.Event()

    async def wait() -> None:
        begun.set()
        await asyncio.Event().wait()

    @definition("slow")
    def slow(start: RunStart) -> OneNode:
        return workflow(start, wait)

    return slow, begun


def harbour(kind: str) -> Definition | Network | Agent:
    """Return a definition of *kind* that asks which berth is free, and needs two requests."""

    def moor() -> str:
        return "moored at " + ask_human("Which berth?")

    def turn(asked: Asked) -> Any:
        return "Done." if "moored at" in asked.text else call("moor")

    agent = Agent("harbour", instructions="", tools=[moor], model=ScriptedModel(turn))
    if kind == "agent":
        return agent
    if kind == "network":
        return Network("harbour", [agent], router=lambda ctx: None if ctx.call_count else "harbour")

    @definition("harbour")
    def plan(start: RunStart) -> ParallelTaskExecutor:
        start.context.model = ScriptedModel(turn)
        step = Step(id="moor", instructions="Moor the ship.", tools=["moor"])
        plan = TaskPlan(title="Harbour", tasks=[Task(id="a", title="A", steps=[step])])
        return ParallelTaskExecutor(plan=plan, context=start.context, tools=[moor])

    return plan


class WorkerVersionContract(GivenAWorker):
    """A run that was begun by a version of its definition goes on with that, or one like it."""

    def begun_by(self, hf: Holdfast, made: Made, version: str) -> str:
        """Return a run that a definition of *version* began, and that is queued again."""
        slow, begun = waiting()
        pinned = Definition(name="report", build=slow.build, version=version)

        async def work() -> None:
            worker = made(pinned)
            await worker.turn()
            await begun.wait()
            worker.stop()
            await worker.work()

        hf.runs.start("report", run_id="run_1")
        asyncio.run(work())
        assert hf.runs.retrieve("run_1").status == "queued"
        return "run_1"

    def test_a_run_of_another_version_is_left_alone(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        run_id = self.begun_by(hf, made, "1")

        drain(made(ledger.definition(version="2")))

        assert (ledger.built, hf.runs.retrieve(run_id).status) == ([], "queued")

    def test_a_run_of_an_accepted_version_is_taken(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        run_id = self.begun_by(hf, made, "1")

        drain(made(ledger.definition(version="2", accepts=("1",))))

        assert hf.runs.retrieve(run_id).status == "completed"


class WorkerFailureContract(GivenAWorker):
    """What cannot run ends as failed, and nothing of it ends the worker."""

    def test_a_definition_that_raises_fails_its_run(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        @definition("broken")
        def broken(start: RunStart) -> None:
            raise ZeroDivisionError(start.run_id)

        hf.runs.start("broken", run_id="run_1")
        hf.runs.start("report", run_id="run_2")
        drain(made(broken, ledger.definition()))

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.reason, run.detail) == (
            "failed",
            "internal",
            "ZeroDivisionError: run_1",
        )
        assert types(hf, "run_1") == ["run.queued", "run.started", "run.failed"]
        assert hf.runs.retrieve("run_2").status == "completed"

    @pytest.mark.parametrize("built", [None, 5, Definition])
    def test_what_cannot_run_fails_its_run(self, hf: Holdfast, made: Made, built: Any) -> None:
        hf.runs.start("none", run_id="run_1")
        drain(made(Definition(name="none", build=lambda _: built)))

        assert hf.runs.retrieve("run_1").reason == "internal"

    def test_an_executor_of_another_context_fails_the_run(self, hf: Holdfast, made: Made) -> None:
        class Elsewhere:
            async def run(self) -> None:
                """Do nothing."""

        hf.runs.start("none", run_id="run_1")
        drain(made(Definition(name="none", build=lambda _: Elsewhere())))

        run = hf.runs.retrieve("run_1")
        assert run.reason == "internal"
        assert "did not run" in (run.detail or "")

    def test_a_failed_part_fails_its_run_with_its_own_reason(
        self, hf: Holdfast, made: Made
    ) -> None:
        model = ScriptedModel([OSError("down")])
        ada = Agent("ada", instructions="", model=model)
        hf.runs.start("ada", "Hi?", run_id="run_1")
        drain(made(ada))

        assert hf.runs.retrieve("run_1").reason == "model_error"

    @pytest.mark.parametrize("given", [None, 5, {"text": "Hi?"}, {"input": "Hi?", "seed": 1}])
    def test_an_agent_needs_text(self, hf: Holdfast, made: Made, given: Any) -> None:
        ada = Agent("ada", instructions="", model=ScriptedModel([]))
        hf.runs.start("ada", given, run_id="run_1")
        drain(made(ada))

        assert "input" in (hf.runs.retrieve("run_1").detail or "")


class WorkerStopContract(GivenAWorker):
    """A worker that stops gives its runs back; one that is lost loses them to another."""

    @pytest.mark.embedded("runs are looked at where their rows are")
    @pytest.mark.parametrize("kind", ["workflow", "network", "agent"])
    def test_a_stopped_worker_gives_its_runs_back(
        self, hf: Holdfast, made: Made, kind: str
    ) -> None:
        definitions, begun = self.held(kind)
        hf.runs.start("held", "Hi?", run_id="run_1")

        async def work() -> None:
            worker = made(definitions)
            working = asyncio.create_task(worker.work())
            await asyncio.wait_for(begun.wait(), 60)
            worker.stop(grace=0)
            await working

        asyncio.run(work())

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.definition, run.ended_at) == ("queued", "held", None)
        assert types(hf, "run_1") == ["run.queued", "run.started", "run.queued"]
        # Its parts go on elsewhere: none of them is told to have ended.
        every = {each.type for each in look(hf.runs.context, "run_1", FollowOptions()).events}
        assert every & {"step.started", "agent.started"}
        assert not every & {"step.cancelled", "task.cancelled", "agent.finished"}
        assert {each.state for each in hf.runs.parts("run_1")} == {"pending"}

    def held(self, kind: str) -> tuple[Any, asyncio.Event]:
        """Return a definition `held` of *kind* that lasts, and the sign that it began."""
        slow, begun = waiting()
        if kind == "workflow":
            return Definition(name="held", build=slow.build), begun

        async def wait() -> str:
            begun.set()
            await asyncio.Event().wait()
            return ""

        model = ScriptedModel(lambda _: wait())
        ada = Agent("held", instructions="", model=model)
        return (ada if kind == "agent" else Network("held", [ada], router=lambda _: "held")), begun

    @pytest.mark.embedded("runs are looked at where their rows are")
    def test_a_run_that_was_given_back_is_taken_by_another(self, hf: Holdfast, made: Made) -> None:
        self.test_a_stopped_worker_gives_its_runs_back(hf, made, "workflow")

        @definition("held")
        def held(start: RunStart) -> OneNode:
            return workflow(start)

        drain(made(held))

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.fence) == ("completed", 2)
        assert types(hf, "run_1")[-2:] == ["run.resumed", "run.completed"]

    def test_a_request_in_flight_ends_and_is_kept(self, hf: Holdfast, made: Made) -> None:
        asked: list[str] = []
        begun, free = asyncio.Event(), asyncio.Event()

        async def work_on(request: Asked) -> str:
            name = "second" if "Do the other" in request.text else "first"
            asked.append(name)
            if name == "first":
                begun.set()
                await free.wait()
            return f"did {name}"

        @definition("steps")
        def steps(start: RunStart) -> ParallelTaskExecutor:
            start.context.model = ScriptedModel(work_on)
            first = Step(id="a", instructions="Do the first.")
            second = Step(id="b", instructions="Do the other.", depends_on=["a"])
            tasks = [Task(id="t", title="T", steps=[first, second])]
            return ParallelTaskExecutor(
                plan=TaskPlan(title="P", tasks=tasks), context=start.context
            )

        hf.runs.start("steps", run_id="run_1")

        async def stopped() -> None:
            worker = made(steps)
            working = asyncio.create_task(worker.work())
            await asyncio.wait_for(begun.wait(), 60)
            worker.stop(grace=60)
            free.set()
            await working

        asyncio.run(stopped())
        assert (asked, hf.runs.retrieve("run_1").status) == (["first"], "queued")

        drain(made(steps))
        assert (asked, hf.runs.retrieve("run_1").status) == (["first", "second"], "completed")

    def test_a_stopped_worker_claims_nothing(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        worker = made(ledger.definition())
        worker.stop()

        assert asyncio.run(worker.turn()) == 0
        assert hf.runs.retrieve("run_1").status == "queued"

    def test_a_cancelled_run_is_not_given_back(self, hf: Holdfast, made: Made) -> None:
        slow, begun = waiting()
        hf.runs.start("slow", run_id="run_1")

        async def work() -> None:
            worker = made(slow)
            working = asyncio.create_task(worker.work())
            await asyncio.wait_for(begun.wait(), 60)
            await asyncio.to_thread(hf.runs.cancel, "run_1", "no longer needed")
            worker.stop(grace=0)
            await working

        asyncio.run(work())

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.detail) == ("cancelled", "no longer needed")

    def lost(self, here: Holdfast, clock: FrozenClock) -> None:
        """Make `run_1` a run whose owner gives no sign of life any more."""
        here.runs.start("report", run_id="run_1")
        opening = RunOpening(kind="plan", name="report")
        writer = here.runs.open_run(RunMemory(run_id="run_1"), opening)
        killed(writer)
        clock.tick(LONG)

    def test_a_lost_run_is_freed_and_taken_by_another(
        self, hf: Holdfast, here: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        before = REGISTRY.flat()
        self.lost(here, clock)

        drain(made(ledger.definition()))

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.fence) == ("completed", 2)
        assert types(hf, "run_1") == [
            "run.queued",
            "run.started",
            "run.lost",
            "run.queued",
            "run.resumed",
            "run.completed",
        ]
        after = REGISTRY.flat()
        for name in ("run_lost_total", 'run_takeovers_total{how="worker"}'):
            assert after[name] == before[name] + 1

    def life(
        self, here: Holdfast, made: Made, clock: FrozenClock, *, kept: VersionSave | None = None
    ) -> str:
        """Let `run_1` end its owner, which has *kept* something; return its status then."""
        opening = RunOpening(kind="plan", name="report")
        writer = here.runs.open_run(RunMemory(run_id="run_1"), opening)
        if kept is not None:
            writer.keep(kept)
        killed(writer)
        clock.tick(LONG)
        free_lost(here.runs.context, made(Ledger().definition()).terms())
        return here.runs.retrieve("run_1").status

    def test_a_run_that_ends_its_worker_each_time_is_failed(
        self, hf: Holdfast, here: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        here.runs.start("report", run_id="run_1")

        lives = [self.life(here, made, clock) for _ in range(5)]
        drain(made(ledger.definition()))

        run = hf.runs.retrieve("run_1")
        assert lives == ["queued"] * 4 + ["failed"]
        assert (ledger.built, run.status, run.reason) == ([], "failed", "stalled")
        assert "lost 5 times in a row" in (run.detail or "")
        assert types(hf, "run_1").count("run.lost") == 5
        assert types(hf, "run_1")[-2:] == ["run.lost", "run.failed"]
        assert types(hf, "run_1").count("run.failed") == 1
        fork = here.runs.fork("run_1", run_id="run_2", start=True)
        drain(made(ledger.definition()))
        assert hf.runs.retrieve(fork.id).status == "completed"

    @pytest.mark.parametrize(
        "facts",
        [
            {"cause": "step"},
            {"cause": None, "turns": (KeptTurn("read", 1, b"{}"),)},
            {"cause": None, "rows": (StateRow("once", "read:mail", b"1"),)},
        ],
        ids=["a version", "a message", "a result of once"],
    )
    def test_a_run_that_keeps_something_in_between_goes_on(
        self, here: Holdfast, made: Made, clock: FrozenClock, facts: dict[str, Any]
    ) -> None:
        here.runs.start("report", run_id="run_1")
        kept = VersionSave(run_id="run_1", at=1, fence=0, **facts)

        lives = [
            self.life(here, made, clock, kept=kept if each == 3 else None) for each in range(7)
        ]

        assert lives == ["queued"] * 7
        assert self.life(here, made, clock) == "failed"

    def test_a_run_whose_owner_comes_back_was_not_lost(
        self, here: Holdfast, made: Made, clock: FrozenClock
    ) -> None:
        here.runs.start("report", run_id="run_1")
        lives = [self.life(here, made, clock) for _ in range(3)]
        writer = here.runs.open_run(RunMemory(run_id="run_1"), RunOpening(kind="plan", name="r"))
        held = writer._mirror.held  # pyright: ignore[reportPrivateUsage] - what its thread renews
        killed(writer)
        assert held is not None
        for _ in range(3):
            clock.tick(LONG)
            sweep_lost(here.engine, clock)
            lives.append(here.runs.retrieve("run_1").status)
            if lives[-1] == "lost":
                renew(here.runs.context, [held])
                lives.append(here.runs.retrieve("run_1").status)

        assert lives == ["queued"] * 3 + ["lost", "running"] * 3

    def test_a_run_that_ends_its_worker_before_it_begins_is_failed(
        self, hf: Holdfast, here: Holdfast, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        here.runs.start("report", run_id="run_1")
        here.runs.start("report", run_id="run_2")
        terms = made(ledger.definition()).terms()
        for _ in range(5):
            claimed = claim(here.runs.context, terms)
            assert claimed is not None
            assert claimed.id == "run_1"
            clock.tick(LONG)

        drain(made(ledger.definition()))

        run = hf.runs.retrieve("run_1")
        assert (ledger.built, run.status, run.reason) == (["run_2"], "failed", "stalled")
        assert types(hf, "run_1") == ["run.queued", "run.failed"]

    def test_a_lost_run_of_an_unknown_definition_stays_lost(
        self, hf: Holdfast, here: Holdfast, made: Made, clock: FrozenClock
    ) -> None:
        self.lost(here, clock)

        drain(made(waiting()[0]))

        assert hf.runs.retrieve("run_1").status == "lost"


@pytest.mark.surface("http", "a client of a server answers, and its worker goes on")
class WorkerWaitContract(GivenAWorker, GivenAWaitingRun):
    """A run that waits for a person is taken up after its last answer."""

    def test_an_answered_run_is_taken(
        self, hf: Holdfast, rest: Rest, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        first, second = rest({}, {})
        worker = made(ledger.definition())

        drain(worker)
        hf.runs.answer("run_1", "7", question=first.id)
        drain(worker)
        assert (ledger.built, hf.runs.retrieve("run_1").status) == ([], "waiting")

        hf.runs.answer("run_1", "8", question=second.id)
        assert hf.runs.retrieve("run_1").status == "queued"
        drain(worker)
        run = hf.runs.retrieve("run_1")
        assert (run.status, run.definition, run.fence) == ("completed", "report", 2)
        assert types(hf, "run_1")[-3:] == ["run.queued", "run.resumed", "run.completed"]

    @pytest.mark.parametrize("kind", ["plan", "network", "agent"])
    def test_a_run_that_asks_waits_and_goes_on_in_another_worker(
        self, hf: Holdfast, made: Made, kind: str
    ) -> None:
        hf.runs.start("harbour", "Moor it." if kind != "plan" else None, run_id="run_1")

        drain(made(harbour(kind)))
        run = hf.runs.retrieve("run_1")
        assert (run.status, len(run.questions), run.queue) == ("waiting", 1, "default")
        hf.runs.answer("run_1", "7")
        drain(made(harbour(kind)))

        run = hf.runs.retrieve("run_1")
        assert (run.status, run.kind, run.definition) == ("completed", kind, "harbour")
        assert types(hf, "run_1") == [
            "run.queued",
            "run.started",
            "run.waiting",
            "run.queued",
            "run.resumed",
            "run.completed",
        ]
        asked = [each for each in hf.runs.follow("run_1") if each.type == "model.requested"]
        assert len(asked) == 2

    def test_an_answer_wakes_a_worker(
        self, hf: Holdfast, rest: Rest, made: Made, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        rest({})

        async def work() -> None:
            worker = made(ledger.definition())
            working = asyncio.create_task(worker.work())
            async with asyncio.timeout(60):
                await asyncio.to_thread(hf.runs.answer, "run_1", "7")
                await asyncio.to_thread(list, hf.runs.follow("run_1"))
            worker.stop()
            await working

        asyncio.run(work())

        assert hf.runs.retrieve("run_1").status == "completed"

    def test_a_worker_settles_questions_whose_time_is_over(
        self, hf: Holdfast, rest: Rest, made: Made, ledger: Ledger, clock: FrozenClock
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        rest({"default": "7", "expires_at": clock.now() + timedelta(seconds=5)})
        worker = made(ledger.definition())

        drain(worker)
        assert hf.runs.retrieve("run_1").status == "waiting"
        clock.tick(6)
        drain(worker)

        assert hf.runs.retrieve("run_1").status == "completed"

    def test_a_run_that_waits_is_not_lost_and_not_resumed(
        self, hf: Holdfast, here: Holdfast, rest: Rest, ledger: Ledger, clock: FrozenClock
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        rest({})
        clock.tick(LONG)

        assert asyncio.run(resume(here, "run_1", [ledger.definition()])).status == "waiting"
        assert ledger.built == []


class WorkerResumeContract(GivenAWorker):
    """A run can be executed here and now, by whoever has its definition."""

    def resumed(self, here: Holdfast, run_id: str, *definitions: Definition) -> Run:
        return asyncio.run(resume(here, run_id, list(definitions)))

    def test_a_queued_run_is_executed_here(
        self, hf: Holdfast, here: Holdfast, ledger: Ledger, clock: FrozenClock
    ) -> None:
        later = clock.now() + timedelta(days=1)
        hf.runs.start("report", run_id="run_1", not_before=later)

        assert self.resumed(here, "run_1", ledger.definition()).status == "completed"

    def test_a_fork_is_executed_here_without_a_start(
        self, hf: Holdfast, here: Holdfast, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        self.resumed(here, "run_1", ledger.definition())
        hf.runs.fork("run_1", run_id="fork")

        assert self.resumed(here, "fork", ledger.definition()).status == "completed"

    def test_a_run_that_is_over_is_returned_as_it_is(
        self, hf: Holdfast, here: Holdfast, ledger: Ledger
    ) -> None:
        hf.runs.start("report", run_id="run_1")
        report = ledger.definition()
        first = self.resumed(here, "run_1", report)

        assert self.resumed(here, "run_1", report) == first
        assert ledger.built == ["run_1"]

    def test_a_run_that_no_definition_takes_is_a_conflict(
        self, hf: Holdfast, here: Holdfast, ledger: Ledger
    ) -> None:
        hf.runs.start("letter", run_id="run_1")

        with pytest.raises(Conflict, match="letter"):
            self.resumed(here, "run_1", ledger.definition())
        with pytest.raises(NotFound):
            self.resumed(here, "run_2", ledger.definition())

    def test_a_run_with_an_owner_is_taken(self, here: Holdfast, ledger: Ledger) -> None:
        over = here.runs.attach(RunMemory(run_id="run_1"), name="report")
        try:
            with pytest.raises(RunTaken, match="run_1"):
                self.resumed(here, "run_1", ledger.definition())
        finally:
            over("cancelled")


class WorkerEngineContract(GivenAWorker):
    """A worker takes what is queued while it works, without being asked to look."""

    def test_a_run_that_is_queued_meanwhile_is_taken(
        self, hf: Holdfast, made: Made, ledger: Ledger
    ) -> None:
        async def work() -> None:
            worker = made(ledger.definition())
            working = asyncio.create_task(worker.work())
            async with asyncio.timeout(60):
                await asyncio.to_thread(hf.runs.start, "report", run_id="run_1")
                await asyncio.to_thread(list, hf.runs.follow("run_1"))
            worker.stop()
            await working

        asyncio.run(work())

        assert hf.runs.retrieve("run_1").status == "completed"

    def test_a_worker_needs_a_database(self) -> None:
        with pytest.raises(Unsupported, match="worker"):
            Worker(object(), [])  # pyright: ignore[reportArgumentType] - what a remote handle is

    def test_two_definitions_of_one_name_are_refused(self, here: Holdfast, ledger: Ledger) -> None:
        with pytest.raises(InvalidInput, match="report"):
            Worker(here, [ledger.definition(), ledger.definition(version="2")])
