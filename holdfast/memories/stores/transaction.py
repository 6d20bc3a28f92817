"""The unit of work on one store: moves and its hash chain.

A change is a version on the chain, the memory's row, its words in the index, the store's totals and
an event, all in one transaction.
"""

import json
import secrets
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import sha256
from types import SimpleNamespace
from typing import LiteralString

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Forgotten, PathTaken, StoreArchived, StoreFull
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor, WriteSubject, user_hash
from holdfast.ground.text import sha256_hex
from holdfast.ground.trust import Provenance, changed_provenance
from holdfast.memories.stores.records import Memory, Operation, View
from holdfast.memories.stores.rows import (
    Head,
    LockedStore,
    StoresContext,
    missing,
    reach,
    sought,
)
from holdfast.memories.stores.text_index import marked, words_of
from holdfast.memories.stores.validation import lineage, span_below

# `seal` covers a version's path and content under a random salt; `link` covers the previous link
# and all fields of the version that redaction keeps. Redaction erases path, content and salt, so
# the chain stays valid and the seal reveals nothing about the content.

SALT_BYTES = 32

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def first_link(store_id: str) -> bytes:
    """Return what the first version of a store links to."""
    return sha256(store_id.encode()).digest()


def content_seal(salt: bytes, path: str, content: bytes) -> bytes:
    """Return sha256(salt ‖ path ‖ 0 ‖ content).

    *content* is empty for a `deleted` version.
    """
    return sha256(salt + path.encode() + b"\0" + content).digest()


def next_link(
    previous: bytes,
    *,
    version_id: str,
    memory_id: str,
    operation: str,
    created_at: int,
    actor: Actor,
    seal: bytes,
) -> bytes:
    """Return the link of a version that follows *previous*.

    sha256(previous ‖ version id ‖ 0 ‖ memory id ‖ 0 ‖ operation ‖ 0 ‖ created_at ‖ 0 ‖ actor ‖
    0 ‖ seal), *created_at* in microseconds as decimal digits, *actor* as canonical JSON.
    """
    fields = "\0".join((version_id, memory_id, operation, str(created_at), _text_of(actor)))
    return sha256(previous + fields.encode() + b"\0" + seal).digest()


@lru_cache(maxsize=256)
def _text_of(actor: Actor) -> str:
    return _canonical(actor.to_wire())


MEMORIES_CAP = 10_000
"""Live memories in a store, unless its workspace is configured otherwise."""

NOBODY = ""
"""The id of no memory, so that `refuse_taken` excludes none."""


class Text(Struct, frozen=True):
    """A content with its hash and words, computed before the store is locked."""

    content: bytes
    sha256: str
    words: list[str]

    @classmethod
    def of(cls, content: bytes) -> "Text":
        """Return *content*, hashed and split into words."""
        return cls(content, sha256_hex(content), words_of(content.decode()))


_NO_TEXT = Text(b"", "", [])
Row = dict[str, object]


class SealedText(Struct, frozen=True, kw_only=True):
    """A path and a text to write, with the words of both and a seal.

    It is computed before the store is locked.
    """

    path: str
    text: Text
    words: list[str]
    salt: bytes
    seal: bytes

    @classmethod
    def of(cls, path: str, text: Text) -> "SealedText":
        """Seal *path* and *text* under a new salt."""
        salt = secrets.token_bytes(SALT_BYTES)
        seal = content_seal(salt, path, text.content)
        return cls(path=path, text=text, words=words_of(path) + text.words, salt=salt, seal=seal)


class NewMemory(Struct, frozen=True, kw_only=True):
    """A memory to create, with its ids and instants in microseconds since 1970."""

    id: str
    version_id: str
    now: int
    created_at: int
    what: SealedText
    source: Provenance

    def record(self, store_id: str) -> Memory:
        """Return it as a memory of the store."""
        text = self.what.text
        return Memory(
            id=self.id,
            memory_store_id=store_id,
            memory_version_id=self.version_id,
            path=self.what.path,
            content=text.content.decode(),
            content_sha256=text.sha256,
            content_size_bytes=len(text.content),
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.now),
            tier=self.source.tier,
            held=self.source.held,
        )


class StoreTransaction:
    """The unit of work on one store.

    Opening it locks the store, unless it is the locked *store*; `close` writes the totals.
    """

    def __init__(
        self,
        context: StoresContext,
        tx: Transaction,
        store_id: str,
        *,
        write: bool = True,
        store: LockedStore | None = None,
    ) -> None:
        self.context, self.tx = context, tx
        self._sql = context.sql
        now = context.now()
        reach(context, tx, store_id, write=write)
        if store is None:
            store = tx.first(LockedStore, self._sql.lock_store, store=sought("memstore", store_id))
        if store is None:
            raise missing("memstore", store_id)
        self.store = store
        self.now = now if now >= store.last_at else store.last_at + 1
        self._link, self._memories, self._words = store.link, 0, 0

    def refuse_archived(self) -> None:
        """Raise StoreArchived if the store is archived."""
        if self.store.archived_at is not None:
            raise StoreArchived(self.store.id)

    @property
    def seq(self) -> int:
        """The number of the store's last write, including this one after a change."""
        return self.store.seq if self._link is self.store.link else self.tx.seq

    def refuse_taken(self, path: str, *, mine: str = NOBODY) -> None:
        """Raise PathTaken if another memory is at, above or below *path*.

        The memory *mine* is excluded.
        """
        low, high = span_below(path)
        blocker = self.tx.first(
            PathTaken,
            self._sql.taken_path,
            store=self.store.id,
            lineage=msgspec.json.encode(lineage(path)).decode(),
            low=low,
            high=high,
            mine=mine,
        )
        if blocker is not None:
            raise blocker

    def refuse_full(self, *, more: int = 0) -> None:
        """Raise StoreFull if the store, with *more* memories, has reached its cap."""
        cap = self.store.memories_cap or MEMORIES_CAP
        if self.store.memories + self._memories + more >= cap:
            raise StoreFull(self.store.id, cap)

    def head(self, memory_id: str) -> Head:
        """Return the live memory *memory_id*; else raise NotFound."""
        head = self.tx.first(
            Head, self._sql.get_head, memory=sought("mem", memory_id), store=self.store.id
        )
        if head is None:
            raise missing("mem", memory_id)
        return head

    def created(
        self,
        path: str,
        text: Text,
        *,
        memory_id: str | None = None,
        born: int | None = None,
        source: Provenance | None = None,
    ) -> Memory:
        """Write a new memory.

        *memory_id*, *born* and *source* are those of one that is restored.
        """
        new = NewMemory(
            id=memory_id or self.context.ids.new("mem", self.now),
            version_id=self.context.ids.new("memver", self.now),
            now=self.now,
            created_at=self.now if born is None else born,
            what=SealedText.of(path, text),
            source=source or self.context.provenance(text.content),
        )
        self.create_all([new])
        return new.record(self.store.id)

    def create_all(self, new: Sequence[NewMemory]) -> None:
        """Write *new* in their order, with one statement for each table."""
        if not new:
            return
        versions: list[Row] = []
        memories: list[Row] = []
        for each in new:
            self.now = each.now
            versions.append(self._version_row("created", each))
            made = {"store": self.store.id, "created_at": each.created_at}
            memories.append(_row_of(each) | made | {"indexed": self._counted_in(each)})
        if self.context.subject is not None:
            self._refuse_forgotten(self.context.subject)
        self._put(self._sql.insert_version, versions)
        self._put(self._sql.insert_memory, memories)
        self._memories += len(new)
        if self.context.subject is not None:
            self._link_person(self.context.subject, versions)

    def modified(
        self, head: Head, path: str, text: Text, *, source: Provenance | None = None
    ) -> Memory:
        """Write *path* and *text* as the new head of a live memory.

        An unchanged text keeps its provenance, unless *source* is another.
        """
        if source is None:
            same = text.sha256 == head.content_sha256
            source = head.provenance if same else changed_source(self.context, head, text)
        what = SealedText.of(path, text)
        new = next_version(self.context, head, what, source, now=self.now)
        self.modify_all([(head, new)])
        return new.record(self.store.id)

    def modify_all(self, changes: Sequence[tuple[Head, NewMemory]]) -> None:
        """Write each change as the new head of its memory, one statement a table.

        Of changes of one memory each is of the head that the one before it made.
        """
        if not changes:
            return
        versions: list[Row] = []
        for _, new in changes:
            self.now = new.now
            versions.append(self._version_row("modified", new))
        first = {head.id: head for head, _ in reversed(changes)}
        moved = [
            _row_of(new)
            | {"removed": self._counted_out(first[id]), "indexed": self._counted_in(new)}
            for id, new in {new.id: new for _, new in changes}.items()
        ]
        if self.context.subject is not None:
            self._refuse_forgotten(self.context.subject)
        self._put(self._sql.insert_version, versions)
        self._put(self._sql.move_head, moved)
        if self.context.subject is not None:
            self._link_person(self.context.subject, versions)

    def deleted(self, *heads: Head) -> None:
        """Delete live memories and write a `deleted` version of each."""
        if not heads:
            return
        source, start = self.context.provenance(b""), self.now
        versions: list[Row] = []
        for place, head in enumerate(heads):
            what = SealedText.of(head.path, _NO_TEXT)
            new = next_version(self.context, head, what, source, now=start + place)
            self.now = new.now
            versions.append(self._version_row("deleted", new))
        if self.context.subject is not None:
            self._refuse_forgotten(self.context.subject)
        self._put(self._sql.insert_version, versions)
        self.unindex(heads)
        self._put(self._sql.delete_memory, [{"memory": head.id} for head in heads])
        self._memories -= len(heads)
        if self.context.subject is not None:
            self._link_person(self.context.subject, versions)

    def close(self) -> None:
        """Write the totals and the last link, if anything was written."""
        if self._link is self.store.link:
            return
        self.tx.send(
            self._sql.touch_store,
            store=self.store.id,
            memories=self._memories,
            words=self._words,
            seq=self.tx.seq,
            now=self.now,
            link=self._link,
        )

    def _put(self, statement: LiteralString, rows: Sequence[Row]) -> None:
        # On PostgreSQL all that is sent goes in one trip; `run_many` is one of its own.
        if len(rows) == 1 or self.context.engine.dialect == "postgres":
            for row in rows:
                self.tx.send(statement, **row)
        elif rows:
            self.tx.run_many(statement, rows)

    def _version_row(self, operation: Operation, new: NewMemory) -> Row:
        """Return the row of a version that is next on the chain, and note its event."""
        actor, what = self.context.actor, new.what
        text = None if operation == "deleted" else what.text
        seq = self.tx.seq
        self._link = next_link(
            self._link,
            version_id=new.version_id,
            memory_id=new.id,
            operation=operation,
            created_at=self.now,
            actor=actor,
            seal=what.seal,
        )
        self.tx.note(
            Event(
                type=f"memory.{operation}",
                at=from_microseconds(self.now),
                workspace=self.context.workspace,
                actor=self.context.actor,
                ids={
                    "memory_store_id": self.store.id,
                    "memory_id": new.id,
                    "memory_version_id": new.version_id,
                },
                data={"size_bytes": len(text.content) if text else 0},
            )
        )
        return {
            "version": new.version_id,
            "store": self.store.id,
            "memory": new.id,
            "seq": seq,
            "operation": operation,
            "path": what.path,
            "content": text.content if text else None,
            "sha256": text.sha256 if text else None,
            "size_bytes": len(text.content) if text else None,
            "now": self.now,
            "actor_kind": actor.kind,
            "actor_id": actor.id,
            "salt": what.salt,
            "seal": what.seal,
            "link": self._link,
            "tier": new.source.tier,
            "origin_ref": new.source.origin_ref,
            "held": new.source.held,
        }

    def _refuse_forgotten(self, subject: WriteSubject) -> None:
        """Raise Forgotten if the person was erased after the work on *subject* began."""
        tx, sql = self.tx, self._sql
        secret = tx.first(scalar, sql.workspace_secret)
        if secret is None:
            return
        erased_at = tx.first(scalar, sql.erased_at, user_hash=user_hash(secret, subject.user))
        if erased_at is not None and subject.outlived(erased_at):
            raise Forgotten(from_microseconds(erased_at), "the erasure of its person")

    def _link_person(self, subject: WriteSubject, versions: Sequence[Row]) -> None:
        """Link *versions* to the person of *subject*."""
        rows: list[Row] = [
            {"user": subject.user, "version": row["version"], "now": row["now"]} for row in versions
        ]
        self._put(self._sql.link_version, rows)

    def unindex(self, heads: Iterable[Head]) -> None:
        """Delete the words of live memories from the index."""
        rows: list[Row] = [
            {"memory": head.id, "words": words}
            for head in heads
            if (words := self._counted_out(head))
        ]
        self._put(self._sql.delete_words, rows)

    def _counted_in(self, new: NewMemory) -> str:
        """Return the words of *new* for the index, counted in the totals."""
        self._words += len(new.what.words)
        return marked(self.store.number, new.what.words)

    def _counted_out(self, head: Head) -> str:
        """Return the words that *head* has in the index, and count them out of the totals."""
        self._words -= head.words
        if not head.words:
            return ""
        return marked(self.store.number, words_of(head.path) + words_of(head.content.decode()))


def next_version(
    context: StoresContext, head: Head, what: SealedText, source: Provenance, *, now: int
) -> NewMemory:
    """Return the next version of *head*, with an id of its own."""
    return NewMemory(
        id=head.id,
        version_id=context.ids.new("memver", now),
        now=now,
        created_at=head.created_at,
        what=what,
        source=source,
    )


def changed_source(context: StoresContext, head: Head, text: Text) -> Provenance:
    """Return the provenance of *text*, which replaces that of *head*."""
    source = context.provenance(text.content)
    if head.held is None:
        return source
    return changed_provenance(text.content.decode(), head.provenance, source)


def unchanged(head: Head) -> Memory:
    """Return a live memory as a record, without a change."""
    return Memory(
        id=head.id,
        memory_store_id=head.store_id,
        memory_version_id=head.version_id,
        path=head.path,
        content=head.content.decode(),
        content_sha256=head.content_sha256,
        content_size_bytes=len(head.content),
        created_at=from_microseconds(head.created_at),
        updated_at=from_microseconds(head.updated_at),
        tier=head.tier,
        held=head.held,
    )


def _row_of(new: NewMemory) -> Row:
    """Return the columns of a memory that follow its version."""
    text = new.what.text
    return {
        "memory": new.id,
        "path": new.what.path,
        "version": new.version_id,
        "sha256": text.sha256,
        "size_bytes": len(text.content),
        "words": len(new.what.words),
        "now": new.now,
        "tier": new.source.tier,
        "held": new.source.held,
    }


def seen(memory: Memory, view: View) -> Memory:
    """Return *memory* in *view*; the basic view has no content."""
    return memory if view == "full" else msgspec.structs.replace(memory, content=None)


# Moves: first all memories leave their paths, then conflicts with others are reported, then each
# memory gets its new path, in one version.


class MemoryLocation(Struct, frozen=True, kw_only=True):
    """A live memory and its path."""

    id: str
    path: str


def step_aside(
    tx: Transaction, sql: SimpleNamespace, store_id: str, places: Sequence[MemoryLocation]
) -> None:
    """Free the paths of *places*, until `carry` sets new ones."""
    tx.send(sql.step_aside, store=store_id, memories=_json(place.id for place in places))


def refuse_taken(
    tx: Transaction, sql: SimpleNamespace, store_id: str, targets: Sequence[str]
) -> None:
    """Raise PathTaken if a memory is at, above or below one of *targets*.

    An existing directory is a conflict too: directories are never merged.
    """
    blocker = tx.first(
        PathTaken,
        sql.taken_by_others,
        store=store_id,
        targets=_json(targets),
        lineages=_json({above for target in targets for above in lineage(target)}),
    )
    if blocker is not None:
        raise blocker


def carry(
    unit: StoreTransaction, places: Sequence[MemoryLocation], targets: Sequence[str]
) -> list[Memory]:
    """Write the target path of each freed memory; return basic views."""
    moved: list[Memory] = []
    for place, target in zip(places, targets, strict=True):
        head = msgspec.structs.replace(unit.head(place.id), path=place.path)
        moved.append(seen(unit.modified(head, target, Text.of(head.content)), "basic"))
    return moved


def _json(texts: Iterable[str]) -> str:
    return msgspec.json.encode(list(texts)).decode()


def forget_proposals(
    tx: Transaction, sql: SimpleNamespace, store_id: str, memory_id: str | None = None
) -> None:
    """Delete a store's consolidations, or what they hold of one memory."""
    if memory_id is None:
        every = sql.drop_calls, sql.drop_changes, sql.drop_consolidations, sql.drop_policies
        for statement in every:
            tx.run(statement, store=store_id)
        return
    tx.run(sql.blank_changes, store=store_id, like=f'%"{memory_id}"%')
    tx.run(sql.drop_calls, store=store_id)
