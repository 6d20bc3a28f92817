"""Edits done in one transaction or none, and once, however often they are asked for.

What they came to is kept for a day under the caller's id for them, told by ids of versions alone:
so nothing of a path or a content is kept twice, and forgetting a version forgets it here too.
"""

from collections.abc import Sequence
from datetime import timedelta
from types import SimpleNamespace

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import IdempotencyMismatch
from holdfast.memories.stores.edit_acts import EditActs
from holdfast.memories.stores.edit_input import checked_edit_id, checked_edits
from holdfast.memories.stores.edits import Edit
from holdfast.memories.stores.records import Applied, Memory
from holdfast.memories.stores.rows import StoresContext, existence_first, memory_of
from holdfast.memories.stores.transaction import Ledger

_MICROSECOND = timedelta(microseconds=1)
KEPT = timedelta(hours=24) // _MICROSECOND
"""Microseconds that an edit's id is known."""

TIDIED = timedelta(hours=25) // _MICROSECOND
"""Age of a store's oldest edit at which those past their day are dropped, all at once."""


def apply(
    caller: StoresContext, store_id: str, edits: Sequence[Edit], edit_id: str
) -> list[Applied]:
    """Do *edits* together; see `Memories.apply`."""
    with existence_first(caller, store_id, write=True):
        name = checked_edit_id(edit_id)
        asked = checked_edits(edits)
    sql = caller.engine.queries("holdfast.memories.stores")

    def work(tx: Transaction) -> list[Applied]:
        ledger = Ledger(caller, tx, store_id)
        stale = ledger.now - TIDIED
        known = tx.all(_Known, sql.get_edit, store=store_id, edit=name, stale=stale)
        for edit in known:
            if edit.id == name:
                return _again(tx, sql, store_id, edit, asked.digest)
        ledger.refuse_archived()
        acts = EditActs(ledger, tx, sql)
        applied = [acts.do(edit) for edit in asked.edits]
        ledger.close()
        if known:
            tx.send(sql.drop_edits_before, store=store_id, before=ledger.now - KEPT)
        tx.send(
            sql.insert_edit,
            store=store_id,
            edit=name,
            digest=asked.digest,
            answer=_told(applied),
            now=ledger.now,
        )
        return applied

    return caller.engine.write(work)


class _Known(Struct, frozen=True, kw_only=True):
    """An edit that was done: the one asked for, or one of an older day."""

    id: str
    digest: bytes | None
    answer: str | None


class _Head(Struct, frozen=True, array_like=True):
    memory_id: str
    version_id: str
    born: int


class _Answer(Struct, frozen=True, array_like=True):
    seq: int
    changed: bool
    heads: tuple[_Head, ...]
    deleted: tuple[str, ...]


class _Version(Struct, frozen=True, kw_only=True):
    id: str
    memory_id: str
    path: str | None
    content_sha256: str | None
    content_size_bytes: int | None
    created_at: int


_answers = msgspec.json.Decoder(list[_Answer])


def _told(applied: list[Applied]) -> str:
    """Return *applied* as it is kept."""
    answers = [
        _Answer(
            each.seq,
            each.changed,
            tuple(
                _Head(memory.id, memory.memory_version_id, to_microseconds(memory.created_at))
                for memory in each.memories
            ),
            each.deleted,
        )
        for each in applied
    ]
    return msgspec.json.encode(answers).decode()


def _again(
    tx: Transaction, sql: SimpleNamespace, store_id: str, known: _Known, digest: bytes
) -> list[Applied]:
    """Return what *known* came to; IdempotencyMismatch when other edits are asked for now."""
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
            # It was redacted, and so was no head any more.
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
