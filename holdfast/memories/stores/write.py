"""Create, update and delete memories; writes of many callers to one store in one pass.

A pass decides about each write in order, as if those before it were done, and only then changes
anything: with one statement for each table, and a version for each write, with an instant and a
link of its own.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import BatchedWork, Kin, Transaction
from holdfast.ground.errors import (
    HoldfastError,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreArchived,
    StoreFull,
)
from holdfast.memories.stores.records import Deleted, Memory, View
from holdfast.memories.stores.rows import Head, StoresContext, missing
from holdfast.memories.stores.transaction import (
    NewMemory,
    SealedText,
    StoreTransaction,
    Text,
    seen,
)
from holdfast.memories.stores.validation import lineage

Item = TypeVar("Item")
T = TypeVar("T")

REFUSALS: Final = (NotFound, PathTaken, PreconditionFailed, StoreArchived, StoreFull)
"""What refuses one write of a pass; any other error is of the whole."""


class Creation(Struct, frozen=True):
    """A memory to create, and the view to return it in."""

    what: SealedText
    view: View


class Change(Struct, frozen=True, kw_only=True):
    """A change of a memory: to a path, a text or both, if its hash is the expected one."""

    memory_id: str
    path: str | None
    text: Text | None
    expected: str | None
    view: View


class Removal(Struct, frozen=True):
    """A memory to delete, if its hash is the expected one."""

    memory_id: str
    expected: str | None


def create(context: StoresContext, store_id: str, item: Creation) -> Memory:
    """Write a new memory at a free path."""
    return _write(context, store_id, item, create_all)


def update(context: StoresContext, store_id: str, item: Change) -> Memory:
    """Change a memory, unless it says that already."""
    if item.path is not None:
        # Whether a path is free depends on what the other writes do to theirs.
        return context.engine.write(lambda tx: _move(context, tx, store_id, item))
    return _write(context, store_id, item, update_all)


def delete(context: StoresContext, store_id: str, item: Removal) -> Deleted:
    """Delete a memory."""
    return _write(context, store_id, item, delete_all)


def _write(
    context: StoresContext,
    store_id: str,
    item: Item,
    do: Callable[[StoreTransaction, Sequence[Item]], list[T | HoldfastError]],
) -> T:
    def work(tx: Transaction, items: Sequence[Item]) -> list[T | HoldfastError]:
        unit = StoreTransaction(context, tx, store_id)
        done = do(unit, items)
        unit.close()
        return done

    kin = Kin(("stores", context.workspace), store_id, (do.__name__, *context.authorship))
    return context.engine.write(BatchedWork(kin, item, work))


def create_all(unit: StoreTransaction, items: Sequence[Creation]) -> list[Memory | HoldfastError]:
    """Create the memories of *items*; return each, or the error that refuses it."""
    places = _Places(unit, [item.what.path for item in items])
    accepted: list[NewMemory] = []
    done: list[Memory | HoldfastError] = []
    for item in items:
        try:
            unit.refuse_archived()
            places.refuse_taken(item.what.path)
            unit.refuse_full(more=len(accepted))
        except REFUSALS as error:
            done.append(error)
            continue
        new = unit.drawn(item.what, len(accepted))
        places.take(new)
        accepted.append(new)
        done.append(seen(unit.memory_of(new), item.view))
    unit.create_all(accepted)
    return done


class _Places:
    """The paths of a store, with those of a pass that are taken meanwhile."""

    def __init__(self, unit: StoreTransaction, paths: Sequence[str]) -> None:
        self._unit = unit
        # One look for all: mostly none of them is taken.
        self._looks = len(paths) == 1 or unit.is_any_taken(paths)
        self._taken: dict[str, str] = {}
        self._first_below: dict[str, str] = {}

    def refuse_taken(self, path: str) -> None:
        """Raise PathTaken if a memory is at, above or below *path*: for the first, by path."""
        blocker = self._unit.blocker(path) if self._looks else None
        near = [above for above in lineage(path) if above in self._taken] if self._taken else []
        if path in self._first_below:
            near.append(self._first_below[path])
        first = min(near, default=None)
        if first is not None and (blocker is None or first < blocker.conflicting_path):
            blocker = PathTaken(self._taken[first], first)
        if blocker is not None:
            raise blocker

    def take(self, new: NewMemory) -> None:
        """Record that *new* has its path."""
        path = new.what.path
        self._taken[path] = new.id
        for above in lineage(path)[:-1]:
            self._first_below[above] = min(path, self._first_below.get(above, path))


def update_all(unit: StoreTransaction, items: Sequence[Change]) -> list[Memory | HoldfastError]:
    """Change the texts of memories as *items* say; return each, or the error that refuses it."""
    heads = unit.heads([item.memory_id for item in items])
    changes: list[tuple[Head, NewMemory]] = []
    done: list[Memory | HoldfastError] = []
    for item in items:
        try:
            head = _head(heads, item.memory_id)
            unit.refuse_archived()
            text = item.text
            if text is None or text.sha256 == head.content_sha256:
                done.append(seen(unit.unchanged(head), item.view))
                continue
            _refuse_unexpected(head, item.expected)
        except REFUSALS as error:
            done.append(error)
            continue
        new = unit.change_of(head, text, len(changes))
        changes.append((head, new))
        heads[head.id] = _follower(head, new)
        done.append(seen(unit.memory_of(new), item.view))
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
        return seen(unit.unchanged(head), item.view)
    _refuse_unexpected(head, item.expected)
    if path != head.path:
        unit.refuse_taken(path, mine=head.id)
    memory = unit.modified(head, path, text or Text.of(head.content))
    unit.close()
    return seen(memory, item.view)


def delete_all(unit: StoreTransaction, items: Sequence[Removal]) -> list[Deleted | HoldfastError]:
    """Delete the memories of *items*; return each, or the error that refuses it."""
    heads = unit.heads([item.memory_id for item in items])
    going: list[Head] = []
    done: list[Deleted | HoldfastError] = []
    for item in items:
        try:
            head = _head(heads, item.memory_id)
            _refuse_unexpected(head, item.expected)
        except REFUSALS as error:
            done.append(error)
            continue
        going.append(heads.pop(head.id))
        done.append(Deleted(id=head.id, type="memory_deleted"))
    unit.delete_all(going)
    return done


def _head(heads: dict[str, Head], memory_id: str) -> Head:
    head = heads.get(memory_id)
    if head is None:
        raise missing("mem", memory_id)
    return head


def _refuse_unexpected(head: Head, expected: str | None) -> None:
    if expected is not None and expected != head.content_sha256:
        raise PreconditionFailed(head.id, expected=expected, current=head.content_sha256)
