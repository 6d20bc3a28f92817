"""Forget a person or an agent in every memory, with a ledger row and a receipt."""

import logging
from typing import Any, Final

from msgspec import Struct

from holdfast import library, memories
from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput, Unavailable
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.ground.trust import HELD_DAYS
from holdfast.library.erasure.ledger import (
    ERASURES,
    UNREACHED,
    LedgerRow,
    OutsideVectors,
    add_counts,
    begin,
    complete,
    encoded,
    put_pending,
    row_of,
    statements,
    subject_of,
    whole,
)
from holdfast.library.erasure.mentions import (
    checked_mentions,
    find_mentions,
    name_hashes,
    sought_names,
)
from holdfast.library.erasure.places import (
    StoresErasure,
    drop_vectors,
    erase_linked,
    forget_held_file,
    outside_durable,
    outside_longterm,
    upkeep_context,
    vectors_of,
)
from holdfast.library.erasure.proof import Evidence, evidence_of, prove, unreached_of
from holdfast.library.erasure.receipt import signing_key
from holdfast.library.erasure.records import (
    ErasureOptions,
    ErasureSubject,
    ForgetReport,
    Mentions,
    Unreached,
)
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import checked_agent
from holdfast.memories.durable.records import DAY
from holdfast.memories.longterm.context import CollectionContext
from holdfast.memories.longterm.trust.holds import forget_expired
from holdfast.memories.stores.rows import StoresContext, refuse_narrowed

_log = logging.getLogger(__name__)

_NO_EVIDENCE: Final = Evidence(needles=(), owned=",", since=None, keys=0, shared=0)


class _Erasing(Struct, frozen=True, kw_only=True):
    """An erasure at work, with all that it needs."""

    context: StoresContext
    shared: "memories.Shared"
    row: LedgerRow
    key: Any
    subject: ErasureSubject | None


def forget_agent(
    context: StoresContext,
    shared: "memories.Shared",
    agent: str,
    options: ErasureOptions,
) -> ForgetReport:
    """Forget *agent*: durable memory, results in threads, runs, and its name."""
    refuse_narrowed(context, "admin")
    checked_agent(agent)
    return _forget(context, shared, ErasureSubject(kind="agent", name=agent), options)


def forget_user(
    context: StoresContext,
    shared: "memories.Shared",
    user_id: str,
    options: ErasureOptions,
) -> ForgetReport:
    """Forget all data of *user_id* in the workspace of *context*, and the name."""
    refuse_narrowed(context, "admin")
    user = _collection(context, shared, user_id).user
    return _forget(context, shared, ErasureSubject(kind="user", name=user), options)


def _forget(
    context: StoresContext,
    shared: "memories.Shared",
    subject: ErasureSubject,
    options: ErasureOptions,
) -> ForgetReport:
    checked_mentions(options)
    key = signing_key()
    names, redact = sought_names(subject, options), options.mentions == "redact"
    row = begin(context, subject, lambda secret: name_hashes(secret, names if redact else ()))
    erasing = _Erasing(context=context, shared=shared, row=row, key=key, subject=subject)
    done = _erase(erasing)
    row, pending = done.row, done.pending
    mentions = find_mentions(context, names, redact=redact)
    if done.heads:
        mentions["versions"] = Mentions(count=len(done.heads), ids=done.heads)
    redacted = any(each.redacted for each in mentions.values())
    pending = (*pending, *context.engine.scrub().pending) if redacted else pending
    return ForgetReport(
        counts=done.counts,
        pending=tuple(dict.fromkeys(pending)),
        unreached=row.places,
        mentions=mentions,
        receipt=row.sealed if options.receipt else None,
    )


class _Erasure(Struct, frozen=True, kw_only=True):
    """The row of an erasure, deleted rows by table, and what remains."""

    row: LedgerRow
    counts: dict[str, int]
    pending: tuple[str, ...]
    heads: tuple[str, ...]


def _erase(erasing: _Erasing) -> _Erasure:
    """Delete what is left of the subject, prove it, and complete the ledger's row.

    Each step may be repeated, so that it goes on after a crash at any of them.
    """
    context, subject, row = erasing.context, erasing.subject, erasing.row
    counts, heads = dict[str, int](), tuple[str, ...]()
    evidence, vectors, places = _NO_EVIDENCE, row.vectors, row.places
    if subject is not None and row.state == "running":
        evidence = evidence_of(context, subject)
        if subject.kind == "user":
            vectors += vectors_of(context, subject.name)
        counts, heads, places = _delete_all(erasing, subject, evidence, vectors)
    remaining = drop_vectors(_providers(erasing), vectors) if vectors else ()
    pending = (*context.engine.scrub().pending, *_where(remaining))
    proof = prove(
        context,
        subject or ErasureSubject(kind=row.kind, name=""),
        evidence,
        at=row.at,
        seq=row.seq,
    )
    if proof.found:
        pending = (*pending, f"{proof.found} rows or texts were found after the deletion")
    if pending:
        row = put_pending(context, row, places, remaining)
    else:
        row = complete(context, row, places, proof, key=erasing.key)
        UNREACHED.add(by=sum(each.count for each in places))
    ERASURES.add(row.kind, "pending" if pending else "completed")
    return _Erasure(row=row, counts=counts, pending=pending, heads=heads)


def _delete_all(
    erasing: _Erasing,
    subject: ErasureSubject,
    evidence: Evidence,
    vectors: tuple[OutsideVectors, ...],
) -> tuple[dict[str, int], tuple[str, ...], tuple[Unreached, ...]]:
    """Delete all of *subject*; return counts, heads left, what was not reached.

    What must be known after a crash is in the ledger before the rows that name it are deleted.
    """
    context, row = erasing.context, erasing.row
    engine = whole(context)
    sql = statements(engine)
    linked = StoresErasure()
    if subject.kind == "user":
        linked = erase_linked(context, subject.name)
    counts = dict(linked.counts)
    places = unreached_of(context, evidence, linked, until=row.seq)

    def keep(tx: Transaction) -> None:
        add_counts(tx, sql, row.id, counts)
        tx.run(sql.keep_places, id=row.id, pending=encoded(vectors), unreached=encoded(places))

    engine.write(keep)
    for table, rows in _delete(erasing, subject).items():
        counts[table] = counts.get(table, 0) + rows
    return counts, linked.heads, places


def _where(vectors: tuple[OutsideVectors, ...]) -> tuple[str, ...]:
    providers = sorted({each.provider for each in vectors})
    return tuple(f"vectors in {each}, outside the database" for each in providers)


def _delete(erasing: _Erasing, subject: ErasureSubject) -> dict[str, int]:
    """Delete the rows of *subject* in one transaction, with the ledger's counts."""
    context, row = erasing.context, erasing.row
    sql = statements(context.engine)

    def done(tx: Transaction, counts: dict[str, int]) -> None:
        add_counts(tx, sql, row.id, counts)
        tx.run(sql.set_deleted, id=row.id, workspace=context.workspace)

    workspace, name = context.workspace, subject.name
    if subject.kind == "user":
        erasing.shared.access_log.flush()
        collection = _collection(context, erasing.shared, name)
        also = outside_longterm(context.engine, workspace, name)
        return memories.forget_user(collection, also, done)
    agents = _agents(context)
    also = outside_durable(agents.engine, workspace, name)
    return memories.forget_agent(agents, name, also, done)


def _agents(context: StoresContext) -> AgentContext:
    return AgentContext(
        engine=context.engine.scoped(Scope(workspace=context.workspace, agent="*")),
        workspace=context.workspace,
        agent=memories.SHARED,
        actor=context.actor,
        clock=context.clock,
        ids=context.ids,
    )


def _collection(context: StoresContext, shared: "memories.Shared", user: str) -> CollectionContext:
    return library.collection_context(context, shared, library.LongTermSpec(user_id=user))


def _providers(erasing: _Erasing) -> CollectionContext:
    """Return a context that opens vector providers, for vectors of any user."""
    name = "erasure" if erasing.subject is None else erasing.subject.name
    return _collection(erasing.context, erasing.shared, name)


# Erasures that a crash, a reader or a provider left unfinished


def finish_erasures(
    engine: Engine, shared: "memories.Shared", clock: Clock, *, grace: int = 0
) -> int:
    """Finish the erasures of all workspaces that are not complete; return how many.

    The name of the subject is not stored: it is found among those in the database, by its hash.
    Those younger than *grace* microseconds are left alone. Raises Unavailable.
    """
    everywhere = engine.scoped(EVERYBODY)
    finished = 0
    for workspace, id in everywhere.rows(statements(engine).unfinished):
        context = upkeep_context(engine, workspace, clock)
        row = row_of(whole(context), statements(engine), id)
        if grace and row.at + grace > context.now():
            continue
        subject = subject_of(whole(context), statements(engine), row)
        erasing = _Erasing(
            context=context, shared=shared, row=row, key=signing_key(), subject=subject
        )
        finished += not _erase(erasing).pending
    return finished


def finish_at_open(engine: Engine, shared: "memories.Shared", clock: Clock) -> None:
    """Finish erasures as `finish_erasures`; log what prevents it."""
    try:
        finish_erasures(engine, shared, clock)
    except (Unavailable, InvalidInput) as error:
        _log.warning("an erasure could not be finished: %s", type(error).__name__)


# Held texts that no person has decided on


def forget_held(
    engine: Engine, shared: "memories.Shared", clock: Clock, *, workspace: str = "*"
) -> None:
    """Forget files of stores and rows of long-term memory that were held for 30 days.

    Held entries of durable memory expire. Of a file older versions stay that are not held. Raises
    Unavailable.
    """
    reader = engine.scoped(Scope(workspace=workspace, agent="*", user="*"))
    sql, before = statements(engine), to_microseconds(clock.now()) - HELD_DAYS * DAY
    for each, store, memory in reader.rows(sql.held_files, before=before):
        forget_held_file(upkeep_context(engine, each, clock), store, memory)
    for each, user, namespace, workspace_id in reader.rows(sql.held_collections):
        spec = library.LongTermSpec(
            user_id=user, namespace=namespace, workspace_id=workspace_id or None
        )
        context = upkeep_context(engine, each, clock)
        forget_expired(library.collection_context(context, shared, spec))
