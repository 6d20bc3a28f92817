"""Memories that get new paths together, some of them perhaps each other's.

First all step aside, then whoever else is in the way is told of, then each is carried to where it
goes, in one version.
"""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import PathTaken
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.transaction import Ledger, Text, seen
from holdfast.memories.stores.validation import lineage


class MemoryLocation(Struct, frozen=True, kw_only=True):
    """A live memory and where it sits."""

    id: str
    path: str


def step_aside(
    tx: Transaction, sql: SimpleNamespace, store_id: str, places: Sequence[MemoryLocation]
) -> None:
    """Take the memories at *places* off their paths, until `carry` gives them new ones."""
    tx.send(sql.step_aside, store=store_id, memories=_json(place.id for place in places))


def refuse_taken(
    tx: Transaction, sql: SimpleNamespace, store_id: str, targets: Sequence[str]
) -> None:
    """Raise PathTaken if a memory sits at one of *targets*, above it or below it.

    A directory that is there is taken too: two are never merged.
    """
    blocker = tx.first(
        PathTaken,
        sql.taken_by_others,
        store=store_id,
        targets=_json(targets),
        lineages=_json({above for target in targets for above in lineage(target)}),
    )
    if blocker is not None:
        raise blocker


def carry(ledger: Ledger, places: Sequence[MemoryLocation], targets: Sequence[str]) -> list[Memory]:
    """Give each memory that stepped aside from its place its target; return their basic views."""
    moved: list[Memory] = []
    for place, target in zip(places, targets, strict=True):
        head = msgspec.structs.replace(ledger.head(place.id), path=place.path)
        moved.append(seen(ledger.modified(head, target, Text.of(head.content)), "basic"))
    return moved


def _json(texts: Iterable[str]) -> str:
    return msgspec.json.encode(list(texts)).decode()
