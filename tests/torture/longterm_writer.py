"""Remembers, records and forgets until it is killed, and says of every act what it will do and did.

    python -m torture.longterm_writer DATABASE USER

Eight threads share one collection; each keeps to texts of its own, so what must be there follows
from its lines alone. A line is written with one system call, before the act (`will`) and after
(`did`). With a text goes the one that is bound to it: an item and the turn it came from.
"""

import json
import os
import random
import sys
from itertools import count
from threading import Thread

import holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import LongTermOptions, Turn

THREADS = 8
OPTIONS = LongTermOptions(dedupe_similarity=0, max_items=0)


def say(word: str, thread: int, act: str, text: str, bound: str) -> None:
    os.write(1, (json.dumps([word, thread, act, text, bound]) + "\n").encode())


def do(ltm: LongTermMemory, act: str, text: str, of: str) -> str:
    """Do one act on *text*, or on the id *of*; return the id of what was kept."""
    if act == "record":
        return ltm.record([Turn(role="user", text=text)]).turns[0].id
    if act == "remember":
        stored = ltm.remember(text, turns=[of] if of else ()).stored
        assert stored is not None
        return stored.id
    assert ltm.forget(of)
    return ""


def write(ltm: LongTermMemory, user: str, thread: int) -> None:
    """Remember, record and forget at random."""
    chance = random.Random()
    ids, bound = dict[str, str](), dict[str, str]()
    free = list[str]()
    for n in count():
        act = chance.choice(["record", "remember", "remember", "forget", "forget"])
        text, of = f"{user}t{thread}n{n}z is kept", ""
        if act == "remember" and free:
            of = free.pop()
            bound[text], bound[of] = of, text
        elif act == "forget":
            if not ids:
                continue
            text = chance.choice(list(ids))
        partner = bound.get(text, "")
        say("will", thread, act, text, partner)
        kept = do(ltm, act, text, ids[text] if act == "forget" else ids.get(of, ""))
        say("did", thread, act, text, partner)
        if act == "forget":
            for gone in (text, partner):
                ids.pop(gone, None)
                if gone in free:
                    free.remove(gone)
        else:
            ids[text] = kept
            if act == "record":
                free.append(text)


def main() -> None:
    target, user = sys.argv[1:]
    ltm = holdfast.open(target).longterm(user, enabled=True, options=OPTIONS)
    assert ltm is not None
    for thread in range(THREADS):
        Thread(target=write, args=(ltm, user, thread), daemon=False).start()


if __name__ == "__main__":
    main()
