"""A process of its own that executes a plan and then a team, a step for each line it reads.

Arguments: the database or the server, and an API key or nothing. The lines are `ok` and `fail`.
"""

import asyncio
import sys

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from teams import an_agent, create, work

import holdfast
from holdfast.errors import HoldfastError
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Context, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.runtime.team.executor import TeamExecutor
from holdfast.testing.scripted import Asked, call


async def line() -> str:
    """Return the next line of what this process is sent."""
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Answer once a line came; fail if it says so."""
    del messages, info
    if await line() == "fail":
        message = "no ink is left"
        raise ValueError(message)
    return ModelResponse([TextPart("Seven <b>ships</b>.")])


def task(id: str, title: str, *after: str) -> Task:
    """Return a task of one step."""
    step = Step(id=f"{id}_step", instructions=title)
    return Task(id=id, title=title, steps=[step], depends_on=list(after))


async def lead(asked: Asked) -> object:
    """Lay out the work and write to a colleague once a line came; then work."""
    if "Nothing is on the board yet" in asked.text and len(asked.messages) == 1:
        await line()
        message = call("send_message", to="bob", subject="Seals", body="Count the young.")
        return [create("Count the seals"), message]
    return work(asked)


async def report(hf: Holdfast) -> None:
    """Execute a plan as a run, then a team as another."""
    tasks = [task("look", "Look"), task("tell", "Tell", "look"), task("rest", "Rest", "tell")]
    plan = TaskPlan(title="Harbour", tasks=tasks)
    context = Context(hf=hf, run_id="run_plan", model=FunctionModel(answer))
    try:
        await ParallelTaskExecutor(plan=plan, context=context).run()
    except HoldfastError:
        print("failed", flush=True)  # noqa: T201 - the test reads it
    await line()
    context = Context(hf=hf, run_id="run_team")
    agents = (an_agent("ada", lead), an_agent("bob"))
    await TeamExecutor(agents=agents, objective="Count the seals.", context=context).run()


if __name__ == "__main__":
    target, *key = sys.argv[1:]
    with holdfast.open(target, api_key=key[0] if key else None) as handle:
        asyncio.run(report(handle))
