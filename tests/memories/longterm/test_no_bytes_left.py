"""Bytes of what was forgotten: in no file of the database."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.indexing import LARGE
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.testing.contracts.longterm_given import capped, kept, memory_of, said

TEXT, NAME = "zw3xforgotten likes tabs", "Kq9fName"
MARKS = (b"zw3x", b"Kq9f")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.db"


@pytest.fixture
def hf(path: Path) -> Iterator[Holdfast]:
    with holdfast.open(path) as hf:
        yield hf


@pytest.fixture
def ltm(hf: Holdfast) -> LongTermMemory:
    return memory_of(hf, "ada")


def left(path: Path) -> set[tuple[str, bytes]]:
    """Return which marks are in which file of the database, while it is open."""
    return {
        (file.name, mark)
        for file in path.parent.iterdir()
        for mark in MARKS
        if file.is_file() and mark in file.read_bytes()
    }


def test_of_an_item_and_the_turn_it_came_from(ltm: LongTermMemory, path: Path) -> None:
    turn = ltm.record([said(TEXT * 40, speaker=NAME, session=NAME)], thread_id="t1").turns[0]
    item = kept(ltm, TEXT, source=NAME, turns=[turn.id])
    ltm.recall("tabs")
    there = left(path)
    ltm.forget(item.id)

    assert there
    assert left(path) == set()


def test_of_a_turn(ltm: LongTermMemory, path: Path) -> None:
    turn = ltm.record([said(TEXT, speaker=NAME, caption=NAME)]).turns[0]
    ltm.forget(turn.id)

    assert left(path) == set()


def test_of_what_an_item_said_before(ltm: LongTermMemory, path: Path) -> None:
    item = kept(ltm, TEXT)
    ltm.update(item.id, text="Likes spaces")
    ltm.forget(item.id)

    assert left(path) == set()


def test_of_one_that_was_evicted_once_something_is_forgotten(hf: Holdfast, path: Path) -> None:
    ltm = capped(hf, 1)
    kept(ltm, TEXT)
    ltm.forget(kept(ltm, "Has a dog").id)

    assert left(path) == set()


def test_of_a_collection_that_was_cleared(hf: Holdfast, path: Path) -> None:
    ltm = memory_of(hf, "ada")
    ltm.record([said(TEXT, speaker=NAME)], thread_id=NAME)
    kept(ltm, TEXT)
    ltm.clear()

    assert left(path) == set()


def test_of_a_person(hf: Holdfast, path: Path) -> None:
    ltm = memory_of(hf, NAME, namespace=NAME, workspace_id=NAME)
    ltm.record([said(TEXT, speaker=NAME)], thread_id=NAME)
    item = kept(ltm, TEXT)
    ltm.recall("tabs")
    ltm.forget(item.id)
    hf.forget_user(NAME)

    assert left(path) == set()


def test_of_a_turn_of_a_large_collection(ltm: LongTermMemory, path: Path) -> None:
    ltm.record([said(f"Likes number {number}") for number in range(LARGE)])
    turn = ltm.record([said(TEXT)]).turns[0]
    there = left(path)
    ltm.forget(turn.id)

    assert there
    assert left(path) == set()
