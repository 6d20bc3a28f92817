"""Edits of a store: their checks, and what each does within a transaction."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Transaction
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import (
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    TooLarge,
)
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.validation import nested
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.rows import (
    Head,
    missing,
    sought,
)
from holdfast.memories.stores.transaction import (
    NOBODY,
    MemoryLocation,
    StoreTransaction,
    Text,
    carry,
    refuse_taken,
    seen,
    step_aside,
    unchanged,
)
from holdfast.memories.stores.validation import (
    CONTENT_BYTES_MAX,
    checked_content,
    checked_path,
    checked_sha256,
    lineage,
)


class Save(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="save"
):
    """Write *content* to a memory.

    The target is the memory *memory_id*, else the memory at *path*, else a new one.

    With a *base_sha256* the head must have that hash; if it does not, *appended*, if given, is
    appended to the current head. A save by id leaves the memory's path unchanged. A *new* save
    never overwrites a memory at the path.
    """

    path: str
    content: str
    memory_id: str | None = None
    base_sha256: str | None = None
    appended: str | None = None
    new: bool = False


class Replace(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="replace"
):
    """Make *content* the head of *memory_id* at *path*; delete *source_id*."""

    memory_id: str
    path: str
    content: str
    source_id: str | None = None


class Moved(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory and its new path."""

    memory_id: str
    path: str


class Move(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="move"
):
    """Move memories to new paths, all or none."""

    moves: tuple[Moved, ...]


class Remove(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="delete"
):
    """Delete a memory; a missing one is not an error."""

    memory_id: str


Edit = Save | Replace | Move | Remove


EDITS_MAX = 1_000
"""Edits of one `apply`."""

Stated = tuple[object, ...]


class CheckedSave(Struct, frozen=True):
    """A checked `Save` with hash and words."""

    edit: Save
    text: Text
    appended: bytes | None


class CheckedReplace(Struct, frozen=True):
    """A checked `Replace` with hash and words."""

    edit: Replace
    text: Text


CheckedEdit = CheckedSave | CheckedReplace | Move | Remove


class CheckedEdits(Struct, frozen=True):
    """Checked edits, and the digest of all of them."""

    edits: list[CheckedEdit]
    digest: bytes


def checked_edits(given: object) -> CheckedEdits:
    """Check 1 to 1,000 edits; InvalidInput has the index of an invalid one."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidInput("edits", "must be a list", given=given)
    edits = cast("Sequence[object]", given)
    if not 1 <= len(edits) <= EDITS_MAX:
        reason = f"must be 1 to {EDITS_MAX:,} edits, are {len(edits):,}"
        raise InvalidInput("edits", reason, limit=EDITS_MAX)
    valid: list[CheckedEdit] = []
    stated: list[Stated] = []
    for index, edit in enumerate(edits):
        try:
            checked, statement = _checked(edit)
        except InvalidInput as wrong:
            raise nested(wrong, index=index) from None
        valid.append(checked)
        stated.append(statement)
    return CheckedEdits(valid, sha256(msgspec.json.encode(stated)).digest())


def _checked(edit: object) -> tuple[CheckedEdit, Stated]:
    """Return *edit* checked, and its fields for the digest, with hashes for texts."""
    match edit:
        case Save():
            return _save(edit)
        case Replace():
            return _replace(edit)
        case Move():
            return edit, _move(edit)
        case Remove():
            return edit, ("delete", _id("memory_id", edit.memory_id))
        case _:
            raise InvalidInput("edits", "must be Save, Replace, Move or Remove", given=edit)


def _save(edit: Save) -> tuple[CheckedSave, Stated]:
    path = checked_path(edit.path)
    text = Text.of(checked_content(edit.content))
    memory_id = None if edit.memory_id is None else _id("memory_id", edit.memory_id)
    base = edit.base_sha256
    if base is not None:
        checked_sha256(base, field="base_sha256")
    appended = None if edit.appended is None else _appended(edit.appended)
    added = None if appended is None else sha256(appended).hexdigest()
    statement: Stated = ("save", path, text.sha256, memory_id, base, added)
    return CheckedSave(edit, text, appended), (*statement, "new") if edit.new else statement


def _appended(given: object) -> bytes:
    try:
        return checked_content(given)
    except InvalidInput as wrong:
        raise InvalidInput("appended", wrong.reason, limit=wrong.limit, next=wrong.next) from None


def _replace(edit: Replace) -> tuple[CheckedReplace, Stated]:
    memory_id = _id("memory_id", edit.memory_id)
    path = checked_path(edit.path)
    text = Text.of(checked_content(edit.content))
    source_id = None if edit.source_id is None else _id("source_id", edit.source_id)
    if source_id == memory_id:
        raise InvalidInput("source_id", "must be another memory than memory_id", given=source_id)
    return CheckedReplace(edit, text), ("replace", memory_id, path, text.sha256, source_id)


def _move(edit: Move) -> Stated:
    moves = [(_id("memory_id", move.memory_id), checked_path(move.path)) for move in edit.moves]
    if not moves:
        raise InvalidInput("moves", "must name a memory")
    if len({memory_id for memory_id, _ in moves}) < len(moves):
        raise InvalidInput("moves", "must name each memory once")
    return ("move", *moves)


def _id(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=given)
    # A malformed id is merely not found, but it must be valid text.
    return given.encode("utf-8", "backslashreplace").decode()


class EditActs(Struct):
    """Applies edits within one transaction; each sees the effects of earlier ones."""

    _unit: StoreTransaction
    _tx: Transaction
    _sql: SimpleNamespace

    def do(self, edit: CheckedEdit) -> Applied:
        """Apply *edit* and return its result."""
        match edit:
            case CheckedSave():
                return self._save(edit)
            case CheckedReplace():
                return self._replace(edit)
            case Move():
                return self._move(edit)
            case Remove():
                head = self._find(edit.memory_id)
                if head is None:
                    return self._applied(changed=False)
                self._unit.deleted(head)
                return self._applied(changed=True, deleted=(head.id,))

    def _save(self, request: CheckedSave) -> Applied:
        edit = request.edit
        head = None if edit.memory_id is None else self._find(edit.memory_id)
        followed = head is not None
        taken = None if followed else self._taken(edit.path)
        if taken is not None and taken.conflicting_path == edit.path and not edit.new:
            head = self._unit.head(taken.conflicting_memory_id)
        if head is not None:
            return self._put(head, head.path, new_content(head, request))
        if edit.base_sha256 is not None and request.appended is None:
            key = edit.memory_id or edit.path
            raise PreconditionFailed(key, expected=edit.base_sha256, current=None)
        gone = edit.memory_id is not None or edit.base_sha256 is not None
        # A deleted memory stays deleted: an append to it creates one with the appended text only.
        alone = request.appended if gone else None
        return self._create(edit.path, request.text if alone is None else Text.of(alone), taken)

    def _replace(self, request: CheckedReplace) -> Applied:
        edit = request.edit
        source = None if edit.source_id is None else self._find(edit.source_id)
        if source is not None:
            self._unit.deleted(source)
        deleted = () if source is None else (source.id,)
        head = self._find(edit.memory_id)
        taken = None
        if head is None or head.path != edit.path:
            taken = self._taken(edit.path, mine=edit.memory_id)
        if head is None and taken is not None and taken.conflicting_path == edit.path:
            head, taken = self._unit.head(taken.conflicting_memory_id), None
        if head is None:
            return self._create(edit.path, request.text, taken, deleted)
        if taken is not None:
            raise taken
        return self._put(head, edit.path, request.text, deleted)

    def _move(self, edit: Move) -> Applied:
        store_id = self._unit.store.id
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
        # No target is the same as another, or above it.
        goals = [MemoryLocation(id=m.memory_id, path=m.path) for m in edit.moves]
        taken: dict[str, str] = {}
        for goal in sorted(goals, key=lambda goal: goal.path):
            for path in lineage(goal.path):
                if path in taken:
                    raise PathTaken(taken[path], path)
            taken[goal.path] = goal.id
        going = [move for move in edit.moves if move.path != sits[move.memory_id].path]
        memories: dict[str, Memory] = {}
        if going:
            places = [sits[move.memory_id] for move in going]
            targets = [move.path for move in going]
            step_aside(self._tx, self._sql, store_id, places)
            refuse_taken(self._tx, self._sql, store_id, targets)
            memories = {each.id: each for each in carry(self._unit, places, targets)}
        for id in sits.keys() - memories.keys():
            memories[id] = seen(unchanged(self._unit.head(id)), "basic")
        return self._applied(
            *(memories[move.memory_id] for move in edit.moves), changed=bool(going)
        )

    def _find(self, memory_id: str) -> Head | None:
        """Return the live memory *memory_id*, or None."""
        try:
            return self._unit.head(memory_id)
        except NotFound:
            return None

    def _taken(self, path: str, *, mine: str = NOBODY) -> PathTaken | None:
        """Return the conflict of another memory at, above or below *path*, or None."""
        try:
            self._unit.refuse_taken(path, mine=mine)
        except PathTaken as taken:
            return taken
        return None

    def _put(self, head: Head, path: str, text: Text, deleted: tuple[str, ...] = ()) -> Applied:
        if path == head.path and text.sha256 == head.content_sha256:
            memory = unchanged(head)
            return self._applied(memory, changed=bool(deleted), deleted=deleted)
        memory = self._unit.modified(head, path, text)
        return self._applied(memory, changed=True, deleted=deleted)

    def _create(
        self, path: str, text: Text, taken: PathTaken | None, deleted: tuple[str, ...] = ()
    ) -> Applied:
        if taken is not None:
            raise taken
        self._unit.refuse_full()
        return self._applied(self._unit.created(path, text), changed=True, deleted=deleted)

    def _applied(self, *memories: Memory, changed: bool, deleted: tuple[str, ...] = ()) -> Applied:
        return Applied(
            seq=self._unit.seq,
            changed=changed,
            memories=tuple(seen(memory, "basic") for memory in memories),
            deleted=deleted,
        )


def new_content(head: Head, request: CheckedSave) -> Text:
    """Return the new content of *head*.

    Raises PreconditionFailed, or TooLarge for an append beyond the limit.
    """
    base = request.edit.base_sha256
    if base in (None, head.content_sha256):
        return request.text
    if request.appended is None:
        if request.text.sha256 == head.content_sha256:
            return request.text
        raise PreconditionFailed(head.id, expected=base, current=head.content_sha256)
    content = head.content + request.appended
    if len(content) > CONTENT_BYTES_MAX:
        raise TooLarge(
            CONTENT_BYTES_MAX,
            what=f"content of {head.id}, with what is appended,",
            next="Append less, or to another memory.",
        )
    return Text.of(content)


_MICROSECOND = timedelta(microseconds=1)
KEPT = timedelta(hours=24) // _MICROSECOND
"""Microseconds for which the id of an edit is stored."""

BATCH = 1_000


def drop_edits(engine: Engine, now: datetime) -> int:
    """Delete stored edits older than 24 hours, of all stores; return how many.

    Each batch is a write of its own, so that other writes do not wait long.
    """
    engine = engine.scoped(EVERYBODY)
    sql = engine.queries("holdfast.memories.stores")
    before = to_microseconds(now) - KEPT

    def work(tx: Transaction) -> int:
        return tx.run(sql.drop_old_edits, before=before, rows=BATCH)

    dropped = 0
    while batch := engine.write(work):
        dropped += batch
    return dropped
