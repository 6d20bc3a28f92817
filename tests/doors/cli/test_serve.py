"""A server that the command line starts, and the command line as its client."""

import re
import signal
import subprocess
import sys
from collections.abc import Generator

import httpx
import pytest
from doors.cli.lines import Ran, Run

import holdfast
from holdfast.ground.errors import NotPermitted


class Served:
    """A server in a process of its own."""

    def __init__(self, db: str, *options: str) -> None:
        command = [sys.executable, "-m", "holdfast.doors.cli.main", "serve", "--db", db]
        self.process = subprocess.Popen(
            [*command, "--port", "0", *options], stderr=subprocess.PIPE, text=True
        )
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


def test_it_says_where_it_listens_and_stops_when_told(served: Served, db: str) -> None:
    assert db in served.says
    assert "open" in served.says
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
