"""Trims the change feed to what is kept of it."""

from datetime import datetime, timedelta
from types import SimpleNamespace

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.scope import EVERYBODY

KEPT = timedelta(days=7)
MOST_KEPT = 1_000_000
BATCH = 1000

TRIMMED = "feed.trimmed"
"""The type of the row that stands for all that were trimmed before it, itself included."""


def trim_changes(engine: Engine, now: datetime, *, most: int = MOST_KEPT) -> int:
    """Drop changes older than seven days, and the oldest beyond *most*; return how many.

    Each batch is a write of its own, so nobody waits long behind it.
    """
    engine = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.engines")
    before = to_microseconds(now - KEPT)

    def work(tx: Transaction) -> int:
        excess: int = tx.one(SimpleNamespace, sql.count_changes, type=TRIMMED).kept - most
        rows = tx.all(SimpleNamespace, sql.oldest_changes, type=TRIMMED, batch=BATCH)
        gone = [row for place, row in enumerate(rows) if row.at < before or place < excess]
        if not gone:
            return 0
        last: int = gone[-1].seq
        tx.run(sql.drop_changes_before, seq=last)
        tx.run(sql.empty_change, seq=last, type=TRIMMED)
        return rows.index(gone[-1]) + 1

    dropped = 0
    while batch := engine.write(work):
        dropped += batch
    return dropped
