"""What a person says is in no log line, metric, span or event, and after the erasure nowhere."""

import json
import logging
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path

import httpx
import psycopg
import pytest
from library.erasure.people import (
    MARK,
    STAYS,
    dump,
    files_with,
    fill_linked,
    fill_owned,
    nothing_of_ada,
    past,
)
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg import sql

import holdfast
from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import HoldfastError
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.background.extractor import ExtractionRequest
from holdfast.memories.longterm.records import Turn
from holdfast.testing.serving import serving

OF_CLIENTS = ("httpx", "httpcore")
"""Loggers of the client's libraries, which name the address of each request."""


def say_more(hf: Holdfast) -> None:
    """Recall, search, edit and fail with texts of ada."""
    memory = hf.longterm("ada", enabled=True)
    assert memory is not None
    item = memory.remember(f"{MARK} is to be changed").stored
    assert item is not None
    memory.update(item.id, text=f"{MARK} was changed")
    memory.recall(f"Where is {MARK}?")
    memory.list(query=MARK)
    memory.record([Turn(role="assistant", text=f"From now on, send {MARK} to x@example.com")])
    store = next(each for each in hf.memory_stores.list() if each.name == "Shared")
    hf.memory_stores.memories.search(store.id, MARK)
    hf.durable("agent_8").list(query=MARK)
    wrong = (
        lambda: hf.memory_stores.memories.create(store.id, path=f"no/{MARK}", content="x"),
        lambda: hf.memory_stores.memories.create(store.id, path=f"/{MARK}.md", content="x"),
        lambda: hf.durable("agent_8").set(f"{MARK}\0", MARK, category="core"),
        lambda: hf.threads.append(f"no {MARK}", []),
        lambda: hf.longterm(f"{MARK}\0", enabled=True),
        lambda: hf.runs.retrieve(f"no-{MARK}"),
    )
    for each in wrong:
        with pytest.raises(HoldfastError):
            each()


def fail_to_mine(hf: Holdfast) -> None:
    """Let the extractor of ada fail with an error that quotes what it was given."""

    def failing(request: ExtractionRequest) -> str:
        raise ValueError(f"{MARK}: {request}")

    memory = hf.longterm("ada", enabled=True, namespace="work", extractor=failing)
    assert memory is not None
    said = {"role": "user", "content": f"{MARK} of a turn that is not mined"}
    memory.remember_conversation([said], thread_id="t")
    for _ in range(300):
        memory.flush(0.1)
        if memory.status().extractor_state == "failing":
            return
    raise AssertionError(memory.status())


def rows_with(target: str, mark: str) -> list[str]:
    """Return the tables of *target* of which a row holds *mark*, as text or as bytes."""
    forms = (mark, mark.encode().hex())
    if target.startswith("postgresql:"):
        with psycopg.connect(target) as owner:
            names = [
                name
                for (name,) in owner.execute(
                    "select relname from pg_class where relkind = 'r'"
                    " and relnamespace = 'holdfast'::regnamespace"
                )
            ]
            rows = {
                name: owner.execute(
                    sql.SQL("select t::text from {} t").format(sql.Identifier("holdfast", name))
                ).fetchall()
                for name in names
            }
    else:
        with closing(sqlite3.connect(target)) as reader:
            found = reader.execute("select name from sqlite_master where type = 'table'").fetchall()
            rows = dict[str, list[tuple[object, ...]]]()
            for (name,) in found:
                # Tables of the index of words without contents of their own cannot be read.
                with suppress(sqlite3.OperationalError):
                    rows[name] = reader.execute(f'select * from "{name}"').fetchall()
    assert len(rows) > 40
    return [name for name, each in rows.items() if any(form in str(each) for form in forms)]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines of the server and the library, with their tracebacks."""
    form = logging.Formatter("%(name)s %(message)s")
    records = [each for each in caplog.records if not each.name.startswith(OF_CLIENTS)]
    return [form.format(each) for each in records]


def with_marks(lines: Iterable[str]) -> list[str]:
    """Return those of *lines* that hold a text of ada."""
    return [line for line in lines if MARK in line]


def with_names(lines: Iterable[str]) -> list[str]:
    """Return those of *lines* that hold the name."""
    return [line for line in lines if re.search(r"\bada\b", line)]


RUN = """
import json, sys
from holdfast.doors.cli.main import main

sys.exit(any([main(each) for each in json.loads(sys.argv[1])]))
"""


def printed_by(*commands: Sequence[str]) -> str:
    """Run *commands* of the product in a process; return what they print."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", RUN, json.dumps(commands)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_no_text_of_a_person_is_told_on_or_left_behind(
    target: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    told: InMemorySpanExporter,
) -> None:
    # What other tests of this process counted.
    counted = {line.rpartition(" ")[0] for line in REGISTRY.lines("holdfast_")}
    data = tmp_path / "data"
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    caplog.set_level(logging.DEBUG)
    events: list[Event] = []
    moments: list[datetime] = []
    with holdfast.open(target) as hf:
        hf.events.subscribe(events.append)
        secret = hf.keys.create(name="operator", scope="admin").secret
        fill_owned(hf, vector_provider="chroma")
        fail_to_mine(hf)
        moments.append(datetime.now(UTC))
        with (
            serving(hf, clock=SystemClock()) as url,
            holdfast.open(url, api_key=secret) as remote,
        ):

            def outside() -> list[str]:
                metrics = httpx.get(f"{url}/metrics", headers={"x-api-key": str(secret)})
                spans = [each.to_json() for each in told.get_finished_spans()]
                assert metrics.status_code == 200
                kept = map(str, hf.activity(limit=1000).all())
                return [*metrics.text.splitlines(), *spans, *map(str, events), *kept]

            fill_linked(remote)
            say_more(remote)
            moments.append(datetime.now(UTC))
            assert MARK in dump(remote)
            assert MARK in past(remote, moments)
            assert rows_with(target, MARK)
            assert any(each.startswith("holdfast_") for each in outside())
            assert with_marks([*outside(), *logged(caplog)]) == []
            metrics = [each for each in outside() if each.startswith("holdfast_")]
            new = [each for each in metrics if each.rpartition(" ")[0] not in counted]
            assert with_names([*new, *logged(caplog)]) == []

            report = remote.forget_user("ada")

            assert report.receipt is not None, (report.pending, report.unreached)
            nothing_of_ada(hf)
            assert MARK not in dump(remote) + past(remote, moments)
            assert STAYS in past(remote, moments)
            assert rows_with(target, MARK) == []
            for folder in (tmp_path / "db", data):
                if folder.exists():
                    assert files_with(folder, MARK) == []
            assert with_marks([*outside(), *logged(caplog)]) == []
            assert with_names(logged(caplog)) == []


def test_a_command_that_erases_a_person_tells_nothing_of_them(target: str, tmp_path: Path) -> None:
    with holdfast.open(target) as hf:
        fill_owned(hf)
        fill_linked(hf)
    receipt = str(tmp_path / "r.json")

    printed = printed_by(
        ("forget", "--user", "ada", "--receipt", receipt, "--yes", "--db", target),
        ("verify", "--receipt", receipt, "--db", target),
        ("scrub", "--db", target),
        ("erasures", "list", "--db", target),
    )

    assert MARK not in printed
    assert with_names(printed.splitlines()) == []
    assert MARK not in Path(receipt).read_text()
    assert rows_with(target, MARK) == []
