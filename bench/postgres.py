"""How do calls on PostgreSQL compare with that server's own benchmark?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TypeVar, cast

import psycopg
from measure import Bench, Timing, main, one_by_one, paired, together
from msgspec.structs import replace
from raw import ENTRIES
from served import HOLDFAST, serving, timed
from texts import Texts

import holdfast
from holdfast.engines.base import Engine, Transaction
from holdfast.memories.durable.memory import DurableMemory
from holdfast.testing.postgres import PostgresServer, programs_for

T = TypeVar("T")

TEXT_BYTES = 170
CALLERS = 32
PROCESSES = 4
KEYS = ENTRIES // 8
"""Of each agent; there are as many agents as callers, and their writes do not wait on others'."""

_SETTINGS = "-c listen_addresses='' -c fsync=on -c synchronous_commit=on -c max_connections=200"
_TABLE = """
create table raw (
  owner text not null, key text not null, category text not null, content text not null,
  created_at bigint not null, updated_at bigint not null, primary key (owner, key)
)
"""
_FILL = """
insert into raw
select 'agent_' || a, 'key_' || k, 'core', %s, k, k
from generate_series(0, 31) a, generate_series(0, 99) k
"""
_GET = r"""
\set n random(0, 99)
select owner, key, category, content, created_at, updated_at from raw
where owner = 'agent_' || :client_id and key = 'key_' || :n;
"""
_PUT = r"""
\set n random(0, 99)
insert into raw values ('agent_' || :client_id, 'key_' || :n, 'core', '{text}', 1, 1)
on conflict (owner, key) do update
set category = excluded.category, content = excluded.content, updated_at = raw.updated_at + 1;
"""
_CALLERS = """
import sys
import threading
import holdfast
hf = holdfast.open({url!r})
text = {text!r}
gate = threading.Barrier({threads})
def work(agent):
    durable = hf.durable(f"agent_{{agent}}")
    durable.set("key_0", text, category="core")
    gate.wait()
    if agent == {first}:
        print("ready", flush=True)
        sys.stdin.readline()
    gate.wait()
    for number in range({count}):
        durable.set(f"key_{{number % {keys}}}", text[number % 2:], category="core")
threads = [threading.Thread(target=work, args=({first} + each,)) for each in range({threads})]
for each in threads:
    each.start()
for each in threads:
    each.join()
print("done", flush=True)
hf.close()
"""


class Server(PostgresServer):
    """A server that keeps what it says it has written."""

    def start(self) -> None:
        options = f"-c unix_socket_directories='{self.folder}' {_SETTINGS}"
        self._run("pg_ctl", "-w", "-l", str(self.folder / "log"), "-o", options, "start")


@contextmanager
def server() -> Generator[Server]:
    """Give one, running in a short folder of its own, with a table as the raw one is."""
    folder = Path(tempfile.mkdtemp(prefix="hfpg", dir="/tmp"))
    try:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody")
        running = Server(folder)
        running.initialise()
        running.start()
        try:
            yield running
        finally:
            running.stop("fast")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Baseline:
    """The server's own benchmark, with prepared statements."""

    def __init__(self, running: Server, folder: Path, text: str, *, seconds: int) -> None:
        self._server, self._seconds = running, seconds
        self._program = programs_for(folder) / "pgbench"
        self._scripts = {"get": folder / "get.sql", "put": folder / "put.sql"}
        self._scripts["get"].write_text(_GET)
        self._scripts["put"].write_text(_PUT.format(text=text.replace("'", "")))
        with psycopg.connect(running.url(), autocommit=True) as connection:
            self.version = connection.info.parameter_status("server_version") or "unknown"
            connection.execute(_TABLE)
            connection.execute(_FILL, (text,))

    def side(self, script: str, clients: int) -> Callable[[], Timing]:
        """Return what runs *script* with as many *clients*, and says what each time takes."""
        return partial(self._timed, self._scripts[script], clients)

    def _timed(self, script: Path, clients: int) -> Timing:
        where = ("-h", str(self._server.folder), "-U", "postgres", "postgres")
        how = ("-n", "-M", "prepared", "-c", str(clients), "-j", str(min(clients, 4)))
        command = (str(self._program), *how, "-T", str(self._seconds), "-f", str(script), *where)
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        found = re.search(r"tps = ([0-9.]+)", ran.stdout)
        if found is None:
            raise SystemExit(f"pgbench said nothing of its rate:\n{ran.stdout}")
        return Timing(each=1e9 / float(found[1]))


class Ours:
    """An agent for each caller, with the same keys, in a database of its own."""

    def __init__(self, url: str, text: str) -> None:
        self.url, self.hf = url, holdfast.open(url)
        self.texts = (text, text[1:])
        self.agents = [self.hf.durable(f"agent_{number}") for number in range(CALLERS)]
        for agent in self.agents:
            self.set_many(agent, 0)

    def get(self, agent: DurableMemory, number: int) -> None:
        agent.get(f"key_{number % KEYS}")

    def set(self, agent: DurableMemory, number: int) -> None:
        text = self.texts[number // KEYS % 2]
        agent.set(f"key_{number % KEYS}", text, category="core")

    def set_many(self, agent: DurableMemory, number: int) -> None:
        text = self.texts[number % 2]
        agent.set_many(
            [{"key": f"key_{each}", "content": text, "category": "core"} for each in range(KEYS)]
        )

    def among(
        self, callers: int, count: int, act: Callable[[DurableMemory, int], None]
    ) -> Callable[[], Timing]:
        """Return what has *callers* do *act*, *count* times together, each for its own agent."""
        share = count // callers
        return lambda: together(
            callers, count, lambda number: act(self.agents[number // share], number)
        )

    def over_processes(self, count: int) -> Timing:
        """Let several processes of several callers set, and return what each set takes."""
        threads = CALLERS // PROCESSES
        each = count // CALLERS
        children = [self._child(number * threads, threads, each) for number in range(PROCESSES)]
        for child in children:
            self._expect(child, "ready")
        begun = perf_counter_ns()
        for child in children:
            if child.stdin is not None:
                child.stdin.write("go\n")
                child.stdin.flush()
        for child in children:
            self._expect(child, "done")
        took = perf_counter_ns() - begun
        for child in children:
            child.communicate(timeout=60)
        return Timing(each=took / (each * CALLERS))

    def _child(self, first: int, threads: int, count: int) -> "subprocess.Popen[str]":
        code = _CALLERS.format(
            url=self.url, text=self.texts[0], first=first, threads=threads, count=count, keys=KEYS
        )
        return subprocess.Popen(
            (sys.executable, "-c", code),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    @staticmethod
    def _expect(child: "subprocess.Popen[str]", word: str) -> None:
        said = "" if child.stdout is None else child.stdout.readline().strip()
        if said != word:
            raise SystemExit(f"a process of callers said {said!r}, not {word!r}")


class Apart:
    """*engine*, but each write has a transaction of its own."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def scoped(self, *scope: Any) -> "Apart":
        return Apart(self._engine.scoped(*scope))

    def write(self, work: Callable[[Transaction], T], *, timeout: float | None = None) -> T:
        return self._engine.write(lambda tx: work(tx), timeout=timeout)  # noqa: PLW0108 - no kin


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    text = Texts().of_bytes(TEXT_BYTES)
    with server() as running:
        theirs = Baseline(running, bench.folder, text, seconds=bench.size(3, 1))
        ours = Ours(running.url(running.new_database()), text)
        where = bench.report.machine
        packages = where.packages | {"PostgreSQL": theirs.version}
        bench.report.machine = replace(where, packages=packages)
        reads, writes = bench.size(6_000, 800), bench.size(1_600, 320)
        if not bench.writes:
            _reads(bench, ours, theirs, reads)
        _writes(bench, ours, theirs, writes)
        _two_servers(bench, ours, writes)
        ours.hf.close()


def _reads(bench: Bench, ours: Ours, theirs: Baseline, count: int) -> None:
    alone = theirs.side("get", 1)
    rounds = paired(
        lambda: one_by_one(count, partial(ours.get, ours.agents[0])), alone, bench.rounds
    )
    bench.rate("durable.get, 1 caller", "pgbench, 1 client", 0.25, rounds)
    rounds = paired(ours.among(8, count, ours.get), alone, bench.rounds)
    bench.rate("durable.get, 8 callers in one process", "pgbench, 1 client", 1 / 3, rounds)


def _writes(bench: Bench, ours: Ours, theirs: Baseline, count: int) -> None:
    rounds = paired(ours.among(8, count, ours.set), theirs.side("put", 8), bench.rounds)
    bench.rate("durable.set, 8 callers", "pgbench upsert, 8 clients", 1 / 3, rounds)
    apart = ours.hf.acting(through=lambda engine: cast("Engine", Apart(engine)))

    def of_one(agent: DurableMemory) -> Timing:
        return together(CALLERS, count, lambda number: ours.set(agent, number))

    rounds = paired(
        lambda: of_one(ours.agents[0]), lambda: of_one(apart.durable("agent_0")), bench.rounds
    )
    what = f"durable.set, {CALLERS} callers of one agent"
    bench.rate(what, "itself, each in a transaction of its own", 4, rounds)
    crowd = theirs.side("put", CALLERS)
    rounds = paired(lambda: ours.over_processes(count * 2), crowd, bench.rounds)
    what = f"durable.set, {CALLERS} callers over {PROCESSES} processes"
    bench.rate(what, f"pgbench upsert, {CALLERS} clients", 0.2, rounds)
    batches = max(5, count // 50)

    def rows() -> Timing:
        timing = one_by_one(batches, partial(ours.set_many, ours.agents[0]))
        return Timing(each=timing.each / KEYS)

    rounds = paired(rows, crowd, bench.rounds)
    what = f"durable.set_many of {KEYS}, rows a second"
    bench.rate(what, f"pgbench single upserts, {CALLERS} clients", 3, rounds)


def _two_servers(bench: Bench, ours: Ours, count: int) -> None:
    line = (*HOLDFAST, "serve", "--db", ours.url, "--port", "0", "--no-access-log")
    numbers = itertools.count()

    def put() -> bytes:
        number = next(numbers)
        content = f"{number} {ours.texts[0]}"
        body = json.dumps({"content": content, "category": "core"}, ensure_ascii=False).encode()
        path = f"/api/durable/agent_{number % CALLERS}/entries/key_{number % KEYS}"
        return one.request("PUT", path, body)

    with serving(*line) as one, serving(*line) as other:
        rounds = paired(
            lambda: timed((one, other), count, put), lambda: timed((one,), count, put), bench.rounds
        )
    bench.rate("PUT durable entry, two servers on one database", "one server", 1, rounds)


if __name__ == "__main__":
    main("postgres", __doc__ or "", run)
