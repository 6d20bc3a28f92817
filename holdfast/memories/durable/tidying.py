"""What is kept for a time, and dropped when that is over: changes, replays, runs, tombstones.

A write does it for its own agent once a day; the sweep for everybody.
"""

from typing import Final

from holdfast.engines.base import Transaction
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.times import DAY

TIDY_EVERY: Final = DAY
CHANGES_KEPT: Final = 90 * DAY
EVICTED_KEPT: Final = 30 * DAY
"""How long the content of an evicted entry can be brought back."""
REPLAYS_KEPT: Final = DAY
ENDED_KEPT: Final = 30 * DAY
"""How long an ended run is known, and what was forgotten since it began."""


def tidy(caller: Caller, tx: Transaction, now: int) -> None:
    """Drop what is no longer kept of the caller's agent."""
    sql = caller.engine.queries("holdfast.memories.durable")
    tx.send(sql.drop_changes, before=now - CHANGES_KEPT)
    tx.send(sql.drop_evicted_contents, before=now - EVICTED_KEPT)
    tx.send(sql.drop_replays, before=now - REPLAYS_KEPT)
    tx.send(sql.drop_tombstones, before=now - ENDED_KEPT)
    tx.send(sql.drop_runs, before=now - ENDED_KEPT)
    tx.send(sql.drop_lanes)
    tx.send(sql.tidied, next_at=now + TIDY_EVERY)
