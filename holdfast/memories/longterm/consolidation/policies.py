"""Policies of consolidation: what is consolidated by itself, how often, and what is accepted.

A policy that is due is claimed by one process, which starts a job. Once the job has ended, the
changes of the operations in `auto` are accepted; the others wait for a person.
"""

from collections.abc import Iterable, Sequence
from typing import Final, get_args

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.errors import InvalidInput
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.validation import check_whole
from holdfast.memories.longterm.background.extractor import checked_extractor
from holdfast.memories.longterm.background.jobs import SECOND
from holdfast.memories.longterm.consolidation.jobs import statements
from holdfast.memories.longterm.consolidation.records import Budget, encoded
from holdfast.memories.longterm.consolidation.rules import ChangeOp

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
    """What a policy does: operations to accept, hours between jobs, writes that are new."""

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
    """Return policies of all workspaces that are due, those due first at the beginning."""
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
