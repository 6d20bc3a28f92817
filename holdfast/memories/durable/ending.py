"""How a run comes to its end: by itself, by another one, or because nobody heard of it any more."""

from typing import Final, Literal

from msgspec import Struct

from holdfast.memories.durable.context import LAPSES_AFTER
from holdfast.memories.durable.rows import EntryRow
from holdfast.memories.durable.transaction import AgentTransaction
from holdfast.memories.durable.writing import event_of

Outcome = Literal["ok", "failed", "superseded", "lapsed"]

_COUNTED: Final[dict[Outcome, str]] = {
    "ok": "ended",
    "failed": "ended",
    "superseded": "superseded",
    "lapsed": "lapsed",
}


class Ended(Struct, frozen=True, kw_only=True):
    """How many runs ended, and how many conversation entries went with them."""

    runs: int
    removed: int


class _Run(Struct, frozen=True, kw_only=True):
    run_id: str
    token: int


def put_to_end(
    book: AgentTransaction, run_id: str, token: int, outcome: Outcome, *, keep: bool = False
) -> int:
    """End a run of *book*'s agent; return how many conversation entries went, unless *keep*."""
    rows = [] if keep else book.tx.all(EntryRow, book.sql.entries_of_run, run=run_id)
    for row in rows:
        book.pending.found(row)
        book.take(row, "end", cause={"source": "run"})
    book.tx.send(book.sql.end_run, token=token, now=book.now, outcome=outcome)
    what = "run_superseded" if outcome == "superseded" else "run_ended"
    told = {"token": token, "outcome": outcome, "removed": len(rows)}
    book.events.append(event_of(book.caller, what, told, at=book.now, run_id=run_id))
    book.count("runs_total", _COUNTED[outcome])
    return len(rows)


def end_lapsed(book: AgentTransaction) -> Ended:
    """End the runs of *book*'s agent that were not heard of for too long."""
    lapsed = book.tx.all(_Run, book.sql.lapsed_runs, lapsed=book.now - LAPSES_AFTER)
    removed = sum(put_to_end(book, run.run_id, run.token, "lapsed") for run in lapsed)
    return Ended(runs=len(lapsed), removed=removed)
