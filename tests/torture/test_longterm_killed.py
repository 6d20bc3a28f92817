"""Long-term memory after `kill -9`: nothing acknowledged is lost, counts fit, forgotten is gone."""

import os
import random
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from torture.counts import counted
from torture.zygote import Zygote

import holdfast
from holdfast.library.holdfast import Holdfast

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
LINES = (40, 0, 400, 1, 1_500)
"""How much a writer does before it is killed, life by life."""
SHORTLY = 0.05
"""Seconds within which a writer is killed that may still open its database."""
WRITER = "torture.longterm_writer"
LIVES_OF_A_FILE = 50

Held = frozenset[str]
Said = tuple[str, int, str, str, str]


def after(held: Held, act: str, text: str, bound: str) -> Held:
    """Return what a thread holds once it did *act*; with an item goes its turn, and the reverse."""
    return held - {text, bound} if act == "forget" else held | {text}


def possible(said: Iterable[Said]) -> dict[int, tuple[Held, Held]]:
    """Return what each thread may hold: all it did, and perhaps what it began."""
    states: dict[int, tuple[Held, Held]] = {}
    for word, thread, act, text, bound in said:
        held = states.get(thread, (Held(), Held()))[0]
        begun = after(held, act, text, bound)
        states[thread] = (begun, begun) if word == "did" else (held, begun)
    return states


def forgotten(said: Iterable[Said]) -> set[bytes]:
    """Return the marks of what was acknowledged to be forgotten."""
    texts = [
        each
        for word, _, act, text, bound in said
        if word == "did" and act == "forget"
        for each in (text, bound)
    ]
    return {text.split()[0].encode() for text in texts if text}


def found(hf: Holdfast, user: str) -> dict[int, Held]:
    """Return what is stored, by thread."""
    data = hf.longterm_data(user)
    by_thread: dict[int, Held] = {}
    for what in ("items", "turns"):
        for each in data.list(what, limit=1000).all():
            thread = int(each.text.split("t")[1].split("n")[0])
            by_thread[thread] = by_thread.get(thread, Held()) | {each.text}
    return by_thread


def check_one_life(zygote: Zygote, target: str, life: int, chance: random.Random) -> list[Said]:
    """Run a writer until it has said enough lines; with 0, so shortly that it may still open."""
    user, lines = f"life{life}", LINES[life % len(LINES)]
    seconds = chance.uniform(0, SHORTLY) if lines == 0 else 0
    ended = zygote.life(WRITER, target, user, lines=lines, seconds=seconds)
    assert ended.status == -signal.SIGKILL
    said: list[Said] = [tuple(line) for line in ended.said]

    with holdfast.open(target) as hf:
        there = found(hf, user)
        for thread, states in possible(said).items():
            assert there.get(thread, Held()) in states
        assert hf.verify().findings == ()
    return said


def acknowledged(said: Iterable[Said]) -> int:
    return sum(word == "did" for word, *_ in said)


@pytest.mark.timeout(60 + 10 * LIVES)
def test_nothing_acknowledged_is_lost_and_nothing_forgotten_is_left_on_sqlite(
    sqlite_file: Path, zygote: Zygote
) -> None:
    chance, done, erased, lives = random.Random(LIVES), 0, 0, max(3, LIVES // 8)
    for life in range(lives):
        # A file of its own for some lives: each is read whole after each of them.
        path = sqlite_file.parent / str(life // LIVES_OF_A_FILE) / sqlite_file.name
        path.parent.mkdir(exist_ok=True)
        said = check_one_life(zygote, str(path), life, chance)

        done += acknowledged(said)
        marks = forgotten(said)
        erased += len(marks)
        files = b"".join(each.read_bytes() for each in path.parent.iterdir())
        assert {mark for mark in marks if mark in files} == set()
        with holdfast.open(path) as hf:
            hf.forget_user(f"life{life}")
    assert done > lives
    counted("kills", lives)
    counted("acknowledged writes compared after a kill", done)
    counted("erased texts looked for in every file", erased)


@pytest.mark.timeout(60 + 10 * LIVES)
def test_nothing_acknowledged_is_lost_on_postgres(fresh_postgres_url: str, zygote: Zygote) -> None:
    chance, done, lives = random.Random(LIVES), 0, max(3, LIVES // 24)
    for life in range(lives):
        done += acknowledged(check_one_life(zygote, fresh_postgres_url, life, chance))
        with holdfast.open(fresh_postgres_url) as hf:
            hf.forget_user(f"life{life}")

    assert done > lives
    counted("kills", lives)
    counted("acknowledged writes compared after a kill", done)
