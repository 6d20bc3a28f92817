"""Decide which worker runs the jobs of a collection, orphaned ones included."""

from collections.abc import Collection
from time import monotonic
from typing import Final

from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background import embed_jobs
from holdfast.memories.longterm.background.jobs import LEASE, PACKAGE
from holdfast.memories.longterm.background.mine_jobs import Mining
from holdfast.memories.longterm.context import CollectionContext, Results
from holdfast.memories.longterm.read import FAILED, JobStatus, jobs_of
from holdfast.memories.longterm.records import Flushed

_PIECE: Final = 0.25
"""Seconds after which is looked again at what other processes have done."""


class PendingWork:
    """Has what waits for callers done by the worker that they share."""

    def wake(self, caller: CollectionContext) -> None:
        """See to what waits for *caller*."""
        tender = embed_jobs.tender_of(caller)
        if tender is not None:
            caller.shared.worker.wake(("embed", caller.place), tender)
        if caller.mines:
            caller.shared.worker.wake(("extract", caller.place), Mining(caller))


def flush(caller: CollectionContext, results: Results, timeout: float | None) -> Flushed:
    """Wait until nothing is left that can be done for *caller*, at most *timeout* seconds.

    *results* is what this caller's memory has heard of mining. What waits to be tried again is
    waited for too, until it is done or has failed.
    """
    end = None if timeout is None else monotonic() + timeout
    caller.shared.marks.flush()
    caller.tend()
    doable = kinds_of(caller)
    while True:
        # In this order: what a collection's adoption queues is there once it is adopted.
        settled = embed_jobs.settled(caller)
        jobs = jobs_of(caller)
        left = _PIECE if end is None else end - monotonic()
        if left <= 0 or (settled and not _waiting(jobs, doable)):
            break
        caller.shared.worker.wait(min(left, _PIECE))
    pending = sum(each.jobs for each in jobs if each.state != FAILED)
    failed = sum(each.jobs for each in jobs if each.state == FAILED)
    return Flushed(done=not pending, results=results.take(), pending=pending, failed=failed)


def kinds_of(caller: CollectionContext) -> Collection[str]:
    """Return the kinds of jobs that are done for *caller* in this process."""
    embeds = ("embed", "reembed") if embed_jobs.tender_of(caller) is not None else ()
    return (*embeds, "extract") if caller.mines else embeds


def _waiting(jobs: list[JobStatus], kinds: Collection[str]) -> bool:
    return any(each.kind in kinds and each.state != FAILED for each in jobs)


MOST: Final = 1_000
"""Collections that are told at once."""


class LeftOver(Struct, frozen=True, kw_only=True):
    """A collection with jobs that are overdue, and the models, by name, that they wait for."""

    workspace: str
    user_id: str
    namespace: str
    workspace_id: str
    vector_provider: str | None
    miner: str | None
    embedder: str | None


def left_over(engine: Engine, now: int) -> list[LeftOver]:
    """Return the collections of all workspaces with jobs at *now* that nobody sees to.

    Jobs that only a function can do are its caller's, and are left out.
    """
    everybody = engine.scoped(EVERYBODY)
    sql = everybody.queries(PACKAGE)
    return everybody.all(LeftOver, sql.left_over, now=now, grace=LEASE, most=MOST)
