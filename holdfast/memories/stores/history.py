"""Changes of a store in order; its memories at an earlier moment; its restore.

A memory was there at a moment if its last version up to it is no deletion. A redacted version is
never shown: the memory is counted as erased, also where an older version still has its content.

Pages of changes and snapshots are read from the versions. The engine's feed only wakes a reader,
which also polls once a second.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from datetime import datetime
from itertools import islice
from time import monotonic
from typing import Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_microseconds
from holdfast.ground.errors import CursorExpired, InvalidInput, PreconditionFailed
from holdfast.ground.trust import HeldFor, Provenance, Tier
from holdfast.ground.validation import check_whole, checked_moment, is_number
from holdfast.memories.stores.records import (
    ChangesPage,
    Memory,
    MemoryChange,
    MemoryPrefix,
    Operation,
    RestoreEdit,
    Snapshot,
    StoreRestore,
    View,
)
from holdfast.memories.stores.rows import (
    StoresContext,
    existence_first,
    memory_of,
    missing,
    reach,
    refuse_narrowed,
    seq_at,
    sought,
)
from holdfast.memories.stores.transaction import (
    MEMORIES_CAP,
    MemoryLocation,
    StoreTransaction,
    Text,
    refuse_taken,
    step_aside,
)
from holdfast.memories.stores.validation import just_after

EVERY: Final = 2**31 - 1
BATCH: Final = 20
"""Contents read at a time."""
CONTENTS: Final = 500
"""Contents read at a time where all are needed."""


class PastSpan(Struct, frozen=True, kw_only=True):
    """What to list of a moment: memories below `prefix`, after the path `after`.

    At most `rows`. With `children` each deeper first segment is one prefix.
    """

    at: int
    prefix: str
    after: str
    children: bool
    rows: int
    view: View

    @property
    def low(self) -> str:
        """The least path that is listed."""
        after = self.after
        if not after:
            return self.prefix
        return max(self.prefix, after[:-1] + "0" if after.endswith("/") else just_after(after))


class _Part(Struct, frozen=True, kw_only=True):
    """At most `rows` memories from the path `low` up to `high`, that excluded."""

    low: str = "/"
    high: str = "0"
    rows: int = EVERY


_ALL: Final = _Part()


class PastMemories(Struct, frozen=True):
    """Memories as they were, and how many more of the store were erased since."""

    found: list[Memory | MemoryPrefix]
    erased: int


class _Content(Struct, frozen=True, kw_only=True):
    id: str
    content: bytes
    tier: Tier
    origin_ref: str | None
    held: HeldFor | None

    @property
    def provenance(self) -> Provenance:
        """Where it came from."""
        return Provenance(self.tier, self.origin_ref, self.held)


def moment_of(context: StoresContext, store_id: str, at: object) -> int:
    """Return *at* in microseconds since 1970; InvalidInput for a later time than now.

    Where the clock was set back, now is the store's last write. Raises what `reach` raises, and
    NotFound without the store.
    """
    reach(context, context.engine, store_id, write=False)
    last = context.engine.first(scalar, context.sql.store_times, store=sought("memstore", store_id))
    if last is None:
        raise missing("memstore", store_id)
    return checked_moment("at", at, now=max(context.now(), last))


def list_at(context: StoresContext, store_id: str, span: PastSpan) -> PastMemories:
    """Return the memories of *span*, from one snapshot."""

    def work(reader: Reader) -> PastMemories:
        rows = EVERY if span.children else span.rows
        part = _Part(low=span.low, high=span.prefix[:-1] + "0", rows=rows)
        found = _memories(context, reader, store_id, span.at, part)
        each_or_prefix = _children(found, span.prefix) if span.children else iter(found)
        chosen: list[Memory | MemoryPrefix] = list(islice(each_or_prefix, span.rows))
        if span.view == "full":
            chosen = _with_contents(context, reader, store_id, chosen)
        return PastMemories(chosen, len(_redacted(context, reader, store_id, span.at)))

    return context.engine.read(work)


def memory_at(context: StoresContext, store_id: str, path: str, at: int) -> Memory | None:
    """Return the memory that was at *path* with its content, or None."""

    def work(reader: Reader) -> Memory | None:
        part = _Part(low=path, high=just_after(path), rows=1)
        found = _memories(context, reader, store_id, at, part)
        whole = _with_contents(context, reader, store_id, found)
        return next((each for each in whole if isinstance(each, Memory)), None)

    return context.engine.read(work)


def memories_at(
    context: StoresContext,
    reader: Reader,
    store_id: str,
    at: int,
    ids: Collection[str] | None = None,
) -> list[Memory]:
    """Return the memories of the moment *at* with contents, or only those of *ids*."""
    found = _memories(context, reader, store_id, at)
    wanted = [each for each in found if ids is None or each.id in ids]
    whole: list[Memory] = []
    for first in range(0, len(wanted), CONTENTS):
        batch = _with_contents(context, reader, store_id, wanted[first : first + CONTENTS])
        whole += [each for each in batch if isinstance(each, Memory)]
    return whole


def _memories(
    context: StoresContext,
    reader: Reader,
    store_id: str,
    at: int,
    part: _Part = _ALL,
) -> list[Memory]:
    store = sought("memstore", store_id)
    return reader.all(
        memory_of,
        context.sql.memories_at,
        store=store,
        at=at,
        seq=seq_at(context, reader, store, at),
        low=part.low,
        high=part.high,
        rows=part.rows,
    )


def _redacted(context: StoresContext, reader: Reader, store_id: str, at: int) -> set[str]:
    store = sought("memstore", store_id)
    seq = seq_at(context, reader, store, at)
    return set(reader.all(scalar, context.sql.redacted_at, store=store, at=at, seq=seq))


def _children(found: Iterable[Memory], prefix: str) -> Iterator[Memory | MemoryPrefix]:
    """Yield the memories directly below *prefix*, and one prefix for all deeper ones."""
    last = ""
    for each in found:
        first, deeper, _ = each.path[len(prefix) :].partition("/")
        if not deeper:
            yield each
        elif first != last:
            last = first
            yield MemoryPrefix(path=f"{prefix}{first}/")


def _with_contents(
    context: StoresContext,
    reader: Reader,
    store_id: str,
    found: Sequence[Memory | MemoryPrefix],
) -> list[Memory | MemoryPrefix]:
    wanted = [each.memory_version_id for each in found if isinstance(each, Memory)]
    contents = _contents(context, reader, store_id, wanted)
    return [
        replace(each, content=contents[each.memory_version_id].content.decode())
        if isinstance(each, Memory)
        else each
        for each in found
    ]


def _contents(
    context: StoresContext, reader: Reader, store_id: str, version_ids: Sequence[str]
) -> dict[str, _Content]:
    if not version_ids:
        return {}
    found = reader.all(
        _Content,
        context.sql.version_contents,
        store=store_id,
        versions=msgspec.json.encode(version_ids).decode(),
    )
    return {each.id: each for each in found}


class _Pair(Struct, frozen=True):
    """A memory as it is and as it was; None where it is not there."""

    now: Memory | None
    then: Memory | None

    @property
    def edit(self) -> RestoreEdit:
        """The edit that makes the one the other."""
        now, then = self.now, self.then
        operation: Operation = "modified"
        if now is None or then is None:
            operation = "created" if now is None else "deleted"
        return RestoreEdit(
            operation=operation,
            memory_id=now.id if now else then.id if then else "",
            path_before=now and now.path,
            path=then and then.path,
            content_sha256_before=now and now.content_sha256,
            content_sha256=then and then.content_sha256,
        )

    @property
    def order(self) -> tuple[str, str]:
        """Its place among the edits: by path."""
        edit = self.edit
        return edit.path or edit.path_before or "", edit.memory_id


class _Plan(Struct, frozen=True, kw_only=True):
    """The memories that differ from a moment, and how many of then were erased."""

    pairs: list[_Pair]
    erased: int

    def restore(self, store_id: str, at: int, seq: int, *, dry_run: bool) -> StoreRestore:
        """Return the plan as a record."""
        return StoreRestore(
            memory_store_id=store_id,
            at=from_microseconds(at),
            dry_run=dry_run,
            seq=seq,
            edits=tuple(pair.edit for pair in self.pairs),
            erased=self.erased,
        )


def restore(
    context: StoresContext,
    store_id: str,
    at: datetime | str,
    *,
    dry_run: bool = False,
    expected_seq: int | None = None,
) -> StoreRestore:
    """Bring the store back to the moment *at*; see `MemoryStores.restore`."""
    refuse_narrowed(context, "write")
    with existence_first(context, store_id, write=True):
        moment = moment_of(context, store_id, at)
        if expected_seq is not None:
            check_whole("expected_seq", expected_seq, "must be the number of a store")

    def preview(reader: Reader) -> StoreRestore:
        seq = store_state(context, reader, store_id).seq
        _refuse_changed(store_id, seq, expected_seq)
        return _plan(context, reader, store_id, moment).restore(store_id, moment, seq, dry_run=True)

    def work(tx: Transaction) -> StoreRestore:
        unit = StoreTransaction(context, tx, store_id)
        unit.refuse_archived()
        _refuse_changed(store_id, unit.seq, expected_seq)
        plan = _plan(context, tx, store_id, moment)
        _apply(context, tx, unit, plan.pairs)
        unit.close()
        return plan.restore(store_id, moment, unit.seq, dry_run=False)

    return context.engine.read(preview) if dry_run else context.engine.write(work)


def _refuse_changed(store_id: str, seq: int, expected: int | None) -> None:
    if expected is not None and expected != seq:
        raise PreconditionFailed(store_id, expected=expected, current=seq)


def _plan(context: StoresContext, reader: Reader, store_id: str, at: int) -> _Plan:
    """Return what differs from the moment *at*, by path.

    A memory with a redacted version of then stays as it is.
    """
    now = {each.id: each for each in reader.all(memory_of, context.sql.all_heads, store=store_id)}
    then = {each.id: each for each in _memories(context, reader, store_id, at)}
    erased = _redacted(context, reader, store_id, at)
    pairs = [_Pair(now.get(id), then.get(id)) for id in (now | then).keys() - erased]
    different = [pair for pair in pairs if _shape(pair.now) != _shape(pair.then)]
    different.sort(key=lambda pair: pair.order)
    return _Plan(pairs=different, erased=len(erased))


def _shape(memory: Memory | None) -> tuple[str, str] | None:
    return memory and (memory.path, memory.content_sha256)


def _apply(
    context: StoresContext, tx: Transaction, unit: StoreTransaction, pairs: list[_Pair]
) -> None:
    """Delete, move, change and create what *pairs* say, in this order."""
    for pair in pairs:
        if pair.now is not None and pair.then is None:
            unit.deleted(unit.head(pair.now.id))
    left = [pair for pair in pairs if pair.then is not None]
    moved = [pair.now for pair in left if pair.now and pair.now.path != pair.edit.path]
    if moved:
        places = [MemoryLocation(id=each.id, path=each.path) for each in moved]
        step_aside(tx, context.sql, unit.store.id, places)
    targets = [each.path for pair in left if (each := pair.edit).path != each.path_before]
    refuse_taken(tx, context.sql, unit.store.id, [path for path in targets if path is not None])
    for first in range(0, len(left), BATCH):
        batch = left[first : first + BATCH]
        wanted = [pair.then.memory_version_id for pair in batch if pair.then]
        contents = _contents(context, tx, unit.store.id, wanted)
        for pair in batch:
            _put(unit, pair, contents)


def _put(unit: StoreTransaction, pair: _Pair, contents: dict[str, _Content]) -> None:
    then = pair.then
    if then is None:
        return
    found = contents[then.memory_version_id]
    text, source = Text.of(found.content), found.provenance
    if pair.now is None:
        unit.refuse_full()
        born = to_microseconds(then.created_at)
        unit.created(then.path, text, memory_id=then.id, born=born, source=source)
    else:
        # Its row has no path of its own while it moves.
        head = replace(unit.head(then.id), path=pair.now.path)
        changed = text.sha256 != head.content_sha256
        unit.modified(head, then.path, text, source=source if changed else None)


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
