"""Create, update, delete and move memories; writes of many callers in one pass.

A pass decides about each write in order, as if those before it were done, and only then changes
anything: with one statement for each table, and a version for each write, with an instant and a
link of its own.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, LiteralString, TypeVar

from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from holdfast.engines.base import BatchedWork, Kin, Transaction
from holdfast.ground.errors import (
    HoldfastError,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    StoreFull,
    TooLarge,
)
from holdfast.memories.stores.records import Deleted, Memory, View
from holdfast.memories.stores.rows import Head, StoresContext, existence_first, missing, sought
from holdfast.memories.stores.transaction import (
    MemoryLocation,
    NewMemory,
    SealedText,
    StoreTransaction,
    Text,
    carry,
    changed_source,
    next_version,
    refuse_taken,
    seen,
    step_aside,
    unchanged,
)
from holdfast.memories.stores.validation import (
    checked_path,
    checked_place,
    just_after,
    lineage,
    span_below,
)

Item = TypeVar("Item")
T = TypeVar("T")

REFUSALS: Final = (NotFound, PathTaken, PreconditionFailed, StoreArchived, StoreFull)
"""What refuses one write of a pass; any other error is of the whole."""


class Creation(Struct, frozen=True):
    """A memory to create, and the view to return it in."""

    what: SealedText
    view: View


class Change(Struct, frozen=True, kw_only=True):
    """A change of path, text or both, if the hash is the expected one."""

    memory_id: str
    path: str | None
    text: Text | None
    expected: str | None
    view: View


class Removal(Struct, frozen=True):
    """A memory to delete, if its hash is the expected one."""

    memory_id: str
    expected: str | None


class Saving(Struct, frozen=True):
    """A text for the memory *memory_id*, or for a new one without an id.

    `content` returns the text for the memory's current head; it may raise PreconditionFailed or
    TooLarge.
    """

    what: SealedText
    memory_id: str | None
    content: Callable[[Head], Text]


class OneByOne(Exception):
    """Writes of a pass depend on one another, so that each must be done alone."""


def update(context: StoresContext, store_id: str, item: Change) -> Memory:
    """Change a memory, unless it says that already."""
    if item.path is not None:
        # Whether a path is free depends on what the other writes do to theirs.
        return context.engine.write(lambda tx: _move(context, tx, store_id, item))
    return write(context, store_id, item, update_all)


def write(
    context: StoresContext,
    store_id: str,
    item: Item,
    do: Callable[[StoreTransaction, Sequence[Item]], list[T | HoldfastError]],
) -> T:
    """Do *do* with *item*, and with those of other callers that wait for the same."""

    def work(tx: Transaction, items: Sequence[Item]) -> list[T | HoldfastError]:
        unit = StoreTransaction(context, tx, store_id)
        done = do(unit, items)
        unit.close()
        return done

    kin = Kin(("stores", context.workspace), store_id, (do.__name__, *context.authorship))
    return context.engine.write(BatchedWork(kin, item, work))


def create_all(unit: StoreTransaction, items: Sequence[Creation]) -> list[Memory | HoldfastError]:
    """Create the memories of *items*; return each, or the error that refuses it."""
    places = _Places(unit, [item.what.path for item in items]) if len(items) > 1 else None
    accepted: list[NewMemory] = []
    done: list[Memory | HoldfastError] = []
    for item in items:
        try:
            unit.refuse_archived()
            (places or unit).refuse_taken(item.what.path)
            unit.refuse_full(more=len(accepted))
        except REFUSALS as error:
            done.append(error)
            continue
        new = _drawn(unit, item.what, len(accepted))
        if places is not None:
            places.take(new)
        accepted.append(new)
        done.append(seen(new.record(unit.store.id), item.view))
    unit.create_all(accepted)
    return done


def _drawn(unit: StoreTransaction, what: SealedText, place: int) -> NewMemory:
    """Return *what* with ids and an instant, the *place*th microsecond of its pass."""
    ids, now = unit.context.ids, unit.now + place
    return NewMemory(
        id=ids.new("mem", now),
        version_id=ids.new("memver", now),
        now=now,
        created_at=now,
        what=what,
        source=unit.context.provenance(what.text.content),
    )


class _Places:
    """The paths of a store, with those of a pass that are taken meanwhile."""

    def __init__(self, unit: StoreTransaction, paths: Sequence[str]) -> None:
        self._unit = unit
        # One look for all: mostly none of them is taken.
        try:
            refuse_taken(unit.tx, unit.context.sql, unit.store.id, paths)
        except PathTaken:
            self._looks = True
        else:
            self._looks = False
        self._taken: dict[str, str] = {}
        self._first_below: dict[str, str] = {}

    def refuse_taken(self, path: str) -> None:
        """Raise PathTaken for the first memory, by path, at, above or below *path*."""
        near = [above for above in lineage(path) if above in self._taken]
        if path in self._first_below:
            near.append(self._first_below[path])
        first = min(near, default=None)
        if self._looks:
            try:
                self._unit.refuse_taken(path)
            except PathTaken as blocker:
                if first is None or blocker.conflicting_path < first:
                    raise
        if first is not None:
            raise PathTaken(self._taken[first], first)

    def take(self, new: NewMemory) -> None:
        """Record that *new* has its path."""
        path = new.what.path
        self._taken[path] = new.id
        for above in lineage(path)[:-1]:
            self._first_below[above] = min(path, self._first_below.get(above, path))


def update_all(unit: StoreTransaction, items: Sequence[Change]) -> list[Memory | HoldfastError]:
    """Change the texts of *items*; return each memory, or the error that refuses it."""
    heads = _heads(unit, [item.memory_id for item in items])
    changes: list[tuple[Head, NewMemory]] = []
    done: list[Memory | HoldfastError] = []
    for item in items:
        try:
            head = _head(heads, item.memory_id)
            unit.refuse_archived()
            text = item.text
            if text is None or text.sha256 == head.content_sha256:
                done.append(seen(unchanged(head), item.view))
                continue
            refuse_unexpected(head, item.expected)
        except REFUSALS as error:
            done.append(error)
            continue
        what, source = SealedText.of(head.path, text), changed_source(unit.context, head, text)
        new = next_version(unit.context, head, what, source, now=unit.now + len(changes))
        changes.append((head, new))
        heads[head.id] = _follower(head, new)
        done.append(seen(new.record(unit.store.id), item.view))
    unit.modify_all(changes)
    return done


def _follower(head: Head, new: NewMemory) -> Head:
    """Return the head that *new* makes of *head*."""
    text, source = new.what.text, new.source
    return replace(
        head,
        version_id=new.version_id,
        content=text.content,
        content_sha256=text.sha256,
        content_size_bytes=len(text.content),
        updated_at=new.now,
        words=len(new.what.words),
        tier=source.tier,
        held=source.held,
        origin_ref=source.origin_ref,
    )


def _move(context: StoresContext, tx: Transaction, store_id: str, item: Change) -> Memory:
    unit = StoreTransaction(context, tx, store_id)
    head = unit.head(item.memory_id)
    unit.refuse_archived()
    path = head.path if item.path is None else item.path
    text = item.text
    if path == head.path and (text is None or text.sha256 == head.content_sha256):
        return seen(unchanged(head), item.view)
    refuse_unexpected(head, item.expected)
    if path != head.path:
        unit.refuse_taken(path, mine=head.id)
    memory = unit.modified(head, path, text or Text.of(head.content))
    unit.close()
    return seen(memory, item.view)


def delete_all(unit: StoreTransaction, items: Sequence[Removal]) -> list[Deleted | HoldfastError]:
    """Delete the memories of *items*; return each, or the error that refuses it."""
    heads = _heads(unit, [item.memory_id for item in items])
    going: list[Head] = []
    done: list[Deleted | HoldfastError] = []
    for item in items:
        try:
            head = _head(heads, item.memory_id)
            refuse_unexpected(head, item.expected)
        except REFUSALS as error:
            done.append(error)
            continue
        going.append(heads.pop(head.id))
        done.append(Deleted(id=head.id, type="memory_deleted"))
    unit.deleted(*going)
    return done


def save_all(
    unit: StoreTransaction, items: Sequence[Saving]
) -> list[tuple[Memory, bool] | HoldfastError]:
    """Save *items*; return each memory and whether it changed, or an error.

    Raises OneByOne before any change if a path is taken, or a memory is gone or named twice.
    """
    heads = _distinct_heads(unit, [each.memory_id for each in items if each.memory_id is not None])
    _refuse_near(unit, [each.what.path for each in items if each.memory_id is None])
    unit.refuse_archived()
    new: list[NewMemory] = []
    texts: list[tuple[Head, Text]] = []
    done: list[tuple[Memory, bool] | HoldfastError] = []
    for item in items:
        try:
            if item.memory_id is None:
                unit.refuse_full(more=len(new))
                new.append(_drawn(unit, item.what, len(new)))
                done.append((seen(new[-1].record(unit.store.id), "basic"), True))
                continue
            head = heads[item.memory_id]
            text = item.content(head)
        except (*REFUSALS, TooLarge) as error:
            done.append(error)
            continue
        if text.sha256 != head.content_sha256:
            texts.append((head, text))
        done.append((unchanged(head), False))
    unit.create_all(new)
    start = unit.now + bool(new)
    changes = [
        (
            head,
            next_version(
                unit.context,
                head,
                SealedText.of(head.path, text),
                changed_source(unit.context, head, text),
                now=start + place,
            ),
        )
        for place, (head, text) in enumerate(texts)
    ]
    unit.modify_all(changes)
    changed = {each.id: each for _, each in changes}
    return [
        (changed[each[0].id].record(unit.store.id), True)
        if isinstance(each, tuple) and each[0].id in changed
        else each
        for each in done
    ]


def _distinct_heads(unit: StoreTransaction, memory_ids: Sequence[str]) -> dict[str, Head]:
    heads = _heads(unit, memory_ids) if memory_ids else {}
    if len(heads) < len(memory_ids):
        raise OneByOne
    return heads


def _refuse_near(unit: StoreTransaction, paths: Sequence[str]) -> None:
    """Raise OneByOne if one of *paths* is taken, or near another of them."""
    taken = set(paths)
    if len(taken) < len(paths) or any(
        above in taken for path in paths for above in lineage(path)[:-1]
    ):
        raise OneByOne
    if paths:
        try:
            refuse_taken(unit.tx, unit.context.sql, unit.store.id, paths)
        except PathTaken:
            raise OneByOne from None


def _heads(unit: StoreTransaction, memory_ids: Sequence[str]) -> dict[str, Head]:
    """Return the live memories among *memory_ids*, by id."""
    ids, sql, store = {sought("mem", id) for id in memory_ids}, unit.context.sql, unit.store.id
    if len(ids) == 1:
        found = unit.tx.all(Head, sql.get_head, memory=ids.pop(), store=store)
    else:
        wanted = encode(sorted(ids)).decode()
        found = unit.tx.all(Head, sql.get_heads, memories=wanted, store=store)
    return {head.id: head for head in found}


def _head(heads: dict[str, Head], memory_id: str) -> Head:
    head = heads.get(memory_id)
    if head is None:
        raise missing("mem", memory_id)
    return head


def refuse_unexpected(head: Head, expected: str | None) -> None:
    """Raise PreconditionFailed if the hash of *head* is not the *expected* one."""
    if expected is not None and expected != head.content_sha256:
        raise PreconditionFailed(head.id, expected=expected, current=head.content_sha256)


HEADS_AT_ONCE = 100
"""Heads read at a time, with contents of 10 MiB at most."""


def rename(context: StoresContext, store_id: str, old_path: str, new_path: str) -> list[Memory]:
    """Move the memories at or below *old_path* to *new_path*; ids stay the same."""
    with existence_first(context, store_id, write=True):
        old = checked_place(old_path, field="old_path")
        new = checked_place(new_path, field="new_path")
        if "/" in (old, new):
            raise InvalidInput("old_path" if old == "/" else "new_path", "must not be the root")
    sql = context.sql

    def work(tx: Transaction) -> list[Memory]:
        unit = StoreTransaction(context, tx, store_id)
        unit.refuse_archived()
        low, high = span_below(old)
        span = {"store": store_id, "path": old, "low": low, "high": high}
        places = tx.all(MemoryLocation, sql.places_under, **span)
        if not places:
            raise missing("mem", old)
        if new == old:
            return [seen(unchanged(unit.head(place.id)), "basic") for place in places]
        if new.startswith(f"{old}/"):
            raise InvalidInput("new_path", "must not lie below old_path", given=new)
        targets = [checked_path(new + place.path[len(old) :], field="new_path") for place in places]
        step_aside(tx, sql, store_id, places)
        refuse_taken(tx, sql, store_id, [new])
        moved = carry(unit, places, targets)
        unit.close()
        return moved

    return context.engine.write(work)


def delete_under(context: StoresContext, store_id: str, path: str) -> int:
    """Delete the memories at or below *path*; return how many."""
    with existence_first(context, store_id, write=True):
        place = checked_place(path, field="path")
    sql = context.sql

    def work(tx: Transaction) -> int:
        unit = StoreTransaction(context, tx, store_id)
        count = 0
        for head in heads_under(tx, sql.heads_under, store_id, place):
            unit.deleted(head)
            count += 1
        unit.close()
        return count

    return context.engine.write(work)


def heads_under(
    tx: Transaction, statement: LiteralString, store_id: str, path: str
) -> Iterator[Head]:
    """Yield the heads at or below *path* in path order, reading in batches."""
    low, high = span_below(path)
    start = path
    while True:
        heads = tx.all(
            Head,
            statement,
            store=store_id,
            path=path,
            low=low,
            high=high,
            start=start,
            rows=HEADS_AT_ONCE,
        )
        yield from heads
        if len(heads) < HEADS_AT_ONCE:
            return
        start = just_after(heads[-1].path)
