"""Pages of changes, and snapshots, of one store.

Versions are the source. The engine's feed only wakes the reader, which also polls once a second.
"""

from contextlib import closing
from time import monotonic

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import CursorExpired, InvalidInput
from holdfast.ground.trust import HeldFor, Tier
from holdfast.ground.validation import check_whole, is_number
from holdfast.memories.stores.records import ChangesPage, Memory, MemoryChange, Operation, Snapshot
from holdfast.memories.stores.rows import (
    StoresContext,
    existence_first,
    memory_of,
    missing,
    reach,
    sought,
)
from holdfast.memories.stores.transaction import MEMORIES_CAP


class StoreState(Struct, frozen=True, kw_only=True):
    """State of a store that followers compare."""

    seq: int
    name: str
    description: str
    metadata: str
    archived_at: int | None
    memories_cap: int | None

    @property
    def cap(self) -> int:
        """How many live memories it may hold."""
        return self.memories_cap or MEMORIES_CAP


def store_state(context: StoresContext, reader: Reader, store_id: str) -> StoreState:
    """Return the state of the store. Raise NotFound, or what `reach` raises."""
    reach(context, reader, store_id, write=False)
    sql = context.sql
    state = reader.first(StoreState, sql.store_state, store=sought("memstore", store_id))
    if state is None:
        raise missing("memstore", store_id)
    return state


def snapshot(context: StoresContext, store_id: str) -> Snapshot:
    """Return the store at one moment; see `Memories.snapshot`."""
    sql = context.sql

    def work(reader: Reader) -> Snapshot:
        state = store_state(context, reader, store_id)
        return Snapshot(
            seq=state.seq,
            memories=tuple(reader.all(memory_of, sql.all_heads, store=store_id)),
            cap=state.cap,
            archived_at=from_microseconds_or_none(state.archived_at),
        )

    return context.engine.read(work)


WAIT_MAX = 30.0
"""Greatest wait of `changes`, in seconds."""

CHANGES_MAX = 1_000
"""Changes of one page. A single transaction with more changes is returned whole."""

LOOK_EVERY = 1.0
"""Seconds between polls without a notification."""

_LAST = 2**63 - 1


class Awaited:
    """A request that waits for changes of a store after a number."""

    def __init__(self, context: StoresContext, store_id: str, after: int, *, wait: float) -> None:
        with existence_first(context, store_id):
            self._after = _checked_after(after)
            self._until = monotonic() + checked_wait(wait)
        self._context, self._store_id = context, store_id
        self._sql = context.sql
        self._first: StoreState | None = None

    @property
    def left(self) -> float:
        """Seconds to wait at most before the next poll."""
        return min(self._until - monotonic(), LOOK_EVERY)

    def hurry(self) -> None:
        """End the wait at the next poll."""
        self._until = monotonic()

    def look(self) -> ChangesPage | None:
        """Return the page to respond with, or None to keep waiting.

        The page has no changes when the store itself changed since the first poll, or when the
        wait is over. Raises CursorExpired, NotFound, NotAuthenticated.
        """
        state, seq, found = self._context.engine.read(self._look)
        self._first = self._first or state
        same = msgspec.structs.replace(state, seq=self._first.seq) == self._first
        if not found and same and self.left > 0:
            return None
        return ChangesPage(
            seq=seq,
            changes=tuple(found),
            cap=state.cap,
            archived_at=from_microseconds_or_none(state.archived_at),
        )

    def _look(self, reader: Reader) -> tuple[StoreState, int, list[MemoryChange]]:
        """Return the state of the store, the changes, and the number to continue from."""
        state = store_state(self._context, reader, self._store_id)
        if self._after == state.seq:
            return state, state.seq, []
        # A store that was restored to an earlier state may have passed the number since, but has no
        # version with exactly that number.
        came = reader.first(
            scalar, self._sql.version_up_to, store=self._store_id, after=self._after
        )
        if self._after > state.seq or came not in (None, self._after):
            raise CursorExpired(state.seq)
        found = self._found(reader, _LAST, CHANGES_MAX + 1)
        if len(found) <= CHANGES_MAX:
            return state, state.seq, found
        beyond = found[-1].seq
        whole = [change for change in found if change.seq < beyond]
        found = whole or self._found(reader, beyond, _LAST)
        return state, found[-1].seq, found

    def _found(self, reader: Reader, until: int, rows: int) -> list[MemoryChange]:
        rows_found = reader.all(
            _Row,
            self._sql.changes_after,
            store=self._store_id,
            after=self._after,
            until=until,
            rows=rows,
        )
        return [row.change(self._store_id) for row in rows_found]


def changes(context: StoresContext, store_id: str, after: int, *, wait: float) -> ChangesPage:
    """Return what changed, waiting for it; see `Memories.changes`."""
    awaited = Awaited(context, store_id, after, wait=wait)
    if (answer := awaited.look()) is not None:
        return answer
    with closing(context.engine.feed()) as feed:
        # The next poll finds changes that were committed before the feed was opened.
        while (answer := awaited.look()) is None:
            feed.poll(max(0.0, awaited.left))
    return answer


def checked_wait(given: object) -> float:
    """Return *given* if it is a number of seconds from 0 to 30."""
    if is_number(given) and 0 <= given <= WAIT_MAX:
        return float(given)
    raise InvalidInput(
        "wait", f"must be 0 to {WAIT_MAX:.0f} seconds", limit=int(WAIT_MAX), given=given
    )


def _checked_after(given: object) -> int:
    return check_whole("after", given, "must be the number of a snapshot or of changes", most=_LAST)


class _Row(Struct, frozen=True, kw_only=True):
    """The last version of a memory, with its head if it is live."""

    seq: int
    memory_id: str
    operation: Operation
    version_id: str | None
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int | None
    updated_at: int | None
    tier: Tier | None
    held: HeldFor | None

    def change(self, store_id: str) -> MemoryChange:
        """Return the row as a `MemoryChange`."""
        return MemoryChange(
            seq=self.seq,
            memory_id=self.memory_id,
            operation=self.operation,
            memory=None if self.version_id is None else self._memory(store_id),
        )

    def _memory(self, store_id: str) -> Memory:
        return Memory(
            id=self.memory_id,
            memory_store_id=store_id,
            memory_version_id=self.version_id or "",
            path=self.path or "",
            content=None,
            content_sha256=self.content_sha256 or "",
            content_size_bytes=self.content_size_bytes or 0,
            created_at=from_microseconds(self.created_at or 0),
            updated_at=from_microseconds(self.updated_at or 0),
            tier=self.tier or "said",
            held=self.held,
        )
