"""How long does it take until the first useful thing is done?"""

import sys

# What lies beside comes last: the `http.py` here must not stand before Python's own.
sys.path.append(sys.path.pop(0))

import os
import re
import resource
import subprocess
import urllib.request
from collections.abc import Callable
from time import perf_counter, sleep

from machine import connected
from measure import Bench, Timing, main, paired
from served import HOLDFAST, said_url

import holdfast

CORE = """
import apsw, msgspec
import collections.abc, concurrent.futures, contextlib, datetime, functools, hashlib, json
import importlib.resources, itertools, logging, os, pathlib, random, re, secrets, shutil
import tempfile, threading, time, types, typing, unicodedata, weakref
"""
"""The driver, the JSON library, and the standard modules that any such library stands on."""

_FIRST_USE = """
import holdfast
hf = holdfast.open({path!r})
store = hf.memory_stores.create(name="Notes")
memory = hf.memory_stores.memories.create(store.id, path="/a.md", content="Prefers tabs.")
hf.memory_stores.memories.retrieve(memory.id, memory_store_id=store.id)
hf.close()
"""
_OPEN = """
import holdfast
from time import perf_counter
begun = perf_counter()
hf = holdfast.open({path!r})
print(perf_counter() - begun)
hf.engine.close()
"""
_TIMED = "from time import perf_counter\nbegun = perf_counter()\n{}\nprint(perf_counter() - begun)"
_RESIDENT = "{}\nprint(next(line for line in open('/proc/self/status') if 'VmRSS' in line))"
_LEAVE_LOG = """
import apsw, os, holdfast
hf = holdfast.open({path!r})
raw = apsw.Connection({path!r})
raw.execute("pragma wal_autocheckpoint = 0").fetchall()
raw.execute("create table filler (content blob)").fetchall()
raw.execute("insert into filler values (zeroblob({size}))").fetchall()
os._exit(0)
"""
MIB = 1 << 20


def run(bench: Bench) -> None:
    """Measure everything that section of the page shows."""
    _imports(bench)
    _commands(bench)
    _opening(bench)
    for log, what in ((0, "new file"), (64 * MIB, "after a kill with a log of 64 MiB")):
        found = [_until_ready(bench, number, log) for number in range(bench.size(5, 1))]
        bench.amount(f"holdfast serve to /readyz, {what}", "wall time", 1.0, "s", found)


def _imports(bench: Bench) -> None:
    floor = _inside(CORE)
    bench.cost(
        "import holdfast",
        "importing the driver, the JSON library and standard modules",
        1.7,
        paired(_inside("import holdfast"), floor, bench.rounds),
    )
    bench.cost(
        "import what holdfast.open is made of",
        "the same",
        1.7,
        paired(_inside("import holdfast\nholdfast.open"), floor, bench.rounds),
    )
    bench.cost(
        "from holdfast.runtime import Session",
        "import pydantic_ai",
        1.3,
        paired(
            _inside("from holdfast.runtime import Session"),
            _inside("import pydantic_ai"),
            bench.rounds,
        ),
    )
    paths = iter(range(10_000))

    def first_use() -> Timing:
        return _inside(_FIRST_USE.format(path=str(bench.folder / f"first{next(paths)}.db")))()

    bench.cost(
        "import, open a new file, write, read, close",
        "the same",
        3.5,
        paired(first_use, floor, bench.rounds),
    )
    taken = [
        (_resident("import holdfast\nholdfast.open") - _resident("pass")) / 1024
        for _ in range(bench.rounds)
    ]
    bench.amount("import what holdfast.open is made of, memory", "bare Python", 25, "MB", taken)


def _commands(bench: Bench) -> None:
    floor = _process((sys.executable, "-c", "import typer, rich"))
    bench.cost(
        "holdfast --help",
        "Python importing typer and rich",
        1.6,
        paired(_process((*HOLDFAST, "--help")), floor, bench.rounds),
    )
    path = bench.folder / "small.db"
    with holdfast.open(path) as hf:
        hf.memory_stores.create(name="Notes")
    bench.cost(
        "holdfast stores list, a small file",
        "the same",
        2.5,
        paired(_process((*HOLDFAST, "stores", "list", "--db", str(path))), floor, bench.rounds),
    )


def _opening(bench: Bench) -> None:
    large, empty = bench.folder / "large.db", bench.folder / "empty.db"
    for path in (large, empty):
        holdfast.open(path).close()
    size = bench.size(1024, 64)
    filling = connected(large)
    filling.execute("create table filler (content blob)").fetchall()
    for _ in range(size // 32):
        filling.execute(f"insert into filler values (zeroblob({32 * MIB}))").fetchall()
    filling.execute("pragma wal_checkpoint(truncate)").fetchall()
    filling.close()
    bench.cost(
        f"opening a file of {size:,} MiB",
        "an empty one",
        1.5,
        paired(
            _printing(_OPEN.format(path=str(large))),
            _printing(_OPEN.format(path=str(empty))),
            bench.rounds,
        ),
    )
    large.unlink()


def _inside(code: str) -> Callable[[], Timing]:
    return _printing(_TIMED.format(code))


def _printing(code: str) -> Callable[[], Timing]:
    return lambda: Timing(each=float(_said(code)) * 1e9)


def _resident(code: str) -> int:
    """Return the resident kilobytes of a process that has run *code*."""
    found = re.search(r"\d+", _said(_RESIDENT.format(code)))
    return int(found[0]) if found else 0


def _said(code: str) -> str:
    return subprocess.run(
        (sys.executable, "-c", code), capture_output=True, text=True, check=True
    ).stdout


def _process(command: tuple[str, ...]) -> Callable[[], Timing]:
    """Return what measures the processor time of *command*, from its start to its end."""

    def side() -> Timing:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Timing(each=took * 1e9)

    return side


def _until_ready(bench: Bench, number: int, log: int) -> float:
    path = bench.folder / f"served{number}_{log}.db"
    if log:
        _said(_LEAVE_LOG.format(path=str(path), size=log))
    begun = perf_counter()
    server = subprocess.Popen(
        (*HOLDFAST, "serve", "--db", str(path), "--port", "0"),
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )
    try:
        url = said_url(server)
        while not _ready(url):
            sleep(0.005)
        return perf_counter() - begun
    finally:
        server.terminate()
        server.communicate()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


if __name__ == "__main__":
    main("startup", __doc__ or "", run)
