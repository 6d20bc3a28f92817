"""Decide on proposals: accept in one transaction, reject, undo.

A change whose inputs are not as the job saw them is refused alone. What a change writes, and how
it is undone, is the business of the memory's `DecisionUnit`.

A policy that is due is claimed by one process, which starts a job. Once the job has ended, the
changes of the operations in `auto` are accepted; the others wait for a person.
"""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Final, get_args

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.errors import Conflict, InvalidInput
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.validation import check_whole
from holdfast.memories.longterm.background.extractor import checked_extractor
from holdfast.memories.longterm.background.jobs import SECOND
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
    Budget,
    ProposalStatus,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeOp

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
    known = memory.engine.all(ProposedRow, statements(memory.engine).list_changes, id=row.id)
    opens = memory.opener(row, known, accepts=True)
    return memory.engine.write(lambda tx: accept_within(memory, opens(tx), row.id, only))


def accept_within(
    memory: JobMemory, unit: DecisionUnit, id: str, only: Sequence[str] | None = None
) -> AppliedChanges:
    """Apply the open changes of a job, or of *only*, in the transaction of *unit*."""
    tx, sql = unit.tx, statements(memory.engine)
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


# Policies: what is consolidated by itself, how often, and what is accepted then.

HOUR: Final = 3_600 * SECOND
"""Microseconds."""
MOST_HOURS: Final = 8_760
MOST_NEW: Final = 1_000_000
OPERATIONS: Final[tuple[ChangeOp, ...]] = tuple(
    each for each in get_args(ChangeOp) if each != "conflict"
)
"""What a policy may accept; a conflict is always a person's."""
RETRY: Final = 60 * SECOND
"""Microseconds until a policy that a process claimed and did not serve is due again."""
_MOST: Final = 100


class PolicyRequest(Struct, frozen=True, kw_only=True):
    """What a policy does: operations to accept, hours and writes between jobs."""

    auto: tuple[ChangeOp, ...] = ("merge",)
    every_hours: int = 24
    min_new: int = 20
    model: str | None = None
    budget: Budget = Budget()
    instructions: str = ""


class PolicyRow(Struct, frozen=True, kw_only=True):
    """A policy as it is stored."""

    workspace: str
    owner_kind: str
    owner: str
    scope: str
    request: str
    base: int
    job: str | None
    due_at: int
    created_at: int

    @property
    def task(self) -> PolicyRequest:
        """What it does."""
        return msgspec.json.decode(self.request, type=PolicyRequest)

    @property
    def place(self) -> dict[str, str]:
        """The columns that name it."""
        return {"owner_kind": self.owner_kind, "owner": self.owner, "scope": self.scope}


def checked_policy(given: PolicyRequest) -> PolicyRequest:
    """Return *given* if it is a policy; raise InvalidInput that names the field."""
    auto = _operations(given.auto)
    whole = "must be a whole number of hours"
    check_whole("every_hours", given.every_hours, whole, least=1, most=MOST_HOURS)
    check_whole("min_new", given.min_new, "must be a whole number", most=MOST_NEW)
    if given.model is not None:
        checked_extractor("model", given.model)
    return msgspec.structs.replace(given, auto=auto, budget=given.budget.checked())


def _operations(given: Iterable[object]) -> tuple[ChangeOp, ...]:
    if isinstance(given, str):
        raise InvalidInput("auto", "must be a list of operations", given=given)
    known: dict[object, ChangeOp] = {each: each for each in OPERATIONS}
    named = [*given]
    unknown = next((each for each in named if each not in known), None)
    if unknown is not None:
        raise InvalidInput("auto", f"must be of {OPERATIONS}", given=unknown)
    return tuple(dict.fromkeys(known[each] for each in named))


def put_policy(
    engine: Engine, place: dict[str, str], task: PolicyRequest, *, now: int
) -> PolicyRow:
    """Store the policy of one memory, in place of an earlier one; it is due at once."""
    sql = statements(engine)

    def work(tx: Transaction) -> PolicyRow:
        tx.run(sql.put_policy, request=encoded(task), now=now, **place)
        return tx.one(PolicyRow, sql.get_policy, **place)

    return engine.write(work)


def drop_policy(engine: Engine, place: dict[str, str]) -> bool:
    """Delete the policy of one memory; return whether there was one."""
    return bool(engine.write(lambda tx: tx.run(statements(engine).drop_policy, **place)))


def list_policies(engine: Engine) -> list[PolicyRow]:
    """Return the policies of the workspace, by kind and name."""
    return engine.all(PolicyRow, statements(engine).list_policies)


def due_policies(engine: Engine, now: int) -> Sequence[PolicyRow]:
    """Return the policies of all workspaces that are due, the earliest first."""
    whole = engine.scoped(EVERYBODY)
    return whole.all(PolicyRow, statements(whole).due_policies, now=now, most=_MOST)


def claim_policy(engine: Engine, row: PolicyRow, now: int) -> bool:
    """Claim a due policy for a minute; return False if another process did."""
    sql = statements(engine)
    params = {**row.place, "due": row.due_at, "until": now + RETRY}
    return bool(engine.write(lambda tx: tx.run(sql.claim_policy, **params)))


def set_policy_job(
    engine: Engine, row: PolicyRow, *, base: int, job: str | None, due_at: int
) -> None:
    """Store which job serves a policy, and when to look at it again."""
    sql = statements(engine)
    params = {**row.place, "base": base, "job": job, "due": due_at}
    engine.write(lambda tx: tx.run(sql.set_policy_job, **params))
