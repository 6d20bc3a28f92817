"""Claim, lease and retry background jobs, so that each is done once.

A claim is a token and a lease, which a heartbeat renews. The result of a job and its end are
written in one transaction that checks the token: a worker that lost its lease changes nothing.
"""

import secrets
from collections.abc import Sequence
from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction, scalar
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.rows import numbers_text

Kind = Literal["extract", "embed"]
"""Kind of a job; `embed` stands for `reembed` too."""

SECOND: Final = 1_000_000
LEASE: Final = 6 * SECOND
AGAIN: Final = (1 * SECOND, 10 * SECOND, 60 * SECOND)
"""Microseconds until the second, third and fourth attempt."""
SLOWLY: Final = 15 * 60 * SECOND
"""Microseconds between two later attempts, where a job has patience for them."""

CRASHED: Final = "Crashed"
"""Error of a job if a crash interrupted each of its attempts."""

_numbers = msgspec.json.Decoder(list[int])


class LostJob(Exception):
    """Another worker has the job now, or the job was deleted."""


class Job(Struct, frozen=True, kw_only=True):
    """A job that this worker holds until its lease ends."""

    number: int
    kind: str
    about: tuple[int, ...]
    attempts: int
    token: str
    crashed: bool = False
    failing_since: int | None = None


class _Due(Struct, frozen=True, kw_only=True):
    number: int
    kind: str
    state: str
    about: str
    attempts: int
    failing_since: int | None


def claim(context: CollectionContext, collection: int, kind: Kind) -> Job | None:
    """Claim a due job of the collection; return None if there is none."""
    sql, now = context.job_sql, context.now()
    which = {"kind": kind, "other": "reembed" if kind == "embed" else kind}

    def work(tx: Transaction) -> Job | None:
        due = tx.first(_Due, sql.due_job, collection=collection, now=now, **which)
        if due is None:
            return None
        # A job that a crash interrupted counts as attempted.
        attempts = due.attempts + (due.state == "running")
        job = Job(
            number=due.number,
            kind=due.kind,
            about=tuple(_numbers.decode(due.about)),
            attempts=attempts,
            token=secrets.token_hex(16),
            crashed=due.state == "running",
            failing_since=due.failing_since,
        )
        claimed = tx.run(
            sql.claim_job,
            number=job.number,
            token=job.token,
            attempts=attempts,
            until=now + LEASE,
            now=now,
        )
        return job if claimed else None

    if context.engine.first(_Due, sql.due_job, collection=collection, now=now, **which) is None:
        return None
    return context.engine.write(work)


def renew(context: CollectionContext, job: Job) -> None:
    """Renew the lease of *job*; raise `LostJob` if another worker has it now."""
    until = context.now() + LEASE
    held = context.engine.write(
        lambda tx: tx.run(
            context.job_sql.renew_job, number=job.number, token=job.token, until=until
        )
    )
    if not held:
        raise LostJob


def check_held(context: CollectionContext, tx: Transaction, job: Job) -> None:
    """Raise `LostJob` unless this worker holds *job*. Lock the collection before."""
    if tx.first(scalar, context.job_sql.hold_job, number=job.number, token=job.token) is None:
        raise LostJob


def end(context: CollectionContext, tx: Transaction, job: Job) -> None:
    """End *job* in the transaction that stores its result.

    Raise `LostJob` if another worker has it now.
    """
    if not tx.run(context.job_sql.end_job, number=job.number, token=job.token):
        raise LostJob


def shrink(context: CollectionContext, tx: Transaction, job: Job, left: Sequence[int]) -> None:
    """Reduce *job* to the rows *left*. Raise `LostJob` if another worker has it now."""
    about = numbers_text(list(left))
    if not tx.run(context.job_sql.shrink_job, number=job.number, token=job.token, about=about):
        raise LostJob


def release(context: CollectionContext, job: Job) -> None:
    """Requeue *job* as it was, because it was not tried."""
    context.engine.write(
        lambda tx: tx.run(context.job_sql.release_job, number=job.number, token=job.token)
    )


def put_off(context: CollectionContext, job: Job, error: str, *, patience: int = 0) -> bool:
    """Requeue *job*, which failed with *error*; return whether it has failed for good.

    After its first attempts it is tried slowly, until it has failed for *patience* microseconds.
    """
    now, early = context.now(), job.attempts < len(AGAIN)
    since = now if job.failing_since is None else job.failing_since
    failed = not early and now - since >= patience
    at = now + (AGAIN[job.attempts] if early else 0 if failed else SLOWLY)
    context.engine.write(
        lambda tx: tx.run(
            context.job_sql.put_off_job,
            number=job.number,
            token=job.token,
            state="failed" if failed else "queued",
            attempts=job.attempts + 1,
            at=at,
            error=error,
            now=now,
        )
    )
    return failed


def seconds_to_next(context: CollectionContext, collection: int, kind: Kind) -> float | None:
    """Return the seconds until a job may be due; None if none waits or runs."""
    at = context.engine.one(
        scalar,
        context.job_sql.next_due,
        collection=collection,
        kind=kind,
        other="reembed" if kind == "embed" else kind,
    )
    return None if at is None else max(0.05, (at - context.now()) / SECOND)
