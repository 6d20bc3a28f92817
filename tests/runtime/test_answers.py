"""Runs that rest with questions, answered from other processes and by the clock."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import completed
from pydantic_ai import ApprovalRequired, RunContext

import holdfast
from holdfast.doors.cli.main import main
from holdfast.errors import RunFailed, RunWaiting
from holdfast.library.holdfast import Holdfast
from holdfast.runtime import Context, Step, Task, TaskExecutor, ask_human
from holdfast.testing import ScriptedModel, call
from holdfast.testing.fakes import FrozenClock
from holdfast.testing.scripted import Asked
from holdfast.testing.serving import new_workspace, serving

pytestmark = pytest.mark.anyio


def dock_at(target: str, workspace: str, log: Path) -> None:
    """Execute the run `run_1`, or go on with it, and log what is done."""

    def note(line: str) -> None:
        with log.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def moor() -> str:
        """Moor the ship."""
        note("tool")
        return f"at {ask_human('Which berth?')}"

    def model(asked: Asked) -> object:
        note("model")
        return "Moored." if "at 7" in asked.text else call("moor")

    with holdfast.open(target, workspace=workspace) as hf:
        try:
            dock(hf, moor, model, model).run_sync()
            note("over")
        except RunWaiting:
            (question,) = hf.runs.questions().data
            note(f"waiting {question.text}")


@pytest.mark.parametrize("through", ["library", "command", "server"])
def test_a_run_is_asked_answered_and_gone_on_with_in_three_processes(
    target: str, tmp_path: Path, through: str
) -> None:
    workspace, log = new_workspace(), tmp_path / "log"
    completed(dock_at, target, workspace, log)

    with holdfast.open(target, workspace=workspace) as hf:
        assert hf.runs.retrieve("run_1").status == "waiting"
        answer_through(through, hf, target)
        assert hf.runs.retrieve("run_1").status == "queued"
    completed(dock_at, target, workspace, log)

    lines = log.read_text(encoding="utf-8").splitlines()
    assert lines == ["model", "tool", "waiting Which berth?", "tool", "model", "over"]
    with holdfast.open(target, workspace=workspace) as hf:
        told = [each.type for each in hf.runs.follow("run_1")]
        assert [told.count(type) for type in ("run.waiting", "run.completed")] == [1, 1]


def command(*arguments: str) -> None:
    """Run a command of the product."""
    sys.exit(main(arguments))


def answer_through(through: str, hf: Holdfast, target: str) -> None:
    """Answer the question of the run as the name says."""
    place = ("--db", target, "--workspace", hf.workspace)
    if through == "library":
        hf.runs.answer("run_1", "7")
    elif through == "command":
        completed(command, "runs", "answer", "run_1", "--text", "7", *place)
    else:
        clock = hf.runs.context.clock
        with (
            serving(hf, clock=clock) as url,
            holdfast.open(url, workspace=hf.workspace) as remote,
        ):
            remote.runs.answer("run_1", "7")


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give a database on each engine."""
    if request.param == "sqlite":
        return str(tmp_path / "h.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture
def hf(target: str, clock: FrozenClock) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=new_workspace(), clock=clock) as hf:
        yield hf


def dock(hf: Holdfast, tool: Callable[..., Any], *turns: Any) -> TaskExecutor:
    """Return an executor of the run, in a context of its own."""
    step = Step(id="moor", instructions="Moor the ship.")
    model, clock = ScriptedModel(list(turns)), hf.runs.context.clock
    context = Context(hf=hf, run_id="run_1", model=model, clock=clock)
    task = Task(id="dock", title="Dock", steps=[step])
    return TaskExecutor(task=task, context=context, tools=[tool])


def asking(seen: list[Any], **form: Any) -> Callable[[], str]:
    def moor() -> str:
        """Moor the ship."""
        seen.append(ask_human("Which berth?", **form))
        return "moored"

    return moor


async def test_a_default_is_the_answer_of_a_run_that_was_left_too_long(
    hf: Holdfast, clock: FrozenClock
) -> None:
    seen: list[Any] = []
    moor = asking(seen, schema={"type": "integer"}, timeout=3_600, default=1)
    with pytest.raises(RunWaiting):
        await dock(hf, moor, call("moor")).run()
    clock.tick(3_601)
    assert hf.runs.retrieve("run_1").status == "queued"

    await dock(hf, moor, "Moored.").run()

    assert seen == [1]
    assert hf.runs.retrieve("run_1").status == "completed"


async def test_a_run_whose_question_expired_fails_when_it_is_taken_up(
    hf: Holdfast, clock: FrozenClock
) -> None:
    moor = asking([], timeout=3_600)
    with pytest.raises(RunWaiting):
        await dock(hf, moor, call("moor")).run()
    clock.tick(3_601)
    assert [each.status for each in hf.runs.questions(None)] == ["expired"]

    with pytest.raises(RunFailed):
        await dock(hf, moor, "Moored.").run()

    run = hf.runs.retrieve("run_1")
    assert run.status == "failed"
    assert "not answered in time" in str(run.error) + str(run.detail)


async def test_a_run_that_is_cancelled_while_it_waits_is_over(hf: Holdfast) -> None:
    moor = asking([])
    executor = dock(hf, moor, call("moor"))
    with pytest.raises(RunWaiting):
        await executor.run()

    hf.runs.cancel("run_1")

    assert hf.runs.retrieve("run_1").status == "cancelled"
    assert [each.status for each in hf.runs.questions(None)] == ["withdrawn"]


@pytest.mark.parametrize(
    ("answer", "made"),
    [
        (True, [1]),
        (False, []),
        ({"approved": True, "arguments": {"berth": 2}}, [2]),
    ],
)
async def test_a_call_is_made_as_it_was_approved(
    hf: Holdfast, answer: object, made: list[int]
) -> None:
    seen: list[int] = []

    def moor(ctx: RunContext[Any], berth: int) -> str:
        """Moor the ship."""
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        seen.append(berth)
        return "moored"

    with pytest.raises(RunWaiting) as caught:
        await dock(hf, moor, call("moor", berth=1)).run()
    (question,) = hf.runs.questions().data
    assert caught.value.questions == (question,)
    assert (question.kind, question.tool, question.arguments) == ("approval", "moor", {"berth": 1})
    with pytest.raises(holdfast.errors.InvalidInput):
        hf.runs.answer("run_1", {"approved": True, "arguments": {"berth": "two"}})
    hf.runs.answer("run_1", answer, note="too deep")

    await dock(hf, moor, "Done.").run()

    assert seen == made
