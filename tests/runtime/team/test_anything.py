"""Whatever the agents of a team do, and whenever it is stopped: the team keeps its promises."""

import asyncio
import random
from collections import Counter
from threading import Event as Signal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from teams import (
    Act,
    a_team,
    all_events,
    an_agent,
    asked_of,
    claimable,
    mine,
    updates,
    work,
)

from holdfast.runtime import TeamExecutor
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, LogUpdate, RunUpdate, TeamUpdate
from holdfast.testing.scripted import Asked, call

pytestmark = pytest.mark.anyio

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
            tool_rounds=self.dice.randint(1, 4),
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
    return (await asyncio.wait(others, timeout=5))[1] if others else set()


@given(seed=st.integers(0, 2**32))
def test_a_team_ends_in_one_state_and_says_which(seed: int) -> None:
    wild = Wild(seed)

    events = asyncio.run(all_events(wild.team))

    holds_what_it_promises(wild, events)
    assert isinstance(events[-1], RunUpdate)


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
