"""Bytes of what was forgotten: in no file of the database, and in none beside it."""

import logging
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest
from contracts.longterm_items import capped, kept, memory_of, said
from contracts.longterm_vectors import SECONDS, stored_bytes, until

import holdfast
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions
from holdfast.memories.longterm.transaction import LARGE
from holdfast.memories.longterm.vectors.embedder import embedded
from holdfast.testing.embedders import WordEmbedder

TEXT, NAME = "zw3xforgotten likes tabs", "Kq9fName"
MARKS = (b"zw3xforgot", b"Kq9fName")
"""What no file may hold: eight bytes at least, for four are by chance in one of many random ids."""

Forget = Callable[[Holdfast, LongTermMemory], object]

ALL_AT_ONCE: dict[str, Forget] = {
    "clear": lambda _, ltm: ltm.clear(),
    "forget_user": lambda hf, ltm: hf.forget_user(ltm.context.user),
}
"""What forgets a whole collection, by its name."""


@pytest.fixture
def path(sqlite_file: Path) -> Path:
    return sqlite_file


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


@pytest.fixture(params=["sqlite", "postgres"])
def on_either(
    request: pytest.FixtureRequest, path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Holdfast]:
    """Give a handle on each engine whose files beside the database are in one folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(path.parent))
    target = path if request.param == "sqlite" else request.getfixturevalue("fresh_postgres_url")
    with holdfast.open(target) as hf:
        yield hf


@pytest.mark.parametrize(
    ("on_either", "forget", "many"),
    [
        *product(("sqlite", "postgres"), ALL_AT_ONCE, [1]),
        ("sqlite", "clear", 1100),
        ("postgres", "forget_user", 1100),
    ],
    indirect=["on_either"],
)
def test_of_vectors_in_chroma(on_either: Holdfast, path: Path, forget: str, many: int) -> None:
    """Chroma keeps few vectors in its database, and many in a folder of the collection."""
    embedder = WordEmbedder()
    in_chroma = LongTermOptions(vector_provider="chroma", max_items=0)
    ltm = memory_of(on_either, "ada", embedder=embedder, options=in_chroma)
    other = memory_of(on_either, "bob", embedder=embedder, options=in_chroma)
    kept(other, "Likes spaces")
    ltm.record([said(f"{TEXT} and number {number}") for number in range(many)])
    assert ltm.flush(SECONDS).done
    assert other.flush(SECONDS).done
    first, stays = (
        embedded(embedder, [text], "document")[0].tobytes()
        for text in (f"{TEXT} and number 0", "Likes spaces")
    )
    assert holding(path.parent, first)

    ALL_AT_ONCE[forget](on_either, ltm)

    until(lambda: not holding(path.parent, first), lambda: holding(path.parent, first))
    assert holding(path.parent, stays)
    assert other.recall("spaces")[0].why["mode"] == "hybrid"


@pytest.mark.parametrize("forget", ALL_AT_ONCE)
def test_of_caches_in_memory(
    on_either: Holdfast, forget: str, caplog: pytest.LogCaptureFixture
) -> None:
    ltm = memory_of(on_either, "ada")
    kept(ltm, TEXT)
    ltm.recall("tabs")
    assert on_either.longterm_shared.kept.size_bytes > 0

    with caplog.at_level(logging.WARNING, logger="holdfast"):
        ALL_AT_ONCE[forget](on_either, ltm)

    assert on_either.longterm_shared.kept.size_bytes == 0
    assert caplog.messages == []


def holding(folder: Path, mark: bytes) -> list[str]:
    """Return the files in *folder* that hold *mark*; one that is deleted meanwhile does not."""
    # os.walk passes over a folder that is deleted meanwhile, which Path.rglob raises.
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names]
    return [file.name for file in found if mark in stored_bytes(file)]
