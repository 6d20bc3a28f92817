"""What a checkpoint holds, and what every place that keeps them promises."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from holdfast.memories.run.entry import RunEntry


class Checkpoint(Struct, frozen=True, kw_only=True):
    """How far a run was at *saved_at*, in ms since 1970.

    `parts` are hashes of what the run was begun with, by name, and `plan_hash` is one of them
    all; `completed_steps` has the finished items of a fan-out too, as `<step>.<item>`.
    """

    run_id: str
    plan_hash: str
    parts: Mapping[str, str]
    completed_tasks: tuple[str, ...]
    completed_steps: tuple[str, ...]
    entries: tuple[RunEntry, ...]
    saved_at: int


class Checkpoints(Protocol):
    """Where checkpoints are kept, one for each run. Any thread may call it."""

    def load(self, run_id: str) -> Checkpoint | None:
        """Return what was last saved of *run_id*, None when nothing was.

        Raises CheckpointUnreadable when something is there that cannot be read.
        """
        ...

    def save(self, checkpoint: Checkpoint) -> None:
        """Keep *checkpoint* in place of what was there; it is durable when this returns."""
        ...

    def delete(self, run_id: str) -> None:
        """Keep nothing of *run_id* any longer."""
        ...


def hashed(value: Any) -> str:
    """Return the SHA-256 of *value* as canonical JSON: members sorted, no white space."""
    encoded = msgspec.json.encode(value, order="deterministic")
    return sha256(encoded).hexdigest()


def differing(kept: Mapping[str, str], asked: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the parts that are not the same in both, in the order asked."""
    names = dict.fromkeys([*asked, *kept])
    return tuple(name for name in names if kept.get(name) != asked.get(name))
