"""Writes durable memory until it is killed, and says of every write what it will do and did.

    python -m torture.durable_writer DATABASE WORKSPACE

Each of four threads is an agent of its own, in a run, so what must be there follows from its lines
alone. A line is written with one system call, before the call (`will`) and after (`did`).
"""

import json
import os
import random
import sys
from itertools import count
from threading import Thread

import holdfast
from holdfast.ground.errors import MemoryFull

THREADS = 4
CAP = 6
CATEGORIES = ("note", "note", "note", "daily", "core", "conversation")


def say(*told: object) -> None:
    """Tell of one act: the word, the thread, the act, its key, its category, and a text."""
    os.write(1, (json.dumps(told) + "\n").encode())


def write(hf: holdfast.Holdfast, thread: int) -> None:
    """Store and forget, at random, among a few more keys than may be kept."""
    chance = random.Random()
    run = hf.durable(f"agent_{thread}").run()
    for n in count():
        act = chance.choice(["set", "set", "set", "forget"])
        key, category = f"key_{chance.randrange(CAP + 4)}", chance.choice(CATEGORIES)
        if category == "conversation":
            act, key = "set", f"scratch_{key}"
        text = f"{thread} wrote {n} " + "x" * (n % 3000)
        say("will", thread, act, key, category, text)
        evicted: tuple[str, ...] = ()
        if act == "forget":
            run.forget(key)
        else:
            try:
                stored = run.set(key, text, category=category)
                evicted = tuple(each.key for each in stored.evicted)
            except MemoryFull:
                act = "refused"
        say("did", thread, act, key, category, " ".join(evicted))


def main() -> None:
    """Be every thread, in the database and the workspace that the command line names."""
    target, workspace = sys.argv[1:]
    hf = holdfast.open(target, workspace=workspace)
    for thread in range(THREADS):
        Thread(target=write, args=(hf, thread), daemon=False).start()


if __name__ == "__main__":
    main()
