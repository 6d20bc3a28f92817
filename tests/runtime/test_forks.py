"""Forks of runs: they go on from a version, and only what a change affects runs again."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from teams import a_team, an_agent, asked_of

import holdfast
from holdfast import Holdfast
from holdfast.ground.errors import CheckpointMismatch, RunWaiting
from holdfast.memories.state.state import NetworkState
from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    Edge,
    EngineHistory,
    FunctionNode,
    Network,
    NetworkRun,
    ParallelTaskExecutor,
    RouterContext,
    RunStart,
    Step,
    Task,
    TaskBoard,
    TaskPlan,
    TeamResult,
    ToolContext,
    Workflow,
    WorkflowRunner,
    ask_human,
    definition,
    resume,
)
from holdfast.testing import ScriptedModel, call
from holdfast.testing.scripted import Asked


@pytest.fixture
def hf(tmp_path: Path) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path / "h.db") as opened:
        yield opened


def harbour() -> TaskPlan:
    """Return six tasks: two begin, two need one of them each, one needs both, one none."""
    needs = {
        "look": (),
        "listen": (),
        "count": ("look",),
        "name": ("listen",),
        "write": ("count", "name"),
        "rest": (),
    }
    tasks = [
        Task(
            id=id,
            title=id,
            steps=[Step(id=f"{id}_it", instructions=f"Do {id}.", depends_on=["ships"])]
            if id == "look"
            else [Step(id=f"{id}_it", instructions=f"Do {id}.")],
            depends_on=list(each),
        )
        for id, each in needs.items()
    ]
    return TaskPlan(title="Harbour", tasks=tasks)


class Crew:
    """A model that answers for each step, and counts what it was asked."""

    def __init__(self, *reads: str) -> None:
        self.asked: list[str] = []
        self._reads = reads

    def __call__(self, asked: Asked) -> Any:
        """Answer, after reading a shared entry where the step is to read one."""
        text = " ".join(str(getattr(part, "content", "")) for part in asked.messages[-1].parts)
        name = next(
            (
                id
                for id in ("look", "listen", "count", "name", "write", "rest")
                if f"Do {id}." in text
            ),
            None,
        )
        if name is None:
            return f"{self.asked[-1]} is done."
        self.asked.append(name)
        if name in self._reads:
            return [call("memory_read", keys=["shared:weather"])]
        return f"{name} is done."


async def run(hf: Holdfast, id: str, crew: Crew, ships: int = 3, **shared: Any) -> Any:
    """Execute the plan as the run *id*."""
    context = Context(hf=hf, run_id=id, model=ScriptedModel(crew))
    for name, value in shared.items():
        context.memory.set(f"shared:{name}", value)
    executor = ParallelTaskExecutor(
        plan=harbour(),
        context=context,
        inputs={"ships": ships},
    )
    return await executor.run()


def names(parts: Any) -> set[str]:
    """Return the tasks of *parts*, names of parts."""
    return {each.removesuffix("_it") for each in parts}


@pytest.mark.anyio
async def test_a_fork_with_nothing_changed_asks_nothing_and_has_the_same_results(
    hf: Holdfast,
) -> None:
    result = await run(hf, "run_1", Crew())
    fork = hf.runs.fork("run_1")
    again = Crew()

    assert await run(hf, fork.id, again) == result
    assert again.asked == []
    assert hf.runs.compare("run_1", fork.id).entries == {}


@pytest.mark.anyio
async def test_a_changed_result_asks_exactly_the_parts_that_depend_on_it(hf: Holdfast) -> None:
    await run(hf, "run_1", Crew())
    fork = hf.runs.fork("run_1", set={"task:look": "Five ships."})
    again = Crew()
    await run(hf, fork.id, again)

    assert set(again.asked) == {"count", "write"}
    assert hf.runs.entry(fork.id, "task:look").value == "Five ships."


@pytest.mark.anyio
async def test_a_part_that_read_a_changed_key_runs_again(hf: Holdfast) -> None:
    await run(hf, "run_1", Crew("name", "rest"), weather="rain")
    fork = hf.runs.fork("run_1", set={"shared:weather": "sun"})
    again = Crew()
    await run(hf, fork.id, again)

    assert set(again.asked) == {"name", "write", "rest"}


@pytest.mark.anyio
async def test_a_changed_input_runs_again_what_takes_it_under_the_hash_of_the_fork(
    hf: Holdfast,
) -> None:
    await run(hf, "run_1", Crew())
    forks = [hf.runs.fork("run_1", set={"input:ships": 5}) for _ in range(2)]
    again, former = Crew(), Crew()
    await run(hf, forks[0].id, again, ships=5)
    with pytest.raises(CheckpointMismatch):
        await run(hf, forks[1].id, former)

    assert set(again.asked) == {"look", "count", "write"}
    assert former.asked == []
    assert hf.runs.entry("run_1", "input:ships").value == 3


@pytest.mark.anyio
async def test_a_fork_before_a_part_asks_that_part_and_all_after_it(hf: Holdfast) -> None:
    await run(hf, "run_1", Crew())
    fork = hf.runs.fork("run_1", before="write")
    again = Crew()
    await run(hf, fork.id, again)

    assert "write" in again.asked
    assert set(again.asked) <= {"write", "rest", "name", "count"}


def commanded(path: Path, *line: str) -> Any:
    """Return what the command line *line* answers in another process."""
    command = [
        sys.executable,
        "-m",
        "holdfast.doors.cli.main",
        *line,
        "--db",
        str(path),
        "--json",
    ]
    ran = subprocess.run([*command, "--db", str(path)], check=True, timeout=60, capture_output=True)
    return json.loads(ran.stdout)


@pytest.mark.anyio
async def test_another_process_forks_a_plan_at_its_third_step_and_compares_the_two(
    tmp_path: Path,
) -> None:
    path = tmp_path / "h.db"
    crew, again = Crew("count"), Crew("count")
    with holdfast.open(path) as hf:
        await run(hf, "run_1", crew, weather="rain")
    change = ("--before", "count_it", "--set", 'shared:weather="sun"')
    fork = commanded(path, "runs", "fork", "run_1", *change)
    with holdfast.open(path) as hf:
        await run(hf, fork["id"], again)
    compared = commanded(path, "runs", "compare", "run_1", fork["id"])

    assert fork["forked_from"][0] == "run_1"
    assert {"count", "write"} <= set(again.asked)
    assert "look" not in again.asked
    weather = compared["entries"]["shared:weather"]
    assert (weather["change"], weather["a"]["value"], weather["b"]["value"]) == (
        "changed", "rain", "sun"
    )  # fmt: skip
    assert set(compared["entries"]) == {"shared:weather"}


@pytest.mark.anyio
async def test_items_of_a_step_that_nothing_changed_for_are_not_asked_again(hf: Holdfast) -> None:
    async def count_ships(id: str) -> list[str]:
        asked: list[str] = []

        def crew(request: Asked) -> str:
            text = str(getattr(request.messages[-1].parts[-1], "content", ""))
            asked.append(text.split("\n", maxsplit=1)[0])
            return "Counted."

        each = Step(id="each", instructions="Count {item}.", depends_on=["ships"], mode="process")
        last = Step(id="last", instructions="Write.", depends_on=["each"])
        plan = TaskPlan(
            title="Harbour", tasks=[Task(id="count", title="Count", steps=[each, last])]
        )
        await ParallelTaskExecutor(
            plan=plan,
            context=Context(hf=hf, run_id=id, model=ScriptedModel(crew)),
            inputs={"ships": ["a", "b", "c"]},
        ).run()
        return asked

    assert len(await count_ships("run_1")) == 4
    fork = hf.runs.fork("run_1", set={"step:each.1": "Sunk."})

    assert await count_ships(fork.id) == ["Write."]
    results = hf.runs.entry(fork.id, "step:each").value
    assert [each["result"] for each in results] == ["Counted.", "Sunk.", "Counted."]


@pytest.mark.anyio
async def test_a_fork_of_a_workflow_runs_the_nodes_after_a_changed_one_again(hf: Holdfast) -> None:
    async def flow(id: str) -> tuple[list[str], dict[str, Any]]:
        ran: list[str] = []

        def node(name: str) -> FunctionNode:
            def function(inputs: dict[str, Any], _: Context) -> dict[str, Any]:
                ran.append(name)
                return {"n": inputs.get("n", 1) + 1}

            return FunctionNode(name, function)

        say = AgentStepNode("say", instructions="Say it.")
        edges = [Edge("a", "n", "b", "n"), Edge("b", "n", "say", "n"), Edge("a", "n", "c", "n")]
        context = Context(hf=hf, run_id=id, model=ScriptedModel(["Said."]))
        flow = Workflow([node("a"), node("b"), node("c"), say], edges)
        outputs = await WorkflowRunner(flow, context).run()
        return ran, outputs

    await flow("run_1")
    fork = hf.runs.fork("run_1", set={"step:b": {"n": 9}})
    ran, outputs = await flow(fork.id)

    assert ran == []
    assert outputs["b"] == {"n": 9}
    assert hf.runs.entry(fork.id, "input:say.n").value == 9
    assert {part.id: part.attempts for part in hf.runs.parts(fork.id)}["say"] == 1
    same, _ = await flow(hf.runs.fork("run_1", rerun=["a"]).id)
    assert same == ["a"]


@pytest.mark.anyio
async def test_a_fork_of_a_team_does_a_task_again_that_depends_on_a_changed_one(
    hf: Holdfast,
) -> None:
    async def play(id: str) -> tuple[int, TeamResult]:
        board = TaskBoard()
        if id == "run_1":
            first = board.create("Count")
            board.create("Tell", depends_on=[first.id])
        ada = an_agent("ada")
        team = a_team(ada, board=board, strategy="autonomous", context=Context(hf=hf, run_id=id))
        result = await team.run()
        return len(asked_of(ada)), result

    requests, result = await play("run_1")
    count, tell = result.done
    same = hf.runs.fork("run_1")
    changed = hf.runs.fork("run_1", set={f"task:{count.id}": "Five."})
    nothing, again = await play(same.id), await play(changed.id)

    assert nothing[0] == 0
    assert 0 < again[0] < requests
    assert [task.id for task in again[1].done] == [count.id, tell.id]
    assert again[1].done[0].result == "Five."


@pytest.mark.anyio
async def test_a_started_fork_is_taken_up_by_a_worker_with_its_changed_input(hf: Holdfast) -> None:
    crew = Crew()

    @definition("harbour")
    def build(start: RunStart) -> ParallelTaskExecutor:
        model = ScriptedModel(crew)
        return ParallelTaskExecutor(
            plan=harbour(), context=start.context, inputs=start.input, model=model
        )

    hf.runs.start("harbour", {"ships": 3}, run_id="run_1")
    await resume(hf, "run_1", [build])
    crew.asked.clear()
    fork = hf.runs.fork("run_1", set={"input:ships": 5}, start=True)
    run = await resume(hf, fork.id, [build])

    assert (fork.status, fork.queue) == ("queued", "default")
    assert run.status == "completed"
    assert set(crew.asked) == {"look", "count", "write"}


@pytest.mark.anyio
async def test_a_fork_of_a_waiting_run_asks_its_question_again_as_its_own(hf: Holdfast) -> None:
    def moor() -> str:
        """Moor."""
        return f"moored at {ask_human('Which berth?')}"

    async def berths(id: str) -> list[str]:
        asked: list[str] = []

        def crew(request: Asked) -> Any:
            text = str(getattr(request.messages[-1].parts[-1], "content", ""))
            asked.append(text.split("\n", maxsplit=1)[0])
            return [call("moor")] if text.startswith("Moor.") else "Done."

        steps = [
            Step(id="look", instructions="Look."),
            Step(id="moor", instructions="Moor.", depends_on=["look"]),
        ]
        plan = TaskPlan(title="Harbour", tasks=[Task(id="dock", title="Dock", steps=steps)])
        context = Context(hf=hf, run_id=id, model=ScriptedModel(crew))
        with suppress(RunWaiting):
            await ParallelTaskExecutor(plan=plan, context=context, tools=[moor]).run()
        return asked

    await berths("run_1")
    states = {part.id: part.state for part in hf.runs.parts("run_1")}
    fork = hf.runs.fork("run_1")
    inherited = hf.runs.questions(run=fork.id).data

    assert hf.runs.retrieve("run_1").status == "waiting"
    assert states == {"look": "completed", "moor": "waiting", "dock": "waiting"}
    assert inherited == []
    assert {part.id: part.state for part in hf.runs.parts(fork.id)} == {
        "look": "completed",
        "moor": "pending",
        "dock": "pending",
    }
    assert await berths(fork.id) == ["Moor."]
    hf.runs.answer(fork.id, "7")
    await berths(fork.id)
    assert hf.runs.retrieve(fork.id).status == "completed"
    assert hf.runs.retrieve("run_1").status == "waiting"


@pytest.mark.anyio
async def test_a_fork_of_a_network_calls_the_agents_after_its_version_in_a_thread_of_its_own(
    hf: Holdfast,
) -> None:
    def note(ctx: ToolContext, word: str) -> str:
        """Note a word."""
        ctx.state.kv.set("word", word)
        return word

    async def desk(id: str, thread: str | None = None) -> tuple[list[str], NetworkRun]:
        called: list[str] = []

        def says(name: str) -> ScriptedModel:
            def answer(_: Asked) -> Any:
                called.append(name)
                return [call("note", word="rain")] if called == ["ada"] else f"{name} is done."

            return ScriptedModel(answer)

        agents = [
            Agent(name, instructions="", model=says(name), tools=[note])
            for name in ("ada", "bob", "eve")
        ]

        def router(ctx: RouterContext) -> str | None:
            return None if ctx.call_count == len(agents) else agents[ctx.call_count].name

        network = Network("desk", agents, router=router, history=EngineHistory(hf))
        return called, await network.run("Go.", run_id=id, state=NetworkState(thread_id=thread))

    await desk("run_1")
    before = [turn.id for turn in hf.threads.turns(hf.runs.retrieve("run_1").thread_id or "")]
    fork = hf.runs.fork("run_1", before="bob", set={"word": "sun"})
    read = hf.runs.fork("run_1", rerun=["eve.2"])
    first = hf.runs.fork("run_1", before="ada")
    called, run = await desk(fork.id, fork.thread_id)

    assert called == ["bob", "eve"]
    assert hf.runs.compare(first.id, "run_1").values["word"].change == "only_b"
    assert run.state.kv.get("word") == "sun"
    assert [each.agent for each in run.state.results] == ["ada", "bob", "eve"]
    assert {each.run_id for each in run.state.results} == {fork.id}
    assert (await desk(read.id, read.thread_id))[0] == ["eve"]
    after = [turn.id for turn in hf.threads.turns(hf.runs.retrieve("run_1").thread_id or "")]
    assert after == before
