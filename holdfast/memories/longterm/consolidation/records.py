"""Records of consolidation: jobs, proposals, changes, budgets."""

import difflib
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput
from holdfast.memories.longterm.consolidation.rules import ChangeAfter, ChangeOp
from holdfast.memories.longterm.records import Item

JobStatus = Literal["pending", "running", "partial", "completed", "failed", "cancelled"]
ProposalStatus = Literal["open", "accepted", "rejected", "stale", "undone"]
ChangeState = Literal["open", "applied", "rejected", "stale", "undone"]
ConsolidationOutput = Literal["proposal", "new_store"]
"""What accepting makes of a store: a change of it, or a new store beside it."""
OwnerKind = Literal["user", "store", "agent"]
ENDED: Final = frozenset[str](("partial", "completed", "failed", "cancelled"))
"""Statuses in which a job does not run, and its proposal may be decided on."""


class Budget(Struct, frozen=True, kw_only=True):
    """The most that a job may use of a model: tokens, seconds, calls.

    Rules alone need none of it.
    """

    tokens: int = 50_000
    seconds: int = 600
    calls: int = 40

    def checked(self) -> "Budget":
        """Return it; raise InvalidInput for a number below 0."""
        for name in ("tokens", "seconds", "calls"):
            given: object = getattr(self, name)
            if not isinstance(given, int) or isinstance(given, bool) or given < 0:
                raise InvalidInput(f"budget.{name}", "must be a whole number of at least 0")
        return self


class JobUsage(Struct, frozen=True, kw_only=True):
    """What a job has used of a model, in all; `tokens` are those read and written."""

    tokens: int = 0
    output_tokens: int = 0
    calls: int = 0
    seconds: float = 0.0


class JobRequest(Struct, frozen=True, kw_only=True):
    """What a job is to do, and the plan it made: stored with it, and not shown.

    `at` is the moment of its snapshot. `spent` is what it used since it was last resumed.
    """

    model: str | None
    instructions: str = ""
    into: ConsolidationOutput = "proposal"
    at: int = 0
    unfounded: tuple[str, ...] = ()
    plan: tuple[tuple[str, ...], ...] | None = None
    spent: JobUsage = JobUsage()


class JobProgress(Struct, frozen=True, kw_only=True):
    """How far a job is: clusters of items that are compared, and what they took."""

    clusters_done: int = 0
    clusters: int = 0
    tokens: int = 0
    calls: int = 0


class TextChange(Struct, frozen=True, kw_only=True):
    """What a change does to one file of a store, or one entry of an agent.

    `place` is its path or key; `to` the path to which it moves. `before` is None for a new one,
    `after` for one that is deleted.
    """

    id: str | None
    place: str
    to: str | None = None
    before: str | None = None
    after: str | None = None

    @property
    def diff(self) -> str:
        """The text before and after the change, as a unified diff."""
        lines = difflib.unified_diff(
            (self.before or "").splitlines(),
            (self.after or "").splitlines(),
            "/dev/null" if self.before is None else self.place,
            "/dev/null" if self.after is None else self.to or self.place,
            lineterm="",
            n=3,
        )
        moved = () if self.to is None else (f"rename from {self.place}", f"rename to {self.to}")
        return "\n".join((*moved, *lines))


class ProposedChange(Struct, frozen=True, kw_only=True):
    """A proposed change of some items, files or entries.

    `before` are the items of a collection as they are now; `texts` the files of a store or the
    entries of an agent, as the job saw them. `evidence` are the ids of the turns it rests on. An
    `open` change becomes `stale` when one of its sources changes, and can then not be accepted. A
    `conflict` is for a person: it is never applied.
    """

    id: str
    op: ChangeOp
    state: ChangeState
    reason: str
    before: tuple[Item, ...] = ()
    after: ChangeAfter = ChangeAfter()
    texts: tuple[TextChange, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def diff(self) -> str:
        """The items, files or entries before and after the change, as a unified diff."""
        if self.texts:
            return "\n".join(each.diff for each in self.texts if each.diff)
        before = [_line(each) for each in self.before]
        after = [*_after(self.op, self.before, self.after)]
        lines = difflib.unified_diff(before, after, "before", "after", lineterm="", n=3)
        return "\n".join(lines)


class Proposal(Struct, frozen=True, kw_only=True):
    """The changes that a job proposes.

    `base` is the version of the memory that it read. It is open until every change is decided
    on.
    """

    id: str
    status: ProposalStatus
    base: int
    changes: tuple[ProposedChange, ...] = ()

    @property
    def diff(self) -> str:
        """The diffs of all changes, each below its id, operation and reason."""
        parts = (f"# {each.id} {each.op}: {each.reason}\n{each.diff}" for each in self.changes)
        return "\n\n".join(parts)


class Consolidation(Struct, frozen=True, kw_only=True):
    """A job that proposes changes to a memory, and changes nothing itself.

    The memory is the collection of a `user`, a `store`, or the entries of an `agent`; of these two
    are None. `namespace` is None but for a collection.
    """

    id: str
    user: str | None
    store: str | None = None
    agent: str | None = None
    namespace: str | None
    workspace_id: str | None
    into: ConsolidationOutput = "proposal"
    status: JobStatus
    model: str | None
    instructions: str
    budget: Budget
    progress: JobProgress
    usage: JobUsage
    proposal: Proposal
    error: str | None
    created_at: datetime
    ended_at: datetime | None


class ConsolidationPolicy(Struct, frozen=True, kw_only=True):
    """A memory that is consolidated by itself, and what is accepted then.

    Of `user`, `store` and `agent` two are None. `job` is the one that runs, `due_at` when the next
    may begin: at least `every_hours` after the last, with at least `min_new` writes since.
    """

    user: str | None = None
    store: str | None = None
    agent: str | None = None
    namespace: str | None = None
    workspace_id: str | None = None
    auto: tuple[ChangeOp, ...]
    every_hours: int
    min_new: int
    model: str | None
    budget: Budget
    instructions: str
    job: str | None
    due_at: datetime
    created_at: datetime


class AppliedChanges(Struct, frozen=True, kw_only=True):
    """The result of accepting or undoing: the ids of the changes by outcome.

    `stale` ones were refused, because one of their sources was changed or forgotten since. `kept`
    are the ids or keys of what undoing left as it is, because it was changed since. `store_id` is
    the store that was changed or made, None but for a store.
    """

    id: str
    changed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    store_id: str | None = None


def encoded(value: object) -> str:
    """Encode *value* as JSON for a column."""
    return msgspec.json.encode(value).decode()


def _line(item: Item) -> str:
    until = f" (until {to_rfc3339(item.valid_to)})" if item.valid_to else ""
    return f"[{item.kind}] {' '.join(item.text.split())}{until}"


def _after(op: ChangeOp, before: Sequence[Item], after: ChangeAfter) -> Iterable[str]:
    """Return the lines of the items that are live after the change."""
    if op == "conflict":
        yield from (_line(each) for each in before)
    elif op == "hold":
        return
    elif op == "expire" and after.valid_to is not None:
        yield from (_line(replace(each, valid_to=after.valid_to)) for each in before)
    elif after.keep is not None:
        yield from (_line(each) for each in before if each.id == after.keep)
    elif after.text is not None:
        yield f"[{after.kind}] {' '.join(after.text.split())}"
