"""What was acknowledged is there after `kill -9`, whole, and everything fits together."""

import os
import random
import signal
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest
from torture.counts import counted
from torture.zygote import Zygote

import holdfast

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
LINES = (40, 0, 400, 1, 1_500)
"""How much a writer does before it is killed, life by life."""
SHORTLY = 0.05
"""Seconds within which a writer is killed that may still open its database."""
WRITER = "torture.writer"
A_FILE = 50
"""Lives in one database: verifying it takes longer with all that was ever written."""

Held = dict[str, str]
Said = tuple[str, int, str, str, str]


def after(held: Held, act: str, path: str, text: str) -> Held:
    """Return what a thread holds once it did *act*."""
    held = dict(held)
    if act == "rename":
        held[text] = held.pop(path)
    elif act == "delete":
        del held[path]
    else:
        held[path] = text
    return held


def possible(said: Iterable[Said]) -> dict[int, list[Held]]:
    """Return what each thread's directory may hold: all it did, and perhaps what it began."""
    held: dict[int, Held] = {}
    begun: dict[int, Held] = {}
    for word, thread, act, path, text in said:
        state = after(held.get(thread, {}), act, path, text)
        if word == "did":
            held[thread] = state
            del begun[thread]
        else:
            begun[thread] = state
    return {
        thread: [held.get(thread, {}), begun.get(thread, held.get(thread, {}))]
        for thread in {*held, *begun}
    }


def live_and_be_killed(
    zygote: Zygote, arguments: list[str], lines: int, chance: random.Random
) -> list[Said]:
    """Run a writer until it has said *lines* lines; with 0, so shortly that it may still open."""
    seconds = chance.uniform(0, SHORTLY) if lines == 0 else 0
    life = zygote.life(WRITER, *arguments, lines=lines, seconds=seconds)
    assert life.status == -signal.SIGKILL
    return [tuple(line) for line in life.said]


def found(hf: holdfast.Holdfast, store_id: str) -> dict[int, Held]:
    """Return what is stored, by thread."""
    by_thread: dict[int, Held] = {}
    for item in hf.memory_stores.memories.list(store_id, view="full").all():
        assert item.type == "memory"
        thread = int(item.path.split("/")[1].removeprefix("t"))
        by_thread.setdefault(thread, {})[item.path] = item.content or ""
    return by_thread


def check_one_life(zygote: Zygote, target: Path, lines: int, chance: random.Random) -> int:
    with holdfast.open(target) as hf:
        store_id = hf.memory_stores.create(name="one life").id

    said = live_and_be_killed(zygote, [str(target), store_id], lines, chance)

    with holdfast.open(target) as hf:
        there = found(hf, store_id)
        for thread, states in possible(said).items():
            assert there.get(thread, {}) in states
        report = hf.verify()
        assert report.findings == ()
        hf.memory_stores.delete(store_id)
    return sum(word == "did" for word, *_ in said)


def removed(database: Path) -> None:
    """Remove a database that is done with."""
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()


@pytest.mark.timeout(60 + 10 * LIVES)
def test_no_acknowledged_write_is_lost_on_sqlite(tmp_path: Path, zygote: Zygote) -> None:
    chance, acknowledged, lives = random.Random(LIVES), 0, iter(range(LIVES))

    while some := list(islice(lives, A_FILE)):
        database = tmp_path / "h.db"
        acknowledged += sum(
            check_one_life(zygote, database, LINES[life % len(LINES)], chance) for life in some
        )
        removed(database)

    assert acknowledged > LIVES
    counted("kills", LIVES)
    counted("acknowledged writes compared after a kill", acknowledged)


@pytest.mark.timeout(60 + 10 * LIVES)
def test_a_database_opens_whose_creation_was_killed(tmp_path: Path, zygote: Zygote) -> None:
    chance, database = random.Random(LIVES), tmp_path / "h.db"

    for _ in range(LIVES):
        said = live_and_be_killed(zygote, [str(database)], 0, chance)

        with holdfast.open(database) as hf:
            stores = list(hf.memory_stores.list().all())
            # What was written first is in the only store, once there is one.
            there = found(hf, stores[0].id) if stores else {}
            for thread, states in possible(said).items():
                assert there.get(thread, {}) in states
            hf.memory_stores.create(name="after the kill")
            assert hf.verify().findings == ()
        removed(database)
    counted("kills", LIVES)
