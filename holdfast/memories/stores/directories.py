"""Acts on a whole directory of memories: each in one transaction, one version per memory."""

from collections.abc import Iterator
from typing import LiteralString

from holdfast.engines.base import Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.memories.stores.records import Memory
from holdfast.memories.stores.rows import Head, StoresContext, existence_first, missing
from holdfast.memories.stores.transaction import (
    Ledger,
    MemoryLocation,
    carry,
    refuse_taken,
    seen,
    step_aside,
)
from holdfast.memories.stores.validation import checked_path, checked_place, just_after, span_below

HEADS_AT_ONCE = 100
"""Heads that are read at a time; with their contents 10 MiB at most."""


def rename(caller: StoresContext, store_id: str, old_path: str, new_path: str) -> list[Memory]:
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
        places = tx.all(MemoryLocation, sql.places_under, **span)
        if not places:
            raise missing("mem", old)
        if new == old:
            return [seen(ledger.unchanged(ledger.head(place.id)), "basic") for place in places]
        if new.startswith(f"{old}/"):
            raise InvalidInput("new_path", "must not lie below old_path", given=new)
        targets = [checked_path(new + place.path[len(old) :], field="new_path") for place in places]
        step_aside(tx, sql, store_id, places)
        refuse_taken(tx, sql, store_id, [new])
        moved = carry(ledger, places, targets)
        ledger.close()
        return moved

    return caller.engine.write(work)


def delete_under(caller: StoresContext, store_id: str, path: str) -> int:
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
