"""What each kind of edit does to a store whose book is open."""

from types import SimpleNamespace

import msgspec

from holdfast.engines.base import Transaction
from holdfast.ground.errors import NotFound, PathTaken, PreconditionFailed, TooLarge
from holdfast.memories.stores.edit_input import AskedEdit, AskedReplace, AskedSave
from holdfast.memories.stores.edits import Move, Remove
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.rows import Head, missing, sought
from holdfast.memories.stores.transaction import (
    NOBODY,
    Ledger,
    MemoryLocation,
    Text,
    carry,
    refuse_taken,
    seen,
    step_aside,
)
from holdfast.memories.stores.validation import CONTENT_BYTES_MAX, lineage


class EditActs:
    """Does edits within one transaction; each sees what those before it did."""

    def __init__(self, ledger: Ledger, tx: Transaction, sql: SimpleNamespace) -> None:
        self._ledger, self._tx, self._sql = ledger, tx, sql

    def do(self, edit: AskedEdit) -> Applied:
        """Do *edit*; return what it came to."""
        match edit:
            case AskedSave():
                return self._save(edit)
            case AskedReplace():
                return self._replace(edit)
            case Move():
                return self._move(edit)
            case Remove():
                return self._remove(edit)

    def _save(self, asked: AskedSave) -> Applied:
        edit = asked.edit
        head = None if edit.memory_id is None else self._find(edit.memory_id)
        followed = head is not None
        taken = None if followed else self._taken(edit.path)
        if taken is not None and taken.conflicting_path == edit.path and not edit.new:
            head = self._ledger.head(taken.conflicting_memory_id)
        if head is not None:
            return self._put(head, head.path, _onto(head, asked))
        if edit.base_sha256 is not None and asked.appended is None:
            key = edit.memory_id or edit.path
            raise PreconditionFailed(key, expected=edit.base_sha256, current=None)
        gone = edit.memory_id is not None or edit.base_sha256 is not None
        # What was deleted stays deleted, so of an append to it only what was appended comes back.
        alone = asked.appended if gone else None
        return self._create(edit.path, asked.text if alone is None else Text.of(alone), taken)

    def _replace(self, asked: AskedReplace) -> Applied:
        edit = asked.edit
        source = None if edit.source_id is None else self._find(edit.source_id)
        if source is not None:
            self._ledger.deleted(source)
        deleted = () if source is None else (source.id,)
        head = self._find(edit.memory_id)
        taken = None
        if head is None or head.path != edit.path:
            taken = self._taken(edit.path, mine=edit.memory_id)
        if head is None and taken is not None and taken.conflicting_path == edit.path:
            head, taken = self._ledger.head(taken.conflicting_memory_id), None
        if head is None:
            return self._create(edit.path, asked.text, taken, deleted)
        if taken is not None:
            raise taken
        return self._put(head, edit.path, asked.text, deleted)

    def _move(self, edit: Move) -> Applied:
        store_id = self._ledger.store.id
        ids = [sought("mem", move.memory_id) for move in edit.moves]
        found = self._tx.all(
            MemoryLocation,
            self._sql.places_of,
            store=store_id,
            memories=msgspec.json.encode(ids).decode(),
        )
        sits = {place.id: place for place in found}
        for move in edit.moves:
            if move.memory_id not in sits:
                raise missing("mem", move.memory_id)
        _refuse_one_above_another([MemoryLocation(id=m.memory_id, path=m.path) for m in edit.moves])
        going = [move for move in edit.moves if move.path != sits[move.memory_id].path]
        memories: dict[str, Memory] = {}
        if going:
            places = [sits[move.memory_id] for move in going]
            targets = [move.path for move in going]
            step_aside(self._tx, self._sql, store_id, places)
            refuse_taken(self._tx, self._sql, store_id, targets)
            memories = {each.id: each for each in carry(self._ledger, places, targets)}
        for id in sits.keys() - memories.keys():
            memories[id] = seen(self._ledger.unchanged(self._ledger.head(id)), "basic")
        return self._applied(
            *(memories[move.memory_id] for move in edit.moves), changed=bool(going)
        )

    def _remove(self, edit: Remove) -> Applied:
        head = self._find(edit.memory_id)
        if head is None:
            return self._applied(changed=False)
        self._ledger.deleted(head)
        return self._applied(changed=True, deleted=(head.id,))

    def _find(self, memory_id: str) -> Head | None:
        """Return the live memory *memory_id*, or None."""
        try:
            return self._ledger.head(memory_id)
        except NotFound:
            return None

    def _taken(self, path: str, *, mine: str = NOBODY) -> PathTaken | None:
        """Return who of others sits at *path*, above it or below it, or None."""
        try:
            self._ledger.refuse_taken(path, mine=mine)
        except PathTaken as taken:
            return taken
        return None

    def _put(self, head: Head, path: str, text: Text, deleted: tuple[str, ...] = ()) -> Applied:
        if path == head.path and text.sha256 == head.content_sha256:
            memory = self._ledger.unchanged(head)
            return self._applied(memory, changed=bool(deleted), deleted=deleted)
        memory = self._ledger.modified(head, path, text)
        return self._applied(memory, changed=True, deleted=deleted)

    def _create(
        self, path: str, text: Text, taken: PathTaken | None, deleted: tuple[str, ...] = ()
    ) -> Applied:
        if taken is not None:
            raise taken
        self._ledger.refuse_full()
        return self._applied(self._ledger.created(path, text), changed=True, deleted=deleted)

    def _applied(self, *memories: Memory, changed: bool, deleted: tuple[str, ...] = ()) -> Applied:
        return Applied(
            seq=self._ledger.seq,
            changed=changed,
            memories=tuple(seen(memory, "basic") for memory in memories),
            deleted=deleted,
        )


def _onto(head: Head, asked: AskedSave) -> Text:
    """Return what the save makes of *head*; PreconditionFailed, TooLarge when it cannot."""
    base = asked.edit.base_sha256
    if base in (None, head.content_sha256):
        return asked.text
    if asked.appended is None:
        if asked.text.sha256 == head.content_sha256:
            return asked.text
        raise PreconditionFailed(head.id, expected=base, current=head.content_sha256)
    content = head.content + asked.appended
    if len(content) > CONTENT_BYTES_MAX:
        raise TooLarge(
            CONTENT_BYTES_MAX,
            what=f"content of {head.id}, with what is appended,",
            next="Append less, or to another memory.",
        )
    return Text.of(content)


def _refuse_one_above_another(goals: list[MemoryLocation]) -> None:
    """Raise PathTaken if of two places that are to be taken together one is at or above another."""
    taken: dict[str, str] = {}
    for goal in sorted(goals, key=lambda goal: goal.path):
        for path in lineage(goal.path):
            if path in taken:
                raise PathTaken(taken[path], path)
        taken[goal.path] = goal.id
