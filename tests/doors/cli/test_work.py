"""Runs that are queued and taken on the command line."""

import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from doors.cli.lines import Run
from fork_server import ForkedProcess, forked

import holdfast

DEFINITIONS = """
import asyncio
from holdfast.runtime import Agent, ParallelTaskExecutor, Step, Task, TaskPlan
from holdfast.runtime import ask_human, definition
from holdfast.testing.scripted import ScriptedModel, call

async def wait(asked):
    await asyncio.Event().wait()

quick = Agent("quick", instructions="", model=ScriptedModel(lambda asked: "Hello."))
slow = Agent("slow", instructions="", model=ScriptedModel(wait))

@definition("report", queue="reports")
def report(start):
    return quick.replace(name="report")

class Report:
    pass

def moor() -> str:
    return "moored at " + ask_human("Which berth?")

@definition("harbour")
def harbour(start):
    start.context.model = ScriptedModel(
        lambda asked: "Done." if "moored at" in asked.text else call("moor")
    )
    step = Step(id="moor", instructions="Moor the ship.", tools=["moor"])
    plan = TaskPlan(title="Harbour", tasks=[Task(id="a", title="A", steps=[step])])
    return ParallelTaskExecutor(plan=plan, context=start.context, tools=[moor])

everything = [quick, slow]
"""


class Working:
    """A command of `holdfast` in a process of its own, with definitions to import.

    It is forked, or started by *command*.
    """

    def __init__(self, folder: Path, *argv: str, command: Sequence[str] | None = None) -> None:
        (folder / "made.py").write_text(DEFINITIONS)
        line = forked(*argv) if command is None else [*command, *argv]
        pipe = subprocess.PIPE
        self.process = ForkedProcess[str](line, stderr=pipe, stdout=pipe, text=True, cwd=folder)
        assert self.process.stderr is not None
        self.says = self.process.stderr.readline()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=60)
        return self.process.returncode

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def database(db: str) -> str:
    """Give the name of a database that is there."""
    holdfast.open(db).close()
    return db


@pytest.fixture
def working(database: str, tmp_path: Path) -> Generator[Working]:
    line = ("work", "made:everything", "made:report", "--db", database)
    working = Working(tmp_path, *line, command=[sys.executable, "-m", "holdfast.doors.cli.main"])
    yield working
    working.end()


def test_a_run_is_queued_by_the_name_of_its_definition(run: Run, database: str) -> None:
    queued = run("runs", "start", "report", "--input", '{"week": 7}').json

    assert (queued["definition"], queued["status"]) == ("report", "queued")
    assert [each["id"] for each in run("runs", "list", "--status", "queued").data] == [queued["id"]]
    assert database


def test_an_input_that_is_no_json_is_refused(line: Run, database: str) -> None:
    ran = line("runs", "start", "report", "--input", "{week", "--db", database)

    assert (ran.code, ran.out) == (2, b"")
    assert "--input" in ran.err


def test_a_worker_takes_what_is_queued_and_stops_when_told(run: Run, working: Working) -> None:
    assert "quick, slow, report" in working.says

    queued = run("runs", "start", "quick", "--input", '"Hi?"').json["id"]
    told = run("runs", "watch", queued).out.decode()

    assert "run.completed" in told
    assert working.stop() == 0


def test_a_worker_consolidates_what_is_due_by_a_policy(database: str, tmp_path: Path) -> None:
    with holdfast.open(database) as hf:
        durable = hf.durable("agent_7")
        for key in ("office", "office_2"):
            durable.set(key, "The harbour office is near the old bridge", category="core")
        hf.consolidations.policy(agent="agent_7", min_new=1)
        working = Working(tmp_path, "work", "made:quick", "--db", database)
        try:
            # The worker looks once for the job to begin, and again for it to be accepted.
            end, pause = monotonic() + 60, Event()
            while len(durable.list().data) > 1 and monotonic() < end:
                pause.wait(0.05)

            assert [each.key for each in durable.list().data] == ["office_2"]
            assert working.stop() == 0
        finally:
            working.end()


def test_a_run_that_waits_is_answered_and_goes_on(run: Run, database: str, tmp_path: Path) -> None:
    working = Working(tmp_path, "work", "made:harbour", "--db", database)
    try:
        queued = run("runs", "start", "harbour").json["id"]
        with holdfast.open(database) as hf:
            list(hf.runs.follow(queued, rest=True))
        (asked,) = run("runs", "questions").data
        run("runs", "answer", queued, asked["id"], "--text", "7")

        assert "run.completed" in run("runs", "watch", queued).out.decode()
        assert working.stop() == 0
    finally:
        working.end()


def test_a_worker_that_stops_gives_back_what_it_does(
    run: Run, database: str, working: Working
) -> None:
    queued = run("runs", "start", "slow", "--input", '"Hi?"').json["id"]
    with holdfast.open(database) as hf:
        next(hf.runs.follow(queued, types="model.requested"))
        working.process.send_signal(signal.SIGTERM)
        assert working.process.stderr is not None
        assert "or until a second signal" in working.process.stderr.readline()
        assert working.stop() == 0

        assert hf.runs.retrieve(queued).status == "queued"


def test_a_server_takes_the_runs_of_its_definitions(
    run: Run, database: str, tmp_path: Path
) -> None:
    served = Working(tmp_path, "serve", "--port", "0", "--db", database, "--runs", "made:report")
    try:
        queued = run("runs", "start", "report", "--input", '"Hi?"').json["id"]
        assert "run.completed" in run("runs", "watch", queued).out.decode()
        assert served.stop() == 0
    finally:
        served.end()


@pytest.mark.parametrize("given", ["made", "made:none", "made:Report", "none:report"])
def test_what_is_no_definition_is_refused(
    line: Run, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "made.py").write_text(DEFINITIONS)
    monkeypatch.chdir(tmp_path)

    ran = line("work", given, "--db", database)

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert "definitions" in ran.err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("\nlen(3)\n", "TypeError at broken.py:2: object of type 'int' has no len()"),
        ("None.run\n", "AttributeError at broken.py:1"),
        ("report = (\n", "SyntaxError: '(' was never closed"),
    ],
)
def test_an_error_of_a_module_is_reported_with_its_line_as_one_of_the_caller(
    line: Run,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    body: str,
    said: str,
) -> None:
    (tmp_path / "broken.py").write_text(body)
    monkeypatch.chdir(tmp_path)

    ran = line("work", "broken:report", "--db", database)

    assert (ran.code, ran.err.count("\n")) == (1, 1)
    assert f"cannot be imported: {said}" in ran.err
    assert "fault of ours" not in ran.err


def test_a_worker_needs_a_database(line: Run) -> None:
    assert line("work", "made:report", "--db", "http://127.0.0.1:1").code == 2
