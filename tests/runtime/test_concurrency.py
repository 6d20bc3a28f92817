"""What user code raises: a cancellation of its own ends its own part alone, and `run_sync`."""

import asyncio
import gc
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from runtime.calling.asked import agent, error_of
from runtime.networks.played import TERMINAL, network
from runtime.networks.played import agent as member
from stepping import Stepping
from teams import a_team, an_agent, create, leading

from holdfast.ground.errors import InvalidInput, RunFailed
from holdfast.runtime import (
    Agent,
    AgentHooks,
    Context,
    FunctionNode,
    MultiModeAgent,
    ParallelTaskExecutor,
    RunEvent,
    Step,
    Task,
    TaskPlan,
    TaskPlanner,
    Workflow,
    WorkflowRunner,
)
from holdfast.runtime.concurrency import ForeignExit, apart, contained
from holdfast.testing.scripted import ScriptedModel, call

pytestmark = pytest.mark.anyio


async def gives_up() -> str:
    """Raise a cancellation that nobody asked for."""
    raise asyncio.CancelledError


def gives_up_in_a_thread() -> str:
    """Raise it in a thread."""
    raise asyncio.CancelledError("upstream went away")


async def cancels_its_task() -> str:
    """Cancel the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


async def leaves() -> str:
    """Exit."""
    raise SystemExit(3)


async def closes() -> str:
    """Raise what a closed generator gets."""
    raise GeneratorExit


class Collapse(BaseException):
    """No Exception."""


def collapses() -> str:
    """Raise it."""
    raise Collapse("all of it")


TOOLS = [gives_up, gives_up_in_a_thread, cancels_its_task, leaves, closes, collapses]
tools = pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.__name__)


@tools
async def test_a_tool_that_cancels_itself_has_raised_and_its_step_goes_on(tool: Any) -> None:
    stepping = Stepping([call(tool.__name__), "Three."], tools=[tool])

    assert await stepping.executor.run() == "Three."
    assert stepping.given[0]["error"]["type"] in (
        "CancelledError",
        "SystemExit",
        "GeneratorExit",
        "Collapse",
    )


@tools
async def test_a_tool_that_cancels_itself_has_raised_and_its_agent_goes_on(tool: Any) -> None:
    result = await agent([call(tool.__name__), "Done."], tools=[tool]).run("Go.")

    assert (result.text, result.stop_reason) == ("Done.", "done")
    assert error_of(result)["kind"] == "raised"


async def test_a_tool_that_cancels_itself_does_not_end_its_network() -> None:
    ada = member("ada", [call("gives_up"), "Done."], tools=[gives_up])

    run = await network(ada, member("bob")).run("Go.")

    assert (run.status, run.stop_reason, run.calls) == ("completed", "done", 2)


async def test_a_tool_that_cancels_itself_does_not_end_its_team() -> None:
    lead = an_agent("ada", leading([create("Count"), call("gives_up")]), tools=[gives_up])
    team = a_team(lead, an_agent("bob"))

    assert (await team.run()).status == "completed"


def plan_of(*steps: str) -> TaskPlan:
    return TaskPlan(
        title="The harbour",
        tasks=[
            Task(id=f"task_{id}", title=id, steps=[Step(id=id, instructions=id)]) for id in steps
        ],
    )


async def test_a_model_that_cancels_itself_fails_its_step_and_not_the_plan() -> None:
    def answer(asked: Any) -> object:
        return gives_up() if "red-ships" in asked.text else "Two."

    plan = plan_of("red-ships", "blue-ships")
    executor = ParallelTaskExecutor(plan=plan, context=Context(model=ScriptedModel(answer)))

    events = [event async for event in executor.execute()]

    assert [task.state for task in plan.tasks] == ["failed", "completed"]
    error = plan.tasks[0].steps[0].error
    assert error is not None
    assert (error.reason, error.message) == (
        "model_error",
        "CancelledError: nothing was cancelled",
    )
    assert getattr(events[-1], "event", None) == "failed"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_model_that_cancels_itself_ends_its_agent_as_failed(stream: bool) -> None:
    heard: list[RunEvent] = []
    ada = agent([lambda _: gives_up()])

    on_event = heard.append if stream else None
    result = await ada.run("Go.", raises=False, on_event=on_event)

    assert result.stop_reason == "model_error"
    assert result.error == {"name": "CancelledError", "message": "nothing was cancelled"}
    assert not stream or [e.type for e in heard if e.type in TERMINAL] == ["run.failed"]


def raising(*_: object) -> Any:
    raise asyncio.CancelledError


@pytest.mark.parametrize("name", ["enabled", "on_start", "on_response", "on_finish"])
async def test_a_hook_that_cancels_itself_has_failed(name: str) -> None:
    hooks = AgentHooks(**{name: raising})

    result = await agent(["Done."], hooks=hooks).run("Go.", raises=False)

    assert (result.stop_reason, result.error) == (
        "hook",
        {"name": "CancelledError", "message": "nothing was cancelled"},
    )


@pytest.mark.parametrize("name", ["enabled", "on_start", "on_response", "on_finish"])
async def test_a_hook_that_cancels_itself_fails_its_step(name: str) -> None:
    pilot = Agent("pilot", instructions="", hooks=AgentHooks(**{name: raising}))
    stepping = Stepping(["Three."], agent=pilot)

    assert await stepping.events()
    assert stepping.executor.error is not None
    assert stepping.executor.error.reason == "hook"


async def test_a_router_that_cancels_itself_fails_its_run() -> None:
    with pytest.raises(RunFailed) as raised:
        await network(member("ada"), router=raising).run("Go.")

    assert raised.value.stop_reason == "router"


def counted(*_: object) -> dict[str, Any]:
    return {"n": 2}


async def test_a_node_that_cancels_itself_blocks_what_needs_it_alone() -> None:
    nodes = [FunctionNode("one", raising), FunctionNode("two", counted)]
    runner = WorkflowRunner(Workflow(nodes), Context())

    assert [event async for event in runner.execute()]
    assert runner.states == {"one": "failed", "two": "completed"}


async def test_a_planner_whose_model_cancels_itself_has_failed() -> None:
    planner = TaskPlanner(
        objective="Count.", context=Context(model=ScriptedModel([lambda _: gives_up()]))
    )

    assert [event async for event in planner.execute()]
    assert planner.error is not None
    assert "CancelledError" in planner.error.message


async def test_a_cancellation_of_the_task_goes_on() -> None:
    begun = asyncio.Event()

    async def wait() -> None:
        with contained():
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_what_works_apart_is_cancelled_with_its_awaiter() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(apart(work()))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_what_a_tool_raised_is_the_cause_of_its_exit() -> None:
    with pytest.raises(ForeignExit) as raised:
        await apart(leaves())

    assert isinstance(raised.value.__cause__, SystemExit)
    assert (raised.value.name, str(raised.value)) == ("SystemExit", "3")


def answering(_: list[ModelMessage], __: AgentInfo) -> ModelResponse:
    return ModelResponse([TextPart("Done.")])


MODEL = FunctionModel(answering)


def each_run_sync() -> list[Callable[[], object]]:
    ada = Agent("ada", instructions="", model=MODEL)
    context = Context(model=MODEL)
    step = Step(id="count", instructions="Count.")
    mode = MultiModeAgent(name="count", objective="Count.", plan=plan_of("one"))
    return [
        Stepping(["Three."]).executor.run_sync,
        ParallelTaskExecutor(plan=plan_of(step.id), context=context).run_sync,
        a_team(an_agent("ada"), an_agent("bob")).run_sync,
        TaskPlanner(objective="Count.", context=context).run_sync,
        WorkflowRunner(Workflow([FunctionNode("one", counted)]), context).run_sync,
        lambda: mode.run_sync(context),
        lambda: ada.run_sync("Go."),
        lambda: network(ada).run_sync("Go."),
    ]


async def test_run_sync_on_an_event_loop_is_refused_before_a_coroutine_exists() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for run_sync in each_run_sync():
            with pytest.raises(InvalidInput) as raised:
                run_sync()
            assert raised.value.field == "run_sync"
        gc.collect()
