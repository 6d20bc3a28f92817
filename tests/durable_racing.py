"""Process that writes durable memory concurrently with others, for race tests.

    python -m durable_racing TARGET WORKSPACE ACT WHO TIMES

It starts at a line on its standard input, so that all processes start together, and prints the
outcome of each operation as a line of JSON.
"""

import json
import sys
from collections.abc import Callable, Iterator

import holdfast
from holdfast.ground.errors import StaleRun
from holdfast.memories.durable.memory import DurableMemory
from holdfast.memories.durable.records import StoredEntry

AGENT = "racing"

Told = dict[str, object]


def one_key(durable: DurableMemory, who: str, times: int) -> Iterator[Told]:
    """Write the same key *times* times."""
    for number in range(times):
        yield told(durable.set("key", f"{who} {number}", category="core"))


def many_keys(durable: DurableMemory, who: str, times: int) -> Iterator[Told]:
    """Write *times* different keys, each once."""
    for number in range(times):
        yield told(durable.set(f"{who} {number}", "x", category="note"))


def shared_and_own(durable: DurableMemory, who: str, times: int) -> Iterator[Told]:
    """Write a key alternately for the workspace and the agent, so that it moves."""
    for number in range(times):
        category = ("workspace", "core")[number % 2]
        yield told(durable.set("key", f"{who} {number}", category=category))


def lane(durable: DurableMemory, who: str, times: int) -> Iterator[Told]:
    """Open runs in one lane and write in each, unless another process superseded it."""
    for _ in range(times):
        run = durable.run(lane="one")
        yield {"token": run.token, "opened": True}
        try:
            stored = run.set(f"{who} {run.token}", "x", category="note")
        except StaleRun as stale:
            yield {"token": run.token, "live": stale.live_token}
        else:
            yield {"token": run.token, "seq": stored.seq}


ACTS: dict[str, Callable[[DurableMemory, str, int], Iterator[Told]]] = {
    "one_key": one_key,
    "many_keys": many_keys,
    "shared_and_own": shared_and_own,
    "lane": lane,
}


def told(stored: StoredEntry) -> Told:
    """Return the line about a write."""
    evicted = [each.key for each in stored.evicted]
    return {"seq": stored.seq, "id": stored.id, "outcome": stored.outcome, "evicted": evicted}


def main() -> None:
    """Run the operations of the command line."""
    target, workspace, act, who, times = sys.argv[1:]
    with holdfast.open(target, workspace=workspace) as hf:
        durable = hf.durable(AGENT)
        durable.limits()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        for each in ACTS[act](durable, who, int(times)):
            sys.stdout.write(f"{json.dumps(each)}\n")


if __name__ == "__main__":
    main()
