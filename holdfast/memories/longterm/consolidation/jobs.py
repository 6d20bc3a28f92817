"""Jobs of consolidation: token and lease, and a checkpoint after each cluster.

A job reads one snapshot, also when it goes on after a crash, and writes proposed changes alone.
A call to a model is logged before its response is used, so a crash repeats one call at most.
"""

import logging
import secrets as random
from collections.abc import Iterable, Sequence
from time import perf_counter
from types import SimpleNamespace
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Transaction
from holdfast.ground import secrets
from holdfast.ground.events import Event, Fact
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background.extractor import (
    ExtractionRequest,
    UnreadableAnswer,
    prompt,
    tokens_of,
)
from holdfast.memories.longterm.background.jobs import LEASE, SECOND, LostJob
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.consolidation.drafts import (
    Cluster,
    Inputs,
    cluster_of,
    columns_of,
    inputs_at,
    model_drafts,
    plan,
    request_of,
    rule_drafts,
    unfounded,
)
from holdfast.memories.longterm.consolidation.records import (
    Budget,
    JobProgress,
    JobRequest,
    JobStatus,
    JobUsage,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeDraft
from holdfast.memories.longterm.context import CollectionContext, Extractor, event_of

RULES_SECONDS: Final = 3_600.0
"""Time limit for the rules on a whole collection; the lease is renewed meanwhile."""
CALL_SECONDS: Final = 60.0
"""Time limit for one response of a model."""
_JOBS: Final = REGISTRY.counter(
    "consolidation_jobs_total",
    "Jobs of consolidation that ended, by status.",
    status=("partial", "completed", "failed"),
)
_TOKENS: Final = REGISTRY.counter(
    "consolidation_tokens_total", "Tokens that consolidation took, counted or estimated."
)

_MOST_UNFINISHED: Final = 1_000

_log = logging.getLogger(__name__)


class JobRow(Struct, frozen=True, kw_only=True):
    """A job as it is stored."""

    id: str
    owner: str
    scope: str
    status: str
    proposal: str
    request: str
    base: int
    budget: str
    usage: str
    progress: str
    token: str | None
    leased_until: int | None
    error: str | None
    created_at: int
    ended_at: int | None

    @property
    def task(self) -> JobRequest:
        """What it is to do."""
        return msgspec.json.decode(self.request, type=JobRequest)

    @property
    def limits(self) -> Budget:
        """Its budget."""
        return msgspec.json.decode(self.budget, type=Budget)

    @property
    def used(self) -> JobUsage:
        """What it used of a model."""
        return msgspec.json.decode(self.usage, type=JobUsage)

    @property
    def done(self) -> JobProgress:
        """How far it is."""
        return msgspec.json.decode(self.progress, type=JobProgress)


class ProposedRow(Struct, frozen=True, kw_only=True):
    """A proposed change as it is stored."""

    n: int
    op: str
    before: str
    after: str
    reason: str
    evidence: str
    state: str
    applied: str | None


class CallRow(Struct, frozen=True, kw_only=True):
    """A logged call to a model: the number of its cluster, and its texts, redacted."""

    n: int
    prompt: str
    answer: str
    usage: str


def statements(context: CollectionContext) -> SimpleNamespace:
    """Return the statements of consolidation."""
    return context.engine.queries("holdfast.memories.longterm.consolidation")


def job_event(context: CollectionContext, what: str, id: str, **data: Fact) -> Event:
    """Return the event `consolidation.<what>` of the job *id*; it names no person."""
    event = event_of(context, f"consolidation.{what}", None, {}, data)
    return replace(event, owner=None, ids={"job_id": id})


class UnfinishedJob(Struct, frozen=True, kw_only=True):
    """A job that no process does, by its workspace."""

    workspace: str
    id: str


def unfinished_jobs(engine: Engine, now: int) -> list[UnfinishedJob]:
    """Return the jobs of all workspaces that a crashed or closed process left undone."""
    whole = engine.scoped(EVERYBODY)
    sql = whole.queries("holdfast.memories.longterm.consolidation")
    return whole.all(
        UnfinishedJob, sql.unfinished_jobs, now=now, before=now - LEASE, most=_MOST_UNFINISHED
    )


class ConsolidationWork(Struct, frozen=True):
    """Background task that does one job of consolidation."""

    context: CollectionContext
    id: str
    extractor: Extractor | None = None

    def tend(self) -> float | None:
        """Do the job; see `Tender`."""
        context, sql = self.context, statements(self.context)
        row = context.engine.first(JobRow, sql.get_job, id=self.id)
        if row is None or row.status not in {"pending", "running"}:
            return None
        now, token = context.now(), random.token_hex(16)
        if row.status == "running" and (row.leased_until or 0) >= now:
            return max(0.05, ((row.leased_until or 0) - now) / SECOND)
        if row.task.model is not None and self.extractor is None:
            return None
        claimed = context.engine.write(
            lambda tx: tx.run(sql.claim_job, id=self.id, token=token, until=now + LEASE, now=now)
        )
        if claimed:
            self._run(row, token)
        return 0.0

    def _run(self, row: JobRow, token: str) -> None:
        run = _Run(self.context, row, token)
        try:
            status: JobStatus = run.work(self.extractor)
            run.end(status, None)
        except LostJob:
            return
        except UnreadableAnswer as error:
            run.end("failed", type(error).__name__)
        except Exception as error:  # noqa: BLE001 - a caller's model may raise anything
            # Its message may hold the texts that the model was sent, so only the type is kept.
            _log.warning("a consolidation failed: %s", type(error).__name__)
            run.end("failed", type(error).__name__)


class _Run:
    """One claim of a job."""

    def __init__(self, context: CollectionContext, row: JobRow, token: str) -> None:
        self._context, self._row, self._token = context, row, token
        self._sql = statements(context)
        self._task, self._progress, self._usage = row.task, row.done, row.used
        self._base = row.base

    def work(self, extractor: Extractor | None) -> JobStatus:
        """Propose changes, cluster by cluster, from where the job stopped."""
        inputs = self._inputs()
        if not self._progress.clusters_done:
            drafts = bounded(
                lambda: rule_drafts(inputs, self._task),
                RULES_SECONDS,
                name="holdfast-consolidation",
                beat=self._renew,
            )
            clusters: tuple[tuple[str, ...], ...] = ()
            if extractor is not None:
                taken = {id for draft in drafts for id in draft.items}
                clusters = plan([item for item in inputs.items if item.id not in taken])
            self._task = replace(self._task, plan=clusters)
            self._progress = replace(self._progress, clusters=1 + len(clusters))
            self._checkpoint(inputs, drafts)
        for place in range(self._progress.clusters_done, self._progress.clusters):
            ids = (self._task.plan or ())[place - 1]
            cluster = cluster_of(ids, inputs.items, inputs.turns)
            answer = self._answer(place, cluster, extractor) if cluster.items else "{}"
            if answer is None:
                return "partial"
            self._checkpoint(inputs, model_drafts(self._context, cluster, answer))
        return "completed"

    def end(self, status: JobStatus, error: str | None) -> None:
        """End the job with *status*, if this worker still has it."""
        context, what = self._context, "failed" if error else "proposed"

        def work(tx: Transaction) -> None:
            ended = tx.run(
                self._sql.end_job,
                id=self._row.id,
                token=self._token,
                status=status,
                error=error,
                now=context.now(),
            )
            if ended:
                tx.note(job_event(context, what, self._row.id, status=status))
                tx.after_commit(lambda: _JOBS.add(status))

        context.engine.write(work)

    def _inputs(self) -> Inputs:
        context, at = self._context, self._task.at
        first = not at
        at = at or context.now()
        version, inputs = context.engine.read(lambda reader: inputs_at(context, reader, at))
        if first:
            found = unfounded(context, inputs)
            self._task = replace(self._task, at=at, unfounded=found)
            self._base = version
            self._save(())
        return inputs

    def _answer(self, place: int, cluster: Cluster, extractor: Extractor | None) -> str | None:
        """Return the model's response for *cluster*, from the log if it is there.

        None if the budget does not allow the call.
        """
        logged = {each.n: each.answer for each in calls_of(self._context, self._row.id)}
        if place in logged:
            return logged[place]
        sent = request_of(cluster, self._task.instructions)
        spent, limits = self._task.spent, self._row.limits
        if (
            extractor is None
            or spent.calls >= limits.calls
            or spent.seconds >= limits.seconds
            or spent.tokens + tokens_of(sent, "") > limits.tokens
        ):
            return None
        begun = perf_counter()
        answer = bounded(
            lambda: extractor(sent), CALL_SECONDS, name="holdfast-consolidation", beat=self._renew
        )
        used = JobUsage(
            tokens=tokens_of(sent, answer), calls=1, seconds=round(perf_counter() - begun, 3)
        )
        return self._log(place, sent, answer, used)

    def _log(self, place: int, sent: ExtractionRequest, answer: str, used: JobUsage) -> str:
        """Store the call, redacted, and return the response as stored."""
        kept = secrets.redact(answer)
        row = {
            "id": self._row.id,
            "n": place,
            "prompt": secrets.redact(f"{sent.instructions}\n\n{prompt(sent)}"),
            "answer": kept,
            "usage": encoded(used),
            "now": self._context.now(),
        }
        self._usage = _sum(self._usage, used)
        self._task = replace(self._task, spent=_sum(self._task.spent, used))
        self._progress = replace(self._progress, tokens=self._usage.tokens, calls=self._usage.calls)

        def work(tx: Transaction) -> None:
            self._keep(tx)
            tx.run(self._sql.put_call, **row)
            tx.after_commit(lambda: _TOKENS.add(by=used.tokens))

        self._context.engine.write(work)
        return kept

    def _renew(self) -> None:
        until = self._context.now() + LEASE
        held = self._context.engine.write(
            lambda tx: tx.run(self._sql.renew_job, id=self._row.id, token=self._token, until=until)
        )
        if not held:
            raise LostJob

    def _checkpoint(self, inputs: Inputs, drafts: Iterable[ChangeDraft]) -> None:
        """Store the changes of one cluster with the job's progress."""
        done = self._progress.clusters_done + 1
        self._progress = replace(self._progress, clusters_done=done)
        self._save([columns_of(inputs, draft) for draft in drafts])

    def _save(self, changes: Sequence[dict[str, str]]) -> None:
        def work(tx: Transaction) -> None:
            self._keep(tx)
            known = tx.all(ProposedRow, self._sql.list_changes, id=self._row.id)
            before = {(each.op, each.before, each.evidence) for each in known}
            number = max((each.n for each in known), default=0)
            for each in changes:
                if (each["op"], each["before"], each["evidence"]) in before:
                    continue
                number += 1
                tx.run(self._sql.put_change, id=self._row.id, n=number, **each)
            tx.note(job_event(self._context, "progressed", self._row.id, changes=number))

        self._context.engine.write(work)

    def _keep(self, tx: Transaction) -> None:
        kept = tx.run(
            self._sql.keep_progress,
            id=self._row.id,
            token=self._token,
            until=self._context.now() + LEASE,
            progress=encoded(self._progress),
            usage=encoded(self._usage),
            request=encoded(self._task),
            base=self._base,
        )
        if not kept:
            raise LostJob


def calls_of(context: CollectionContext, id: str) -> list[CallRow]:
    """Return the logged calls of the job *id*."""
    return context.engine.all(CallRow, statements(context).list_calls, id=id)


def _sum(one: JobUsage, other: JobUsage) -> JobUsage:
    return JobUsage(
        tokens=one.tokens + other.tokens,
        calls=one.calls + other.calls,
        seconds=round(one.seconds + other.seconds, 3),
    )
