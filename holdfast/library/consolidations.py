"""`hf.consolidations`: jobs that propose changes to a memory, decisions, policies."""

import logging
from collections.abc import Iterable
from threading import Event
from time import monotonic
from typing import Any, Final, Literal, cast, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine, Reader, Transaction
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import Conflict, HistoryGone, InvalidInput, NotFound, Refused
from holdfast.ground.pages import Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.scope import Actor, Scope, checked_actor
from holdfast.ground.validation import check_limit, check_one_of, check_text
from holdfast.library.erasure.places import agent_context, upkeep_context
from holdfast.library.longterm import LongTermSpec, collection_context, equip, model_wish
from holdfast.memories.durable.consolidation import AgentMemory
from holdfast.memories.durable.forget import checked_agent
from holdfast.memories.longterm.consolidation.apply import CollectionMemory
from holdfast.memories.longterm.consolidation.decisions import (
    HOUR,
    RETRY,
    PolicyRequest,
    PolicyRow,
    accept,
    checked_policy,
    claim_policy,
    drop_policy,
    due_policies,
    list_policies,
    put_policy,
    reject,
    set_policy_job,
    undo,
)
from holdfast.memories.longterm.consolidation.jobs import (
    ConsolidationWork,
    JobMemory,
    JobRow,
    NewJob,
    ProposedRow,
    calls_of,
    job_of,
    put_job,
    replayed,
    statements,
)
from holdfast.memories.longterm.consolidation.records import (
    ENDED,
    AppliedChanges,
    Budget,
    Consolidation,
    ConsolidationOutput,
    ConsolidationPolicy,
    JobRequest,
    JobStatus,
    JobUsage,
    OwnerKind,
    Proposal,
    ProposalStatus,
    ProposedChange,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeOp
from holdfast.memories.longterm.context import Extractor, Shared
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.vectors.compare import meant
from holdfast.memories.stores.consolidation.decisions import StoreMemory
from holdfast.memories.stores.consolidation.dreams import dreaming
from holdfast.memories.stores.rows import StoresContext, demand_store, refuse_narrowed

_log = logging.getLogger(__name__)

CONSOLIDATIONS_LISTED: Final = 100
MOST_LISTED: Final = 1_000
MOST_INSTRUCTIONS: Final = 10_000
"""Bytes of a caller's instructions to a model."""
_MOST_ID: Final = 64
_LIST: Final = "consolidations"
_HIGHEST: Final = "~"
_PAUSES: Final = 0.02, 1.0
"""Seconds between checks for the end of a job, which another process may do: at first, at most."""


class _Scope(Struct, frozen=True, kw_only=True):
    namespace: str = ""
    workspace_id: str = ""


class _Owner(Struct, frozen=True):
    """What is consolidated: a user's collection, a store, or an agent's entries."""

    kind: OwnerKind
    name: str
    scope: _Scope = _Scope()

    @property
    def columns(self) -> dict[str, str]:
        """Its columns."""
        return {"owner_kind": self.kind, "owner": self.name, "scope": encoded(self.scope)}

    @classmethod
    def of(cls, row: JobRow | PolicyRow) -> "_Owner":
        """Return the owner of a stored job or policy."""
        scope = msgspec.json.decode(row.scope, type=_Scope)
        return cls(msgspec.convert(row.owner_kind, OwnerKind), row.owner, scope)


class Consolidations:
    """Jobs that propose changes to memories, decisions on them, and policies."""

    def __init__(self, context: StoresContext, shared: Shared) -> None:
        self.context, self.shared = context, shared
        self._extractors: dict[str, Extractor] = {}

    def create(
        self,
        user: str | None = None,
        *,
        store: str | None = None,
        agent: str | None = None,
        namespace: str = "chat",
        workspace_id: str | None = None,
        model: Any = None,
        budget: Budget | None = None,
        instructions: str = "",
        into: ConsolidationOutput = "proposal",
    ) -> Consolidation:
        """Start a job that proposes changes to one memory, and return it at once.

        The memory is the collection of *user*, the store of the id *store*, or the durable entries
        of *agent*. The job changes nothing itself. *model* is `provider:model`, one of
        pydantic-ai's models, or a function, as an extractor; without it rules alone propose.
        *instructions* are for it. Accepting changes the store, or with *into* "new_store" makes a
        new one, and leaves it as it is.
        """
        refuse_narrowed(self.context, "write")
        check_text("instructions", instructions, least=0, most=MOST_INSTRUCTIONS)
        limits = (budget or Budget()).checked()
        outputs = get_args(ConsolidationOutput)
        check_one_of("into", into, outputs, f"must be one of {outputs}")
        if into != "proposal" and store is None:
            raise InvalidInput("into", "is for a store", given=into)
        owner = self._owner(_given(user, store, agent), namespace, workspace_id)
        memory = _memory(self.context, self.shared, owner)
        name, extractor = self._extractor(model)
        id = self.context.ids.new("cons", self.context.now())
        request = JobRequest(model=name, instructions=instructions, into=into)
        job = NewJob(id=id, owner=owner.columns, request=request, limits=limits)

        def work(tx: Transaction) -> None:
            made = None
            if isinstance(memory, CollectionMemory):
                made = CollectionTransaction(memory.context, tx)
            base = 0 if made is None else made.there.version
            put_job(tx, memory, replace(job, base=base))
            if made is not None:
                made.close()

        memory.engine.write(work)
        if extractor is not None:
            self._extractors[id] = extractor
        self._wake(memory, id)
        return self.retrieve(id)

    def retrieve(self, id: str) -> Consolidation:
        """Return the job *id* with its proposal; raise NotFound."""
        memory, row = self._found(id, "read")
        if row.status not in ENDED:
            self._wake(memory, id)
        return memory.engine.read(lambda reader: _whole(memory, reader, id))

    def list(
        self,
        user: str | None = None,
        *,
        store: str | None = None,
        agent: str | None = None,
        status: JobStatus | None = None,
        limit: int | None = CONSOLIDATIONS_LISTED,
        page: str | None = None,
    ) -> Page[Consolidation]:
        """Return the jobs of a user, a store or an agent, or all, newest first.

        They are without their changes.
        """
        refuse_narrowed(self.context, "read")
        rows = check_limit(limit, most=MOST_LISTED, default=CONSOLIDATIONS_LISTED)
        if status is not None:
            kinds = get_args(JobStatus)
            check_one_of("status", status, kinds, f"must be one of {kinds}")
        kind, owner = _given(user, store, agent) or ("", "")
        stamp = digest(self.context.workspace, kind, owner, status or "")
        before = _HIGHEST
        if page is not None:
            match read_cursor(_LIST, stamp, page)[0]:
                case [str(id)] if "\0" not in id:
                    before = id
                case _:
                    raise no_cursor()
        engine = self._engine()
        found = engine.all(
            JobRow,
            engine.queries(_QUERIES).list_jobs,
            before=before,
            status=status or "",
            owner_kind=kind,
            owner=owner,
            rows=rows + 1,
        )
        last = found[rows - 1] if len(found) > rows else None
        return Page(
            [_record(row, ()) for row in found[:rows]],
            last and write_cursor(_LIST, stamp, [last.id]),
            more=lambda page: self.list(
                user, store=store, agent=agent, status=status, limit=limit, page=page
            ),
        )

    def cancel(self, id: str) -> Consolidation:
        """Stop the job *id*; what it has proposed stays. An ended job stays as it is."""
        memory, _ = self._found(id, "write")
        sql, now = statements(memory.engine), memory.now()
        memory.engine.write(lambda tx: tx.run(sql.cancel_job, id=id, now=now))
        return self.retrieve(id)

    def wait(self, id: str, timeout: float | None = 60.0) -> Consolidation:
        """Wait until the job *id* has ended, at most *timeout* seconds; return it."""
        end = None if timeout is None else monotonic() + timeout
        pause, never = _PAUSES[0], Event()
        while True:
            job = self.retrieve(id)
            left = pause if end is None else end - monotonic()
            if job.status in ENDED or left <= 0:
                return job
            never.wait(min(left, pause))
            pause = min(2 * pause, _PAUSES[1])

    def resume(self, id: str, *, budget: Budget | None = None, model: Any = None) -> Consolidation:
        """Go on with a partial, failed or interrupted job, with its budget again.

        A *model* that was given as an object is given again in another process. Raise Conflict for
        a job that runs or is done, has a closed proposal, or is a dream that has ended.
        """
        memory, row = self._found(id, "write")
        if row.proposal != "open":
            raise Conflict(f"The proposal of {id} is {row.proposal}.", next="Create another job.")
        if row.dream is not None and row.status in ENDED:
            raise Conflict("A dream that has ended is not resumed.", next="Start another dream.")
        limits = (budget or row.limits).checked()
        given = model if model is not None else self._extractors.get(id, row.task.model)
        name, extractor = self._extractor(given)
        request = replace(row.task, spent=JobUsage(), model=name or row.task.model)
        resumed = memory.engine.write(
            lambda tx: tx.run(
                statements(memory.engine).resume_job,
                id=id,
                budget=encoded(limits),
                request=encoded(request),
                now=memory.now(),
            )
        )
        if not resumed:
            raise Conflict(f"The consolidation {id} is {row.status}.", next="Create another job.")
        if extractor is not None:
            self._extractors[id] = extractor
        self._wake(memory, id)
        return self.retrieve(id)

    def accept(
        self, id: str, only: Iterable[str] | None = None, *, actor: Actor | None = None
    ) -> AppliedChanges:
        """Apply the open changes of a proposal, or of *only*, in one transaction.

        A change is refused alone, as stale, if one of its sources was changed or forgotten since.
        *actor* is who decided, by default the handle's.
        """
        if isinstance(only, str):
            raise InvalidInput("only", "must be a list of ids", given=only)
        acting = self.context
        if actor is not None:
            acting = replace(acting, actor=checked_actor(actor))
        memory, row = self._found(id, "write", acting)
        return accept(memory, row, None if only is None else [*only])

    def reject(self, id: str) -> Consolidation:
        """Reject the open changes of the proposal of the job *id*."""
        memory, row = self._found(id, "write")
        reject(memory, row)
        return self.retrieve(id)

    def undo(self, id: str) -> AppliedChanges:
        """Undo what was accepted: one `AppliedChanges.id`, or a job as a whole.

        What was changed since stays as it is, and is listed.
        """
        check_text("id", id, least=1, most=_MOST_ID)
        job, _, number = id.partition(".")
        if number and not (number.isascii() and number.isdigit()):
            raise NotFound("application", id)
        memory, row = self._found(job, "write")
        return undo(memory, row, int(number) if number else None)

    def replay(self, id: str) -> Proposal:
        """Return the proposal that the job *id* makes again from its log alone.

        Nothing is stored. Raise HistoryGone if a part of the log was forgotten.
        """
        memory, row = self._found(id, "read")
        if row.used.calls > len(calls_of(memory.engine, id)):
            raise HistoryGone(id, kind="complete log of")
        rows = replayed(memory, row)

        def read(reader: Reader) -> Proposal:
            changes = memory.shown(reader, row, rows)
            return Proposal(id=id, status="open", base=row.base, changes=changes)

        return memory.engine.read(read)

    def policy(
        self,
        user: str | None = None,
        *,
        store: str | None = None,
        agent: str | None = None,
        namespace: str = "chat",
        workspace_id: str | None = None,
        auto: Iterable[ChangeOp] = ("merge",),
        every_hours: int = 24,
        min_new: int = 20,
        model: str | None = None,
        budget: Budget | None = None,
        instructions: str = "",
    ) -> ConsolidationPolicy:
        """Consolidate one memory by itself from now on; return the policy.

        A server, or `holdfast scrub`, starts a job *every_hours*, once the memory had *min_new*
        writes since the last. Changes of the operations in *auto* are then accepted without a
        person; with none a person decides on all. It replaces an earlier policy of the memory.
        """
        refuse_narrowed(self.context, "write")
        check_text("instructions", instructions, least=0, most=MOST_INSTRUCTIONS)
        owner = self._owner(_given(user, store, agent), namespace, workspace_id)
        task = PolicyRequest(
            auto=cast("tuple[ChangeOp, ...]", auto if isinstance(auto, str) else tuple(auto)),
            every_hours=every_hours,
            min_new=min_new,
            model=model,
            budget=budget or Budget(),
            instructions=instructions,
        )
        now = self.context.now()
        return _policy(put_policy(self._engine(), owner.columns, checked_policy(task), now=now))

    def policies(self) -> "list[ConsolidationPolicy]":
        """Return the policies of the workspace, by kind and name."""
        refuse_narrowed(self.context, "read")
        return [_policy(row) for row in list_policies(self._engine())]

    def drop_policy(
        self,
        user: str | None = None,
        *,
        store: str | None = None,
        agent: str | None = None,
        namespace: str = "chat",
        workspace_id: str | None = None,
    ) -> bool:
        """Delete the policy of one memory; return whether there was one."""
        refuse_narrowed(self.context, "write")
        owner = self._owner(_given(user, store, agent), namespace, workspace_id)
        return drop_policy(self._engine(), owner.columns)

    def _engine(self) -> Engine:
        scope = Scope(workspace=self.context.workspace, agent="*", user="*")
        return self.context.engine.scoped(scope)

    def _owner(
        self, given: tuple[OwnerKind, str] | None, namespace: str, workspace_id: str | None
    ) -> _Owner:
        if given is None:
            raise InvalidInput("user", "or store or agent must be given")
        kind, name = given
        if kind == "store":
            demand_store(self.context, self.context.engine, name)
            return _Owner("store", name)
        if kind == "agent":
            checked_agent(name)
            return _Owner("agent", name)
        spec = LongTermSpec(user_id=name, namespace=namespace, workspace_id=workspace_id)
        context = collection_context(self.context, self.shared, spec)
        scope = _Scope(namespace=context.namespace, workspace_id=context.workspace_id)
        return _Owner("user", context.user, scope)

    def _found(
        self, id: str, needed: Literal["read", "write"], acting: StoresContext | None = None
    ) -> tuple[JobMemory, JobRow]:
        """Return the job *id* and its memory."""
        refuse_narrowed(self.context, needed)
        check_text("id", id, least=1, most=_MOST_ID)
        engine = self._engine()
        row = job_of(engine, statements(engine), id)
        return _memory(acting or self.context, self.shared, _Owner.of(row)), row

    def _wake(self, memory: JobMemory, id: str) -> None:
        """Schedule the job *id* on the background thread, if this process can do it."""
        row = job_of(memory.engine, statements(memory.engine), id)
        extractor = self._extractors.get(id)
        if row.task.model is not None and extractor is None:
            _, extractor = self._extractor(row.task.model)
            if extractor is None:
                return
        finish = None
        if row.dream is not None and isinstance(memory, StoreMemory):
            memory, finish = dreaming(memory, row)
        task = ConsolidationWork(memory, id, extractor, finish)
        self.shared.worker.wake(("consolidate", self.context.workspace, id), task)

    def _extractor(self, model: Any) -> tuple[str | None, Extractor | None]:
        """Return the name of *model* and the function that asks it; None for rules alone."""
        if model is None or model == _FUNCTION:
            return model, None
        wish = model_wish(self.shared, model)
        return wish.name, wish.extractor


_QUERIES: Final = "holdfast.memories.longterm.consolidation"
_FUNCTION: Final = "function"


def _memory(context: StoresContext, shared: Shared, owner: _Owner) -> JobMemory:
    """Return the memory of *owner*, as the actor of *context* changes it."""
    if owner.kind == "store":
        return StoreMemory(context, owner.name)
    if owner.kind == "agent":
        return AgentMemory(agent_context(context, owner.name))
    spec = LongTermSpec(
        user_id=owner.name,
        namespace=owner.scope.namespace,
        workspace_id=owner.scope.workspace_id or None,
    )
    collection = collection_context(context, shared, spec)
    return CollectionMemory(collection, lambda text: meant(equip(collection, None, None), text))


def _given(user: str | None, store: str | None, agent: str | None) -> tuple[OwnerKind, str] | None:
    """Return the kind and the name of the one that is given, None if none is."""
    named: tuple[tuple[OwnerKind, str | None], ...] = (
        ("user", user),
        ("store", store),
        ("agent", agent),
    )
    found: list[tuple[OwnerKind, str]] = [(kind, name) for kind, name in named if name is not None]
    if len(found) > 1:
        raise InvalidInput("user", "and store and agent exclude one another")
    return found[0] if found else None


def _whole(memory: JobMemory, reader: Reader, id: str) -> Consolidation:
    sql = statements(memory.engine)
    row = job_of(reader, sql, id)
    rows = reader.all(ProposedRow, sql.list_changes, id=id)
    return _record(row, memory.shown(reader, row, rows))


def _record(row: JobRow, changes: tuple[ProposedChange, ...]) -> Consolidation:
    scope, task = msgspec.json.decode(row.scope, type=_Scope), row.task
    return Consolidation(
        id=row.id,
        user=row.owner if row.owner_kind == "user" else None,
        store=row.owner if row.owner_kind == "store" else None,
        agent=row.owner if row.owner_kind == "agent" else None,
        namespace=scope.namespace or None,
        workspace_id=scope.workspace_id or None,
        into=task.into,
        status=msgspec.convert(row.status, JobStatus),
        model=task.model,
        instructions=task.instructions,
        budget=row.limits,
        progress=row.done,
        usage=row.used,
        proposal=Proposal(
            id=row.id,
            status=msgspec.convert(row.proposal, ProposalStatus),
            base=row.base,
            changes=changes,
        ),
        error=row.error,
        created_at=from_microseconds(row.created_at),
        ended_at=from_microseconds_or_none(row.ended_at),
    )


def _policy(row: PolicyRow) -> ConsolidationPolicy:
    owner, task = _Owner.of(row), row.task
    return ConsolidationPolicy(
        **{owner.kind: owner.name},
        namespace=owner.scope.namespace or None,
        workspace_id=owner.scope.workspace_id or None,
        auto=task.auto,
        every_hours=task.every_hours,
        min_new=task.min_new,
        model=task.model,
        budget=task.budget,
        instructions=task.instructions,
        job=row.job,
        due_at=from_microseconds(row.due_at),
        created_at=from_microseconds(row.created_at),
    )


# Policies are served by a server every few seconds, and by `holdfast scrub`.


def serve_policies(
    engine: Engine, shared: Shared, clock: Clock, *, wait: float = 0.0
) -> "list[str]":
    """Start the jobs of due policies of all workspaces; accept what they name.

    Wait *wait* seconds for each job. Return the ids of the jobs that were started.
    """
    started: list[str] = []
    for row in due_policies(engine, to_microseconds(clock.now())):
        context = upkeep_context(engine, row.workspace, clock)
        jobs = Consolidations(context, shared)
        try:
            id = _serve(jobs, context, shared, row)
            if id is None:
                continue
            started.append(id)
            if wait:
                jobs.wait(id, wait)
                found = next(each for each in list_policies(context.engine) if each.job == id)
                _serve(jobs, context, shared, found)
        except (Refused, NotFound, Conflict, InvalidInput) as error:
            _log.warning("a policy was not served: %s", type(error).__name__)
            _put_off(context, row, row.base)
    return started


def _serve(
    jobs: Consolidations, context: StoresContext, shared: Shared, row: PolicyRow
) -> str | None:
    """Take one policy a step on; return the id of a job that was started."""
    task, owner, now = row.task, _Owner.of(row), context.now()
    if row.job is not None:
        job = jobs.retrieve(row.job)
        if job.status in ENDED:
            _accept_of(jobs, job, task)
            _put_off(context, row, job.proposal.base)
        else:
            set_policy_job(context.engine, row, base=row.base, job=row.job, due_at=now + RETRY)
        return None
    if not claim_policy(context.engine, row, now):
        return None
    if _memory(context, shared, owner).writes_since(row.base) < max(1, task.min_new):
        set_policy_job(context.engine, row, base=row.base, job=None, due_at=now + HOUR)
        return None
    given: dict[str, Any] = {owner.kind: owner.name}
    if owner.kind == "user":
        scope = owner.scope
        given |= {"namespace": scope.namespace, "workspace_id": scope.workspace_id or None}
    job = jobs.create(model=task.model, budget=task.budget, instructions=task.instructions, **given)
    set_policy_job(context.engine, row, base=row.base, job=job.id, due_at=now)
    return job.id


def _accept_of(jobs: Consolidations, job: Consolidation, task: PolicyRequest) -> None:
    """Accept the open changes of *job* that its policy lets accept."""
    wanted = [
        each.id for each in job.proposal.changes if each.op in task.auto and each.state == "open"
    ]
    if job.proposal.status == "open" and wanted:
        jobs.accept(job.id, wanted)


def _put_off(context: StoresContext, row: PolicyRow, base: int) -> None:
    """Let a policy rest for its hours."""
    due = context.now() + row.task.every_hours * HOUR
    set_policy_job(context.engine, row, base=base, job=None, due_at=due)
