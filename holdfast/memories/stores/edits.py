"""Apply atomic lists of edits to a store, those of many callers in one pass."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import BatchedWork, Engine, Kin, Transaction
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import (
    HoldfastError,
    IdempotencyMismatch,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    TooLarge,
)
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.trust import HeldFor, Tier, checked_origin_ref
from holdfast.ground.validation import nested
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.records import Edit as Edit
from holdfast.memories.stores.records import Move as Move
from holdfast.memories.stores.records import Moved as Moved
from holdfast.memories.stores.records import Remove as Remove
from holdfast.memories.stores.records import Replace as Replace
from holdfast.memories.stores.records import Save as Save
from holdfast.memories.stores.rows import (
    Head,
    LockedStore,
    StoresContext,
    existence_first,
    memory_of,
    missing,
    sought,
)
from holdfast.memories.stores.transaction import (
    NOBODY,
    MemoryLocation,
    SealedText,
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
from holdfast.memories.stores.write import OneByOne, Saving, save_all

_EDIT_ID = re.compile(r"edit_[0-9A-Za-z]{1,64}")

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


# Results are stored for a day under the client's edit id, as ids of versions only: so no path or
# content is stored twice, and redacting a version redacts it here too.

KEPT = timedelta(hours=24) // timedelta(microseconds=1)
"""Microseconds for which the id of an edit is stored."""

TIDIED = KEPT * 25 // 24
"""Age of a store's oldest edit at which all expired ones are deleted together."""


class _StoredEdit(Struct, frozen=True, kw_only=True):
    """A stored edit: a requested one, or one past its retention."""

    id: str
    digest: bytes | None
    answer: str | None
    stale: int


class _StoreOfEdit(LockedStore, frozen=True, kw_only=True):
    """A locked store with a stored edit, and whether it has edits to delete."""

    digest: bytes | None
    answer: str | None
    stale: int

    def stored(self, edit_id: str) -> list[_StoredEdit]:
        """Return the stored edit *edit_id*, and one for all that are past their retention."""
        edit = _StoredEdit(id=edit_id, digest=self.digest, answer=self.answer, stale=0)
        old = _StoredEdit(id="", digest=None, answer=None, stale=1)
        return [*([edit] if self.answer else []), *([old] if self.stale else [])]


def apply(
    context: StoresContext,
    store_id: str,
    edits: Sequence[Edit],
    edit_id: str,
    origin_ref: str | None = None,
) -> list[Applied]:
    """Apply *edits* in one transaction; see `Memories.apply`."""
    with existence_first(context, store_id, write=True):
        if not isinstance(cast("object", edit_id), str) or not _EDIT_ID.fullmatch(edit_id):
            reason = "must be edit_ and 1 to 64 ASCII letters and digits"
            raise InvalidInput("edit_id", reason, limit=64, given=edit_id)
        checked = checked_edits(edits)
        origin = checked_origin_ref(origin_ref)
    digest = checked.digest
    if origin is not None:
        context = replace(context, tier="outside", origin_ref=origin)
        digest = sha256(digest + origin.encode()).digest()
    item = _Request(edit_id, digest, checked.edits)
    if len(item.edits) > 1 or not isinstance(item.edits[0], CheckedSave):
        return context.engine.write(lambda tx: _apply(context, tx, store_id, item))

    def work(tx: Transaction, items: Sequence[_Request]) -> list[list[Applied] | Exception]:
        if len(items) > 1:
            return _save_each(context, tx, store_id, items)
        return [_apply(context, tx, store_id, items[0])]

    kin = Kin(("stores", context.workspace), store_id, ("apply", *context.authorship))
    return context.engine.write(BatchedWork(kin, item, work))


class _Request(Struct, frozen=True):
    """Checked edits with the client's id and their digest."""

    edit_id: str
    digest: bytes
    edits: list[CheckedEdit]

    @property
    def saving(self) -> Saving:
        """The only edit, a save, as a write of a pass; OneByOne if it is of another kind."""
        save = cast("CheckedSave", self.edits[0])
        edit, memory_id = save.edit, save.edit.memory_id
        if memory_id is None and edit.base_sha256 is not None:
            raise OneByOne
        what = SealedText.of(edit.path, save.text)
        return Saving(what, memory_id, lambda head: new_content(head, save))


def _apply(context: StoresContext, tx: Transaction, store_id: str, item: _Request) -> list[Applied]:
    """Apply *item*, unless it was applied before."""
    sql, stale = context.sql, context.now() - TIDIED
    edit = {"store": sought("memstore", store_id), "edit": item.edit_id, "stale": stale}
    store = tx.first(_StoreOfEdit, sql.lock_store_of_edit, **edit)
    unit = StoreTransaction(context, tx, store_id, store=store)
    known = [] if store is None else store.stored(item.edit_id)
    if context.engine.dialect == "postgres":
        known = _stored(unit, [item.edit_id])
    for each in known:
        if not each.stale:
            return _rebuild(tx, sql, store_id, each, item.digest)
    unit.refuse_archived()
    applied = list(map(EditActs(unit, tx, sql).do, item.edits))
    unit.close()
    if known:
        tx.send(sql.drop_edits_before, store=store_id, before=unit.now - KEPT)
    tx.send(sql.insert_edit, **_edit_row(unit, item, applied))
    return applied


def _save_each(
    context: StoresContext, tx: Transaction, store_id: str, items: Sequence[_Request]
) -> list[list[Applied] | Exception]:
    """Apply *items*, each a save, with one statement for each table.

    Raises OneByOne if one was applied before, or depends on another.
    """
    unit = StoreTransaction(context, tx, store_id)
    ids = [item.edit_id for item in items]
    known = _stored(unit, ids)
    if len(set(ids)) < len(ids) or not all(each.stale for each in known):
        raise OneByOne
    saved = save_all(unit, [item.saving for item in items])
    unit.close()
    if known:
        tx.send(context.sql.drop_edits_before, store=store_id, before=unit.now - KEPT)
    done: list[list[Applied] | Exception] = [
        each
        if isinstance(each, HoldfastError)
        else [
            Applied(seq=unit.seq, changed=each[1], memories=(seen(each[0], "basic"),), deleted=())
        ]
        for each in saved
    ]
    rows = [
        _edit_row(unit, item, applied)
        for item, applied in zip(items, done, strict=True)
        if not isinstance(applied, Exception)
    ]
    tx.run_many(context.sql.insert_edit, rows)
    return done


def _stored(unit: StoreTransaction, edit_ids: Sequence[str]) -> list[_StoredEdit]:
    """Return the stored ones of *edit_ids*, and one that is past its retention."""
    return unit.tx.all(
        _StoredEdit,
        unit.context.sql.get_edits,
        store=unit.store.id,
        edits=msgspec.json.encode(edit_ids).decode(),
        stale=unit.now - TIDIED,
    )


def _edit_row(
    unit: StoreTransaction, item: _Request, applied: Sequence[Applied]
) -> dict[str, object]:
    """Return the stored form of the results of *item*."""
    stored = [
        _Answer(
            each.seq,
            each.changed,
            [
                _Head(memory.id, memory.memory_version_id, to_microseconds(memory.created_at))
                for memory in each.memories
            ],
            each.deleted,
        )
        for each in applied
    ]
    return {
        "store": unit.store.id,
        "edit": item.edit_id,
        "digest": item.digest,
        "answer": msgspec.json.encode(stored).decode(),
        "now": unit.now,
    }


class _Head(Struct, frozen=True, array_like=True):
    memory_id: str
    version_id: str
    born: int


class _Answer(Struct, frozen=True, array_like=True):
    seq: int
    changed: bool
    heads: list[_Head]
    deleted: tuple[str, ...]


class _Version(Struct, frozen=True, kw_only=True):
    id: str
    memory_id: str
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int
    tier: Tier
    held: HeldFor | None


_answers = msgspec.json.Decoder(list[_Answer])


def _rebuild(
    tx: Transaction, sql: SimpleNamespace, store_id: str, known: _StoredEdit, digest: bytes
) -> list[Applied]:
    """Rebuild the results of *known* from its stored form.

    Raises IdempotencyMismatch when the edits differ.
    """
    if known.digest is not None and known.digest != digest:
        raise IdempotencyMismatch(known.id)
    answers = _answers.decode(known.answer or "[]")
    wanted = [head.version_id for answer in answers for head in answer.heads]
    found = tx.all(
        _Version,
        sql.versions_of_edit,
        store=store_id,
        versions=msgspec.json.encode(wanted).decode(),
    )
    versions = {version.id: version for version in found}

    def memory(head: _Head) -> Memory | None:
        version = versions.get(head.version_id)
        if version is None or version.path is None:
            # It was redacted, so it is no longer a head.
            basic = sql.get_memory_basic
            return tx.first(memory_of, basic, memory=head.memory_id, store=store_id)
        return Memory(
            id=head.memory_id,
            memory_store_id=store_id,
            memory_version_id=head.version_id,
            path=version.path,
            content=None,
            content_sha256=version.content_sha256 or "",
            content_size_bytes=version.content_size_bytes or 0,
            created_at=from_microseconds(head.born),
            updated_at=from_microseconds(version.created_at),
            tier=version.tier,
            held=version.held,
        )

    return [
        Applied(
            seq=answer.seq,
            changed=answer.changed,
            memories=tuple(each for head in answer.heads if (each := memory(head)) is not None),
            deleted=answer.deleted,
        )
        for answer in answers
    ]


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
