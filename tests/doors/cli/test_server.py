"""A server that the command line starts, its networks, and its client."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from doors.cli.lines import Ran, Run
from fork_server import ForkedProcess, forked

import holdfast
from holdfast.ground.errors import NotPermitted


class Served:
    """A server in a process of its own, which is forked unless *command* starts it."""

    def __init__(self, db: str, *options: str, command: Sequence[str] | None = None) -> None:
        line = ["serve", "--db", db, "--port", "0", *options]
        line = forked(*line) if command is None else [*command, *line]
        self.process = ForkedProcess[str](line, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.says = self.process.stderr.readline()
        self.url = self.says.split("listens on ")[1].split(",")[0]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        _, self.said_later = self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def served(db: str) -> Generator[Served]:
    served = Served(db)
    yield served
    if served.process.poll() is None:
        served.process.kill()
        served.process.communicate()


@pytest.fixture
def ask(line: Run, served: Served) -> Run:
    """Run a command line on the server."""

    def on_server(*argv: str, stdin: bytes = b"") -> Ran:
        return line(*argv, "--db", served.url, stdin=stdin)

    return on_server


def test_it_says_where_it_listens_and_stops_when_told(db: str) -> None:
    served = Served(db, command=[sys.executable, "-m", "holdfast.doors.cli.main"])

    assert db in served.says
    assert "no key is required" in served.says
    assert "Its console is at /console." in served.says
    assert served.stop() == 0


def test_a_server_is_worked_on_as_a_database_is(ask: Run, run: Run, served: Served) -> None:
    made = ask("stores", "create", "Prefs").json
    ask("memories", "put", "Prefs", "/a.md", stdin=b"one")
    ask("memories", "put", "Prefs", "/a.md", stdin=b"two")
    (latest, first) = ask("versions", "list", "Prefs", "--memory", "/a.md").data
    ask("versions", "redact", "Prefs", first["id"])

    assert ask("memories", "show", "Prefs", "/a.md", "--raw").out == b"two"
    assert latest["created_by"] == {"type": "api_actor", "api_key_id": "apikey_local"}
    assert ask("stores", "delete", "Prefs", "--yes").json["id"] == made["id"]
    served.stop()
    assert run("stores", "list", "--all").data == []


def test_a_key_closes_the_server_to_those_without_it(
    ask: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = ask("keys", "create", "ci", "--scope", "admin").json

    without = ask("stores", "list")
    given = ask("stores", "list", "--api-key", key["secret"])
    monkeypatch.setenv("HOLDFAST_API_KEY", key["secret"])
    from_variable = ask("keys", "list")

    assert (without.code, without.out, without.err.count("\n")) == (1, b"", 1)
    assert "API key" in without.err
    assert given.data == []
    assert [each["id"] for each in from_variable.data] == [key["id"]]
    assert key["secret"] not in from_variable.out.decode()


def test_pages_of_the_public_url_and_of_allowed_origins_are_answered(db: str) -> None:
    options = ["--public-url", "https://memory.example", "--allow-origin", "https://app.example"]
    served = Served(db, *options)

    def status(origin: str) -> int:
        return httpx.get(
            f"{served.url}/healthz", headers={"origin": origin}, timeout=60
        ).status_code

    found = [
        status(f"https://{host}.example") for host in ("memory", "app", "elsewhere", "localhost")
    ]
    served.stop()

    assert found == [200, 200, 403, 403]


def test_an_option_that_is_no_origin_exits_1(fails: Run) -> None:
    assert "allow_origin" in fails("serve", "--allow-origin", "app.example").err


def test_a_server_that_is_not_there_is_said(line: Run) -> None:
    ran = line("stores", "list", "--db", "http://127.0.0.1:1")

    assert (ran.code, ran.out, ran.err.count("\n")) == (1, b"", 1)


def test_a_client_names_the_models_that_serve_allows(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    served = Served(db, "--allow-model", "openai:large", "--allow-model", "openai:small")
    try:
        with holdfast.open(served.url) as hf:
            allowed = hf.longterm("ada", enabled=True, embedder="openai:small")
            assert allowed is not None
            assert "OPENAI_API_KEY" in str(allowed.status().reason)
            with pytest.raises(NotPermitted) as refused:
                hf.longterm("ada", enabled=True, extractor="openai:huge")
    finally:
        served.stop()

    assert refused.value.needed == "--allow-model openai:huge"


def test_serve_mines_every_collection_with_the_extractor_it_is_given(
    db: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    served = Served(db, "--extractor", "openai:small")
    try:
        with holdfast.open(served.url) as hf:
            ltm = hf.longterm("ada", enabled=True)
            assert ltm is not None
            recorded = ltm.remember_conversation([{"role": "user", "content": "I like tea"}])
            status = ltm.status()
            with pytest.raises(NotPermitted):
                hf.longterm_data("ada").configure(extractor="openai:huge")
    finally:
        served.stop()

    assert recorded.queued
    assert (status.extractor, status.extractor_state) == ("openai:small", "waiting")
    assert status.extractor_reason == "openai:small: no key OPENAI_API_KEY"


def test_an_extractor_that_is_no_model_is_refused(fails: Run) -> None:
    assert "provider:model" in fails("serve", "--extractor", "openai").err


def test_a_model_to_allow_that_is_none_is_refused(fails: Run) -> None:
    ran = fails("serve", "--allow-model", "openai")

    assert "allow_model" in ran.err
    assert "provider:model" in ran.err


def test_every_request_is_a_line_on_the_error_stream(ask: Run, served: Served) -> None:
    ask("stores", "create", "Prefs")
    served.stop()

    (line,) = served.said_later.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ POST /v1/memory_stores 200 \d+\.\d ms", line
    )


def test_no_request_is_where_the_operator_leaves_that_out(db: str, line: Run) -> None:
    served = Served(db, "--no-access-log")
    made = line("stores", "create", "Prefs", "--db", served.url)
    served.stop()

    assert (made.code, served.said_later) == (0, "")


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
    line = forked("serve", "--db", db, "--port", "0", "--networks", networks)
    with ForkedProcess[str](line, cwd=folder, stderr=subprocess.PIPE, text=True) as process:
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
        record = hf.runs.retrieve("run_1")
    assert (record.status, record.detail) == ("cancelled", "the server stops")


@pytest.mark.parametrize("networks", ["nowhere:desk", "support_network", "support_network:Topic"])
def test_what_is_no_network_is_refused_before_anything_is_served(
    tmp_path: Path, networks: str
) -> None:
    ended = subprocess.run(
        forked("serve", "--networks", networks, "--db", tmp_path / "desk.db"),
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 1
    assert "definitions" in ended.stderr
