"""Write one entry within a transaction.

All checks that can refuse the write come before the first change.
"""

from typing import Final, Literal, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import astuple

from holdfast.engines.base import scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Forgotten, MemoryFull, PreconditionFailed, RunRequired
from holdfast.ground.metrics import REGISTRY
from holdfast.ground.scope import user_hash
from holdfast.ground.trust import (
    HELD_DAYS,
    Provenance,
    Tier,
    changed_provenance,
    provenance,
    tier_of_writer,
)
from holdfast.memories.durable.records import (
    CONVERSATION,
    CORE,
    DAILY,
    DAY,
    HOUR,
    WORKSPACE,
    Cause,
    Gone,
    Op,
    Outcome,
    StoredEntry,
    Tombstone,
    key_hash,
    label_of,
)
from holdfast.memories.durable.rows import SHARED, EntryLocation, EntryRow, RowStamp, by_of
from holdfast.memories.durable.rules import Leaving, crowded, who_goes
from holdfast.memories.durable.transaction import AgentTransaction
from holdfast.memories.durable.validation import CheckedEntry, near_miss, refuse_long

_STORED: Final = REGISTRY.counter(
    "durable_stored_total", "Writes of entries.", outcome=get_args(Outcome)
)


PROMOTED_FROM: Final = "promoted_from"
"""Name in the log for the key that an entry was promoted from."""

OPS: dict[Outcome, Op] = {"created": "create", "replaced": "replace", "refreshed": "refresh"}

Shadowed = Literal["workspace", "agent"]

ERASURE: Final = "the erasure of its person"
"""What forgot an entry, in the error for a write of a run that began before."""


class EntryWrite(Struct, frozen=True, kw_only=True):
    """Options of the write of one entry.

    *expected_seq* is the `seq` of the entry to overwrite, 0 for none. *born* and *written* are an
    imported entry's own times, in microseconds. *op* is the operation for the log, if not that of
    the outcome. Under an *idempotency_key* a repeat returns the first result and writes nothing.
    Without *moves* an entry of the same key stays in a nearer scope. The entry is linked to the
    person *subject*. With an *origin_ref* it is from outside; *source* is a provenance of its own.
    """

    refresh: bool = True
    expected_seq: int | UnsetType | None = UNSET
    cause: Cause = msgspec.field(default_factory=dict[str, str])
    born: int | None = None
    written: int | None = None
    op: Op | None = None
    idempotency_key: str | None = None
    moves: bool = True
    subject: str | None = None
    origin_ref: str | None = None
    source: Provenance | None = None


PLAIN = EntryWrite()


def needs_shared(category: str) -> bool:
    """Return whether entries of *category* belong to the workspace."""
    return category == WORKSPACE


def store(
    unit: AgentTransaction, request: CheckedEntry, options: EntryWrite = PLAIN
) -> StoredEntry:
    """Write *request*; return it with the effects of the write.

    *unit* was opened at its key. Raises RunRequired, Forgotten, PreconditionFailed, MemoryFull,
    InvalidInput; then nothing is changed.
    """
    place = unit.context.place_of(request.category)
    if request.category == CONVERSATION and not place.run:
        raise RunRequired
    refuse_long(request, most=unit.limits.content_bytes)
    refuse_forgotten(unit, request.key)
    subject = _subject(unit, options)
    before = unit.at(place, request.key)
    _refuse_unexpected(unit, request.key, before, options)
    outcome = _outcome(before, request, options)
    leaving = None if before else _leaving(unit, request, place)
    shadows = _move_nearer(unit, request.key, place) if options.moves else None
    evicted = () if leaving is None else _evict(unit, request.key, place, leaving)
    if before is None or outcome != "unchanged":
        row = unit.put(
            _row(unit, request, options, before, place), options.op or OPS[outcome], options.cause
        )
        unit.note(
            "stored", outcome=outcome, category=label_of(request.category), size=row.size_bytes
        )
    else:
        row = before
    if subject is not None and (options.subject is not None or outcome != "unchanged"):
        unit.tx.send(unit.sql.link_entry, subject=subject, id=row.id, now=unit.now)
    unit.count(_STORED, outcome)
    # Reported once, with the first entry that a batch stores.
    expired, unit.expired = unit.expired, ()
    return StoredEntry(
        *astuple(row.record(unit.context.workspace)),
        outcome=outcome,
        evicted=evicted,
        expired=expired,
        shadows=shadows,
        notices=notices(request, core=core_held(unit), cap=unit.limits.cap),
    )


def core_held(unit: AgentTransaction) -> int:
    """Return how many core entries the agent has, pending ones included."""
    return unit.held(EntryLocation(unit.context.agent)).core


def refuse_forgotten(unit: AgentTransaction, key: str) -> None:
    """Raise Forgotten if another client forgot *key* after the run began."""
    opened, run = unit.opened, unit.context.run
    knew = {unit.context.agent: opened.knew_seq or 0, SHARED: opened.knew_shared_seq or 0}
    now = {unit.context.agent: opened.forgot_seq, SHARED: opened.shared_forgot_seq or 0}
    if run is None or opened.secret is None or now == knew:
        return
    hashed = key_hash(opened.secret, key)
    for each in unit.tx.all(Tombstone, unit.sql.tombstones_of, key_hash=hashed, run_id=run.run_id):
        by = by_of(each.actor)
        ours = (by.run_id, by.run_token) == (run.run_id, run.token)
        if each.seq > knew[each.agent] and not ours:
            raise Forgotten(from_microseconds(each.at), str(by))


class _Erased(Struct, frozen=True, kw_only=True):
    seq: int
    at: int


def _subject(unit: AgentTransaction, options: EntryWrite) -> str | None:
    """Return the person to link the entry to, or None.

    Raise Forgotten if the person was erased after the run, or the work of the handle, began.
    """
    given, run = unit.context.subject, unit.context.run
    subject = options.subject or (None if given is None else given.user)
    if subject is None or (run is None and (given is None or given.since is None)):
        return subject
    secret = unit.tx.first(scalar, unit.sql.workspace_secret)
    if secret is None:
        return subject
    erased = unit.tx.first(_Erased, unit.sql.erased, user_hash=user_hash(secret, subject))
    if erased is None:
        return subject
    if (run is not None and erased.seq > run.token) or (given and given.outlived(erased.at)):
        raise Forgotten(from_microseconds(erased.at), ERASURE)
    return subject


def _refuse_unexpected(
    unit: AgentTransaction, key: str, before: EntryRow | None, options: EntryWrite
) -> None:
    expected = options.expected_seq
    if expected is UNSET or expected is None or expected == (before.seq if before else 0):
        return
    current = None if before is None else before.record(unit.context.workspace)
    raise PreconditionFailed(key, expected=expected, current=current)


def _outcome(before: EntryRow | None, request: CheckedEntry, options: EntryWrite) -> Outcome:
    if before is None:
        return "created"
    if not before.holds(request):
        return "replaced"
    if options.source is not None and options.source != before.provenance:
        return "replaced"
    return "refreshed" if options.refresh else "unchanged"


def _source(
    unit: AgentTransaction, request: CheckedEntry, options: EntryWrite, before: EntryRow | None
) -> Provenance:
    """Return the provenance of the content; an unchanged one keeps what it had."""
    if options.source is not None:
        return options.source
    if before is not None and before.content == request.content:
        return before.provenance
    context = unit.context
    # A promoted value was made in a run.
    in_run = context.run is not None or PROMOTED_FROM in options.cause
    tier: Tier | None = context.tier if options.origin_ref is None else "outside"
    own = tier_of_writer(context.actor, tier, in_run=in_run)
    source = provenance(request.content, own, options.origin_ref)
    return (
        source if before is None else changed_provenance(request.content, before.provenance, source)
    )


def _leaving(unit: AgentTransaction, request: CheckedEntry, place: EntryLocation) -> Leaving:
    """Return how many entries a new one evicts; raise MemoryFull if none may."""
    held, limits = unit.held(place), unit.limits
    cap = limits.run_cap if place.run else limits.cap if place.owner else limits.workspace_cap
    leaving = who_goes(held, cap=cap, core=request.category == CORE)
    if leaving != "full":
        return leaving
    coldest = unit.tx.all(scalar, unit.sql.coldest_keys, owner=place.owner, run=place.run, rows=3)
    raise MemoryFull(cap=cap, entries=held.entries, core_entries=held.core, coldest=tuple(coldest))


def _evict(
    unit: AgentTransaction, key: str, place: EntryLocation, leaving: Leaving
) -> tuple[Gone, ...]:
    return tuple(
        gone
        for pinned, count in ((False, leaving.windowed), (True, leaving.core))
        for gone in evict(unit, place, pinned=pinned, count=count, evicted_for=key)
    )


def evict(
    unit: AgentTransaction,
    place: EntryLocation,
    *,
    pinned: bool,
    count: int,
    cause: Cause | None = None,
    evicted_for: str | None = None,
) -> list[Gone]:
    """Evict the *count* coldest entries of one tier of *place*."""
    gone: list[Gone] = []
    while len(gone) < count and (row := unit.coldest(place, pinned=pinned)) is not None:
        unit.take(row, "evict", cause=cause, evicted_for=evicted_for)
        gone.append(row.gone())
    return gone


def _move_nearer(unit: AgentTransaction, key: str, place: EntryLocation) -> Shadowed | None:
    """Delete nearer entries under *key*; return the next farther scope."""
    shadows: Shadowed | None = None
    for other in unit.context.places:
        row = unit.at(other, key)
        if row is None or other == place:
            continue
        if other.distance < place.distance:
            unit.take(row, "move", cause={"moved_to": place.scope})
        elif shadows is None:
            shadows = "agent" if other.owner else "workspace"
    return shadows


def _row(
    unit: AgentTransaction,
    request: CheckedEntry,
    options: EntryWrite,
    before: EntryRow | None,
    place: EntryLocation,
) -> EntryRow:
    """Return the new row; `put` sets its number."""
    written = unit.now if options.written is None else options.written
    born = written if options.born is None else options.born
    source = _source(unit, request, options, before)
    ends = [written + unit.limits.daily_hours * HOUR] if request.category == DAILY else []
    if source.held is not None:
        # A held entry waits from when it was first held, whatever is written to it.
        since = before.expires_at if before is not None and before.held is not None else None
        ends.append(since or unit.now + HELD_DAYS * DAY)
    stamp = RowStamp(
        id=before.id if before else unit.context.ids.new("entry", unit.now),
        seq=0,
        created_at=before.created_at if before else born,
        updated_at=written,
        expires_at=min(ends, default=None),
        created_by=before.created_by if before else unit.by,
        updated_by=unit.by,
        tier=source.tier,
        origin_ref=source.origin_ref,
        held=source.held,
    )
    return EntryRow.of(place, request, stamp)


def notices(request: CheckedEntry, *, core: int, cap: int) -> tuple[str, ...]:
    """Return the notices for the writer of *request*.

    *core* is the number of core entries, of at most *cap*.
    """
    texts = [near_miss(request.category)]
    if request.category == CORE:
        texts.append(crowded(core, cap))
    return tuple(each for each in texts if each is not None)
