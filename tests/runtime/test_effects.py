"""Effects of a step's calls on our own memories happen once, though its process is killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace
from processes import killed
from runtime.plans.workers import step, task

import holdfast
from holdfast.ground.json_values import JSON
from holdfast.runtime import Context, StepExecutor
from holdfast.testing.scripted import Asked, ScriptedModel, call
from holdfast.testing.serving import new_workspace
from holdfast.tools import Tool, durable

ENTRY = {"key": "berth", "content": "7", "category": "custom"}


def live(target: str, workspace: str, log: Path, dies: bool = True) -> None:
    """Store an entry in a step; with *dies*, die when it is stored and not answered yet."""
    with holdfast.open(target, workspace=workspace) as hf:
        tools = {each.name: each for each in durable(hf.durable("ada"))}
        name = next(each for each in tools if each.endswith("_store"))

        def note(line: str) -> None:
            with log.open("a") as file:
                file.write(f"{line}\n")

        def work(arguments: object) -> JSON:
            answer = tools[name].work(arguments)
            note("stored")
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

        def act(asked: Asked) -> object:
            note("request")
            kinds = [part.part_kind for each in asked.messages for part in each.parts]
            if "tool-return" not in kinds:
                return call(name, **ENTRY)
            return call("finish_step", result="done") if "finish_step" in asked.offered else "done"

        store: Tool = replace(tools[name], work=work)
        context = Context(hf=hf, run_id="run_1", model=ScriptedModel(act), take_over="always")
        one = step("a")
        executor = StepExecutor(task=task("t", one), step=one, context=context, tools=[store])
        asyncio.run(executor.run())


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_killed_between_a_write_and_its_answer_it_is_written_once(
    place: str, tmp_path: Path, postgres_url: str
) -> None:
    target = postgres_url if place == "postgres" else str(tmp_path / "h.db")
    workspace, log = new_workspace(), tmp_path / "log"
    given = (target, workspace, log)
    killed(live, *given)

    live(*given, dies=False)

    assert log.read_text().split() == ["request", "stored", "stored", "request"]
    with holdfast.open(target, workspace=workspace) as hf:
        changes = list(hf.durable("ada").history("berth"))
        assert len(changes) == 1
        assert hf.runs.retrieve("run_1").status == "completed"
