"""Decide which worker runs the jobs of a collection, orphaned ones included."""

from collections.abc import Collection
from time import monotonic
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background import embed_jobs
from holdfast.memories.longterm.background.jobs import LEASE
from holdfast.memories.longterm.background.mine_jobs import Mining
from holdfast.memories.longterm.context import CollectionContext, Results
from holdfast.memories.longterm.read import FAILED, JobStatus, jobs_of
from holdfast.memories.longterm.records import Flushed

_PIECE: Final = 0.25
"""Seconds between checks for the work of other processes."""


class PendingWork:
    """Schedules jobs of callers on the worker that they share."""

    def wake(self, context: CollectionContext) -> None:
        """Wake the worker for *context*'s jobs."""
        tender = embed_jobs.tender_of(context)
        if tender is not None:
            context.shared.worker.wake(("embed", context.place), tender)
        if context.mines:
            context.shared.worker.wake(("extract", context.place), Mining(context))


def flush(context: CollectionContext, results: Results, timeout: float | None) -> Flushed:
    """Wait at most *timeout* seconds until *context* has no runnable jobs left.

    *results* has the mining results that the caller's memory has received. A job that waits for a
    retry is waited for too, until it is done or has failed.
    """
    end = None if timeout is None else monotonic() + timeout
    context.shared.access_log.flush()
    context.tend()
    doable = kinds_of(context)
    while True:
        # In this order: jobs that a change of model queues exist once the change is made.
        settled = embed_jobs.settled(context)
        jobs = jobs_of(context)
        left = _PIECE if end is None else end - monotonic()
        if left <= 0 or (settled and not _waiting(jobs, doable)):
            break
        context.shared.worker.wait(min(left, _PIECE))
    pending = sum(each.jobs for each in jobs if each.state != FAILED)
    failed = sum(each.jobs for each in jobs if each.state == FAILED)
    return Flushed(done=not pending, results=results.take(), pending=pending, failed=failed)


def kinds_of(context: CollectionContext) -> Collection[str]:
    """Return the kinds of jobs that this process can do for *context*."""
    embeds = ("embed", "reembed") if embed_jobs.tender_of(context) is not None else ()
    return (*embeds, "extract") if context.mines else embeds


def _waiting(jobs: list[JobStatus], kinds: Collection[str]) -> bool:
    return any(each.kind in kinds and each.state != FAILED for each in jobs)


MOST: Final = 1_000
"""Largest number of collections in one result of `left_over`."""


class LeftOver(Struct, frozen=True, kw_only=True):
    """A collection with overdue jobs, and the names of the models they need."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    vector_provider: str | None
    miner: str | None
    embedder: str | None


def left_over(engine: Engine, now: int) -> list[LeftOver]:
    """Return the collections of all workspaces with jobs overdue at *now*.

    Jobs for an extractor that is a function are left out: only its process can do them.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries("holdfast.memories.longterm.background")
    return everybody.all(LeftOver, sql.left_over, now=now, grace=LEASE, most=MOST)
