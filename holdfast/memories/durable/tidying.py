"""Dropping what is no longer kept of one agent, with a write of its own."""

from holdfast.memories.durable.ending import end_lapsed
from holdfast.memories.durable.records import (
    CHANGES_KEPT,
    ENDED_KEPT,
    EVICTED_KEPT,
    REPLAYS_KEPT,
    TIDY_EVERY,
)
from holdfast.memories.durable.transaction import AgentTransaction


def tidy_when_due(book: AgentTransaction) -> None:
    """Do what the sweep does for *book*'s agent, once a day, for where nobody sweeps."""
    if book.now >= book.opened.tidy_at:
        end_lapsed(book)
        tidy(book)


def tidy(book: AgentTransaction) -> None:
    """Drop what is no longer kept of *book*'s agent, and of the log of what it shares."""
    tx, sql, now = book.tx, book.sql, book.now
    tx.send(sql.drop_changes, before=now - CHANGES_KEPT)
    tx.send(sql.drop_evicted_contents, before=now - EVICTED_KEPT)
    tx.send(sql.erase_expired_evicted, now=now)
    tx.send(sql.drop_replays, before=now - REPLAYS_KEPT)
    tx.send(sql.drop_tombstones, before=now - ENDED_KEPT)
    tx.send(sql.drop_runs, before=now - ENDED_KEPT)
    tx.send(sql.drop_lanes)
    tx.send(sql.tidied, next_at=now + TIDY_EVERY)
