"""Runs for pages of the console, and a page that is open to be live."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from doors.console.client import ORIGIN, ConsoleClient, Shown
from pydantic_ai import Tool

from holdfast import RunMemory
from holdfast.errors import RunWaiting
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.question import Question
from holdfast.runtime import (
    Context,
    ParallelTaskExecutor,
    Step,
    Task,
    TaskExecutor,
    TaskPlan,
    ask_human,
)
from holdfast.testing import ScriptedModel, call

LOOK = Task(id="look", title="Look at ships", steps=[Step(id="find", instructions="Find.")])
TELL = Task(
    id="tell", title="Tell", steps=[Step(id="say", instructions="Say.")], depends_on=["look"]
)
PLAN = TaskPlan(title="Harbour", tasks=[LOOK, TELL])


def attached(hf: Holdfast, id: str, name: str = "Research", **more: Any) -> RunMemory:
    """Attach a new run memory as the run *id*, which stays running."""
    memory = RunMemory(run_id=id)
    hf.runs.attach(memory, name=name, **more)
    return memory


def planned(hf: Holdfast, id: str, *answers: Any) -> None:
    """Execute the plan as the run *id*."""
    context = Context(hf=hf, run_id=id, model=ScriptedModel([*answers]))
    asyncio.run(ParallelTaskExecutor(plan=PLAN, context=context).run())


def asking(hf: Holdfast, *tools: Any, calls: Any, id: str = "run_ask") -> list[Question]:
    """Execute a step that makes *calls*, until it waits; return its questions."""
    step = Step(id="moor", instructions="Moor.")
    context = Context(hf=hf, run_id=id, model=ScriptedModel([calls]))
    task = Task(id="dock", title="Dock", steps=[step])
    with pytest.raises(RunWaiting):
        asyncio.run(TaskExecutor(task=task, context=context, tools=tools).run())
    return list(hf.runs.questions(run=id))


def question_tool(text: str = "Which berth?", schema: Any = None, **more: Any) -> Tool[Any]:
    """Return a tool `ask` that asks a person."""

    def ask() -> str:
        """Ask."""
        return str(ask_human(text, schema, **more))

    return Tool(ask)


def asked(hf: Holdfast, schema: Any = None, **more: Any) -> Question:
    """Return the one question of a run that waits for its answer."""
    (question,) = asking(hf, question_tool("Which berth?", schema, **more), calls=[call("ask")])
    return question


class LiveClient:
    """A page that is open: receives events, and closes once *until* returns true."""

    def __init__(self, visitor: ConsoleClient, target: str) -> None:
        self.visitor, self.target = visitor, target
        self.events: list[dict[str, str]] = []

    def follow(
        self, until: Callable[["LiveClient"], bool] = lambda _: False, /, **headers: str
    ) -> list[dict[str, str]]:
        """Receive events until the stream ends, or *until* the client has enough."""
        self.visitor.runner.run(self._follow(until, headers))
        return self.events

    async def _follow(
        self, until: Callable[["LiveClient"], bool], headers: Mapping[str, str]
    ) -> None:
        path, _, query = self.target.partition("?")
        given = {"host": ORIGIN.partition("//")[2]}
        cookie = "; ".join(f"{name}={value}" for name, value in self.visitor.cookies.items())
        given |= {"cookie": cookie} if cookie else {}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        scope: dict[str, Any] = {
            "type": "http",
            "method": "GET",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        enough, waiting = asyncio.Event(), [{"type": "http.request", "body": b""}]

        async def receive() -> dict[str, Any]:
            if waiting:
                return waiting.pop()
            await enough.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            for block in message.get("body", b"").decode().split("\n\n"):
                fields: dict[str, str] = {}
                for line in block.split("\n"):
                    name, _, value = line.partition(": ")
                    fields[name] = f"{fields[name]}\n{value}" if name in fields else value
                if fields.keys() & {"data", "event"}:
                    self.events.append(fields)
            if until(self):
                enough.set()

        async with asyncio.timeout(30):
            await self.visitor.app(scope, receive, send)

    @property
    def targets(self) -> list[str]:
        """The targets of the last event."""
        found = Shown(200, {}, (), self.events[-1].get("data", "").encode())
        return [str(each["hx-target"]) for each in found.named("hx-partial")]
