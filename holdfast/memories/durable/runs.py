"""Runs begun and ended: one live run an agent and lane, by a token that only rises."""

from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import Event, Fact
from holdfast.ground.scope import Actor, checked_name
from holdfast.memories.durable.book import Book
from holdfast.memories.durable.caller import Caller, InRun
from holdfast.memories.durable.fence import LAPSES_AFTER
from holdfast.memories.durable.hydrating import Hydration, checked_budget, hydrate_in
from holdfast.memories.durable.limits import DurableLimits
from holdfast.memories.durable.reports import RunEnded
from holdfast.memories.durable.rows import EntryRow
from holdfast.memories.durable.times import to_milliseconds

Ending = Literal["ok", "failed"]


class Begun(Struct, frozen=True, kw_only=True):
    """A run that has begun: its caller, and what its agent sees at the start."""

    caller: Caller
    hydration: Hydration
    run_id: str
    token: int
    lane: str


class _Lane(Struct, frozen=True, kw_only=True):
    token: int
    budget: int | None


class _Ended(Struct, frozen=True, kw_only=True):
    run_id: str
    token: int
    outcome: str


def begin(
    caller: Caller, run_id: str | None, *, lane: str, budget: int | None, resume: bool
) -> Begun:
    """Take the next token of *lane*, supersede the run that was open there, and hydrate.

    With *resume* the conversation entries that a crashed run of the same id left are the new
    one's; else they go.
    """
    checked_budget(budget)
    checked_name("lane", lane)
    now = to_microseconds(caller.now())
    name = caller.ids.new("run", now) if run_id is None else checked_name("run_id", run_id)

    def work(tx: Transaction) -> Begun:
        sql = caller.engine.queries("holdfast.memories.durable")
        taken = tx.one(_Lane, sql.take_lane, lane=lane, run_id=name)
        within = replace(caller, run=InRun(run_id=name, token=taken.token, lane=lane))
        ended = tx.all(
            _Ended,
            sql.supersede_runs,
            lane=lane,
            token=taken.token,
            run_id=name,
            now=now,
            lapsed=now - LAPSES_AFTER,
        )
        tx.send(sql.begin_run, lane=lane, token=taken.token, run_id=name, seq=tx.seq, now=now)
        for run in ended:
            removed = 0 if resume and run.run_id == name else _clear(within, tx, run)
            what = "run_superseded" if run.outcome == "superseded" else "run_ended"
            _note(within, tx, what, run.run_id, outcome=run.outcome, removed=removed)
        allowed = taken.budget if taken.budget is not None else DurableLimits().budget
        hydration = hydrate_in(within, tx, allowed if budget is None else budget)
        _note(within, tx, "run_opened", name, token=taken.token)
        _note(within, tx, "hydrated", name, **told(hydration))
        return Begun(
            caller=within, hydration=hydration, run_id=name, token=taken.token, lane=lane
        )

    return caller.engine.write(work)


def end(caller: Caller, outcome: Ending) -> RunEnded:
    """End the caller's run and delete its conversation entries; StaleRun if it is not live."""
    if outcome not in get_args(Ending):
        raise InvalidInput("outcome", "must be ok or failed", given=outcome)

    def work(tx: Transaction) -> RunEnded:
        book = Book(caller, tx)
        run = _run(caller)
        removed = remove_entries(book, run.run_id)
        tx.send(book.sql.leave_lane, lane=run.lane, token=run.token)
        tx.send(book.sql.end_run, lane=run.lane, token=run.token, now=book.now, outcome=outcome)
        book.note("run_ended", outcome=outcome, removed=removed)
        return RunEnded(ended=True, removed=removed)

    return caller.engine.write(work)


def heartbeat(caller: Caller) -> datetime:
    """Say that the caller's run is alive; return when it would lapse."""

    def work(tx: Transaction) -> datetime:
        book = Book(caller, tx)
        book.close()
        return from_microseconds(book.now + LAPSES_AFTER)

    return caller.engine.write(work)


def remove_entries(book: Book, run_id: str) -> int:
    """Delete the conversation entries of *run_id*, each logged; return how many there were."""
    rows = book.tx.all(EntryRow, book.sql.remove_entries_of_run, run_id=run_id)
    book.log_all("end", rows, {"source": "run"})
    return len(rows)


def told(hydration: Hydration) -> dict[str, Fact]:
    """Return what an event tells of *hydration*."""
    return {
        "entries": len(hydration.entries),
        "omitted": len(hydration.omitted),
        "bytes": hydration.size_bytes,
        "budget": hydration.budget,
        "digest": hydration.digest,
    }


def _clear(within: Caller, tx: Transaction, run: _Ended) -> int:
    return remove_entries(Book(within, tx), run.run_id)


def _run(caller: Caller) -> InRun:
    if caller.run is None:
        raise InvalidInput("run_id", "must be that of an open run")
    return caller.run


def _note(caller: Caller, tx: Transaction, what: str, run_id: str, **data: Fact) -> None:
    tx.note(
        Event(
            type=f"durable.{what}",
            at=from_microseconds(to_milliseconds(caller.now())),
            workspace=caller.workspace,
            owner=caller.agent,
            actor=Actor.agent(caller.agent),
            ids={"run_id": run_id},
            data=data,
        )
    )
