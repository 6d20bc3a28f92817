"""What was acknowledged is there after `kill -9`, whole, and everything fits together."""

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

LIVES = int(os.environ.get("HOLDFAST_TORTURE_LIVES", "3"))
LINES = (40, 0, 400, 1, 1_500)
"""How much a writer does before it is killed, life by life."""
WRITER = Path(__file__).with_name("writer.py")

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


def live_and_be_killed(target: str, store_id: str, lines: int, chance: random.Random) -> list[Said]:
    """Run a writer until it has said *lines* lines; with 0, so shortly that it may still open."""
    with subprocess.Popen(
        [sys.executable, str(WRITER), target, store_id], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        if lines == 0:
            with suppress(subprocess.TimeoutExpired):
                writer.wait(chance.uniform(0.05, 0.4))
        said = [writer.stdout.readline() for _ in range(lines)]
        os.kill(writer.pid, signal.SIGKILL)
        said += writer.stdout.readlines()
    return [tuple(json.loads(line)) for line in said if line.endswith(b"\n")]


def found(hf: holdfast.Holdfast, store_id: str) -> dict[int, Held]:
    """Return what is stored, by thread."""
    by_thread: dict[int, Held] = {}
    for item in hf.memory_stores.memories.list(store_id, view="full").all():
        assert item.type == "memory"
        thread = int(item.path.split("/")[1].removeprefix("t"))
        by_thread.setdefault(thread, {})[item.path] = item.content or ""
    return by_thread


def check_one_life(target: str, lines: int, chance: random.Random) -> int:
    with holdfast.open(target) as hf:
        store_id = hf.memory_stores.create(name="one life").id

    said = live_and_be_killed(target, store_id, lines, chance)

    with holdfast.open(target) as hf:
        there = found(hf, store_id)
        for thread, states in possible(said).items():
            assert there.get(thread, {}) in states
        report = hf.verify()
        assert report.findings == ()
        hf.memory_stores.delete(store_id)
    return sum(word == "did" for word, *_ in said)


@pytest.mark.timeout(60 + 10 * LIVES)
def test_no_acknowledged_write_is_lost_on_sqlite(sqlite_file: Path) -> None:
    chance = random.Random(LIVES)

    acknowledged = sum(
        check_one_life(str(sqlite_file), LINES[life % len(LINES)], chance) for life in range(LIVES)
    )

    assert acknowledged > LIVES
