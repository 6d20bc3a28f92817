"""Executors: their events and order, the semaphore of model loops, and steering."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest
from pydantic_ai.messages import UserPromptPart
from stepping import NUMBER, Stepping, names

from holdfast.ground.errors import InvalidInput, NotFound, UnknownFormat
from holdfast.runtime import Context, LogUpdate, events, executor
from holdfast.runtime.concurrency import Slots
from holdfast.runtime.events import KINDS, ExecutionEvent, Spending, StepError, StepResult
from holdfast.runtime.executor import ExecutionOutcome
from holdfast.runtime.runs.run_events import BOUND
from holdfast.testing import call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked


class Work:
    """An executor that tells *lines* lines, and writes to the run's memory."""

    name, title, parts = "work", "Work", ()

    def __init__(self, context: Context, lines: int = 1) -> None:
        self.context, self.lines, self.told = context, lines, 0

    async def perform(self) -> None:
        """Tell, then write."""
        for number in range(self.lines):
            await self.context.tell(LogUpdate(severity="info", content=str(number)))
            self.told += 1
        self.context.memory.set("shared:lines", self.lines)

    def ending(self) -> ExecutionOutcome:
        """Return how many it told."""
        return ExecutionOutcome(state="completed", result=self.told)


@pytest.mark.anyio
async def test_the_run_is_told_first_and_last_and_what_is_written_between() -> None:
    work = Work(Context(run_id="run_1"))

    told = [event async for event in executor.events(work)]

    assert names(told) == ["started", "log_update", "memory_update", "completed"]
    update: Any = told[2]
    assert (update.key, update.kind, update.value_bytes) == ("shared:lines", "shared", 1)


@pytest.mark.anyio
async def test_only_the_outermost_of_nested_executors_tells_of_the_run() -> None:
    context = Context(clock=FrozenClock())

    async def nested() -> int:
        """Run another step of the same run."""
        await executor.run(Work(context))
        within = context.copy()
        await executor.run(Work(within))
        return len([event async for event in executor.events(Work(context, 2))])

    stepping = Stepping([call("nested"), "Three."], context=context, tools=[nested])

    told = await stepping.events()

    assert names(told).count("started") == names(told).count("completed") == 1
    assert len([each for each in told if isinstance(each, LogUpdate)]) == 2
    assert len({each.run_id for each in told}) == 2


@pytest.mark.anyio
async def test_a_run_of_its_own_within_another_tells_of_itself() -> None:
    async def nested() -> list[str]:
        """Run something else."""
        return names([event async for event in executor.events(Work(Context()))])

    stepping = Stepping([call("nested"), "Three."], tools=[nested])

    await stepping.executor.run()

    assert stepping.given[0][0] == "started"
    assert stepping.given[0][-1] == "completed"


@pytest.mark.anyio
async def test_whoever_tells_faster_than_is_looked_waits() -> None:
    work = Work(Context(), lines=3 * BOUND)
    events = executor.events(work)

    await anext(events)
    for _ in range(2 * BOUND):
        await asyncio.sleep(0)
    waited_at = work.told
    told = [event async for event in events]

    assert waited_at <= BOUND + 1
    assert [each.seq for each in told] == list(range(2, 3 * BOUND + 4))


@pytest.mark.anyio
async def test_what_parallel_parts_tell_comes_numbered_in_its_order() -> None:
    class Together(Work):
        async def perform(self) -> None:
            await asyncio.gather(*(Work(self.context, BOUND).perform() for _ in range(4)))

    told = [event async for event in executor.events(Together(Context()))]

    assert [each.seq for each in told] == list(range(1, len(told) + 1))
    assert len([each for each in told if isinstance(each, LogUpdate)]) == 4 * BOUND


@pytest.mark.anyio
async def test_two_executed_side_by_side_are_told_to_those_who_look_at_each() -> None:
    context = Context()

    async def looked_at(lines: int) -> int:
        told = [event async for event in executor.events(Work(context, lines))]
        return len([each for each in told if isinstance(each, LogUpdate)])

    assert await asyncio.gather(looked_at(3), looked_at(5)) == [3, 5]


@pytest.mark.anyio
async def test_run_returns_the_result() -> None:
    assert await executor.run(Work(Context(), 3)) == 3


@pytest.mark.anyio
async def test_run_sync_is_refused_on_an_event_loop() -> None:
    with pytest.raises(InvalidInput, match="event loop"):
        executor.run_sync(Work(Context()))


def test_run_sync_runs_without_one() -> None:
    assert executor.run_sync(Work(Context(), 3)) == 3


FILLED: dict[str, Any] = {
    "result": {"ships": [1, None, "ä"]},
    "error": StepError("timeout", "it took more than 3 s"),
    "usage": Spending(requests=1, input_tokens=2, output_tokens=3, total_tokens=5),
    "args": {"a": [1]},
    "blocked_by": ("one", "two"),
    "tasks": ("one",),
    "reason": "enough",
    "is_task_result": True,
    "item_index": 3,
}
NEEDED: dict[str, Any] = {
    "run_update": {"event": "completed", "executor": "step"},
    "planning_update": {"phase": "generation", "status": "running"},
    "task_update": {"event": "step_started"},
    "step_result": {"step_id": "count"},
    "tool_call_update": {"tool_call_id": "one", "name": "look"},
    "tool_result_update": {"tool_call_id": "one", "name": "look", "ok": True, "characters": 3},
    "chunk": {},
    "memory_update": {"key": "shared:a", "kind": "shared", "version": 1, "value_bytes": 4},
    "team_update": {"event": "task_claimed"},
    "log_update": {"severity": "warning", "content": "Mind the gap."},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_reads_back_as_it_was(kind: str) -> None:
    made = KINDS[kind]
    known = {each.name for each in fields(made)}
    filled = {name: value for name, value in FILLED.items() if name in known}
    event = made(run_id="run_1", seq=4, at=1_700_000_000_000, **NEEDED[kind], **filled)

    assert events.from_json(event.to_json()) == event
    assert json.loads(event.to_json())["type"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_made_of_what_it_needs(kind: str) -> None:
    made = KINDS[kind]
    needed = {
        each.name
        for each in fields(made)
        if each.default is MISSING and each.default_factory is MISSING
    }

    assert needed == set(NEEDED[kind])
    assert events.from_json(made(**NEEDED[kind]).to_json()) == made(**NEEDED[kind])


def test_a_result_that_is_too_long_is_told_in_part_with_its_size() -> None:
    event = StepResult(step_id="count", result="x" * 100_000)

    told = json.loads(event.to_json())["result"]

    assert told == {"part": '"' + "x" * 65_535, "value_bytes": 100_002}
    assert event.result == "x" * 100_000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", InvalidInput),
        ('{"type": "weather"}', UnknownFormat),
        ('{"type": "task_update", "event": "sunk"}', InvalidInput),
        ('{"type": "chunk", "content": 3}', InvalidInput),
    ],
)
def test_what_is_no_event_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        events.from_json(text)


def test_the_moments_of_tasks_and_teams_are_those_that_are_documented() -> None:
    assert len(get_args(events.TaskMoment)) == 17
    assert len(get_args(events.TeamMoment)) == 15


@pytest.mark.anyio
async def test_events_of_a_run_are_numbered_as_they_come() -> None:
    stepping = Stepping([["Let me see. " * 20, call("memory_list")], "Three."])

    told: list[ExecutionEvent] = await stepping.events()

    assert [each.seq for each in told] == sorted(each.seq for each in told)
    assert {each.run_id for each in told} == {"run_1"}
    assert (told[0].type, told[-1].type) == ("run_update", "run_update")


@pytest.mark.anyio
async def test_what_a_model_says_is_told_piece_by_piece() -> None:
    stepping = Stepping(["Three ships. " * 10])

    chunks = await stepping.told(events.Chunk)

    assert "".join(each.content for each in chunks).strip() == stepping.executor.result
    assert [each.done for each in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks) > 3


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (events.Chunk(content="a\ud800b"), {"content": "a?b"}),
        (events.ToolCallUpdate(tool_call_id="1", name="x", args={"\ud800": ["\udfff"]}), {}),
        (StepResult(step_id="a", result={"a": "\ud800"}), {"result": {"a": "?"}}),
    ],
)
def test_half_a_character_does_not_keep_an_event_from_being_told(
    event: ExecutionEvent, told: dict[str, Any]
) -> None:
    said = json.loads(event.to_json())

    assert said | told == said
    assert "?" in event.to_json()


@pytest.mark.anyio
async def test_all_events_of_a_run_are_json() -> None:
    turns = [[call("look", x=2**70), call("gone")], call("finish_step", result={"a": [1.5, None]})]
    stepping = Stepping(turns, step={"output_schema": {"type": "object"}})

    told = await stepping.events()

    assert len(told) > 10
    for event in told:
        assert events.from_json(event.to_json()).to_json() == event.to_json()


async def until(holds: Callable[[], bool]) -> None:
    """Let others run until *holds*, for a thousand turns of the loop at most."""
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError


@pytest.mark.anyio
async def test_at_most_so_many_are_taken_at_once() -> None:
    slots, at_once, most = Slots(3), 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with slots.taken():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    await asyncio.gather(*(work() for _ in range(20)))

    assert most == 3


@pytest.mark.anyio
async def test_first_come_first_served() -> None:
    slots, order = Slots(1), list[int]()

    async def work(number: int) -> None:
        async with slots.taken():
            order.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(10)))

    assert order == list(range(10))


@pytest.mark.anyio
async def test_one_that_gives_up_waiting_takes_no_slot() -> None:
    slots = Slots(1)

    async def work() -> None:
        async with slots.taken():
            pass

    async with asyncio.TaskGroup() as group:
        await slots.acquire()
        waiting = group.create_task(work())
        await until(lambda: slots.waiting == 1)
        waiting.cancel()
        await until(waiting.done)
        slots.release()
        await group.create_task(work())

    assert slots.waiting == 0


@pytest.mark.anyio
async def test_one_that_is_called_while_it_gives_up_hands_on() -> None:
    slots = Slots(1)

    async def work() -> str:
        async with slots.taken():
            return "done"

    await slots.acquire()
    first, second = asyncio.create_task(work()), asyncio.create_task(work())
    await until(lambda: slots.waiting == 2)
    slots.release()
    first.cancel()

    assert await second == "done"


@pytest.mark.anyio
async def test_narrowed_slots_are_also_slots_of_the_whole() -> None:
    whole = Slots(2)
    narrow, at_once, most = whole.narrowed(1), 0, 0

    async def work() -> None:
        nonlocal at_once, most
        async with narrow.taken():
            at_once += 1
            most = max(most, at_once)
            await asyncio.sleep(0)
            at_once -= 1

    await whole.acquire()
    await asyncio.gather(*(work() for _ in range(5)))

    assert most == 1


@pytest.mark.anyio
async def test_a_waiting_parent_holds_no_slot() -> None:
    """A step whose tool runs a step goes on where there is one slot, also for two at once."""
    context = Context(clock=FrozenClock(), max_concurrency=1)

    async def delegate(name: str) -> str:
        """Delegate."""
        inner = Stepping([f"{name} is done."], context=context.copy())
        return await inner.executor.run()

    turn = [call("delegate", name="one"), call("delegate", name="two")]
    stepping = Stepping([turn, "Both."], tools=[delegate], context=context)

    assert await stepping.executor.run() == "Both."
    assert stepping.given == ["one is done.", "two is done."]


def test_they_serve_one_event_loop_after_another() -> None:
    slots = Slots(1)

    async def work() -> int:
        async def one() -> None:
            async with slots.taken():
                await asyncio.sleep(0)

        await asyncio.gather(one(), one())
        return slots.waiting

    assert [asyncio.run(work()), asyncio.run(work())] == [0, 0]


def test_there_must_be_one() -> None:
    with pytest.raises(InvalidInput):
        Slots(0)


FINISH = call("finish_step", result=3)


def said(asked: Asked) -> list[str]:
    """Return what users said in *asked*, in order."""
    parts = [part for message in asked.messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, UserPromptPart)]


@pytest.mark.anyio
async def test_what_is_said_goes_before_the_next_request_in_order_and_is_told() -> None:
    def look() -> str:
        """Look."""
        assert stepping.context.steer("Only the big ones.", step="count") == ["count"]
        assert stepping.context.steer("And quick.") == ["count"]
        return "Ships."

    stepping = Stepping([call("look"), "Three."], tools=[look])

    told = await stepping.told(LogUpdate)

    assert said(stepping.model.asked[1])[1:] == ["Only the big ones.", "And quick."]
    assert [(each.severity, each.content) for each in told] == [
        ("info", "Steered: Only the big ones."),
        ("info", "Steered: And quick."),
    ]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("last", "schema", "result"), [("Two.", None, "Two."), (FINISH, NUMBER, 3)]
)
async def test_a_step_about_to_end_takes_what_was_said_and_goes_on(
    last: Any, schema: Any, result: Any
) -> None:
    def late(_: Asked) -> Any:
        stepping.context.steer("Wait, look again.")
        return "Three." if schema is None else call("finish_step", result=9)

    stepping = Stepping([late, last], step={"output_schema": schema})

    assert await stepping.executor.run() == result
    assert said(stepping.model.asked[1])[-1] == "Wait, look again."


@pytest.mark.anyio
async def test_when_no_request_is_left_the_result_that_was_there_counts() -> None:
    def late(_: Asked) -> Any:
        stepping.context.steer("Wait, look again.")
        return "Three."

    stepping = Stepping([late], max_iterations=1)

    told = await stepping.told(LogUpdate)

    assert stepping.executor.result == "Three."
    assert [each.severity for each in told] == ["info", "warning"]


@pytest.mark.anyio
async def test_what_is_said_to_a_step_that_has_not_started_waits_for_it() -> None:
    stepping = Stepping(["Three."])
    stepping.context.steering.expect(["count"])

    assert stepping.context.steer("Only the big ones.", step="count") == ["count"]
    await stepping.executor.run()

    assert said(stepping.model.asked[0]) == ["Count the ships.", "Only the big ones."]


@pytest.mark.anyio
async def test_a_second_try_hears_it_again() -> None:
    async def sleep(_: float) -> None:
        pass

    def failing(_: Asked) -> Any:
        stepping.context.steer("Only the big ones.")
        raise OSError("no route")

    context = Context(clock=FrozenClock(), sleep=sleep)
    stepping = Stepping([failing, "Three."], context=context, step={"retries": 1})

    await stepping.executor.run()

    assert said(stepping.model.asked[1]) == ["Count the ships.", "Only the big ones."]


@pytest.mark.anyio
async def test_a_step_that_has_ended_or_is_unknown_is_not_found() -> None:
    stepping = Stepping(["Three."])
    await stepping.executor.run()

    with pytest.raises(NotFound):
        stepping.context.steer("Too late.", step="count")
    with pytest.raises(NotFound):
        stepping.context.steer("Who?", step="nobody")


@pytest.mark.anyio
async def test_with_nothing_at_work_nobody_hears_it() -> None:
    assert Context().steer("Hello?") == []


def test_a_blank_word_is_refused() -> None:
    with pytest.raises(InvalidInput):
        Context().steer("  ")


@pytest.mark.anyio
async def test_another_thread_may_speak() -> None:
    async def look() -> str:
        """Look."""
        await asyncio.to_thread(stepping.context.steer, "Only the big ones.")
        return "Ships."

    stepping = Stepping([call("look"), "Three."], tools=[look])

    await stepping.executor.run()

    assert said(stepping.model.asked[1])[-1] == "Only the big ones."


@pytest.mark.parametrize("text", [5, None, "a\ud800"])
def test_only_text_can_be_said(text: Any) -> None:
    with pytest.raises(InvalidInput, match="text"):
        Context().steer(text)
