"""Apply atomic lists of edits to a store, those of many callers in one pass.

Results are stored for a day under the client's edit id, as ids of versions only: so no path or
content is stored twice, and redacting a version redacts it here too.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from types import SimpleNamespace
from typing import cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import BatchedWork, Kin, Transaction
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import HoldfastError, IdempotencyMismatch, InvalidInput
from holdfast.ground.trust import HeldFor, Tier, checked_origin_ref
from holdfast.memories.stores.edits import (
    KEPT,
    CheckedEdit,
    CheckedSave,
    Edit,
    EditActs,
    checked_edits,
    new_content,
)
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.rows import (
    LockedStore,
    StoresContext,
    existence_first,
    memory_of,
    sought,
)
from holdfast.memories.stores.transaction import SealedText, StoreTransaction, seen
from holdfast.memories.stores.write import OneByOne, Saving, save_all

_EDIT_ID = re.compile(r"edit_[0-9A-Za-z]{1,64}")

TIDIED = timedelta(hours=25) // timedelta(microseconds=1)
"""Age of a store's oldest edit at which all expired ones are deleted together."""


class _StoredEdit(Struct, frozen=True, kw_only=True):
    """A stored edit: a requested one, or one past its retention."""

    id: str
    digest: bytes | None
    answer: str | None
    stale: int


class _StoreOfEdit(LockedStore, frozen=True, kw_only=True):
    """A locked store, with an edit if that is stored, and whether it has edits to delete."""

    digest: bytes | None
    answer: str | None
    stale: int

    def stored(self, edit_id: str) -> list[_StoredEdit]:
        """Return the stored edit *edit_id*, and one for all that are past their retention."""
        found = [] if self.answer is None else [(edit_id, self.digest, self.answer, 0)]
        old = [("", None, None, 1)] if self.stale else []
        return [
            _StoredEdit(id=id, digest=digest, answer=answer, stale=stale)
            for id, digest, answer, stale in (*found, *old)
        ]


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
    acts = EditActs(unit, tx, sql)
    applied = [acts.do(edit) for edit in item.edits]
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
    """Return those of *edit_ids* that are stored, and an edit past its retention, if any."""
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
