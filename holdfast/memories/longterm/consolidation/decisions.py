"""Decide on proposals: accept in one transaction, reject, undo.

A change whose inputs are not as the job saw them is refused alone. What a change writes, and how
it is undone, is the business of the memory's `DecisionUnit`.
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import Conflict, InvalidInput
from holdfast.ground.metrics import REGISTRY
from holdfast.memories.longterm.consolidation.jobs import (
    DecisionUnit,
    JobMemory,
    JobRow,
    ProposedRow,
    job_event,
    job_of,
    statements,
)
from holdfast.memories.longterm.consolidation.records import (
    ENDED,
    AppliedChanges,
    ProposalStatus,
    encoded,
)

_CHANGES: Final = REGISTRY.counter(
    "consolidation_changes_total",
    "Proposed changes that were decided on, by operation and outcome.",
    op=("merge", "supersede", "promote", "expire", "hold", "edit", "create", "move", "conflict"),
    outcome=("applied", "stale", "rejected", "undone"),
)
_OUTCOMES: Final[tuple[tuple[str, ProposalStatus], ...]] = (
    ("applied", "accepted"),
    ("stale", "stale"),
    ("undone", "undone"),
    ("rejected", "rejected"),
)
"""The status of a proposal by the first of these states that one of its changes has."""


class _Application(Struct, frozen=True):
    """The number of the accept that wrote a change; the rest is the memory's."""

    number: int


def accept(memory: JobMemory, row: JobRow, only: Sequence[str] | None) -> AppliedChanges:
    """Apply the open changes of the job *row*, or those of *only*, in one transaction.

    Raise `NotFound`, `Conflict` if the job runs or its proposal is closed, and `InvalidInput` for
    ids that are no open changes.
    """
    sql, id = statements(memory.engine), row.id
    known = memory.engine.all(ProposedRow, sql.list_changes, id=id)
    opens = memory.opener(row, known, accepts=True)

    def work(tx: Transaction) -> AppliedChanges:
        unit = opens(tx)
        _check_open(job_of(tx, sql, id))
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        wanted = [each for each in _wanted(id, rows, only) if each.op != "conflict"]
        number = 1 + max((_applied_in(each) for each in rows), default=0)
        done = _applied(unit, sql, id, [each for each in wanted if unit.is_fresh(each)], number)
        stale = [each for each in wanted if each not in done]
        for each in stale:
            tx.run(sql.decide_change, id=id, n=each.n, state="stale", applied=None)
        _close_proposal(tx, sql, id)
        _count(tx, done, "applied")
        _count(tx, stale, "stale")
        tx.note(job_event(memory, "accepted", id, applied=len(done), stale=len(stale)))
        return AppliedChanges(
            id=f"{id}.{number}",
            changed=_names(id, done),
            stale=_names(id, stale),
            store_id=unit.close(),
        )

    return memory.engine.write(work)


def _applied(
    unit: DecisionUnit, sql: SimpleNamespace, id: str, rows: Sequence[ProposedRow], number: int
) -> list[ProposedRow]:
    """Apply fresh *rows*; return those that could be written."""
    done: list[ProposedRow] = []
    for row in rows:
        written = unit.apply(row)
        if written is None:
            continue
        applied = encoded({"number": number, **written})
        unit.tx.run(sql.decide_change, id=id, n=row.n, state="applied", applied=applied)
        done.append(row)
    return done


def reject(memory: JobMemory, row: JobRow) -> None:
    """Reject the open changes of the job *row*."""
    sql, id = statements(memory.engine), row.id
    opens = memory.opener(row, (), accepts=False)

    def work(tx: Transaction) -> None:
        unit = opens(tx)
        _check_open(job_of(tx, sql, id))
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        _count(tx, [each for each in rows if each.state == "open"], "rejected")
        tx.run(sql.reject_changes, id=id)
        if not rows:
            tx.run(sql.set_proposal, id=id, proposal="rejected")
        _close_proposal(tx, sql, id)
        tx.note(job_event(memory, "rejected", id))
        unit.close()

    memory.engine.write(work)


def undo(memory: JobMemory, row: JobRow, number: int | None) -> AppliedChanges:
    """Undo application *number* of the job *row*, or all of them, the last first."""
    sql, id = statements(memory.engine), row.id
    known = memory.engine.all(ProposedRow, sql.list_changes, id=id)
    opens = memory.opener(row, known, accepts=False)

    def work(tx: Transaction) -> AppliedChanges:
        unit = opens(tx)
        rows = tx.all(ProposedRow, sql.list_changes, id=id)
        wanted = [
            each for each in rows if each.state == "applied" and number in (None, _applied_in(each))
        ]
        if not wanted:
            raise Conflict(f"Nothing of {id} is applied.", next="Accept its proposal first.")
        kept: list[str] = []
        for each in sorted(wanted, key=lambda each: (_applied_in(each), each.n), reverse=True):
            kept += unit.undo(each)
            tx.run(sql.decide_change, id=id, n=each.n, state="undone", applied=each.applied)
        if not any(each.state == "applied" and each not in wanted for each in rows):
            tx.run(sql.set_proposal, id=id, proposal="undone")
        _count(tx, wanted, "undone")
        tx.note(job_event(memory, "undone", id, changes=len(wanted), kept=len(kept)))
        return AppliedChanges(
            id=id if number is None else f"{id}.{number}",
            changed=_names(id, wanted),
            kept=tuple(dict.fromkeys(kept)),
            store_id=unit.close(),
        )

    return memory.engine.write(work)


def _check_open(job: JobRow) -> None:
    if job.status not in ENDED:
        raise Conflict(
            f"The consolidation {job.id} is {job.status}.", next="Wait for it, or cancel it."
        )
    if job.proposal != "open":
        raise Conflict(
            f"The proposal of {job.id} is {job.proposal}.", next="Create another consolidation."
        )


def _wanted(id: str, rows: Sequence[ProposedRow], only: Sequence[str] | None) -> list[ProposedRow]:
    """Return the open changes called *only*, or all."""
    known = {f"{id}.{row.n}": row for row in rows if row.state == "open"}
    if only is None:
        return [*known.values()]
    for each in only:
        if each not in known:
            raise InvalidInput("only", "names no open change of this proposal", given=each)
        if known[each].op == "conflict":
            raise InvalidInput(
                "only", "names a conflict", given=each, next="Change one of its sources yourself."
            )
    return [known[each] for each in dict.fromkeys(only)]


def _names(id: str, rows: Sequence[ProposedRow]) -> tuple[str, ...]:
    return tuple(f"{id}.{row.n}" for row in sorted(rows, key=lambda row: row.n))


def _applied_in(row: ProposedRow) -> int:
    if row.applied is None:
        return 0
    return msgspec.json.decode(row.applied, type=_Application).number


def _count(tx: Transaction, rows: Sequence[ProposedRow], outcome: str) -> None:
    for row in rows:
        tx.after_commit(lambda op=row.op: _CHANGES.add(op, outcome))


def _close_proposal(tx: Transaction, sql: SimpleNamespace, id: str) -> None:
    """Close the proposal once none of its changes can be accepted any more."""
    rows = tx.all(ProposedRow, sql.list_changes, id=id)
    if any(row.state == "open" and row.op != "conflict" for row in rows):
        return
    states = {row.state for row in rows}
    status = next((status for state, status in _OUTCOMES if state in states), None)
    if status is not None:
        tx.run(sql.set_proposal, id=id, proposal=status)
