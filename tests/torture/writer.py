"""Writes to a database until it is killed, and says of every write what it will do and did.

    python -m torture.writer DATABASE [STORE_ID]

Each of eight threads keeps to a directory of its own, so what must be there follows from its
lines alone. A line is written with one system call, before the call (`will`) and after (`did`).
"""

import json
import os
import random
import sys
from itertools import count
from threading import Thread

import holdfast

THREADS = 8


def say(word: str, thread: int, act: str, path: str, text: str) -> None:
    line = json.dumps([word, thread, act, path, text]) + "\n"
    os.write(1, line.encode())


def write(hf: holdfast.Holdfast, store_id: str, thread: int) -> None:
    """Create, change, move and delete memories below `/t<thread>/`, at random."""
    memories = hf.memory_stores.memories
    chance, held = random.Random(), dict[str, str]()
    for n in count():
        act = (
            chance.choice(["create", "create", "update", "rename", "delete"]) if held else "create"
        )
        path = chance.choice(list(held)) if act != "create" else f"/t{thread}/{n}"
        text = f"/t{thread}/{n}" if act == "rename" else f"{thread} wrote {n} " + "x" * n
        say("will", thread, act, path, text)
        if act == "create":
            held[path] = memories.create(store_id, path=path, content=text).id
        elif act == "update":
            memories.update(held[path], memory_store_id=store_id, content=text)
        elif act == "rename":
            memories.rename(store_id, path, text)
            held[text] = held.pop(path)
        else:
            memories.delete(held.pop(path), memory_store_id=store_id)
        say("did", thread, act, path, text)


def main() -> None:
    target, *store = sys.argv[1:]
    hf = holdfast.open(target)
    store_id = store[0] if store else hf.memory_stores.create(name="made before a kill").id
    for thread in range(THREADS):
        Thread(target=write, args=(hf, store_id, thread), daemon=False).start()


if __name__ == "__main__":
    main()
