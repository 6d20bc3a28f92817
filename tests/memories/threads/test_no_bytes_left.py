"""Bytes of threads that were deleted, and of agents that were forgotten: in no file or row."""

from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg import sql

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.thread import ForeignTurn, ThreadTurn
from holdfast.testing.contracts.history import AT, began, ended, made, said
from holdfast.testing.serving import new_workspace

THREAD, SAID, MADE, AGENT = "zq7thread", "Kv4x said this. ", "Wj9k made this. ", "Xp2m writer"
USER = "Xp2m"
MARKS = {each[:4].encode() for each in (THREAD, SAID, MADE, AGENT)}

Left = Callable[[], set[bytes]]


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give a database of the test's own, so that what others write is not in it."""
    if request.param == "sqlite":
        return str(sqlite_file)
    return request.getfixturevalue("fresh_postgres_url")


@pytest.fixture
def hf(target: str) -> Iterator[Holdfast]:
    with holdfast.open(target, workspace=new_workspace()) as hf:
        yield hf


@pytest.fixture
def left(target: str) -> Left:
    """Give what says which marks are in the database: its files, or on PostgreSQL its rows."""

    def in_files() -> set[bytes]:
        files = [each.read_bytes() for each in Path(target).parent.iterdir() if each.is_file()]
        return {mark for mark in MARKS if any(mark in each for each in files)}

    def in_rows() -> set[bytes]:
        with psycopg.connect(target) as owner:
            rows = list(_rows(owner))
        return {mark for mark in MARKS if any(mark in each for each in rows)}

    return in_rows if target.startswith("postgresql") else in_files


def _rows(owner: psycopg.Connection) -> Iterator[bytes]:
    tables = owner.execute(
        "select table_name from information_schema.tables where table_schema = 'holdfast'"
    ).fetchall()
    for (table,) in tables:
        found = owner.execute(
            sql.SQL("select t::text from holdfast.{} t").format(sql.Identifier(table))
        )
        yield from (str(row).encode() for (row,) in found)


def fill(hf: Holdfast, *others: InferenceResult) -> None:
    """Write a thread with marks in all that it holds, and results of *others* beside."""
    mine = [
        made(index, agent=AGENT, text=MADE * 2_000, run_id="run_zq7thread").replace(created_at=AT)
        for index in range(3)
    ]
    message = said(SAID * 300, "msg_Kv4x")
    hf.threads.append(THREAD, [ThreadTurn.said(message, run_id="run_zq7thread"), *mine, *others])
    hf.threads.append(THREAD, mine)
    hf.runs.put(began("run_1", thread_id=THREAD, pending=[AGENT]))
    hf.runs.put(ended("run_1", thread_id=THREAD, skipped=[[AGENT, MADE]]))


def test_a_deleted_thread_leaves_nothing(hf: Holdfast, left: Left) -> None:
    fill(hf)
    there = left()

    hf.threads.delete(THREAD)

    assert there == MARKS
    assert left() == set()


def test_a_turn_taken_away_leaves_nothing(hf: Holdfast, left: Left) -> None:
    turn = ForeignTurn({"text": f"{MADE * 2_000} {SAID} {AGENT}"}, "test", id="msg_Kv4x")
    hf.threads.append("other", [turn])
    there = left()

    hf.threads.pop("other")

    assert there
    assert left() == set()


def test_a_forgotten_user_leaves_nothing(hf: Holdfast, left: Left) -> None:
    turn = ForeignTurn({"text": f"{MADE * 2_000} {SAID}"}, "test")
    hf.threads.append(THREAD, [turn], user=USER)
    there = left()

    hf.forget_user(USER)

    assert there
    assert left() == set()


def test_a_forgotten_agent_leaves_nothing_of_its_own(hf: Holdfast, left: Left) -> None:
    fill(hf, made(9, agent="editor"))

    report = hf.forget_agent(AGENT)

    assert report.pending == ()
    assert left() == {THREAD[:4].encode(), SAID[:4].encode()}
    assert hf.threads.results(THREAD) == [made(9, agent="editor")]


def test_a_thread_begun_anew_and_deleted_again_leaves_nothing(hf: Holdfast, left: Left) -> None:
    for _ in range(3):
        fill(hf)
        hf.threads.delete(THREAD)

    assert left() == set()
