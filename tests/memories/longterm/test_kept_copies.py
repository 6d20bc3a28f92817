"""A backup holds what users told, and a restore does not bring back what they had forgotten."""

from pathlib import Path

import pytest
from contracts.longterm_items import (
    items,
    kept,
    memory_of,
    said,
    texts,
    turns,
)
from memories.longterm.spoken import large_above

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.library.upkeep.restore import restore
from holdfast.testing.postgres import TEMPLATE, PostgresServer


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Give where a backup goes."""
    return tmp_path / "backup.db"


@pytest.fixture(params=["sqlite", "postgres"])
def target(request: pytest.FixtureRequest, sqlite_file: Path) -> str:
    """Give a database of the test's own."""
    if request.param == "sqlite":
        return str(sqlite_file)
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.url(server.new_database(TEMPLATE))


def fill(hf: Holdfast) -> None:
    """Put something of every kind into one collection."""
    ltm = memory_of(hf, "ada")
    ltm.remember_conversation([{"role": "user", "content": "I like tabs"}], "t1")
    kept(ltm, "Likes tabs", turns=[each.id for each in ltm.list("turns")])
    kept(ltm, "Has a dog")
    ltm.recall("dog")
    ltm.flush()


def test_a_backup_exports_the_same(target: str, backup: Path) -> None:
    with holdfast.open(target) as hf:
        fill(hf)
        exported = list(memory_of(hf, "ada").export())
        hf.backup(backup)

    with holdfast.open(backup) as copy:
        ltm = memory_of(copy, "ada")
        assert list(ltm.export()) == exported
        assert copy.verify().ok
        assert texts(ltm.recall("dog", touch=False)) == ["Has a dog"]


def test_what_was_forgotten_since_stays_forgotten(target: str, backup: Path) -> None:
    with holdfast.open(target) as hf:
        fill(hf)
        hf.backup(backup)
        ltm = memory_of(hf, "ada")
        ltm.forget(ltm.list(query="tabs").data[0].id)

    report = restore(backup, target, replace=True)

    with holdfast.open(target) as hf:
        ltm = memory_of(hf, "ada")
        again = ltm.remember_conversation([{"role": "user", "content": "I like tabs"}], "t2")
        assert report.forgotten == 2
        assert items(ltm) == ["Has a dog"]
        assert turns(ltm) == []
        assert [each.reason for each in again.skipped] == ["forgotten"]


def test_a_large_collection_is_recalled_from_in_the_copy(
    target: str, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large_above(1_000, monkeypatch)
    with holdfast.open(target) as hf:
        ltm = memory_of(hf, "ada")
        ltm.record([said(f"On day {number} it rained") for number in range(1_001)])
        before = texts(ltm.recall("day 321", k=1))
        hf.backup(backup)

    with holdfast.open(backup) as copy:
        ltm = memory_of(copy, "ada")
        assert texts(ltm.recall("day 321", k=1)) == before
        kept(ltm, "A zeppelin landed")
        assert texts(ltm.recall("zeppelin")) == ["A zeppelin landed"]
        assert texts(ltm.recall("day 321", k=1)) == before
