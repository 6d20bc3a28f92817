"""`hf.consolidations`: jobs that propose changes to a memory, and decisions."""

from collections.abc import Iterable, Sequence
from threading import Event
from time import monotonic
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import Conflict, HistoryGone, InvalidInput, NotFound
from holdfast.ground.pages import Page, digest, no_cursor, read_cursor, write_cursor
from holdfast.ground.scope import Actor, Scope, checked_actor
from holdfast.ground.validation import check_limit, check_one_of, check_text
from holdfast.library.longterm import LongTermSpec, collection_context, equip
from holdfast.memories.longterm.consolidation.apply import (
    accept,
    is_fresh,
    job_of,
    reject,
    seen_of,
    turns_of,
    undo,
)
from holdfast.memories.longterm.consolidation.drafts import replayed
from holdfast.memories.longterm.consolidation.jobs import (
    ConsolidationWork,
    JobRow,
    ProposedRow,
    calls_of,
    job_event,
    statements,
)
from holdfast.memories.longterm.consolidation.records import (
    ENDED,
    AppliedChanges,
    Budget,
    ChangeState,
    Consolidation,
    JobProgress,
    JobRequest,
    JobStatus,
    JobUsage,
    Proposal,
    ProposalStatus,
    ProposedChange,
    encoded,
)
from holdfast.memories.longterm.consolidation.rules import ChangeAfter, ChangeOp
from holdfast.memories.longterm.context import CollectionContext, Extractor, Shared
from holdfast.memories.longterm.read import collection_of
from holdfast.memories.longterm.records import Item
from holdfast.memories.longterm.rows import ItemRow, NumberedRow, numbers_text
from holdfast.memories.longterm.transaction import CollectionTransaction
from holdfast.memories.longterm.vectors.compare import meant
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

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
    namespace: str
    workspace_id: str


class Consolidations:
    """Jobs that propose changes to the memories of users, and decisions on them."""

    def __init__(self, context: StoresContext, shared: Shared) -> None:
        self._context, self._shared = context, shared
        self._extractors: dict[str, Extractor] = {}

    def create(
        self,
        user: str,
        *,
        namespace: str = "chat",
        workspace_id: str | None = None,
        model: Any = None,
        budget: Budget | None = None,
        instructions: str = "",
    ) -> Consolidation:
        """Start a job that proposes changes to *user*'s collection, and return it at once.

        It changes nothing itself. *model* is `provider:model`, one of pydantic-ai's models, or a
        function, as an extractor; without it rules alone propose. *instructions* are for it.
        """
        refuse_narrowed(self._context, "write")
        check_text("instructions", instructions, least=0, most=MOST_INSTRUCTIONS)
        limits = (budget or Budget()).checked()
        spec = LongTermSpec(user_id=user, namespace=namespace, workspace_id=workspace_id)
        context = collection_context(self._context, self._shared, spec)
        name, extractor = _extractor(context, model)
        id = context.ids.new("cons", context.now())
        request = JobRequest(model=name, instructions=instructions)

        def work(tx: Transaction) -> None:
            unit = CollectionTransaction(context, tx)
            scope = _Scope(namespace=context.namespace, workspace_id=context.workspace_id)
            tx.run(
                statements(context).put_job,
                id=id,
                owner=context.user,
                scope=encoded(scope),
                request=encoded(request),
                base=unit.there.version,
                budget=encoded(limits),
                usage=encoded(JobUsage()),
                progress=encoded(JobProgress()),
                now=unit.now,
            )
            tx.note(job_event(context, "started", id))
            unit.close()

        context.engine.write(work)
        if extractor is not None:
            self._extractors[id] = extractor
        self._wake(context, id)
        return self.retrieve(id)

    def retrieve(self, id: str) -> Consolidation:
        """Return the job *id* with its proposal; raise NotFound."""
        context, row = self._found(id, "read")
        if row.status not in ENDED:
            self._wake(context, id)
        return context.engine.read(lambda reader: _whole(context, reader, id))

    def list(
        self,
        user: str | None = None,
        *,
        status: JobStatus | None = None,
        limit: int | None = CONSOLIDATIONS_LISTED,
        page: str | None = None,
    ) -> Page[Consolidation]:
        """Return the jobs of *user*, or of all users, newest first, without their changes."""
        refuse_narrowed(self._context, "read")
        rows = check_limit(limit, most=MOST_LISTED, default=CONSOLIDATIONS_LISTED)
        if status is not None:
            kinds = get_args(JobStatus)
            check_one_of("status", status, kinds, f"must be one of {kinds}")
        stamp = digest(self._context.workspace, user or "", status or "")
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
            owner=user or "",
            rows=rows + 1,
        )
        last = found[rows - 1] if len(found) > rows else None
        return Page(
            [_record(row, ()) for row in found[:rows]],
            last and write_cursor(_LIST, stamp, [last.id]),
            more=lambda page: self.list(user, status=status, limit=limit, page=page),
        )

    def cancel(self, id: str) -> Consolidation:
        """Stop the job *id*; what it has proposed stays. An ended job stays as it is."""
        context, _ = self._found(id, "write")
        sql, now = statements(context), context.now()
        context.engine.write(lambda tx: tx.run(sql.cancel_job, id=id, now=now))
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
        a job that runs or is done, or has a closed proposal.
        """
        context, row = self._found(id, "write")
        if row.proposal != "open":
            raise Conflict(f"The proposal of {id} is {row.proposal}.", next="Create another job.")
        limits = (budget or row.limits).checked()
        given = model if model is not None else self._extractors.get(id, row.task.model)
        name, extractor = _extractor(context, given)
        request = replace(row.task, spent=JobUsage(), model=name or row.task.model)
        resumed = context.engine.write(
            lambda tx: tx.run(
                statements(context).resume_job,
                id=id,
                budget=encoded(limits),
                request=encoded(request),
                now=context.now(),
            )
        )
        if not resumed:
            raise Conflict(f"The consolidation {id} is {row.status}.", next="Create another job.")
        if extractor is not None:
            self._extractors[id] = extractor
        self._wake(context, id)
        return self.retrieve(id)

    def accept(
        self, id: str, only: Iterable[str] | None = None, *, actor: Actor | None = None
    ) -> AppliedChanges:
        """Apply the open changes of a proposal, or of *only*, in one transaction.

        A change is refused alone, as stale, if one of its items or turns was changed or forgotten
        since. *actor* is who decided, by default the handle's.
        """
        if isinstance(only, str):
            raise InvalidInput("only", "must be a list of ids", given=only)
        context, _ = self._found(id, "write")
        if actor is not None:
            context = replace(context, actor=checked_actor(actor))
        equipped = equip(context, None, None)
        chosen: Sequence[str] | None = None if only is None else [*only]
        return accept(context, id, chosen, lambda text: meant(equipped, text))

    def reject(self, id: str) -> Consolidation:
        """Reject the open changes of the proposal of the job *id*."""
        context, _ = self._found(id, "write")
        reject(context, id)
        return self.retrieve(id)

    def undo(self, id: str) -> AppliedChanges:
        """Undo what was accepted: one `AppliedChanges.id`, or a job as a whole.

        Items that were changed since stay as they are, and are listed.
        """
        check_text("id", id, least=1, most=_MOST_ID)
        job, _, number = id.partition(".")
        if number and not (number.isascii() and number.isdigit()):
            raise NotFound("application", id)
        context, _ = self._found(job, "write")
        return undo(context, job, int(number) if number else None)

    def replay(self, id: str) -> Proposal:
        """Return the proposal that the job *id* makes again from its log alone.

        Nothing is stored. Raise HistoryGone if a part of the log was forgotten.
        """
        context, row = self._found(id, "read")
        logged = {each.n: each.answer for each in calls_of(context, id)}
        if row.used.calls > len(logged):
            raise HistoryGone(id, kind="complete log of")
        made = replayed(context, row.task, logged)
        rows = [
            ProposedRow(n=place, state="open", applied=None, **columns)
            for place, columns in enumerate(made, 1)
        ]

        def read(reader: Reader) -> Proposal:
            changes = _changes(context, reader, id, rows)
            return Proposal(id=id, status="open", base=row.base, changes=changes)

        return context.engine.read(read)

    def _engine(self) -> Any:
        scope = Scope(workspace=self._context.workspace, agent="*", user="*")
        return self._context.engine.scoped(scope)

    def _found(self, id: str, needed: Literal["read", "write"]) -> tuple[CollectionContext, JobRow]:
        """Return the job *id* and the context of its collection."""
        refuse_narrowed(self._context, needed)
        check_text("id", id, least=1, most=_MOST_ID)
        engine = self._engine()
        row = engine.first(JobRow, engine.queries(_QUERIES).get_job, id=id)
        if row is None:
            raise NotFound("consolidation", id)
        scope = msgspec.json.decode(row.scope, type=_Scope)
        spec = LongTermSpec(
            user_id=row.owner,
            namespace=scope.namespace,
            workspace_id=scope.workspace_id or None,
        )
        return collection_context(self._context, self._shared, spec), row

    def _wake(self, context: CollectionContext, id: str) -> None:
        """Schedule the job *id* on the background thread, if this process can do it."""
        row = context.engine.read(lambda reader: job_of(context, reader, id))
        extractor = self._extractors.get(id)
        if row.task.model is not None and extractor is None:
            _, extractor = _extractor(context, row.task.model)
            if extractor is None:
                return
        task = ConsolidationWork(context, id, extractor)
        self._shared.worker.wake(("consolidate", context.workspace, id), task)


_QUERIES: Final = "holdfast.memories.longterm.consolidation"


def _extractor(context: CollectionContext, model: Any) -> tuple[str | None, Extractor | None]:
    """Return the name of *model* and the function that asks it; None for rules alone."""
    if model is None:
        return None, None
    if model == _FUNCTION:
        return _FUNCTION, None
    wish = equip(context, False, model).wish(None)
    return wish.name, wish.extractor


_FUNCTION: Final = "function"


def _whole(context: CollectionContext, reader: Reader, id: str) -> Consolidation:
    row = job_of(context, reader, id)
    rows = reader.all(ProposedRow, statements(context).list_changes, id=id)
    return _record(row, _changes(context, reader, id, rows))


def _changes(
    context: CollectionContext, reader: Reader, id: str, rows: Sequence[ProposedRow]
) -> tuple[ProposedChange, ...]:
    """Return changes with their items as they are now; open ones may be stale by now."""
    collection = collection_of(context, reader)
    if collection is None:
        return ()
    number = collection.number
    ids = sorted({seen for row in rows for seen, _ in seen_of(row)})
    items: dict[str, Item] = {}
    for each in ids:
        found = reader.first(NumberedRow, context.sql.item_number, collection=number, id=each)
        if found is not None:
            place = {"collection": number, "numbers": numbers_text([found.number])}
            items[each] = reader.one(ItemRow, context.sql.items_numbered, **place).record()
    changes: list[ProposedChange] = []
    for row in rows:
        stale = row.state == "open" and not is_fresh(context, reader, number, row)
        state: ChangeState = "stale" if stale else msgspec.convert(row.state, ChangeState)
        changes.append(
            ProposedChange(
                id=f"{id}.{row.n}",
                op=msgspec.convert(row.op, ChangeOp),
                state=state,
                reason=row.reason,
                before=tuple(items[seen] for seen, _ in seen_of(row) if seen in items),
                after=msgspec.json.decode(row.after, type=ChangeAfter),
                evidence=turns_of(row),
            )
        )
    return tuple(changes)


def _record(row: JobRow, changes: tuple[ProposedChange, ...]) -> Consolidation:
    scope, task = msgspec.json.decode(row.scope, type=_Scope), row.task
    return Consolidation(
        id=row.id,
        user=row.owner,
        namespace=scope.namespace,
        workspace_id=scope.workspace_id or None,
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
