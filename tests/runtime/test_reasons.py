"""Each reason for which a run or a part of one ends is brought about."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.usage import UsageLimits
from runtime.networks.played import agent, network
from stepping import NUMBER, Stepping
from teams import a_team, an_agent, idle

import holdfast
from holdfast.memories.run.entry import RunLimits
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import ENDS, REASONS, RunEvent
from holdfast.memories.run.records.writer import RunOpening
from holdfast.runtime import (
    AgentHooks,
    Context,
    ParallelTaskExecutor,
    Step,
    Task,
    TaskBoard,
    TaskPlan,
    ToolContext,
)
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import ScriptedModel, call

pytestmark = pytest.mark.anyio

Ended = tuple[str, str]
"""The status and the reason of an end."""


async def end_of(executor: Any) -> Ended:
    """Execute *executor*; return its one end."""
    ends: list[RunEvent] = []
    # It is raised after the last event.
    with suppress(Exception):
        async for event in executor.stream():
            ends.append(event)  # noqa: PERF401 - those before an exception count
    last = ends[-1]
    assert [each for each in ends if each.type in ENDS] == [last]
    return last.type.removeprefix("run."), last.data["reason"]


async def step_of(*turns: Any, **fields: Any) -> Ended:
    return await end_of(Stepping(list(turns), **fields).executor)


async def network_of(*agents: Any, options: dict[str, Any] | None = None, **fields: Any) -> Ended:
    given: dict[str, Any] = options or {}
    run = await network(*agents, **fields).run("Go.", raises=False, **given)
    return run.status, str(run.stop_reason)


def fail(*_: object) -> Any:
    raise OSError("no route")


async def forever(_: object) -> Any:
    await asyncio.Event().wait()


async def stopped() -> Ended:
    def finish(ctx: ToolContext) -> str:
        ctx.network.stop("it is solved")
        return "ok"

    return await network_of(agent("ada", [call("finish"), "Solved."], tools=[finish]), agent("bob"))


async def hook_stop() -> Ended:
    hooks = AgentHooks(on_start=lambda _: {"stop": True})
    seen: list[RunEvent] = []
    await agent("ada", ["Hi."], hooks=hooks).run("Go.", on_event=seen.append)
    return seen[-1].type.removeprefix("run."), seen[-1].data["reason"]


async def budget() -> Ended:
    ada = agent("ada", [call("look"), "Done."], tools=[look])
    return await network_of(ada, options={"usage_limits": UsageLimits(request_limit=1)})


def look() -> str:
    """Look."""
    return "fog"


async def tool_error() -> Ended:
    def look() -> str:
        """Look."""
        raise ValueError("fog")

    return await network_of(agent("ada", [call("look")] * 9, tools=[look]), max_tool_errors=1)


async def history() -> Ended:
    class Broken:
        def append_user_message(self, ctx: object, message: object) -> None:
            del ctx, message
            raise OSError("no disk")

    return await network_of(agent("ada"), history=Broken())


async def schema() -> Ended:
    def positive(number: int) -> int:
        assert number > 0
        return number

    step = {"mode": "ask", "output_schema": Annotated[int, AfterValidator(positive)]}
    asked = Context(on_question=lambda _: -1)
    return await step_of(step=step, context=asked, model=None)


async def answer_timeout() -> Ended:
    clock = FrozenClock()
    context = Context(run_id="run_1", clock=clock)
    step = {"mode": "ask", "timeout": 60}
    await Stepping(step=step, context=context, model=None).events()
    clock.tick(61)
    return await step_of(step=step, context=context, model=None)


async def fan_out(value: Any, *turns: Any, **fields: Any) -> Ended:
    """Execute a plan with a step for the items of *value*; return the end of that step."""
    each = Step(
        id="each", instructions="Count {item}.", mode="process", depends_on=["list"], **fields
    )
    plan = TaskPlan(title="Count", tasks=[Task(id="count", title="Count", steps=[each])])
    run = Context(model=ScriptedModel(list(turns)))

    assert await end_of(ParallelTaskExecutor(plan=plan, context=run, inputs={"list": value})) == (
        "failed",
        "steps",
    )
    assert each.error is not None
    return each.state, each.error.reason


async def steps() -> Ended:
    plan = TaskPlan(
        title="Count",
        tasks=[Task(id="count", title="Count", steps=[Step(id="one", instructions="Count.")])],
    )
    run = Context(model=ScriptedModel(fail))
    return await end_of(ParallelTaskExecutor(plan=plan, context=run))


async def deadlocked() -> Ended:
    board = TaskBoard()
    first = board.create("Count", created_by="ada")
    board.create("Report", depends_on=[first.id])
    board.fail(first.id, "ada", "fog")
    return await end_of(a_team(an_agent("ada", idle), strategy="autonomous", board=board))


async def taken_over() -> Ended:
    with holdfast.open(":memory:") as hf:
        context = Context(hf=hf, run_id="run_1")

        async def reply(_: object) -> str:
            opening = RunOpening(kind="step", name="Other", take_over="always")
            other = await asyncio.to_thread(hf.runs.open_run, RunMemory(run_id="run_1"), opening)
            context.memory.set("shared:late", 1)
            asyncio.get_running_loop().call_soon(other.end, "completed")
            await asyncio.Event().wait()
            return ""

        stepping = Stepping(reply, context=context)
        return await end_of(stepping.executor)


async def cancelled() -> Ended:
    stepping = Stepping(lambda _: stepping.context.cancel("enough") or "Late.")
    return await end_of(stepping.executor)


def chosen(name: str | None) -> Callable[[object], str | None]:
    """Return a router that always chooses *name*."""
    return lambda _: name


def rejects(_: object) -> str:
    return "no"


WAYS: dict[str, Callable[[], Awaitable[Ended]]] = {
    "done": lambda: step_of("Three."),
    "no_agent": lambda: network_of(agent("ada"), router=chosen(None)),
    "stopped": stopped,
    "hook_stop": hook_stop,
    "max_turns": lambda: network_of(agent("ada"), router=chosen("ada"), max_turns=1),
    "max_iterations": lambda: step_of("Three.", step={"output_schema": NUMBER}, max_iterations=1),
    "token_budget": lambda: step_of(*["Hm."] * 9, step={"output_schema": NUMBER}, token_budget=9),
    "budget": budget,
    "timeout": lambda: network_of(
        agent("ada", model=ScriptedModel(forever)), options={"timeout": 0.01}
    ),
    "no_answer": lambda: step_of(UnexpectedModelBehavior("cut off")),
    "rejected": lambda: step_of(*["Three."] * 9, accept_result=rejects),
    "schema": schema,
    "model_error": lambda: step_of(OSError("no route")),
    "tool_error": tool_error,
    "hook": lambda: network_of(agent("ada", hooks=AgentHooks(on_start=fail))),
    "router": lambda: network_of(agent("ada"), router=fail),
    "history": history,
    "memory": lambda: step_of(
        "x" * 200, context=Context(memory=RunMemory(limits=RunLimits(value_bytes=100)))
    ),
    "disabled": lambda: step_of("Three.", agent=agent("ada", hooks=AgentHooks(enabled=False))),
    "not_a_list": lambda: fan_out(3),
    "too_many_items": lambda: fan_out([1, 2], max_items=1),
    "items": lambda: fan_out([1], OSError("no route")),
    "steps": steps,
    "stalled": lambda: end_of(a_team(an_agent("ada", idle), strategy="autonomous")),
    "deadlocked": deadlocked,
    "answer_timeout": answer_timeout,
    "internal": lambda: step_of("Three.", accept_result=fail),
    "taken_over": taken_over,
    "cancelled": cancelled,
}


def test_there_is_a_way_to_each_reason() -> None:
    assert list(WAYS) == list(REASONS)


@pytest.mark.parametrize("reason", REASONS)
async def test_each_reason_is_that_of_an_end(reason: str) -> None:
    assert await WAYS[reason]() == (REASONS[reason], reason)


async def test_a_default_that_does_not_fit_the_schema_of_its_step_fails_it() -> None:
    clock = FrozenClock()
    step = {"mode": "ask", "output_schema": NUMBER, "timeout": 60, "default": "three"}
    waiting = Stepping(step=step, context=Context(run_id="run_1", clock=clock), model=None)
    await waiting.events()
    clock.tick(61)
    again = Stepping(step=step, context=waiting.context, model=None)

    assert await end_of(again.executor) == ("failed", "schema")
    assert again.executor.error is not None
    assert "the answer does not fit" in again.executor.error.message
