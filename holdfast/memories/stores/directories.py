"""Acts on a whole directory of memories: each in one transaction, one version per memory."""

from collections.abc import Iterator
from typing import LiteralString

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput, PathTaken
from holdfast.memories.stores.caller import Caller
from holdfast.memories.stores.existence import existence_first
from holdfast.memories.stores.ledger import Ledger, Text, seen
from holdfast.memories.stores.missing import missing
from holdfast.memories.stores.paths import (
    checked_path,
    checked_place,
    just_after,
    lineage,
    span_below,
)
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.rows import Head

HEADS_AT_ONCE = 100
"""Heads that are read at a time; with their contents 10 MiB at most."""


class _Place(Struct, frozen=True, kw_only=True):
    id: str
    path: str


def rename(caller: Caller, store_id: str, old_path: str, new_path: str) -> list[Memory]:
    """Move what is at or below *old_path* to *new_path*, ids kept."""
    with existence_first(caller, store_id, write=True):
        old = checked_place(old_path, field="old_path")
        new = checked_place(new_path, field="new_path")
        if "/" in (old, new):
            raise InvalidInput("old_path" if old == "/" else "new_path", "must not be the root")
    sql = caller.engine.queries("holdfast.memories.stores")

    def work(tx: Transaction) -> list[Memory]:
        ledger = Ledger(caller, tx, store_id)
        ledger.refuse_archived()
        low, high = span_below(old)
        span = {"store": store_id, "path": old, "low": low, "high": high}
        places = tx.all(_Place, sql.places_under, **span)
        if not places:
            raise missing("mem", old)
        if new == old:
            return [seen(ledger.unchanged(ledger.head(place.id)), "basic") for place in places]
        if new.startswith(f"{old}/"):
            raise InvalidInput("new_path", "must not lie below old_path", given=new)
        targets = [checked_path(new + place.path[len(old) :], field="new_path") for place in places]
        _refuse_taken(tx, sql.taken_by_others, store_id, old=old, new=new)
        tx.send(sql.vacate_paths, **span)
        moved: list[Memory] = []
        for place, target in zip(places, targets, strict=True):
            head = msgspec.structs.replace(ledger.head(place.id), path=place.path)
            moved.append(seen(ledger.modified(head, target, Text.of(head.content)), "basic"))
        ledger.close()
        return moved

    return caller.engine.write(work)


def _refuse_taken(
    tx: Transaction, statement: LiteralString, store_id: str, *, old: str, new: str
) -> None:
    """Raise PathTaken if a memory that does not move sits at *new*, above it or below it.

    A directory that is there is taken too: two are never merged.
    """
    low, high = span_below(new)
    old_low, old_high = span_below(old)
    blocker = tx.first(
        PathTaken,
        statement,
        store=store_id,
        lineage=msgspec.json.encode(lineage(new)).decode(),
        low=low,
        high=high,
        old=old,
        old_low=old_low,
        old_high=old_high,
    )
    if blocker is not None:
        raise blocker


def delete_under(caller: Caller, store_id: str, path: str) -> int:
    """Delete what is at or below *path*; return how many memories went."""
    with existence_first(caller, store_id, write=True):
        place = checked_place(path, field="path")
    sql = caller.engine.queries("holdfast.memories.stores")

    def work(tx: Transaction) -> int:
        ledger = Ledger(caller, tx, store_id)
        count = 0
        for head in heads_under(tx, sql.heads_under, store_id, place):
            ledger.deleted(head)
            count += 1
        if count:
            ledger.close()
        return count

    return caller.engine.write(work)


def heads_under(
    tx: Transaction, statement: LiteralString, store_id: str, path: str
) -> Iterator[Head]:
    """Give the heads at or below *path* in path order, reading a batch at a time."""
    low, high = span_below(path)
    start = path
    while True:
        heads = tx.all(
            Head,
            statement,
            store=store_id,
            path=path,
            low=low,
            high=high,
            start=start,
            rows=HEADS_AT_ONCE,
        )
        yield from heads
        if len(heads) < HEADS_AT_ONCE:
            return
        start = just_after(heads[-1].path)
