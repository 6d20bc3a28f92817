"""Jobs of consolidation: token and lease, and a checkpoint after each cluster.

A job reads one snapshot, also when it goes on after a crash, and writes proposed changes alone.
A call to a model is logged before its response is used, so a crash repeats one call at most.
"""

import logging
import secrets as random
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from types import SimpleNamespace
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground import secrets
from holdfast.ground.errors import NotFound
from holdfast.ground.events import Event, Fact
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import EVERYBODY
from holdfast.memories.longterm.background.extractor import (
    ExtractionRequest,
    UnreadableAnswer,
    output_tokens_of,
    prompt,
    tokens_of,
)
from holdfast.memories.longterm.background.jobs import LEASE, SECOND, LostJob
from holdfast.memories.longterm.background.worker import bounded
from holdfast.memories.longterm.consolidation.records import (
    Budget,
    JobProgress,
    JobRequest,
    JobStatus,
    JobUsage,
    ProposedChange,
    encoded,
)
from holdfast.memories.longterm.context import Extractor

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
    owner_kind: str
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
    dream: str | None
    archived_at: int | None

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


ChangeColumns = dict[str, str]
"""A proposed change as columns: op, before, after, reason, evidence."""


class JobPlan(Struct, frozen=True, kw_only=True):
    """What rules propose, and the clusters that are left for a model."""

    changes: tuple[ChangeColumns, ...]
    clusters: tuple[tuple[str, ...], ...]


def in_requests(
    sizes: Iterable[tuple[str, int]], *, most: int, characters: int
) -> tuple[tuple[str, ...], ...]:
    """Return ids in groups that each fit one request to a model.

    *sizes* are ids with their characters. A group has at most *most* ids, and *characters* but for
    an id that is longer by itself.
    """
    groups: list[list[str]] = []
    size = 0
    for id, length in sizes:
        if not groups or len(groups[-1]) == most or size + length > characters:
            groups.append([])
            size = 0
        groups[-1].append(id)
        size += length
    return tuple(tuple(each) for each in groups)


class JobInputs(Protocol):
    """What a job reads of a memory at one moment, and what it makes of that."""

    def checked(self, task: JobRequest) -> JobRequest:
        """Return *task* with what is found out once, at its first look."""
        ...

    def plan(self, task: JobRequest, *, model: bool) -> JobPlan:
        """Return the changes of rules alone; clusters for a model only with *model*."""
        ...

    def request(self, ids: Sequence[str], task: JobRequest) -> ExtractionRequest | None:
        """Return the request for the cluster *ids*, None if nothing of it is left."""
        ...

    def changes(self, ids: Sequence[str], answer: str) -> tuple[ChangeColumns, ...]:
        """Return the changes of a model's *answer*; raise `UnreadableAnswer`."""
        ...


class DecisionUnit(Protocol):
    """The unit of work in which changes of a proposal are applied or undone."""

    tx: Transaction

    def is_fresh(self, row: ProposedRow) -> bool:
        """Check that the inputs of a change are as its job saw them."""
        ...

    def apply(self, row: ProposedRow) -> Mapping[str, Any] | None:
        """Apply a fresh change; return what it wrote, None if it may not be written."""
        ...

    def undo(self, row: ProposedRow) -> list[str]:
        """Undo an applied change; return the ids of what was changed since."""
        ...

    def close(self) -> str | None:
        """Write what is pending; return the id of the store that was changed, if any."""
        ...


class JobMemory(Protocol):
    """A memory that can be consolidated: a collection, a store, an agent's entries."""

    @property
    def engine(self) -> Engine:
        """The engine, scoped to the owner."""
        ...

    def now(self) -> int:
        """Return the current time in microseconds since 1970."""
        ...

    def moment(self) -> int:
        """Return the moment of a snapshot that has all writes so far."""
        ...

    def writes_since(self, base: int) -> int:
        """Return how many writes came after the version *base*."""
        ...

    def event(self, what: str, data: Mapping[str, Fact]) -> Event:
        """Return the event *what* of the owner's workspace."""
        ...

    def snapshot(self, reader: Reader, at: int) -> tuple[int, JobInputs]:
        """Return the version of the memory, and its inputs at that moment."""
        ...

    def shown(
        self, reader: Reader, row: JobRow, rows: Sequence[ProposedRow]
    ) -> tuple[ProposedChange, ...]:
        """Return changes of the job *row* as records; open ones may be stale by now."""
        ...

    def opener(
        self, row: JobRow, rows: Sequence[ProposedRow], *, accepts: bool
    ) -> Callable[[Transaction], DecisionUnit]:
        """Return what opens the unit of work to accept, reject or undo *rows* of a job."""
        ...


def statements(engine: Engine) -> SimpleNamespace:
    """Return the statements of consolidation."""
    return engine.queries("holdfast.memories.longterm.consolidation")


class NewJob(Struct, frozen=True, kw_only=True):
    """A job to store.

    `owner` are the columns that name its memory, `dream` the request of a dream.
    """

    id: str
    owner: Mapping[str, str]
    request: JobRequest
    limits: Budget
    base: int = 0
    dream: str | None = None


def put_job(tx: Transaction, memory: JobMemory, job: NewJob) -> None:
    """Store *job* on *memory*."""
    tx.run(
        statements(memory.engine).put_job,
        id=job.id,
        **job.owner,
        request=encoded(job.request),
        base=job.base,
        budget=encoded(job.limits),
        usage=encoded(JobUsage()),
        progress=encoded(JobProgress()),
        now=memory.now(),
        dream=job.dream,
    )
    tx.note(job_event(memory, "started", job.id))


def job_event(memory: JobMemory, what: str, id: str, **data: Fact) -> Event:
    """Return the event `consolidation.<what>` of the job *id*; it names no person."""
    return replace(memory.event(f"consolidation.{what}", data), owner=None, ids={"job_id": id})


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


Finish = Callable[[Transaction], Callable[[], None]]
"""Locks what a completed job changes, and returns what changes it in the same transaction."""


class ConsolidationWork(Struct, frozen=True):
    """Background task that does one job of consolidation, with what its end writes."""

    memory: JobMemory
    id: str
    extractor: Extractor | None = None
    finish: Finish | None = None

    def tend(self) -> float | None:
        """Do the job; see `Tender`."""
        memory, sql = self.memory, statements(self.memory.engine)
        row = memory.engine.first(JobRow, sql.get_job, id=self.id)
        if row is None or row.status not in {"pending", "running"}:
            return None
        now, token = memory.now(), random.token_hex(16)
        if row.status == "running" and (row.leased_until or 0) >= now:
            return max(0.05, ((row.leased_until or 0) - now) / SECOND)
        if row.task.model is not None and self.extractor is None:
            return None
        claimed = memory.engine.write(
            lambda tx: tx.run(sql.claim_job, id=self.id, token=token, until=now + LEASE, now=now)
        )
        if claimed:
            self._run(row, token)
        return 0.0

    def _run(self, row: JobRow, token: str) -> None:
        run = _Run(self.memory, row, token)
        try:
            status: JobStatus = run.work(self.extractor)
            run.end(status, None, self.finish if status == "completed" else None)
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

    def __init__(self, memory: JobMemory, row: JobRow, token: str) -> None:
        self._memory, self._row, self._token = memory, row, token
        self._sql = statements(memory.engine)
        self._task, self._progress, self._usage = row.task, row.done, row.used
        self._base = row.base

    def work(self, extractor: Extractor | None) -> JobStatus:
        """Propose changes, cluster by cluster, from where the job stopped."""
        inputs = self._inputs()
        if not self._progress.clusters_done:
            planned = bounded(
                lambda: inputs.plan(self._task, model=extractor is not None),
                RULES_SECONDS,
                name="holdfast-consolidation",
                beat=self._renew,
            )
            self._task = replace(self._task, plan=planned.clusters)
            self._progress = replace(self._progress, clusters=1 + len(planned.clusters))
            self._checkpoint(planned.changes)
        for place in range(self._progress.clusters_done, self._progress.clusters):
            ids = (self._task.plan or ())[place - 1]
            sent = inputs.request(ids, self._task)
            answer = "{}" if sent is None else self._answer(place, sent, extractor)
            if answer is None:
                return "partial"
            self._checkpoint(inputs.changes(ids, answer))
        return "completed"

    def end(self, status: JobStatus, error: str | None, finish: Finish | None = None) -> None:
        """End the job with *status*, if this worker still has it, together with *finish*."""
        memory, what = self._memory, "failed" if error else "proposed"

        def work(tx: Transaction) -> None:
            # The memory is locked before the job, as by decisions.
            change = None if finish is None else finish(tx)
            ended = tx.run(
                self._sql.end_job,
                id=self._row.id,
                token=self._token,
                status=status,
                error=error,
                now=memory.now(),
            )
            if ended:
                tx.note(job_event(memory, what, self._row.id, status=status))
                tx.after_commit(lambda: _JOBS.add(status))
            if change is not None:
                if not ended:
                    raise LostJob
                change()

        memory.engine.write(work)

    def _inputs(self) -> JobInputs:
        memory, at = self._memory, self._task.at
        first = not at
        at = at or memory.moment()
        version, inputs = memory.engine.read(lambda reader: memory.snapshot(reader, at))
        if first:
            self._task = inputs.checked(replace(self._task, at=at))
            self._base = version
            self._save(())
        return inputs

    def _answer(
        self, place: int, sent: ExtractionRequest, extractor: Extractor | None
    ) -> str | None:
        """Return the model's response to *sent*, from the log if it is there.

        None if the budget does not allow the call.
        """
        logged = {each.n: each.answer for each in calls_of(self._memory.engine, self._row.id)}
        if place in logged:
            return logged[place]
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
            tokens=tokens_of(sent, answer),
            output_tokens=output_tokens_of(answer),
            calls=1,
            seconds=round(perf_counter() - begun, 3),
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
            "now": self._memory.now(),
        }
        self._usage = _sum(self._usage, used)
        self._task = replace(self._task, spent=_sum(self._task.spent, used))
        self._progress = replace(self._progress, tokens=self._usage.tokens, calls=self._usage.calls)

        def work(tx: Transaction) -> None:
            self._keep(tx)
            tx.run(self._sql.put_call, **row)
            tx.after_commit(lambda: _TOKENS.add(by=used.tokens))

        self._memory.engine.write(work)
        return kept

    def _renew(self) -> None:
        until = self._memory.now() + LEASE
        held = self._memory.engine.write(
            lambda tx: tx.run(self._sql.renew_job, id=self._row.id, token=self._token, until=until)
        )
        if not held:
            raise LostJob

    def _checkpoint(self, changes: Sequence[ChangeColumns]) -> None:
        """Store the changes of one cluster with the job's progress."""
        done = self._progress.clusters_done + 1
        self._progress = replace(self._progress, clusters_done=done)
        self._save(changes)

    def _save(self, changes: Sequence[ChangeColumns]) -> None:
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
            tx.note(job_event(self._memory, "progressed", self._row.id, changes=number))

        self._memory.engine.write(work)

    def _keep(self, tx: Transaction) -> None:
        kept = tx.run(
            self._sql.keep_progress,
            id=self._row.id,
            token=self._token,
            until=self._memory.now() + LEASE,
            progress=encoded(self._progress),
            usage=encoded(self._usage),
            request=encoded(self._task),
            base=self._base,
        )
        if not kept:
            raise LostJob


def calls_of(engine: Engine, id: str) -> list[CallRow]:
    """Return the logged calls of the job *id*."""
    return engine.all(CallRow, statements(engine).list_calls, id=id)


def replayed(memory: JobMemory, row: JobRow) -> list[ProposedRow]:
    """Return the changes that a job makes again from its log; nothing is stored."""
    task = row.task
    if not task.at:
        return []
    logged = {each.n: each.answer for each in calls_of(memory.engine, row.id)}
    _, inputs = memory.engine.read(lambda reader: memory.snapshot(reader, task.at))
    made = [*inputs.plan(task, model=False).changes]
    for place, ids in enumerate(task.plan or (), 1):
        if place in logged:
            made += inputs.changes(ids, logged[place])
    return [
        ProposedRow(n=place, state="open", applied=None, **columns)
        for place, columns in enumerate(made, 1)
    ]


def job_of(reader: Reader, sql: SimpleNamespace, id: str) -> JobRow:
    """Return the job *id*; raise `NotFound`."""
    row = reader.first(JobRow, sql.get_job, id=id)
    if row is None:
        raise NotFound("consolidation", id)
    return row


def _sum(one: JobUsage, other: JobUsage) -> JobUsage:
    return JobUsage(
        tokens=one.tokens + other.tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        calls=one.calls + other.calls,
        seconds=round(one.seconds + other.seconds, 3),
    )
