"""Long-term memory after `kill -9`: nothing acknowledged is lost, counts fit, forgotten is gone."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

import holdfast
from holdfast.library.holdfast import Holdfast

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
LINES = (40, 0, 400, 1, 1_500)
"""How much a writer does before it is killed, life by life."""
WRITER = Path(__file__).with_name("longterm_writer.py")

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


def live_and_be_killed(target: str, user: str, lines: int, chance: random.Random) -> list[Said]:
    """Run a writer until it has said *lines* lines; with 0, so shortly that it may still open."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), target, user], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        if lines == 0:
            with suppress(subprocess.TimeoutExpired):
                writer.wait(chance.uniform(0.05, 0.4))
        said = [writer.stdout.readline() for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.readlines()
    return [tuple(json.loads(line)) for line in said if line.endswith(b"\n")]


def found(hf: Holdfast, user: str) -> dict[int, Held]:
    """Return what is stored, by thread."""
    data = hf.longterm_data(user)
    by_thread: dict[int, Held] = {}
    for what in ("items", "turns"):
        for each in data.list(what, limit=1000).all():
            thread = int(each.text.split("t")[1].split("n")[0])
            by_thread[thread] = by_thread.get(thread, Held()) | {each.text}
    return by_thread


def check_one_life(target: str, life: int, chance: random.Random) -> list[Said]:
    user = f"life{life}"
    said = live_and_be_killed(target, user, LINES[life % len(LINES)], chance)

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
    sqlite_file: Path,
) -> None:
    chance = random.Random(LIVES)
    done = 0
    for life in range(LIVES):
        said = check_one_life(str(sqlite_file), life, chance)

        done += acknowledged(said)
        files = b"".join(each.read_bytes() for each in sqlite_file.parent.iterdir())
        assert {mark for mark in forgotten(said) if mark in files} == set()
        with holdfast.open(sqlite_file) as hf:
            hf.forget_user(f"life{life}")
    assert done > LIVES


@pytest.mark.timeout(60 + 10 * LIVES)
def test_nothing_acknowledged_is_lost_on_postgres(fresh_postgres_url: str) -> None:
    chance = random.Random(LIVES)

    done = sum(
        acknowledged(check_one_life(fresh_postgres_url, life, chance)) for life in range(LIVES)
    )

    assert done > LIVES
