"""Sweeping: what is over is removed, whether or not anybody writes to that agent again."""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction
from holdfast.memories.durable.context import LAPSES_AFTER, AgentContext, OnBehalf
from holdfast.memories.durable.records import (
    CHANGES_KEPT,
    ENDED_KEPT,
    EVICTED_KEPT,
    MILLISECOND,
    REPLAYS_KEPT,
    Swept,
    coded,
)
from holdfast.memories.durable.transaction import AgentTransaction, end_lapsed, tidy, write

BATCH: Final = 1_000
"""Rows that a statement of the sweep looks for at a time."""
_OWNERS_AT_ONCE: Final = 50
"""Agents that are swept in one transaction, so that nobody waits long behind it."""

_SOURCE: Final = "sweep"

NOTHING: Final = Swept(expired=(), ended_runs=0, removed=0)
"""What is swept where nothing is over."""


class _Owner(Struct, frozen=True, kw_only=True):
    workspace: str
    agent: str


class _There(Struct, frozen=True, kw_only=True):
    agents: int


class _Moment(Struct, frozen=True, kw_only=True):
    at: int | None


def sweep(caller: AgentContext) -> Swept:
    """Remove what is over of one agent, and what of its log is no longer kept.

    When this returns the bytes of what expired are in no file of the database, unless a reader
    pins what was before.
    """

    def work(tx: Transaction) -> Swept:
        sql = caller.engine.queries("holdfast.memories.durable")
        if not tx.one(_There, sql.count_agent).agents:
            return NOTHING
        return _sweep(caller, tx, tidying=True)

    swept = write(caller, work)
    if swept.expired:
        caller.engine.scrub()
    return swept


def sweep_all(caller: AgentContext) -> Swept:
    """Remove what is over of every agent within *caller*'s engine, in batches, and its bytes.

    *caller* is of no agent; its workspace is `*` for all of them.
    """
    with coded():
        return _sweep_all(caller)


def _sweep_all(caller: AgentContext) -> Swept:
    now, swept = caller.now(), NOTHING
    sql = caller.engine.queries("holdfast.memories.durable")
    over = {"now": now, "lapsed": now - LAPSES_AFTER, "rows": BATCH}
    while owners := caller.engine.all(_Owner, sql.due_owners, **over):
        for first in range(0, len(owners), _OWNERS_AT_ONCE):
            some = owners[first : first + _OWNERS_AT_ONCE]
            each = caller.engine.write(lambda tx, some=some: _sweep_some(caller, tx, some))
            swept = added(swept, each)
    _drop_old(caller, now)
    erased = _erase_evicted(caller, now)
    if swept.expired or erased:
        caller.engine.scrub()
    return swept


def lag_of(engine: Engine, now: int) -> float:
    """Return how many seconds ago the oldest expired entry on disk expired; 0.0 for none."""
    sql = engine.queries("holdfast.memories.durable")
    oldest = engine.one(_Moment, sql.oldest_due, now=now).at
    return 0.0 if oldest is None else (now - oldest) / MILLISECOND / MILLISECOND


def added(swept: Swept, more: Swept) -> Swept:
    """Return both together."""
    return Swept(
        expired=swept.expired + more.expired,
        ended_runs=swept.ended_runs + more.ended_runs,
        removed=swept.removed + more.removed,
    )


def _sweep(caller: AgentContext, tx: Transaction, *, tidying: bool) -> Swept:
    book = AgentTransaction(caller, tx, source=_SOURCE)
    book.open()
    ended = end_lapsed(book)
    if tidying:
        tidy(book)
    book.close()
    return Swept(expired=book.expired, ended_runs=ended.runs, removed=ended.removed)


def _sweep_some(caller: AgentContext, tx: Transaction, owners: list[_Owner]) -> Swept:
    swept = NOTHING
    for owner in owners:
        behalf = OnBehalf(tx, workspace=owner.workspace, agent=owner.agent)
        one = replace(caller, workspace=owner.workspace, agent=owner.agent)
        swept = added(swept, _sweep(one, behalf, tidying=False))
    return swept


def _erase_evicted(caller: AgentContext, now: int) -> bool:
    """Erase what the log holds of evicted entries whose time is over; tell whether it did any."""
    sql = caller.engine.queries("holdfast.memories.durable")

    def work(tx: Transaction) -> int:
        return tx.run(sql.erase_all_expired_evicted, now=now, rows=BATCH)

    erased = 0
    while batch := caller.engine.write(work):
        erased += batch
    return erased > 0


def _drop_old(caller: AgentContext, now: int) -> None:
    engine, sql = caller.engine, caller.engine.queries("holdfast.memories.durable")
    for statement, before in (
        (sql.drop_old_changes, now - CHANGES_KEPT),
        (sql.drop_old_evicted, now - EVICTED_KEPT),
        (sql.drop_old_replays, now - REPLAYS_KEPT),
        (sql.drop_old_tombstones, now - ENDED_KEPT),
    ):
        params = {"before": before, "rows": BATCH}
        while engine.write(lambda tx, sql=statement, params=params: tx.run(sql, **params)) == BATCH:
            continue

    def runs(tx: Transaction) -> int:
        before = now - ENDED_KEPT
        tx.send(sql.drop_old_lanes, before=before, rows=BATCH)
        return tx.run(sql.drop_old_runs, before=before, rows=BATCH)

    while engine.write(runs) == BATCH:
        continue
