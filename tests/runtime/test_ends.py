"""Every way to end is told once: odd answers of models and tools in every kind of run."""

import asyncio
import builtins
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pydantic_ai import BinaryContent, ToolReturn
from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.usage import RequestUsage
from runtime.networks.played import TERMINAL, network

import holdfast
from holdfast import Holdfast
from holdfast.memories.run.records.event import REASONS
from holdfast.runtime import (
    Agent,
    Context,
    EngineHistory,
    ParallelTaskExecutor,
    RunEvent,
    Step,
    StepExecutor,
    Task,
    TaskPlan,
    TeamExecutor,
)
from holdfast.runtime.events import RunUpdate
from holdfast.testing.scripted import ScriptedModel, call

Behaviour: TypeAlias = Callable[[], Any]


class Collapse(BaseException):
    """No Exception."""


def made(kind: type[BaseException]) -> BaseException:
    """Return an exception of *kind*."""
    arguments: dict[type[BaseException], tuple[Any, ...]] = {
        UnicodeDecodeError: ("utf-8", b"x", 0, 1, "odd"),
        UnicodeEncodeError: ("utf-8", "x", 0, 1, "odd"),
        UnicodeTranslateError: ("x", 0, 1, "odd"),
        ExceptionGroup: ("odd", [ValueError("one")]),
        BaseExceptionGroup: ("odd", [SystemExit(1)]),
    }
    return kind(*arguments.get(kind, ("odd \ud800",)))


BUILT_IN = [
    each
    for each in vars(builtins).values()
    if isinstance(each, type)
    and issubclass(each, BaseException)
    and not issubclass(each, KeyboardInterrupt | Warning)
]
EXCEPTIONS = [*BUILT_IN, asyncio.CancelledError, Collapse]


def nested(depth: int) -> Any:
    found: Any = []
    for _ in range(depth):
        found = [found]
    return found


def raising(kind: type[BaseException]) -> Behaviour:
    def fail() -> Any:
        raise made(kind)

    return fail


def returning(value: Any) -> Behaviour:
    return lambda: value


VALUES: list[Any] = [
    None,
    "",
    "fine",
    "x" * 300_000,
    "half \udc00",
    {"\ud800": [1, None]},
    nested(199),
    nested(200),
    nested(20_000),
    float("nan"),
    [float("-inf")],
    2**70,
    object(),
    b"bytes",
    {1: 2},
    [BinaryContent(b"z" * 200_000, media_type="image/png"), "a \ud800"],
    ToolReturn("a \ud800", content=["b \ud800"], metadata={"at": object()}),
    [ToolReturn("nested")],
]
behaviours = st.one_of(
    st.sampled_from(VALUES).map(returning), st.sampled_from(EXCEPTIONS).map(raising)
)
arguments: st.SearchStrategy[Any] = st.sampled_from(
    [
        {},
        None,
        "",
        {"value": 3},
        {"result": 3},
        '{"value": 3}',
        "{not json",
        "[1]",
        '{"value": NaN}',
        '{"value": "\\ud800"}',
        '{"value": 1e999}',
        '{"value": ' + "[" * 5_000 + "]" * 5_000 + "}",
        {"value": nested(300)},
        {"value": nested(20_000)},
        {"value": float("nan")},
        {"value": "\ud800"},
        {"\ud800": 1},
        {"value": object()},
        {"value": "x" * 300_000},
    ]
)
calls = st.builds(
    ToolCallPart,
    st.sampled_from(["odd", "odd_later", "finish_step", "read_result", "unknown", "", "\ud800"]),
    arguments,
    st.sampled_from(["", "same", "\ud800", "call_1", "call_2"]),
)
texts = st.sampled_from(["", "Fine.", "half \ud800", "x" * 300_000, "<think>", "\0"])
parts = st.one_of(texts.map(TextPart), texts.map(ThinkingPart), calls)
replies = st.lists(parts, max_size=4).map(
    lambda found: ModelResponse(found, usage=RequestUsage(input_tokens=1, output_tokens=1))
)
turns = st.lists(
    st.one_of(replies, st.sampled_from(EXCEPTIONS).map(raising)), min_size=1, max_size=4
)


class Odd:
    """A model that gives *turns* and then comes to an end, and a tool that does odd things."""

    def __init__(self, turns: Sequence[Any], tool: Behaviour, hf: Holdfast | None = None) -> None:
        self._turns, self._tool = iter(turns), tool
        self.model = ScriptedModel(self.answer)
        self.history = None if hf is None else EngineHistory(hf)
        self.context = Context(model=self.model, hf=hf)

    def answer(self, asked: Any) -> object:
        turn = next(self._turns, None)
        if turn is None:
            return call("finish_step", value=3) if "finish_step" in asked.offered else "Done."
        return turn() if callable(turn) else turn

    def tools(self) -> list[Any]:
        def odd(value: Any = None) -> Any:
            """Do something odd."""
            del value
            return self._tool()

        async def odd_later(value: Any = None) -> Any:
            """Do something odd."""
            del value
            return self._tool()

        return [odd, odd_later]


async def told(executor: Any) -> list[str]:
    """Execute *executor*; return the ends that it tells, the last event's among them."""
    events: list[Any] = []
    # An exception that no executor foresaw is raised after the last event.
    with suppress(Exception):
        async for event in executor.execute():
            events.append(event)  # noqa: PERF401 - those before an exception count
    assert isinstance(events[-1], RunUpdate)
    updates = [each.event for each in events if isinstance(each, RunUpdate)]
    return [each for each in updates if each != "started"]


async def of_a_step(odd: Odd) -> list[str]:
    step = Step(id="count", instructions="Count.", output_schema={"type": "object"})
    task = Task(id="harbour", title="The harbour", steps=[step])
    executor = StepExecutor(
        task=task, step=step, context=odd.context, tools=odd.tools(), max_iterations=8
    )
    return await told(executor)


async def of_a_plan(odd: Odd) -> list[str]:
    steps = [Step(id=id, instructions="Count.") for id in ("one", "two")]
    tasks = [Task(id=f"task_{each.id}", title="Count", steps=[each]) for each in steps]
    plan = TaskPlan(title="The harbour", tasks=tasks)
    return await told(ParallelTaskExecutor(plan=plan, context=odd.context, tools=odd.tools()))


async def of_a_team(odd: Odd) -> list[str]:
    agents = [Agent(name, instructions="", description=name) for name in ("ada", "bob")]
    team = TeamExecutor(
        objective="Count.",
        agents=agents,
        context=odd.context,
        tools=odd.tools(),
        max_turns=6,
    )
    return await told(team)


async def of_a_network(odd: Odd) -> list[str]:
    heard: list[RunEvent] = []
    members = [
        Agent(name, instructions="", tools=odd.tools(), model=odd.model) for name in ("ada", "bob")
    ]

    desk = network(*members, history=odd.history)
    run = await desk.run("Go.", raises=False, on_event=heard.append)

    assert run.status != "running"
    assert heard[-1].type in TERMINAL
    return [each.type for each in heard if each.type in TERMINAL]


async def of_an_agent(odd: Odd) -> list[str]:
    heard: list[RunEvent] = []
    ada = Agent("ada", instructions="", tools=odd.tools(), model=odd.model, history=odd.history)

    await ada.run("Go.", raises=False, on_event=heard.append)

    assert heard[-1].type in TERMINAL
    return [each.type for each in heard if each.type in TERMINAL]


KINDS = [of_a_step, of_a_plan, of_a_team, of_a_network, of_an_agent]


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


async def ended(kind: Callable[[Odd], Awaitable[list[str]]], odd: Odd) -> None:
    assert len(await kind(odd)) == 1
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left


@given(kind=st.sampled_from(KINDS), turns=turns, tool=behaviours)
@example(kind=of_a_step, turns=[raising(AssertionError), raising(SystemExit)], tool=returning(None))
@settings(max_examples=100, deadline=None, suppress_health_check=SLOW)
def test_each_run_tells_one_end_and_leaves_no_task(
    kind: Any, turns: list[Any], tool: Behaviour
) -> None:
    asyncio.run(ended(kind, Odd(turns, tool)))


@given(kind=st.sampled_from(KINDS), turns=turns, tool=behaviours)
@settings(max_examples=30, deadline=None, suppress_health_check=SLOW)
def test_the_end_of_each_run_is_stored_with_its_reason_and_no_lease(
    kind: Any, turns: list[Any], tool: Behaviour
) -> None:
    with holdfast.open(":memory:") as hf:
        asyncio.run(ended(kind, Odd(turns, tool, hf)))

        stored = hf.runs.list().data
        assert len(stored) == 1
        assert REASONS[stored[0].reason or ""] == stored[0].status
        assert stored[0].ended_at is not None


def interrupt() -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["odd", "odd_later"])
@pytest.mark.parametrize("several", [True, False], ids=["network", "agent"])
def test_an_interrupt_from_the_keyboard_ends_a_run_as_cancelled_and_goes_on(
    name: str, several: bool
) -> None:
    heard: list[str] = []
    odd = Odd([call(name)], interrupt)
    ada = Agent("ada", instructions="", tools=odd.tools(), model=odd.model)

    async def run() -> None:
        runs = network(ada) if several else ada
        await runs.run("Go.", raises=False, on_event=lambda event: heard.append(event.type))

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())

    assert [each for each in heard if each in TERMINAL] == ["run.cancelled"] == heard[-1:]
