"""Agents of a team whose models follow a script, for the tests of teams."""

import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias, cast

from pydantic_ai.messages import ToolReturnPart, UserPromptPart

from holdfast.runtime import Agent
from holdfast.runtime.context import Context
from holdfast.runtime.events import ExecutionEvent, TeamUpdate
from holdfast.runtime.team.board import TaskBoard
from holdfast.runtime.team.executor import TeamExecutor
from holdfast.runtime.team.task import BoardTask
from holdfast.testing.scripted import Asked, ScriptedModel, call

Told: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[Asked], object]

LAY_OUT = "Nothing is on the board yet."
REMIND = "There is still no task on the board"
REPAIR = "Repair the plan now"
LAST_CALL = "Nobody else is at work"


def task_on(board: TaskBoard, id: str) -> BoardTask:
    """Return the task *id*, which is on *board*."""
    task = board.get(id)
    assert task is not None
    return task


def opening(asked: Asked) -> str:
    """Return what the turn began with, if *asked* is its first request; else nothing."""
    last = asked.messages[-1].parts[-1]
    return str(last.content) if isinstance(last, UserPromptPart) else ""


def section(asked: Asked, heading: str) -> list[Told]:
    """Return what stands under *heading* at the beginning of a turn."""
    _, found, rest = f"\n\n{opening(asked)}".partition(f"\n\n# {heading}\n")
    return [json.loads(line) for line in rest.partition("\n\n")[0].splitlines()] if found else []


def messages(asked: Asked) -> list[Told]:
    return section(asked, "Your messages")


def mine(asked: Asked) -> list[Told]:
    return section(asked, "Your tasks")


def claimable(asked: Asked) -> list[Told]:
    return section(asked, "Tasks you could claim")


def answers(asked: Asked) -> list[tuple[str, Any]]:
    """Return what the tools answered that were called just before."""
    parts = asked.messages[-1].parts
    return [(each.tool_name, each.content) for each in parts if isinstance(each, ToolReturnPart)]


def create(title: str, **more: Any) -> object:
    return call("create_task", title=title, **more)


def complete(task: Told, result: object = None) -> object:
    return call("complete_task", task_id=task["id"], result=result or f"{task['title']} is done")


def work(asked: Asked) -> object:
    """Complete what is in hand, else claim what is free, and complete it in the same turn."""
    if held := [task for task in mine(asked) if task["status"] == "working"]:
        return complete(held[0])
    if free := claimable(asked):
        return call("claim_task", task_id=free[0]["id"])
    claimed = [
        told["task"] for name, told in answers(asked) if name == "claim_task" and "ok" in told
    ]
    return complete(claimed[0]) if claimed else "Done for now."


def leading(plan: Sequence[object], act: Act = work) -> Act:
    """Return who lays out *plan* when asked to, and does *act* otherwise."""

    def lead(asked: Asked) -> object:
        if LAY_OUT in opening(asked):
            return list(plan)
        return act(asked)

    return lead


def idle(_: Asked) -> object:
    return "Nothing for me."


def an_agent(name: str, act: Act | Sequence[Any] = work, **more: Any) -> Agent:
    """Return an agent that does *act* at each request."""
    told: dict[str, Any] = {
        "instructions": f"I am {name}.",
        "description": f"It is {name}.",
        "model": ScriptedModel(act, name=name),
    }
    return Agent(name, **(told | more))


def asked_of(agent: Agent) -> list[Asked]:
    """Return all that the model of *agent* was asked."""
    return cast("ScriptedModel", agent.model).asked


def a_team(*agents: Agent, **more: Any) -> TeamExecutor:
    told: dict[str, Any] = {"objective": "Count the seals.", "context": Context()}
    return TeamExecutor(agents=agents, **(told | more))


async def all_events(team: TeamExecutor) -> list[ExecutionEvent]:
    return [event async for event in team.execute()]


def updates(events: Sequence[ExecutionEvent], *wanted: str) -> list[TeamUpdate]:
    found = [event for event in events if isinstance(event, TeamUpdate)]
    return [event for event in found if not wanted or event.event in wanted]


async def until(
    events: AsyncIterator[ExecutionEvent], wanted: Callable[[ExecutionEvent], bool]
) -> ExecutionEvent:
    """Return the first event that is *wanted*."""
    async for event in events:
        if wanted(event):
            return event
    raise AssertionError("it never came")
