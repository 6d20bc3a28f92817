"""Ends of a team: each of them by itself, and after random acts."""

import asyncio
import random
from collections import Counter
from threading import Event as Signal
from threading import Thread

import pytest
from few_examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from teams import (
    LAST_CALL,
    REPAIR,
    Act,
    a_team,
    all_events,
    an_agent,
    asked_of,
    claimable,
    create,
    idle,
    leading,
    mine,
    opening,
    task_on,
    until,
    updates,
    work,
)

from holdfast.errors import RunCancelled
from holdfast.runtime import TaskBoard, TeamExecutor
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, RunUpdate, TeamUpdate
from holdfast.runtime.team.bus import MessageBus
from holdfast.testing.scripted import Asked, call

pytestmark = pytest.mark.anyio


def failing(title: str) -> Act:
    """Return who claims what is free and fails what is called *title*."""

    def act(asked: Asked) -> object:
        held = mine(asked)
        if held and held[0]["title"] == title:
            return call("fail_task", task_id=held[0]["id"], reason="fog")
        if free := claimable(asked):
            return call("claim_task", task_id=free[0]["id"])
        return work(asked) if held else "Next turn."

    return act


def chain() -> TaskBoard:
    """Return a board with a task to be counted and a report that needs it."""
    board = TaskBoard()
    first = board.create("Count", created_by="ada")
    board.create("Report", depends_on=[first.id], created_by="ada")
    return board


async def test_what_needs_a_failed_task_is_a_deadlock() -> None:
    board = chain()
    team = a_team(an_agent("ada", failing("Count")), strategy="autonomous", board=board)

    events = await all_events(team)

    result = team.get_result()
    assert (result.status, result.result) == ("deadlocked", None)
    assert [task.title for task in result.unfinished] == ["Report"]
    (found,) = updates(events, "deadlock_detected")
    assert found.tasks == (result.unfinished[0].id,)
    assert f"waits for {result.failed[0].id} (failed)" in str(found.content)


async def test_the_first_agent_may_repair_a_deadlock_once() -> None:
    board = chain()

    def lead(asked: Asked) -> object:
        if REPAIR in opening(asked):
            report = board.list()[1]
            return [
                call("fail_task", task_id=report.id, reason="not needed"),
                create("Guess"),
            ]
        return failing("Count")(asked)

    ada = an_agent("ada", lead)
    team = a_team(ada, an_agent("bob", idle), board=board)

    events = await all_events(team)

    result = team.get_result()
    assert [(task.title, task.status) for task in board.list()] == [
        ("Count", "failed"),
        ("Report", "failed"),
        ("Guess", "done"),
    ]
    assert (result.status, result.result) == ("failed", "Guess is done")
    assert len(updates(events, "deadlock_detected")) == 1


async def test_a_repair_that_repairs_nothing_is_not_asked_for_again() -> None:
    ada = an_agent("ada", failing("Count"))
    team = a_team(ada, an_agent("bob", idle), board=chain())

    result = await team.run()

    assert result.status == "deadlocked"
    assert sum(REPAIR in opening(asked) for asked in asked_of(ada)) == 1


async def test_an_autonomous_team_has_nobody_to_repair_it() -> None:
    ada = an_agent("ada", failing("Count"))
    team = a_team(ada, strategy="autonomous", board=chain())

    await team.run()

    assert not any(REPAIR in opening(asked) for asked in asked_of(ada))


async def test_a_stalled_team_names_each_open_task_and_why() -> None:
    board = TaskBoard()
    query = board.create("Query", required_skills=["sql"])
    both = board.create("Both", required_skills=["ink", "paper"])
    after = board.create("After", depends_on=[query.id])
    outside = board.create("Outside")
    board.claim(outside.id, "zoe")
    part = board.decompose(board.create("Whole").id, "zoe", [{"title": "Part"}])[0]
    board.claim(part.id, "zoe")
    board.block(part.id, "zoe", "fog")
    agents = (an_agent("ada", idle, skills=("ink",)), an_agent("bob", idle, skills=("paper",)))
    team = a_team(*agents, board=board)

    events = await all_events(team)

    result = team.get_result()
    (stalled,) = updates(events, "stalled")
    assert result.status == "stalled"
    assert len(result.unfinished) == len(stalled.tasks) == 6
    assert str(stalled.content).splitlines() == [
        f'{query.id} (Query): needs skill "sql", which no agent has',
        f'{both.id} (Both): needs skills "ink", "paper", which no agent has together',
        f"{after.id} (After): waits for {query.id} (open)",
        f"{outside.id} (Outside): is claimed by zoe, who is not of this team",
        f"{part.parent} (Whole): waits for its subtasks {part.id}",
        f"{part.id} (Part): is blocked by zoe: fog",
    ]


async def test_who_claims_nothing_is_called_upon_once_before_all_is_given_up() -> None:
    ada = an_agent("ada", idle)
    team = a_team(ada, strategy="autonomous")

    events = await all_events(team)

    assert team.get_result().status == "stalled"
    assert [LAST_CALL in opening(asked) for asked in asked_of(ada)] == [False, True]
    (stalled,) = updates(events, "stalled")
    assert "could be claimed by ada, and was not" in str(stalled.content)


async def test_a_last_call_that_is_heard_goes_on() -> None:
    def late(asked: Asked) -> object:
        return work(asked) if LAST_CALL in opening(asked) or not opening(asked) else "Not yet."

    team = a_team(an_agent("ada", late), strategy="autonomous")

    assert (await team.run()).status == "completed"


async def test_there_are_so_many_turns_and_no_more() -> None:
    plan = [create(str(number)) for number in range(5)]
    ada = an_agent("ada", leading(plan))
    team = a_team(ada, an_agent("bob", idle), max_turns=3, max_concurrency=1)

    events = await all_events(team)

    result = team.get_result()
    assert result.status == "max_turns"
    assert len(updates(events, "agent_started")) == 3
    assert result.unfinished


async def test_a_team_that_is_done_with_its_last_turn_is_completed() -> None:
    team = a_team(an_agent("ada"), strategy="autonomous", max_turns=1)

    assert (await team.run()).status == "completed"


async def test_an_owner_that_gets_nowhere_loses_its_task() -> None:
    def dawdle(asked: Asked) -> object:
        if free := claimable(asked):
            return call("claim_task", task_id=free[0]["id"])
        return "I am thinking."

    ada = an_agent("ada", dawdle)
    team = a_team(ada, strategy="autonomous")

    result = await team.run()

    assert result.status == "failed"
    assert str(result.failed[0].failure_reason).startswith("no progress")
    # One turn to claim it, and three that changed nothing.
    assert sum(bool(opening(asked)) for asked in asked_of(ada)) == 4


async def test_who_does_one_task_after_another_loses_none() -> None:
    def hoard(asked: Asked) -> object:
        if free := claimable(asked):
            return [call("claim_task", task_id=each["id"]) for each in free]
        if held := mine(asked):
            return call("complete_task", task_id=held[-1]["id"], result=1)
        return "One at a time."

    board = TaskBoard()
    for number in range(8):
        board.create(str(number))
    team = a_team(an_agent("ada", hoard), strategy="autonomous", board=board)

    assert (await team.run()).status == "completed"


async def test_who_fails_three_turns_in_a_row_is_benched_and_its_tasks_are_free() -> None:
    def break_down(asked: Asked) -> object:
        if free := claimable(asked):
            return call("claim_task", task_id=free[0]["id"])
        return RuntimeError("no answer")

    def wait(asked: Asked) -> object:
        freed = [task for task in claimable(asked) if task_on(board, task["id"]).version > 2]
        return work(asked) if freed or not opening(asked) else "Not mine."

    board = TaskBoard()
    task = board.create("Count")
    ada = an_agent("ada", break_down)
    team = a_team(ada, an_agent("bob", wait), board=board, max_concurrency=1)

    events = await all_events(team)

    (benched,) = updates(events, "agent_benched")
    assert (benched.agent, benched.tasks) == ("ada", (task.id,))
    assert task_on(board, task.id).claimed_by == "bob"
    assert team.get_result().status == "completed"
    errors = [each for each in events if isinstance(each, LogUpdate) and each.severity == "error"]
    assert "RuntimeError: no answer" in errors[0].content


async def test_a_turn_between_two_failures_is_a_new_beginning() -> None:
    script = [RuntimeError("a"), RuntimeError("b"), "Hm.", RuntimeError("c"), RuntimeError("d")]
    board = TaskBoard()
    board.create("Count")

    def act(asked: Asked) -> object:
        return script.pop(0) if script else work(asked)

    bus = MessageBus()
    bus.register("ada")
    bus.register("bob")
    for number in range(5):
        bus.send("zoe", "ada", "Seals", str(number))
    team = a_team(an_agent("ada", act), an_agent("bob", idle), board=board, bus=bus)

    events = await all_events(team)

    assert updates(events, "agent_benched") == []
    assert team.get_result().status == "completed"


async def test_a_team_of_the_benched_stalls() -> None:
    ada = an_agent("ada", lambda _: RuntimeError("no answer"))
    team = a_team(ada, strategy="autonomous")

    events = await all_events(team)

    (stalled,) = updates(events, "stalled")
    assert len(asked_of(ada)) == 3
    assert "could be claimed by ada, who is benched" in str(stalled.content)


async def test_an_open_team_waits_for_what_others_do() -> None:
    board = TaskBoard()
    task = board.create("Query", required_skills=["sql"])
    bus = MessageBus()
    bus.register("ada")
    bus.send("zoe", "ada", "Query", "Help is on its way.")
    team = a_team(
        an_agent("ada", idle), strategy="autonomous", board=board, bus=bus, keep_open=True
    )
    events = team.execute()

    def help_out() -> None:
        board.claim(task.id, "zoe", skills=["sql"])
        board.complete(task.id, "zoe", 12)

    await until(events, lambda event: bool(updates([event], "agent_idle")))
    helper = Thread(target=help_out)
    helper.start()
    async with asyncio.timeout(60):
        last = [event async for event in events][-1]
    helper.join()

    assert isinstance(last, RunUpdate)
    assert (last.event, last.result) == ("completed", 12)
    assert team.context.memory.get_value(f"task:{task.id}") == 12


async def test_an_open_team_is_woken_by_a_message() -> None:
    bus = MessageBus()

    def act(asked: Asked) -> object:
        if "Give it up." in opening(asked):
            return call("fail_task", task_id=task.id, reason="given up")
        return "Nothing."

    board = TaskBoard()
    task = board.create("Query", required_skills=["sql"], created_by="ada")
    team = a_team(an_agent("ada", act), strategy="autonomous", board=board, bus=bus, keep_open=True)
    bus.send("zoe", "ada", "Query", "Wait.")
    events = team.execute()
    await until(events, lambda event: bool(updates([event], "agent_idle")))
    bus.send("zoe", "ada", "Query", "Give it up.")

    async with asyncio.timeout(60):
        await until(events, lambda event: bool(updates([event], "team_complete")))

    assert team.get_result().status == "failed"


async def test_a_cancelled_team_says_so_and_leaves_nothing_running() -> None:
    reached = asyncio.Event()

    async def hang(asked: Asked) -> object:
        if LAST_CALL in opening(asked) or claimable(asked):
            reached.set()
            await asyncio.Event().wait()
        return work(asked)

    board = TaskBoard()
    board.create("One")
    board.create("Two")
    context = Context()
    team = a_team(an_agent("ada", hang), an_agent("bob", hang), board=board, context=context)
    before = asyncio.all_tasks()
    gathering = asyncio.create_task(all_events(team))
    async with asyncio.timeout(60):
        await reached.wait()
        context.cancel("enough")
        events = await gathering

    assert asyncio.all_tasks() <= before
    *_, complete, last = events
    assert isinstance(complete, TeamUpdate)
    assert (complete.event, complete.content) == ("team_complete", "cancelled")
    assert isinstance(last, RunUpdate)
    assert (last.event, last.reason) == ("cancelled", "enough")
    assert team.get_result().status == "cancelled"


async def test_a_cancelled_run_raises_with_what_was_done() -> None:
    context = Context()

    def act(asked: Asked) -> object:
        if len(board.list("done")) == 1:
            context.cancel("enough")
        return work(asked)

    board = TaskBoard()
    first = board.create("One", priority=0)
    board.create("Two")
    team = a_team(an_agent("ada", act), strategy="autonomous", board=board, context=context)

    with pytest.raises(RunCancelled) as caught:
        await team.run()

    assert (caught.value.reason, caught.value.completed) == ("enough", (first.id,))
    assert context.memory.get_value(f"task:{first.id}") == "One is done"


async def test_a_team_in_a_cancelled_run_does_nothing() -> None:
    context = Context()
    context.cancel()
    ada = an_agent("ada")
    team = a_team(ada, strategy="autonomous", context=context)

    events = await all_events(team)

    assert [event.event for event in events if isinstance(event, RunUpdate)] == [
        "started",
        "cancelled",
    ]
    assert len(events) == 2
    assert asked_of(ada) == []


async def test_who_stops_looking_stops_the_team() -> None:
    stopped = asyncio.Event()

    async def hang(_: Asked) -> object:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    before = asyncio.all_tasks()
    team = a_team(an_agent("ada", hang), strategy="autonomous")
    events = team.execute()

    def is_a_turn(event: ExecutionEvent) -> bool:
        return isinstance(event, TeamUpdate) and event.event == "agent_started"

    async for event in events:
        if is_a_turn(event):
            break
    await asyncio.sleep(0)
    await events.aclose()

    assert asyncio.all_tasks() <= before
    assert team.get_result().status == "cancelled"


STRATEGIES = ("coordinator", "hybrid", "autonomous")
SKILLS = ((), ("sql",), ("ink", "sql"))
MOST_TURNS = 60


class Wild:
    """A team whose agents do anything that a model could, as the dice fall."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.context = Context(stream=self.dice.random() < 0.5)
        self.team: TeamExecutor = a_team(
            *(
                an_agent(name, self.act(name), skills=self.dice.choice(SKILLS))
                for name in ("ada", "bob", "cleo")
            ),
            strategy=self.dice.choice(STRATEGIES),
            context=self.context,
            max_turns=MOST_TURNS,
            max_concurrency=self.dice.randint(1, 3),
            max_iterations=self.dice.randint(1, 4),
        )

    def act(self, name: str) -> Act:
        async def act(asked: Asked) -> object:
            if self.dice.random() < 0.3:
                await asyncio.sleep(0)
            wild = self.dice.choice([self.create, self.settle, self.write, self.fall, work, work])
            return wild(asked) if wild is not self.write else self.write(asked, name)

        return act

    def an_id(self) -> str:
        return self.dice.choice([task.id for task in self.team.board.list()] or ["task_x"])

    def create(self, _: Asked) -> object:
        if len(self.team.board.list()) > 12:
            return "Enough."
        needed = [self.an_id()] if self.dice.random() < 0.5 else []
        skills = ["sql"] if self.dice.random() < 0.2 else []
        return call("create_task", title="A task", depends_on=needed, required_skills=skills)

    def settle(self, asked: Asked) -> object:
        id = (mine(asked) or claimable(asked) or [{"id": self.an_id()}])[0]["id"]
        parts = [{"title": "one"}, {"title": "two", "depends_on": ["one"]}]
        return self.dice.choice(
            [
                call("fail_task", task_id=id, reason="no"),
                call("complete_task", task_id=id, result=1),
                call("claim_task", task_id=id),
                call("decompose_task", task_id=id, subtasks=parts),
                call("nonsense"),
            ]
        )

    def write(self, _: Asked, name: str = "") -> object:
        to = self.dice.choice([each for each in ("ada", "bob", "cleo") if each != name])
        if self.dice.random() < 0.5:
            return "Nothing to say."
        return call("send_message", to=to, subject="x", body="y")

    def fall(self, _: Asked) -> object:
        return RuntimeError("no answer") if self.dice.random() < 0.5 else "Hm."


def holds_what_it_promises(wild: Wild, events: list[ExecutionEvent]) -> None:
    team = wild.team
    result, told = team.get_result(), updates(events)
    everything = [*result.done, *result.failed, *result.unfinished]
    assert sorted(task.id for task in everything) == sorted(t.id for t in team.board.list())
    assert told[-1].event == "team_complete"
    assert told[-1].content == result.status
    for task in result.done:
        assert team.context.memory.get_value(f"task:{task.id}") == task.result
    for task in (*result.failed, *result.unfinished):
        assert not team.context.memory.has(f"task:{task.id}")
    if result.status == "completed":
        assert not result.unfinished
        assert not [task for task in result.failed if task.parent is None]
    if result.status == "deadlocked":
        assert team.board.deadlock()
    assert len(updates(events, "agent_started")) <= MOST_TURNS
    holds_one_turn_each(told)


def holds_one_turn_each(told: list[TeamUpdate]) -> None:
    """Assert that no agent began a turn within another, nor claimed what somebody had."""
    busy: Counter[str | None] = Counter()
    holders: dict[str | None, str | None] = {}
    for event in told:
        if event.event in ("agent_started", "agent_finished"):
            busy[event.agent] += 1 if event.event == "agent_started" else -1
            assert busy[event.agent] in (0, 1)
        if event.event == "task_claimed":
            assert holders.get(event.task_id) is None
            holders[event.task_id] = event.agent
        if event.event == "task_released":
            holders[event.task_id] = None


async def left_running() -> "set[asyncio.Task[object]]":
    """Return the tasks that do not end, each having been told to: an unwinding one may still."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    return (await asyncio.wait(others, timeout=60))[1] if others else set()


@FEW
@given(seed=st.integers(0, 2**32))
def test_a_team_ends_in_one_state_and_says_which(seed: int) -> None:
    wild = Wild(seed)

    events = asyncio.run(all_events(wild.team))

    holds_what_it_promises(wild, events)
    assert isinstance(events[-1], RunUpdate)


@FEW
@given(seed=st.integers(0, 2**32), moment=st.integers(0, 60))
def test_a_team_can_be_stopped_at_any_moment(seed: int, moment: int) -> None:
    wild = Wild(seed)

    async def stopped() -> list[ExecutionEvent]:
        events: list[ExecutionEvent] = []
        async for event in wild.team.execute():
            events.append(event)
            if len(events) == moment + 1:
                wild.context.cancel("enough")
        assert await left_running() == set()
        return events

    events = asyncio.run(stopped())

    last = events[-1]
    assert isinstance(last, RunUpdate)
    if last.event == "cancelled":
        assert wild.team.get_result().status == "cancelled"
    if len(updates(events)) > 1:
        holds_what_it_promises(wild, events)


async def test_each_turn_is_a_span_of_the_run() -> None:
    provider, kept = TracerProvider(), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    script: list[object] = [RuntimeError("no answer")]
    ada = an_agent("ada", lambda asked: script.pop() if script else work(asked))
    context = Context(run_id="run_1", tracer_provider=provider)
    team = a_team(ada, strategy="autonomous", context=context)

    await team.run()

    spans = {span.context.span_id: span for span in kept.get_finished_spans() if span.context}
    turns = [span for span in spans.values() if span.name == "holdfast.team.turn"]
    told = [dict(span.attributes or {}) for span in turns]
    assert [each["holdfast.state"] for each in told] == ["failed", "completed"]
    assert [each.get("holdfast.reason") for each in told] == ["RuntimeError", None]
    assert [each["holdfast.iterations"] for each in told] == [0, 3]
    assert [each["gen_ai.agent.name"] for each in told] == ["ada", "ada"]
    assert [each["holdfast.run_id"] for each in told] == ["run_1", "run_1"]
    assert {spans[span.parent.span_id].name for span in turns if span.parent} == {"holdfast.run"}
    assert not any("Count the seals" in str(span.attributes) for span in spans.values())


async def test_a_tool_in_a_thread_that_does_not_stop_is_left_behind_and_named() -> None:
    began, over = asyncio.Event(), Signal()
    loop = asyncio.get_running_loop()

    def dig() -> str:
        loop.call_soon_threadsafe(began.set)
        over.wait(60)
        return "done"

    async def at_once(_: float) -> None:
        await asyncio.sleep(0)

    context = Context(sleep=at_once)
    ada = an_agent("ada", lambda asked: call("dig") if len(asked_of(ada)) == 1 else work(asked))
    team = a_team(ada, strategy="autonomous", context=context, tools=[dig])
    gathering = asyncio.create_task(all_events(team))
    async with asyncio.timeout(60):
        await began.wait()
        context.cancel()
        events = await gathering
    over.set()

    warnings = [each.content for each in events if isinstance(each, LogUpdate)]
    assert any("the tool dig did not stop" in each for each in warnings)
    assert team.get_result().status == "cancelled"


async def test_a_long_answer_of_a_tool_is_read_in_parts() -> None:
    def survey() -> str:
        return "x" * 30_000

    def act(asked: Asked) -> object:
        if len(asked_of(ada)) == 1:
            return call("survey")
        if len(asked_of(ada)) == 2:
            return call("read_result", result_id="result_1", offset=25_000)
        return work(asked)

    ada = an_agent("ada", act)
    team = a_team(ada, strategy="autonomous", tools=[survey])

    await team.run()

    assert "read_result" not in asked_of(ada)[0].offered
    assert "read_result" in asked_of(ada)[1].offered
    assert "'total': 30000" in asked_of(ada)[1].text
    assert "x" * 5_000 in asked_of(ada)[2].text
