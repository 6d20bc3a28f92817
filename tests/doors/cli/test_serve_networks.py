"""Networks that `holdfast serve` runs, in a process of its own."""

import json
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast

EXAMPLES = Path(__file__).parents[3] / "examples"
SLOW = """
import asyncio

from holdfast.runtime import Agent, Network
from holdfast.testing.scripted import ScriptedModel


async def never(_):
    await asyncio.Event().wait()


ada = Agent("ada", instructions="", model=ScriptedModel(never))
slow = Network("slow", [ada], router=lambda ctx: "ada")
"""


@contextmanager
def serving(folder: Path, db: Path, networks: str) -> Generator[tuple[Any, str]]:
    """Give the process that serves *networks*, which *folder* holds, and its URL."""
    command = [sys.executable, "-m", "holdfast.doors.cli.main", "serve", "--db", str(db)]
    with subprocess.Popen(
        [*command, "--port", "0", "--networks", networks],
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            yield process, line.split("listens on ")[1].split(",")[0]
        finally:
            process.kill()


def test_an_example_is_served_and_its_thread_is_in_the_database(tmp_path: Path) -> None:
    db = tmp_path / "desk.db"
    with serving(EXAMPLES, db, "support_network:desk") as (process, url):
        body = {"input": "Invoice 77 was charged twice.", "thread_id": "t"}
        run = httpx.post(f"{url}/api/networks/desk/runs", json=body, timeout=60).json()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    assert [each["agent"] for each in run["results"]] == ["triage", "billing"]
    assert run["data"]["case"]["topic"] == "billing"
    with holdfast.open(str(db)) as hf:
        assert [each.kind for each in hf.threads.turns("t")] == ["user", "result", "result"]


def test_a_server_that_is_stopped_keeps_how_its_runs_ended(tmp_path: Path) -> None:
    (tmp_path / "slow_network.py").write_text(SLOW)
    db, told = tmp_path / "desk.db", list[str]()
    with serving(tmp_path, db, "slow_network:slow") as (process, url):
        asking = httpx.stream(
            "POST",
            f"{url}/api/networks/slow/runs",
            json={"input": "Go.", "run_id": "run_1"},
            headers={"accept": "text/event-stream"},
            timeout=60,
        )
        with asking as answer:
            for line in answer.iter_lines():
                told.append(line)
                if line == "event: agent.started":
                    process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0

    first = next(line for line in told if line.startswith("data: "))
    assert json.loads(first.removeprefix("data: "))["type"] == "run.started"
    with holdfast.open(str(db)) as hf:
        record = hf.network_runs.retrieve("run_1")
    assert (record.status, record.stop_detail) == ("cancelled", "the server stops")


@pytest.mark.parametrize("networks", ["nowhere:desk", "support_network", "support_network:Topic"])
def test_what_is_no_network_is_refused_before_anything_is_served(
    tmp_path: Path, networks: str
) -> None:
    command = [sys.executable, "-m", "holdfast.doors.cli.main", "serve", "--networks", networks]
    ended = subprocess.run(
        [*command, "--db", str(tmp_path / "desk.db")],
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert "networks" in ended.stderr
