"""Random runs: what they knew at each version, and what their forks do again."""

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any, Final, LiteralString

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from teams import a_team, an_agent

import holdfast
from holdfast import Holdfast, RunEvent
from holdfast.runtime import (
    Agent,
    Context,
    Network,
    ParallelTaskExecutor,
    RouterContext,
    Step,
    Task,
    TaskBoard,
    TaskPlan,
    ToolContext,
)
from holdfast.testing import ScriptedModel, call
from holdfast.testing.scripted import Asked

FEW = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_numbers = count(1)

ROWS: Final[tuple[LiteralString, ...]] = (
    "select * from runs where id = :run",
    "select * from run_events where run_id = :run order by seq",
    "select * from run_parts where run_id = :run order by id",
    "select * from run_entries where run_id = :run order by key",
    "select * from run_versions where run_id = :run order by number",
    "select * from run_version_rows where run_id = :run order by kind, key, number",
    "select * from run_turns where run_id = :run order by part, n",
    "select * from run_texts where run_id = :run order by sha256",
    "select * from thread_turns where run_id = :run order by seq",
)


@pytest.fixture(scope="module")
def hf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Holdfast]:
    with holdfast.open(tmp_path_factory.mktemp("runs") / "h.db") as opened:
        yield opened


def new_id() -> str:
    return f"run_{next(_numbers)}"


def plan_of(needs: list[set[int]]) -> TaskPlan:
    """Return a plan in which the task at each place needs those at the places before."""
    tasks = [
        Task(
            id=f"t{place}",
            title=f"t{place}",
            steps=[Step(id=f"s{place}", instructions=f"Do s{place}.")],
            depends_on=[f"t{each}" for each in sorted(before)],
        )
        for place, before in enumerate(needs)
    ]
    return TaskPlan(title="Harbour", tasks=tasks)


PLANS = st.integers(2, 5).flatmap(
    lambda size: st.tuples(
        *(
            st.sets(st.integers(0, place - 1), max_size=2) if place else st.just(set[int]())
            for place in range(size)
        )
    )
)
"""For each task the places of those that it needs."""


def after(needs: list[set[int]], first: int) -> set[int]:
    """Return the places of the tasks that need the task at *first*, directly or not."""
    found = {first}
    for place, before in enumerate(needs):
        if before & found:
            found.add(place)
    return found - {first}


async def executed(hf: Holdfast, id: str, plan: TaskPlan) -> tuple[set[int], Any]:
    """Execute *plan* as the run *id*; return the steps asked for, and the result."""
    asked: set[int] = set()

    def answer(given: Asked) -> str:
        text = str(getattr(given.messages[-1].parts[-1], "content", ""))
        if text.startswith("Do s"):
            asked.add(int(text[4:].partition(".")[0]))
        return "Done."

    context = Context(hf=hf, run_id=id, model=ScriptedModel(answer))
    return asked, await ParallelTaskExecutor(plan=plan, context=context).run()


@FEW
@given(needs=PLANS, data=st.data())
def test_a_fork_of_a_random_plan_asks_exactly_what_its_change_affects(
    hf: Holdfast, needs: tuple[set[int], ...], data: st.DataObject
) -> None:
    run, wanted = new_id(), list(needs)
    asked, result = asyncio.run(executed(hf, run, plan_of(wanted)))
    assert asked == set(range(len(wanted)))
    versions = [each.number for each in hf.runs.versions(run)]
    before = rows(hf, run)
    changed = data.draw(st.integers(0, len(wanted) - 1))

    same = hf.runs.fork(run)
    older = hf.runs.fork(run, version=data.draw(st.sampled_from(versions)))
    other = hf.runs.fork(run, set={f"task:t{changed}": "Another."})

    assert asyncio.run(executed(hf, same.id, plan_of(wanted))) == (set(), result)
    assert asyncio.run(executed(hf, other.id, plan_of(wanted)))[0] == after(wanted, changed)
    completed = {
        place
        for place in range(len(wanted))
        if f"step:s{place}" in hf.runs.at(older.id, older.forked_from[1]).memory  # type: ignore[index]
    }
    assert asyncio.run(executed(hf, older.id, plan_of(wanted)))[0] == asked - completed
    assert rows(hf, run) == before


def rows(hf: Holdfast, run: str) -> list[Any]:
    """Return all rows of *run*."""
    engine = hf.runs.context.engine
    return [row for each in ROWS for row in engine.rows(each, run=run)]


WRITES = st.lists(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.one_of(st.none(), st.integers(0, 9))), max_size=3
    ),
    min_size=1,
    max_size=5,
)
"""What the agents of a network write, or delete, in each call."""


@FEW
@given(writes=WRITES)
def test_the_values_of_a_network_at_each_version_are_those_that_it_had(
    hf: Holdfast, writes: list[list[tuple[str, int | None]]]
) -> None:
    run, known = new_id(), dict[int, dict[str, Any]]()

    def note(ctx: ToolContext, index: int) -> str:
        """Write what is to be written."""
        for key, value in writes[index]:
            if value is None:
                ctx.state.kv.delete(key)
            else:
                ctx.state.kv.set(key, value)
        return "noted"

    async def play() -> None:
        places = iter(range(len(writes)))

        def answer(given: Asked) -> Any:
            kinds = {part.part_kind for part in given.messages[-1].parts}
            return "Noted." if "tool-return" in kinds else call("note", index=next(places))

        ada = Agent("ada", instructions="", model=ScriptedModel(answer), tools=[note])

        def route(ctx: RouterContext) -> str | None:
            # What the run knew when the version before this call was kept.
            known[ctx.call_count] = dict(ctx.state.data)
            return ada.name if ctx.call_count < len(writes) else None

        await Network("desk", [ada], router=route).run("Go.", run_id=run, hf=hf)

    asyncio.run(play())

    found = dict[int, dict[str, Any]]()
    for version in hf.runs.versions(run):
        state = hf.runs.at(run, version.number).state
        values = {} if state is None else dict(state.data)
        calls = sum(
            each.cause == "agent" and each.number <= version.number
            for each in hf.runs.versions(run)
        )
        assert values == known[calls]
        found[calls] = values
    assert found.keys() >= set(range(1, len(writes) + 1))


@FEW
@given(titles=st.lists(st.sampled_from(["Count", "Name", "Tell"]), min_size=1, max_size=3))
def test_the_board_of_a_team_at_each_version_is_the_one_that_it_had(
    hf: Holdfast, titles: list[str]
) -> None:
    run, board = new_id(), TaskBoard()
    needs: list[str] = []
    for title in titles:
        needs = [board.create(title, depends_on=needs).id]
    known = dict[int, list[Any]]()

    def note(event: RunEvent) -> None:
        if event.type == "version.kept":
            known[event.data["version"]] = msgspec.json.decode(msgspec.json.encode(board.list()))

    team = a_team(
        an_agent("ada"),
        board=board,
        strategy="autonomous",
        context=Context(hf=hf, run_id=run),
        on_event=note,
    )
    asyncio.run(team.run())

    assert len(known) > len(titles)
    for number, tasks in known.items():
        assert hf.runs.at(run, number).board == tasks
