"""Pages of changes, and snapshots, of one store.

The versions are the truth. The engine's feed only says that it is time to look, and once a second
is looked without it.
"""

from contextlib import closing
from time import monotonic

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.errors import CursorExpired, InvalidInput
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
    """A store itself, as its followers see it."""

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


def store_state(caller: StoresContext, reader: Reader, store_id: str) -> StoreState:
    """Return how the store is; NotFound, or what `reach` raises."""
    reach(caller, reader, store_id, write=False)
    sql = caller.engine.queries("holdfast.memories.stores")
    state = reader.first(StoreState, sql.store_state, store=sought("memstore", store_id))
    if state is None:
        raise missing("memstore", store_id)
    return state


def snapshot(caller: StoresContext, store_id: str) -> Snapshot:
    """Return the store at one moment; see `Memories.snapshot`."""
    sql = caller.engine.queries("holdfast.memories.stores")

    def work(reader: Reader) -> Snapshot:
        state = store_state(caller, reader, store_id)
        return Snapshot(
            seq=state.seq,
            memories=tuple(reader.all(memory_of, sql.all_heads, store=store_id)),
            cap=state.cap,
            archived_at=from_microseconds_or_none(state.archived_at),
        )

    return caller.engine.read(work)


WAIT_MAX = 30.0
"""Seconds that `changes` may be asked to wait."""

CHANGES_MAX = 1_000
"""Changes of one answer, but for a transaction that alone made more: it is told whole."""

LOOK_EVERY = 1.0
"""Seconds after which is looked without having been woken."""

_LAST = 2**63 - 1


class Awaited:
    """Somebody who waits for changes of a store after a number."""

    def __init__(self, caller: StoresContext, store_id: str, after: int, *, wait: float) -> None:
        with existence_first(caller, store_id):
            self._after = _checked_after(after)
            self._until = monotonic() + checked_wait(wait)
        self._caller, self._store_id = caller, store_id
        self._sql = caller.engine.queries("holdfast.memories.stores")
        self._first: StoreState | None = None

    @property
    def left(self) -> float:
        """Seconds to wait on at most, before looking again."""
        return min(self._until - monotonic(), LOOK_EVERY)

    def hurry(self) -> None:
        """Let the next look be the last."""
        self._until = monotonic()

    def look(self) -> ChangesPage | None:
        """Return what to answer, or None to wait on.

        That is the changes, or none of them when the store itself is not as it was at the first
        look, or when the time is over. Raises CursorExpired, NotFound, NotAuthenticated.
        """
        state, seq, found = self._caller.engine.read(self._look)
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
        """Return how the store is, what changed, and the number to go on from."""
        state = store_state(self._caller, reader, self._store_id)
        if self._after == state.seq:
            return state, state.seq, []
        # A store that went back, as by a restore, may since have come beyond the number; but to
        # the very number it never came.
        came = reader.first(_At, self._sql.version_up_to, store=self._store_id, after=self._after)
        if self._after > state.seq or came not in (None, _At(seq=self._after)):
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


def changes(caller: StoresContext, store_id: str, after: int, *, wait: float) -> ChangesPage:
    """Return what changed, waiting for it; see `Memories.changes`."""
    awaited = Awaited(caller, store_id, after, wait=wait)
    if (answer := awaited.look()) is not None:
        return answer
    with closing(caller.engine.feed()) as feed:
        # What was committed before the feed began is seen by looking once more.
        while (answer := awaited.look()) is None:
            feed.poll(max(0.0, awaited.left))
    return answer


def checked_wait(given: object) -> float:
    """Return *given* if it is a number of seconds from 0 to 30."""
    if isinstance(given, int | float) and not isinstance(given, bool) and 0 <= given <= WAIT_MAX:
        return float(given)
    raise InvalidInput(
        "wait", f"must be 0 to {WAIT_MAX:.0f} seconds", limit=int(WAIT_MAX), given=given
    )


def _checked_after(given: object) -> int:
    if isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= _LAST:
        return given
    raise InvalidInput("after", "must be the number of a snapshot or of changes", given=given)


class _At(Struct, frozen=True, kw_only=True):
    """A number that a store came to."""

    seq: int


class _Row(Struct, frozen=True, kw_only=True):
    """A version that is the last of its memory, with the head where there is one."""

    seq: int
    memory_id: str
    operation: Operation
    version_id: str | None
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int | None
    updated_at: int | None

    def change(self, store_id: str) -> MemoryChange:
        """Return the change that this row tells of."""
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
        )
