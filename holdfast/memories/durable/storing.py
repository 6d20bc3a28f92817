"""How one entry is written, with all that the write brings about in its transaction."""

from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Forgotten, MemoryFull, PreconditionFailed, RunRequired
from holdfast.memories.durable.asked import Asked, checked_content, near_miss
from holdfast.memories.durable.book import CHANGES_KEPT, SHARED, Book, Page
from holdfast.memories.durable.changes import Cause
from holdfast.memories.durable.entry import (
    CONVERSATION,
    CORE,
    DAILY,
    WORKSPACE,
    DurableEntry,
    Gone,
    Outcome,
    StoredEntry,
)
from holdfast.memories.durable.evict import Held, crowded, who_goes
from holdfast.memories.durable.limits import DurableLimits
from holdfast.memories.durable.rows import EntryRow, by_of, tags_text
from holdfast.memories.durable.times import HOUR
from holdfast.memories.durable.tombstones import Tombstone, key_hash


class Wish(Struct, frozen=True, kw_only=True):
    """How an entry is to be written.

    *expected_seq* is that of the entry to be written over, 0 for none. *born* and *written* are
    an imported entry's own times, in microseconds.
    """

    refresh: bool = True
    expected_seq: int | UnsetType | None = UNSET
    cause: Cause = msgspec.field(default_factory=dict[str, str])
    born: int | None = None
    written: int | None = None


def needs_shared(category: str) -> bool:
    """Tell whether an entry of *category* is written among the workspace's."""
    return category == WORKSPACE


def store(book: Book, asked: Asked, wish: Wish) -> StoredEntry:
    """Write *asked*, and return it with what that brought about.

    Raises RunRequired, Forgotten, PreconditionFailed, MemoryFull, InvalidInput.
    """
    owner, run_id = _place(book, asked)
    _refuse_forgotten(book, asked.key)
    page, expired = _opened(book, asked.key)
    checked_content(asked.content.decode(), most=page.limits.content_bytes)
    before = page.at(owner, run_id)
    _refuse_unexpected(book, asked.key, before, wish)
    outcome = _outcome(before, asked, wish)
    shadows = _settle_others(book, page, owner, run_id)
    evicted: tuple[Gone, ...] = ()
    if before is None:
        evicted = _make_room(book, page, asked, owner, run_id)
    if before is not None and outcome == "unchanged":
        row = before
    else:
        row = _write(book, asked, wish, page.limits, before, (owner, run_id))
        book.log(_OPS[outcome], row, number=row.seq, cause=wish.cause)
    _trim(book, row, before)
    entry = row.record(book.caller.workspace)
    return _stored(
        entry,
        outcome=outcome,
        evicted=evicted,
        expired=expired,
        shadows=shadows,
        notices=_notices(page, asked, created=before is None or before.category != CORE),
    )


_OPS: dict[Outcome, Literal["create", "replace", "refresh"]] = {
    "created": "create",
    "replaced": "replace",
    "refreshed": "refresh",
}


def _place(book: Book, asked: Asked) -> tuple[str, str]:
    """Return the columns that say whose the entry will be."""
    if asked.category == CONVERSATION:
        if book.caller.run is None:
            raise RunRequired
        return book.caller.agent, book.caller.run.run_id
    return (SHARED if asked.category == WORKSPACE else book.caller.agent), ""


def _refuse_forgotten(book: Book, key: str) -> None:
    """Raise Forgotten if somebody else forgot *key* after the caller's run began."""
    fence = book.fence
    if fence is None or fence.secret is None or book.caller.run is None:
        return
    hashed = key_hash(fence.secret, key)
    newest = book.tx.first(Tombstone, book.sql.tombstones_of, key_hash=hashed)
    if newest is None or newest.seq <= (fence.began_seq or 0):
        return
    by = by_of(newest.actor)
    if (by.run_id, by.run_token) != (book.caller.run.run_id, book.caller.run.token):
        raise Forgotten(from_microseconds(newest.at), str(by))


def _opened(book: Book, key: str) -> tuple[Page, tuple[Gone, ...]]:
    page = book.open_at(key)
    if page.first_expiry is None or page.first_expiry >= book.now:
        return page, ()
    expired = book.expire({"source": "write"})
    return book.open_at(key), expired


def _refuse_unexpected(book: Book, key: str, before: EntryRow | None, wish: Wish) -> None:
    expected = wish.expected_seq
    if expected is UNSET or expected is None or expected == (before.seq if before else 0):
        return
    current = None if before is None else before.record(book.caller.workspace)
    raise PreconditionFailed(key, expected=expected, current=current)


def _outcome(before: EntryRow | None, asked: Asked, wish: Wish) -> Outcome:
    if before is None:
        return "created"
    same = (before.content.encode(), before.category, before.tags) == (
        asked.content,
        asked.category,
        tags_text(asked.tags),
    )
    if not same:
        return "replaced"
    return "refreshed" if wish.refresh else "unchanged"


def _settle_others(
    book: Book, page: Page, owner: str, run_id: str
) -> Literal["workspace", "agent"] | None:
    """Take away what stands nearer than the new place, and name the next that stands farther."""
    shadows: Literal["workspace", "agent"] | None = None
    here = _distance(owner, run_id)
    for row in page.entries:
        there = _distance(row.agent, row.run_id)
        if there < here:
            book.remove(row, "move", {"moved_to": "agent" if owner else "workspace"})
        elif there > here and shadows is None:
            shadows = "agent" if row.agent else "workspace"
    return shadows


def _distance(owner: str, run_id: str) -> int:
    if run_id:
        return 0
    return 1 if owner else 2


def _make_room(book: Book, page: Page, asked: Asked, owner: str, run_id: str) -> tuple[Gone, ...]:
    held, cap = _room(book, page, owner, run_id)
    core = asked.category == CORE
    verdict = who_goes(held, cap=cap, core=core)
    if verdict == "room":
        return ()
    if verdict == "full":
        coldest = book.tx.all(_key, book.sql.coldest_keys, owner=owner, run_id=run_id, rows=3)
        raise MemoryFull(
            cap=cap, entries=held.entries, core_entries=held.core, coldest=tuple(coldest)
        )
    cause = {"evicted_for": asked.key}
    pinned = verdict == "core"
    return book.take_coldest(owner, run_id, pinned=pinned, rows=1, cause=cause)


def _room(book: Book, page: Page, owner: str, run_id: str) -> tuple[Held, int]:
    if run_id:
        return book.held_by(owner, run_id), page.limits.run_cap
    if owner:
        return page.held, page.limits.cap
    return book.held_by(owner, run_id), page.limits.workspace_cap


def _write(
    book: Book,
    asked: Asked,
    wish: Wish,
    limits: DurableLimits,
    before: EntryRow | None,
    place: tuple[str, str],
) -> EntryRow:
    owner, run_id = place
    number = book.number()
    written = book.now if wish.written is None else wish.written
    row = EntryRow(
        id=before.id if before else book.caller.ids.new("entry", book.now),
        agent=owner,
        run_id=run_id,
        key=asked.key,
        content=asked.content.decode(),
        category=asked.category,
        tags=tags_text(asked.tags),
        size_bytes=asked.size_bytes,
        seq=number,
        created_at=before.created_at if before else (wish.born or written),
        updated_at=written,
        expires_at=written + limits.daily_hours * HOUR if asked.category == DAILY else None,
        created_by=before.created_by if before else book.by,
        updated_by=book.by,
        writes=before.writes + 1 if before else 1,
    )
    fields = {
        "owner": owner,
        "run_id": run_id,
        "key": row.key,
        "category": row.category,
        "pinned": int(row.category == CORE),
        "tags": row.tags,
        "size_bytes": row.size_bytes,
        "seq": number,
        "updated_at": row.updated_at,
        "expires_at": row.expires_at,
        "by": row.updated_by,
        "content": row.content,
    }
    if before is None:
        fields |= {"id": row.id, "created_at": row.created_at}
    book.tx.send(book.sql.replace_entry if before else book.sql.insert_entry, **fields)
    return row


def _trim(book: Book, row: EntryRow, before: EntryRow | None) -> None:
    if before is not None and row.writes > CHANGES_KEPT:
        book.tx.send(book.sql.trim_changes_of_key, owner=row.agent, key=row.key, keep=CHANGES_KEPT)


def _notices(page: Page, asked: Asked, *, created: bool) -> tuple[str, ...]:
    notices: list[str] = []
    if (miss := near_miss(asked.category)) is not None:
        notices.append(miss)
    if asked.category == CORE:
        core = page.held.core + int(created)
        if (full := crowded(core, page.limits.cap)) is not None:
            notices.append(full)
    return tuple(notices)


def _stored(
    entry: DurableEntry,
    *,
    outcome: Outcome,
    evicted: tuple[Gone, ...],
    expired: tuple[Gone, ...],
    shadows: Literal["workspace", "agent"] | None,
    notices: tuple[str, ...],
) -> StoredEntry:
    fields = {name: getattr(entry, name) for name in DurableEntry.__struct_fields__}
    return StoredEntry(
        **fields,
        outcome=outcome,
        evicted=evicted,
        expired=expired,
        shadows=shadows,
        notices=notices,
    )


def _key(*, key: str) -> str:
    return key
