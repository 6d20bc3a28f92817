"""Write one entry within a transaction.

Whatever can refuse the write is asked before anything is changed.
"""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Forgotten, MemoryFull, PreconditionFailed, RunRequired
from holdfast.memories.durable.records import (
    CONVERSATION,
    CORE,
    DAILY,
    HOUR,
    WORKSPACE,
    Cause,
    DurableEntry,
    Gone,
    Op,
    Outcome,
    StoredEntry,
    Tombstone,
    key_hash,
    label_of,
)
from holdfast.memories.durable.rows import SHARED, EntryLocation, EntryRow, by_of, tags_text
from holdfast.memories.durable.rules import Leaving, crowded, who_goes
from holdfast.memories.durable.transaction import AgentTransaction
from holdfast.memories.durable.validation import CheckedEntry, near_miss, refuse_long

OPS: dict[Outcome, Op] = {"created": "create", "replaced": "replace", "refreshed": "refresh"}

Shadowed = Literal["workspace", "agent"]


class EntryWrite(Struct, frozen=True, kw_only=True):
    """How an entry is to be written.

    *expected_seq* is that of the entry to be written over, 0 for none. *born* and *written* are
    an imported entry's own times, in microseconds. *op* is what the log calls the write, where
    that is not told by its outcome. Under an *idempotency_key* a repeat is answered, not written.
    Without *moves* an entry of the same key stays in a nearer scope.
    """

    refresh: bool = True
    expected_seq: int | UnsetType | None = UNSET
    cause: Cause = msgspec.field(default_factory=dict[str, str])
    born: int | None = None
    written: int | None = None
    op: Op | None = None
    idempotency_key: str | None = None
    moves: bool = True


PLAIN = EntryWrite()


def needs_shared(category: str) -> bool:
    """Tell whether an entry of *category* is written among the workspace's."""
    return category == WORKSPACE


def store(book: AgentTransaction, asked: CheckedEntry, wish: EntryWrite = PLAIN) -> StoredEntry:
    """Write *asked*, whose key *book* was opened at; return it with what that brings about.

    Raises RunRequired, Forgotten, PreconditionFailed, MemoryFull, InvalidInput; then nothing is
    changed.
    """
    place = _place(book, asked)
    refuse_long(asked, most=book.limits.content_bytes)
    refuse_forgotten(book, asked.key)
    before = book.at(place, asked.key)
    _refuse_unexpected(book, asked.key, before, wish)
    outcome = _outcome(before, asked, wish)
    leaving = None if before else _leaving(book, asked, place)
    shadows = _move_nearer(book, asked.key, place) if wish.moves else None
    evicted = () if leaving is None else _evict(book, asked.key, place, leaving)
    if before is None or outcome != "unchanged":
        row = book.put(_row(book, asked, wish, before, place), wish.op or OPS[outcome], wish.cause)
        book.note("stored", outcome=outcome, category=label_of(asked.category), size=row.size_bytes)
    else:
        row = before
    book.count("stored_total", outcome)
    # Told once, with the first entry that a batch stores.
    expired, book.expired = book.expired, ()
    return stored(
        row.record(book.caller.workspace),
        outcome=outcome,
        evicted=evicted,
        expired=expired,
        shadows=shadows,
        notices=notices(asked, core=core_held(book), cap=book.limits.cap),
    )


def stored(
    entry: DurableEntry,
    *,
    outcome: Outcome,
    evicted: tuple[Gone, ...] = (),
    expired: tuple[Gone, ...] = (),
    shadows: Shadowed | None = None,
    notices: tuple[str, ...] = (),
) -> StoredEntry:
    """Return *entry* with what its write brought about."""
    return StoredEntry(
        *msgspec.structs.astuple(entry),
        outcome=outcome,
        evicted=evicted,
        expired=expired,
        shadows=shadows,
        notices=notices,
    )


def core_held(book: AgentTransaction) -> int:
    """Return how many core entries the agent now has."""
    return book.held(EntryLocation(book.caller.agent)).core


def refuse_forgotten(book: AgentTransaction, key: str) -> None:
    """Raise Forgotten if somebody else forgot *key* after the caller's run began."""
    opened, run = book.opened, book.caller.run
    knew = {book.caller.agent: opened.knew_seq or 0, SHARED: opened.knew_shared_seq or 0}
    now = {book.caller.agent: opened.forgot_seq, SHARED: opened.shared_forgot_seq or 0}
    if run is None or opened.secret is None or now == knew:
        return
    hashed = key_hash(opened.secret, key)
    for each in book.tx.all(Tombstone, book.sql.tombstones_of, key_hash=hashed, run_id=run.run_id):
        by = by_of(each.actor)
        ours = (by.run_id, by.run_token) == (run.run_id, run.token)
        if each.seq > knew[each.agent] and not ours:
            raise Forgotten(from_microseconds(each.at), str(by))


def _place(book: AgentTransaction, asked: CheckedEntry) -> EntryLocation:
    if asked.category == CONVERSATION:
        if book.caller.run is None:
            raise RunRequired
        return EntryLocation(book.caller.agent, book.caller.run.run_id)
    return EntryLocation(SHARED if asked.category == WORKSPACE else book.caller.agent)


def _refuse_unexpected(
    book: AgentTransaction, key: str, before: EntryRow | None, wish: EntryWrite
) -> None:
    expected = wish.expected_seq
    if expected is UNSET or expected is None or expected == (before.seq if before else 0):
        return
    current = None if before is None else before.record(book.caller.workspace)
    raise PreconditionFailed(key, expected=expected, current=current)


def _outcome(before: EntryRow | None, asked: CheckedEntry, wish: EntryWrite) -> Outcome:
    if before is None:
        return "created"
    same = before.content == asked.content and before.category == asked.category
    if not same or before.tags != tags_text(asked.tags):
        return "replaced"
    return "refreshed" if wish.refresh else "unchanged"


def _leaving(book: AgentTransaction, asked: CheckedEntry, place: EntryLocation) -> Leaving:
    """Return who goes for a new entry at *place*; MemoryFull if nobody may."""
    held, limits = book.held(place), book.limits
    cap = limits.run_cap if place.run else limits.cap if place.owner else limits.workspace_cap
    leaving = who_goes(held, cap=cap, core=asked.category == CORE)
    if leaving != "full":
        return leaving
    coldest = book.tx.all(_key, book.sql.coldest_keys, owner=place.owner, run=place.run, rows=3)
    raise MemoryFull(cap=cap, entries=held.entries, core_entries=held.core, coldest=tuple(coldest))


def _evict(
    book: AgentTransaction, key: str, place: EntryLocation, leaving: Leaving
) -> tuple[Gone, ...]:
    return tuple(
        gone
        for pinned, count in ((False, leaving.windowed), (True, leaving.core))
        for gone in evict(book, place, pinned=pinned, count=count, evicted_for=key)
    )


def evict(
    book: AgentTransaction,
    place: EntryLocation,
    *,
    pinned: bool,
    count: int,
    cause: Cause | None = None,
    evicted_for: str | None = None,
) -> list[Gone]:
    """Take the *count* coldest of one tier of *place*."""
    gone: list[Gone] = []
    while len(gone) < count and (row := book.coldest(place, pinned=pinned)) is not None:
        book.take(row, "evict", cause=cause, evicted_for=evicted_for)
        gone.append(row.gone())
    return gone


def _move_nearer(book: AgentTransaction, key: str, place: EntryLocation) -> Shadowed | None:
    """Take away what stands nearer than *place*, and name the next that stands farther."""
    shadows: Shadowed | None = None
    for other in book.caller.places:
        row = book.at(other, key)
        if row is None or other == place:
            continue
        if other.distance < place.distance:
            book.take(row, "move", cause={"moved_to": place.scope})
        elif shadows is None:
            shadows = "agent" if other.owner else "workspace"
    return shadows


def _row(
    book: AgentTransaction,
    asked: CheckedEntry,
    wish: EntryWrite,
    before: EntryRow | None,
    place: EntryLocation,
) -> EntryRow:
    """Return the row to be, its number still to come."""
    written = book.now if wish.written is None else wish.written
    lasts = book.limits.daily_hours * HOUR
    return EntryRow(
        agent=place.owner,
        run_id=place.run,
        key=asked.key,
        id=before.id if before else book.caller.ids.new("entry", book.now),
        content=asked.content,
        category=asked.category,
        tags=tags_text(asked.tags),
        size_bytes=asked.size_bytes,
        seq=0,
        created_at=before.created_at if before else written if wish.born is None else wish.born,
        updated_at=written,
        expires_at=written + lasts if asked.category == DAILY else None,
        created_by=before.created_by if before else book.by,
        updated_by=book.by,
    )


def notices(asked: CheckedEntry, *, core: int, cap: int) -> tuple[str, ...]:
    """Return what to say to whoever wrote *asked*, with *core* core entries of at most *cap*."""
    said = [near_miss(asked.category)]
    if asked.category == CORE:
        said.append(crowded(core, cap))
    return tuple(each for each in said if each is not None)


def _key(*, key: str) -> str:
    return key
