"""The page of settings lists what the code reads and takes, with the defaults of the code."""

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import typer.main
from doors.http.asking import Asker
from msgspec.structs import asdict, fields

import holdfast
from holdfast.doors.cli.app import COMMANDS, build
from holdfast.doors.http.app import make_app
from holdfast.doors.http.app import routes as every_route
from holdfast.doors.http.params import LIMITS
from holdfast.doors.http.request import MIB
from holdfast.doors.http.server import GRACE, KEEP_ALIVE, START_MOST
from holdfast.doors.http.state import IN_FLIGHT_MOST, LIVE_MOST
from holdfast.engines.base import KEPT
from holdfast.engines.postgres import pool
from holdfast.engines.postgres.server import CONNECT_TIMEOUT, MOST_CONNECTIONS
from holdfast.library.activity import LOOKED, SAMPLED
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.durable import LIMIT as DURABLE_LIMIT
from holdfast.library.operations.longterm import LIMIT as LONGTERM_LIMIT
from holdfast.library.operations.threads import LIMIT as THREADS_LIMIT
from holdfast.memories.durable.records import CHANGES_KEPT, DAY, EVICTED_KEPT, RANGES, DurableLimits
from holdfast.memories.longterm.recall import block
from holdfast.memories.longterm.records import DEFAULT_K, MAX_ITEMS, LongTermOptions
from holdfast.memories.longterm.vectors.registry import NAMES
from holdfast.memories.run.records.write import ENDED_MOST
from holdfast.memories.stores.transaction import MEMORIES_CAP
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX
from holdfast.testing.embedders import WordEmbedder
from holdfast.testing.postgres import running_postgres

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+")
NOT_SETTINGS = {"LC_ALL", "COMP_WORDS"}
"""Set for a program that is started; set by a shell that completes a command line."""

FIGURES = {
    "live memories in a store": MEMORIES_CAP,
    "bytes of a memory's content": CONTENT_BYTES_MAX,
    "bytes of a recalled block": block.BUDGET,
    "results of `recall`": DEFAULT_K,
    "bytes of a request's body": MIB,
    "bytes of a body under `/api/durable`": DURABLE_LIMIT,
    "bytes of a body under `/api/longterm`": LONGTERM_LIMIT,
    "bytes of a body of `/api/threads/{id}/turns`, `/api/networks/{name}/runs`, `/api/runs`,"
    " `/api/runs/{run}`, `/api/runs/{run}/versions/{version}`, `/api/runs/{run}/checkpoint`,"
    " `/api/runs/{run}/fork`, `/api/import/{kind}`"
    " and `/api/memory_stores/{s}/apply`": THREADS_LIMIT,
    "requests answered at once": IN_FLIGHT_MOST,
    "event streams at once": LIVE_MOST,
    "seconds that requests in flight have at SIGTERM": GRACE,
    "seconds that an idle connection stays open": KEEP_ALIVE,
    "seconds that `serve` waits for PostgreSQL": START_MOST,
    "connections of a process to PostgreSQL": MOST_CONNECTIONS,
    "seconds to wait for one of them": pool.PATIENCE,
    "seconds to connect": CONNECT_TIMEOUT,
    "ended runs of a workspace that are kept": ENDED_MOST,
    "days that changes are kept for `/api/events` and `/api/activity`": KEPT / timedelta(days=1),
    "stored events that one call of `/api/activity` looks at": LOOKED,
    "days of which a server keeps sizes for `/api/samples`": SAMPLED,
    "days that the history of durable memory is kept": CHANGES_KEPT / DAY,
    "days that an evicted durable entry can be restored": EVICTED_KEPT / DAY,
}


REQUEST_FIGURES = {
    "bytes of a request's head": "head_bytes",
    "header lines of a request": "head_lines",
    "seconds to send the head of a request": "head_seconds",
    "seconds to send the body of a request, at most": "body_seconds",
    "bytes a second of a body, at least, on average": "body_rate",
    "seconds before that rate counts": "body_grace",
    "bytes of all bodies in the memory of a process": "bodies_bytes",
    "incomplete bodies at once on an open server": "half_sent",
}


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the tables under *heading*, without their heads."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    heads = {index - 1 for index, each in enumerate(cells) if set(each[0]) == {"-"}}
    return [
        each for index, each in enumerate(cells) if index not in heads and set(each[0]) != {"-"}
    ]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def number(cell: str) -> float:
    found = re.match(r"[\d,.]+", cell)
    assert found, cell
    return float(found[0].replace(",", ""))


def variables_in_code() -> Iterator[str]:
    for module in (ROOT / "holdfast").rglob("*.py"):
        if "testing" in module.parts:
            continue
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            value = node.value if isinstance(node, ast.Constant) else None
            if isinstance(value, str) and VARIABLE.fullmatch(value):
                yield value


def test_every_variable_is_listed_and_no_other() -> None:
    listed = [name for row in rows("Variables") for name in spans(row[0])]

    assert sorted(listed) == sorted(set(variables_in_code()) - NOT_SETTINGS)


def params(command: str) -> list[Any]:
    group: Any = typer.main.get_command(build(list(COMMANDS)))
    for name in command.split():
        group = group.commands[name]
    return group.params


def spelled(param: Any) -> str:
    return param.opts[0] if param.is_flag else f"{param.opts[0]} {param.metavar}"


def default(param: Any) -> str:
    if param.is_flag:
        return "off"
    return "none" if param.default is None else f"`{param.default}`"


@pytest.mark.parametrize(
    ("heading", "command"),
    [("Options of every command", "keys list"), ("Options of the server", "serve")],
)
def test_every_option_is_listed_with_its_default_and_its_variable(
    heading: str, command: str
) -> None:
    taken = {spelled(each): each for each in params(command)}

    listed = {spans(name)[0]: (at_first, says) for name, at_first, says in rows(heading)}

    assert {name: at_first for name, (at_first, _) in listed.items()} == {
        name: default(each) for name, each in taken.items()
    }
    for name, each in taken.items():
        assert each.envvar is None or f"`{each.envvar}`" in listed[name][1], name
        assert each.multiple == ("repeatable" in listed[name][1]), name


def test_every_argument_of_open_is_listed_with_its_default() -> None:
    taken = inspect.signature(holdfast.open).parameters

    listed = {name: row[1] for row in rows("Arguments of open") for name in spans(row[0])}

    assert listed == {name: f"`{each.default!r}`" for name, each in taken.items()}


def test_every_limit_of_durable_memory_is_listed_with_its_default_and_its_range() -> None:
    listed = {
        spans(name)[0]: (number(at_first), tuple(map(number, ends.split(" to "))))
        for name, at_first, ends in rows("Durable memory")
    }

    limits = DurableLimits()
    assert listed == {name: (getattr(limits, name), ends) for name, ends in RANGES.items()}


def test_every_option_of_long_term_memory_is_listed_with_its_default() -> None:
    listed = {spans(name)[0]: at_first for name, at_first, _ in rows("Long-term memory")}

    assert listed == {each.name: f"`{each.default!r}`" for each in fields(LongTermOptions)}
    assert f"else {MAX_ITEMS};" in PAGE


def test_every_vector_provider_is_listed() -> None:
    assert [spans(row[0])[0] for row in rows("Vector providers")] == list(NAMES)


def test_every_other_figure_is_the_codes() -> None:
    limits = asdict(LIMITS)
    figures = FIGURES | {what: limits.pop(name) for what, name in REQUEST_FIGURES.items()}

    assert limits == {}
    assert {name: number(at_first) for name, at_first, _ in rows("Other limits")} == figures


def test_every_route_takes_a_body_as_large_as_listed() -> None:
    listed = [
        (path, number(at_first), " under " in what)
        for what, at_first, _ in rows("Other limits")
        if what.startswith("bytes of a body ")
        for path in spans(what)
    ]

    def limit(path: str) -> float:
        for each, most, below in listed:
            if path == each or (below and path.startswith(f"{each}/")):
                return most
        return MIB

    taken = {each.path: each.limit for each in every_route(strict=False) if each.changes}
    assert taken == {path: limit(path) for path in taken}


def families(hf: Holdfast) -> dict[str, set[str] | None]:
    """Return the labels of each metric, by its name; None where there is no sample yet."""
    with asyncio.Runner() as runner:
        app = make_app(hf)
        text = Asker(app, runner).get("/metrics").body.decode()
        app.state.close()
    found: dict[str, set[str] | None] = dict.fromkeys(
        re.findall(r"^# TYPE holdfast_(\S+)", text, re.MULTILINE)
    )
    for name, braced in re.findall(r"^holdfast_(\w+)(?:\{(.*)\})? ", text, re.MULTILINE):
        family = name if name in found else re.sub(r"_(bucket|sum|count)$", "", name)
        labels = set(re.findall(r'(\w+)="', braced)) - {"le"}
        found[family] = (found[family] or set()) | labels
    return found


def test_every_metric_is_listed_with_its_labels() -> None:
    with holdfast.open(":memory:") as hf:
        told = families(hf)

    listed: dict[str, set[str]] = {}
    for part, metrics in rows("Metrics"):
        for each in spans(metrics):
            name, _, braced = each.rstrip("}").partition("{")
            listed[f"{spans(part)[0]}_{name}"] = set(braced.split(",")) - {""}

    assert sorted(listed) == sorted(told)
    sampled = {name: labels for name, labels in told.items() if labels is not None}
    assert {name: listed[name] for name in sampled} == sampled


def test_a_postgresql_that_is_set_up_as_shown_is_served_with_pgvector() -> None:
    once, each_database = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
    with running_postgres() as server:
        server.execute(*filter(str.strip, once.split(";")))
        server.execute(each_database, database="holdfast")
        server.execute("create role worker login", "grant holdfast_app to worker")

        with holdfast.open(server.url("holdfast", user="holdfast")) as hf:
            ltm = hf.longterm("ada", enabled=True, embedder=WordEmbedder())
            assert ltm is not None
            ltm.remember("Likes tabs")
            assert (ltm.status().mode, ltm.status().vector_provider) == ("hybrid", "pgvector")
        with holdfast.open(server.url("holdfast", user="worker"), migrate=False) as hf:
            assert hf.longterm_data("ada").status().items == 1
        with psycopg.connect(server.url("holdfast", user="worker")) as connection:
            assert connection.execute("select count(*) from holdfast.ltm_items").fetchone() == (0,)
