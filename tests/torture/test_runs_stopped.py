"""Processes that are stopped past their lease: taken over and let go, they change nothing."""

import os
import signal
import sqlite3
from contextlib import closing
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from time import sleep
from typing import Any

import psycopg
import pytest
from psycopg import sql
from runtime.lives import KINDS, Ahead, Death, Life, begun, lived
from torture.counts import counted

from holdfast.errors import RunTaken
from holdfast.testing.serving import new_workspace

pytestmark = pytest.mark.anyio

EVERY = "HOLDFAST_TORTURE_LIVES" in os.environ
LIFE = 120
"""Seconds after which a process that does not end has failed."""

AT = {
    "step": Death("tool", 1, signal.SIGSTOP),
    "task": Death("version", 4, signal.SIGSTOP),
    "plan": Death("version", 5, signal.SIGSTOP),
    "team": Death("tool", 2, signal.SIGSTOP),
    "workflow": Death("tool", 1, signal.SIGSTOP),
    "network": Death("version", 6, signal.SIGSTOP),
    "agent": Death("version", 1, signal.SIGSTOP),
}
"""Where the first owner of a run of each kind is stopped."""


def wait_until_stopped(process: ForkServerProcess) -> None:
    """Wait until all threads of *process* are stopped."""
    threads = Path(f"/proc/{process.pid}/task")
    for _ in range(LIFE * 100):
        assert process.is_alive()
        states = [
            (each / "stat").read_text().rpartition(")")[2].split() for each in threads.iterdir()
        ]
        if all(state == "T" for state, *_ in states):
            return
        sleep(0.01)
    raise AssertionError("it was not stopped")


def stored(target: str) -> Any:
    """Return every row or every byte that there is at *target*."""
    if target.startswith("files:"):
        return {
            path.name: path.read_bytes() for path in Path(target.removeprefix("files:")).iterdir()
        }
    workspace, _, database = target.partition("@")
    return rows_of_postgres(database, workspace) if "://" in database else rows_of_file(database)


def rows_of_file(path: str) -> dict[str, list[Any]]:
    """Return the rows of the SQLite database at *path*, by table."""
    with closing(sqlite3.connect(path)) as database:
        named = "select name from sqlite_master where type = 'table' order by name"
        tables = [name for (name,) in database.execute(named)]
        return {each: database.execute(f'select * from "{each}"').fetchall() for each in tables}


def rows_of_postgres(url: str, workspace: str) -> dict[str, list[str]]:
    """Return the rows of *workspace* in the PostgreSQL database at *url*, by table."""
    with psycopg.connect(url) as database:
        named = "select tablename from pg_tables where schemaname = 'holdfast' order by tablename"
        tables = [str(name) for (name,) in database.execute(named)]
        assert tables
        found: dict[str, list[str]] = {}
        for each in tables:
            every = sql.SQL("select cast(t as text) from {} as t order by 1").format(
                sql.Identifier("holdfast", each)
            )
            found[each] = [row for (row,) in database.execute(every) if workspace in row]
        return found


async def taken_over(kind: str, target: str, folder: Path, death: Death) -> None:
    """Stop the owner of a run, let another one end it past the lease, and let the first one go."""
    mine, others = folder / "mine", folder / "others"
    process = begun(kind, target, Life(mine, death, stores=True))
    wait_until_stopped(process)
    with pytest.raises(RunTaken):
        await lived(kind, target, Life(others, stores=True), take_over="expired")
    later = Life(others, stores=True)
    assert await lived(kind, target, later, clock=Ahead(), take_over="expired") == KINDS[kind][1]
    before, said = stored(target), mine.read_text().split()

    assert process.pid is not None
    os.kill(process.pid, signal.SIGCONT)
    process.join(LIFE)

    assert process.exitcode == 0
    after = mine.read_text().split()
    assert after[-1] == "stale"
    # A request that began before it found out is not taken back.
    assert after[len(said) :].count("reply") <= 1
    assert stored(target) == before
    counted("owners of runs stopped past their lease", 1)


@pytest.mark.parametrize("kind", AT)
async def test_stopped_taken_over_and_let_go_a_process_changes_no_row(
    kind: str, tmp_path: Path
) -> None:
    await taken_over(kind, f"{new_workspace()}@{tmp_path / 'h.db'}", tmp_path, AT[kind])


@pytest.mark.parametrize("kind", AT if EVERY else ["plan"])
async def test_stopped_on_postgres_it_changes_no_row(
    kind: str, postgres_url: str, tmp_path: Path
) -> None:
    await taken_over(kind, f"{new_workspace()}@{postgres_url}", tmp_path, AT[kind])


@pytest.mark.parametrize("number", range(1, 6) if EVERY else [1, 3])
async def test_stopped_with_files_it_changes_no_byte(number: int, tmp_path: Path) -> None:
    death = Death("version", number, signal.SIGSTOP)
    await taken_over("plan", f"files:{tmp_path / 'kept'}", tmp_path, death)
