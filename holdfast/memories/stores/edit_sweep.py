"""Drops what is known of edits past their day, in every workspace."""

from datetime import datetime

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.stores.apply import KEPT

BATCH = 1_000


def drop_edits(engine: Engine, now: datetime) -> int:
    """Drop the edits of all stores older than 24 hours; return how many.

    Each batch is a write of its own, so nobody waits long behind it.
    """
    engine = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.memories.stores")
    before = to_microseconds(now) - KEPT

    def work(tx: Transaction) -> int:
        return tx.run(sql.drop_old_edits, before=before, rows=BATCH)

    dropped = 0
    while batch := engine.write(work):
        dropped += batch
    return dropped
