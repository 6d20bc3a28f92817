"""Writer that updates one memory concurrently with others.

It runs in a thread or as a process.

Each line it adds has the writer's name, so that no two writes are equal: an update to the present
content changes nothing, and would count as a success.
"""

import sys
from hashlib import sha256

import holdfast
from holdfast.ground.errors import PreconditionFailed
from holdfast.library.holdfast import Holdfast


def add_lines(hf: Holdfast, store_id: str, memory_id: str, *, who: str, times: int) -> None:
    """Add *times* lines to a memory; read it again after each conflict."""
    memories, added = hf.memory_stores.memories, 0
    while added < times:
        read = memories.retrieve(memory_id, memory_store_id=store_id).content or ""
        try:
            memories.update(
                memory_id,
                memory_store_id=store_id,
                content=f"{read}{who} {added}\n",
                precondition={
                    "type": "content_sha256",
                    "content_sha256": sha256(read.encode()).hexdigest(),
                },
            )
        except PreconditionFailed:
            continue
        added += 1


def main() -> None:
    """Add lines; arguments: target, workspace, store, memory, who, times."""
    target, workspace, store_id, memory_id, who, times = sys.argv[1:]
    with holdfast.open(target, workspace=workspace) as hf:
        add_lines(hf, store_id, memory_id, who=who, times=int(times))


if __name__ == "__main__":
    main()
