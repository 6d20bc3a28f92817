"""What happens when the disk refuses, seen from a process that may not let files grow."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import resource, sys
from types import SimpleNamespace as Row
from holdfast.engines.sqlite import SQLiteEngine
from holdfast.ground.errors import HoldfastError
from holdfast.testing.contracts.engine import SCRATCH, make_scratch, noting, putting
from holdfast.testing.fakes import FrozenClock

def let_files_grow_to(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def put(key, size):
    row = {"number": 0, "real": None, "text": None, "bytes": b"x" * size}
    return lambda tx: tx.run(sql.put, key=key, **row)

def said(write):
    try:
        return write()
    except HoldfastError as error:
        return f"{error.reason} {error.written}"

engine = SQLiteEngine.open(sys.argv[1], clock=FrozenClock())
make_scratch(engine)
sql = engine.queries(SCRATCH)
engine.write(putting(sql, "before", 1))
log = engine.core.database.log_bytes()
events = []
engine.events.subscribe(lambda event: events.append(event.type))
let_files_grow_to(log + 20_000)
print(said(lambda: engine.write(put("big", 100_000))))
print([row.key for row in engine.all(Row, sql.list)])
print(said(lambda: engine.write(put("small", 10))))
let_files_grow_to(resource.RLIM_INFINITY)
print(said(lambda: engine.write(put("after", 100_000))))
print([row.key for row in engine.all(Row, sql.list)])
print(events, engine.one(Row, "select integrity_check as ok from pragma_integrity_check").ok)
engine.close()
"""


def test_a_commit_that_fails_to_write_has_an_unknown_outcome_and_harms_nothing_else(path: Path):
    command = [sys.executable, "-c", PROGRAM, str(path)]

    said = subprocess.run(command, check=True, timeout=60, stdout=subprocess.PIPE, text=True)

    assert said.stdout.splitlines() == [
        "io None",
        "['before']",
        "1",
        "1",
        "['after', 'before', 'small']",
        "['engine.reconnected'] ok",
    ]
