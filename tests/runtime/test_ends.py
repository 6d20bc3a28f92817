"""Every way to end is told once: odd answers of models and tools in every kind of run."""

import asyncio
import builtins
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
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
from holdfast.ground.errors import RunFailed
from holdfast.memories.run.records.event import ENDS, REASONS
from holdfast.memories.run.records.record import RunRow
from holdfast.runtime import (
    Agent,
    AgentStepNode,
    Context,
    EngineHistory,
    FunctionNode,
    ParallelTaskExecutor,
    RunEvent,
    Session,
    Step,
    StepExecutor,
    Task,
    TaskExecutor,
    TaskPlan,
    TeamExecutor,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.events import RunUpdate
from holdfast.testing.scripted import ScriptedModel, call

Behaviour: TypeAlias = Callable[[], Any]


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """Log nothing: what is logged has lone surrogates, which no terminal can show."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


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


def calls_with(value: Any) -> ToolCallPart:
    return ToolCallPart("odd", {"value": value}, "call_1")


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
texts = st.sampled_from(["", "Fine.", "half \ud800", "x" * 70_000, "<think>", "\0"])
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
        self._turns, self.tool, self.hf = iter(turns), tool, hf
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
            return self.tool()

        async def odd_later(value: Any = None) -> Any:
            """Do something odd."""
            del value
            return self.tool()

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


async def of_a_task(odd: Odd) -> list[str]:
    steps = [Step(id=id, instructions="Count.") for id in ("one", "two")]
    task = Task(id="harbour", title="The harbour", steps=steps)
    return await told(TaskExecutor(task=task, context=odd.context, tools=odd.tools()))


async def of_a_workflow(odd: Odd) -> list[str]:
    def node(_inputs: object, _context: object) -> dict[str, Any]:
        return {"value": odd.tool()}

    nodes = [FunctionNode("odd", node), AgentStepNode("count", "Count.")]
    runner = WorkflowRunner(Workflow(nodes), context=odd.context, tools=odd.tools())
    return await told(runner)


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


async def of_a_session(odd: Odd) -> list[str]:
    with holdfast.open(":memory:") as own:
        ada = Agent("ada", instructions="", tools=odd.tools(), model=odd.model)
        heard: list[str] = []
        async with Session(ada, hf=odd.hf or own) as session:
            # A turn that failed is raised after its last event.
            with suppress(RunFailed):
                async for event in session.stream("Go."):
                    heard.append(event.type)  # noqa: PERF401 - those before an exception count
    assert heard[-1] in TERMINAL
    return [each for each in heard if each in TERMINAL]


KINDS = [
    of_a_step,
    of_a_task,
    of_a_plan,
    of_a_workflow,
    of_a_team,
    of_a_network,
    of_an_agent,
    of_a_session,
]


SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example]


async def ended(kind: Callable[[Odd], Awaitable[list[str]]], odd: Odd) -> None:
    assert len(await kind(odd)) == 1
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left


@given(kind=st.sampled_from(KINDS), turns=turns, tool=behaviours)
@example(kind=of_a_step, turns=[raising(AssertionError), raising(SystemExit)], tool=returning(None))
@settings(suppress_health_check=SLOW)
def test_each_run_tells_one_end_and_leaves_no_task(
    kind: Any, turns: list[Any], tool: Behaviour
) -> None:
    asyncio.run(ended(kind, Odd(turns, tool)))


@given(kind=st.sampled_from(KINDS), turns=turns, tool=behaviours)
@settings(suppress_health_check=SLOW)
def test_the_end_of_each_run_is_stored_with_its_reason_and_no_lease(
    kind: Any, turns: list[Any], tool: Behaviour
) -> None:
    with holdfast.open(":memory:") as hf:
        asyncio.run(ended(kind, Odd(turns, tool, hf)))

        check_stored(hf)


def check_stored(hf: Holdfast, count: int = 1) -> None:
    """Check that the *count* runs of *hf* are stored with their ends, and have no owner."""
    engine, runs = hf.runs.context.engine, hf.runs.list(limit=100).data
    assert len(runs) == count
    for run in runs:
        row = engine.first(RunRow, engine.queries("holdfast.memories.run").lock_run, run=run.id)
        assert row is not None
        assert row.lease_until is None
        assert REASONS[run.reason or ""] == run.status
        assert run.ended_at is not None
        types = [each.type for each in hf.runs.follow(run.id)]
        assert [each for each in types if each in ENDS] == [f"run.{run.status}"] == types[-1:]


FINISH = ToolCallPart("finish_step", {"value": 3}, "same")
ODD = ToolCallPart("odd", {"value": 3}, "same")
WAYS: dict[str, tuple[list[Any], Behaviour]] = {
    "a deep value": ([[call("odd")]], returning(nested(5_000))),
    "deep arguments": ([ModelResponse([calls_with(nested(5_000))])], returning(1)),
    "a huge value": ([[call("odd")]], returning("x" * 1_000_000)),
    "a huge reply": (["x" * 100_000], returning(1)),
    "half a character": ([ModelResponse([TextPart("a \ud800"), ODD])], returning("b \udc00")),
    "no number": ([[call("odd")]], returning([float("nan")])),
    "arguments of no number": ([ModelResponse([calls_with(float("nan"))])], returning(1)),
    "calls of one id": ([ModelResponse([ODD, ODD, ToolCallPart("odd", {}, "")])], returning(1)),
    "an unknown tool": ([[call("unknown")]], returning(1)),
    "two finishes": ([ModelResponse([FINISH, FINISH]), ModelResponse([FINISH, ODD])], returning(1)),
    "a model that is cancelled": ([raising(asyncio.CancelledError)], returning(1)),
    "a tool that is cancelled": ([[call("odd_later")]], raising(asyncio.CancelledError)),
    "a model that exits": ([raising(SystemExit)], returning(1)),
    "a tool that exits": ([[call("odd"), call("odd_later")]], raising(SystemExit)),
    "no BaseException of ours": ([[call("odd")], raising(Collapse)], raising(Collapse)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_each_way_to_end_is_emitted_once_and_stored_with_its_reason(kind: Any) -> None:
    with holdfast.open(":memory:") as hf:
        for turns, tool in WAYS.values():
            asyncio.run(ended(kind, Odd(turns, tool, hf)))

        check_stored(hf, len(WAYS))


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_may_raise_anything(kind: Any) -> None:
    failing = iter(EXCEPTIONS * 9)
    every = [call("odd") for _ in EXCEPTIONS]

    def fail() -> Any:
        raise made(next(failing))

    asyncio.run(ended(kind, Odd([every, every], fail)))


@pytest.mark.parametrize("number", range(len(KINDS)))
def test_a_model_may_raise_anything(number: int) -> None:
    for place, raised in enumerate(EXCEPTIONS):
        kind = KINDS[(number + place) % len(KINDS)]
        if place % len(KINDS) < 2:
            asyncio.run(ended(kind, Odd([raising(raised)], returning(1))))


def test_a_node_that_raises_half_a_character_is_stored_with_reason_and_detail() -> None:
    with holdfast.open(":memory:") as hf:
        asyncio.run(ended(of_a_workflow, Odd(["Three."], raising(ValueError), hf)))

        (run,) = hf.runs.list().data
        assert (run.status, run.reason) == ("failed", "steps")
        assert "ValueError: odd \ufffd" in (run.detail or "")


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
