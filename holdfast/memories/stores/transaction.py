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

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import Forgotten, PathTaken, StoreArchived, StoreFull
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor, user_hash
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores.records import Memory, Operation, Store, View
from holdfast.memories.stores.rows import (
    STORE_FIELDS,
    Head,
    LockedStore,
    StoresContext,
    missing,
    reach,
    sought,
    store_of,
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


class StoreTransaction:
    """The unit of work on one store.

    Opening it locks the store; `close` writes the totals.
    """

    def __init__(
        self, context: StoresContext, tx: Transaction, store_id: str, *, write: bool = True
    ) -> None:
        self._context, self._tx = context, tx
        self._sql = context.sql
        now = context.now()
        reach(context, tx, store_id, write=write)
        store = tx.first(LockedStore, self._sql.lock_store, store=sought("memstore", store_id))
        if store is None:
            raise missing("memstore", store_id)
        self.store = store
        self.now = now if now >= store.last_at else store.last_at + 1
        self._link, self._memories, self._words = store.link, 0, 0

    def as_record(self) -> Store:
        """Return the store as it was before the transaction."""
        row = self.store
        return store_of(**{name: getattr(row, name) for name in STORE_FIELDS})

    def refuse_archived(self) -> None:
        """Raise StoreArchived if the store is archived."""
        if self.store.archived_at is not None:
            raise StoreArchived(self.store.id)

    @property
    def seq(self) -> int:
        """The number of the store's last write, including this one after a change."""
        return self.store.seq if self._link is self.store.link else self._tx.seq

    def refuse_taken(self, path: str, *, mine: str = NOBODY) -> None:
        """Raise PathTaken if another memory is at, above or below *path*.

        The memory *mine* is excluded.
        """
        low, high = span_below(path)
        blocker = self._tx.first(
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

    def refuse_full(self) -> None:
        """Raise StoreFull if the store has reached its cap."""
        cap = self.store.memories_cap or MEMORIES_CAP
        if self.store.memories + self._memories >= cap:
            raise StoreFull(self.store.id, cap)

    def head(self, memory_id: str) -> Head:
        """Return the live memory *memory_id*; else raise NotFound."""
        head = self._tx.first(
            Head, self._sql.get_head, memory=sought("mem", memory_id), store=self.store.id
        )
        if head is None:
            raise missing("mem", memory_id)
        return head

    def unchanged(self, head: Head) -> Memory:
        """Return a live memory as a record, without a change."""
        text = Text(head.content, head.content_sha256, [])
        memory = self._memory(head.id, head.version_id, head.path, text, head.created_at)
        return msgspec.structs.replace(memory, updated_at=from_microseconds(head.updated_at))

    def created(
        self, path: str, text: Text, *, memory_id: str | None = None, born: int | None = None
    ) -> Memory:
        """Write a new memory; *memory_id* and *born* are those of one that is restored."""
        memory_id = memory_id or self._context.ids.new("mem", self.now)
        version_id = self._version(memory_id, "created", path, text)
        words = words_of(path) + text.words
        created_at = self.now if born is None else born
        self._tx.send(
            self._sql.insert_memory,
            memory=memory_id,
            store=self.store.id,
            path=path,
            version=version_id,
            sha256=text.sha256,
            size_bytes=len(text.content),
            words=len(words),
            created_at=created_at,
            now=self.now,
        )
        self._index(memory_id, words)
        self._memories += 1
        return self._memory(memory_id, version_id, path, text, created_at)

    def modified(self, head: Head, path: str, text: Text) -> Memory:
        """Write *path* and *text* as the new head of a live memory."""
        version_id = self._version(head.id, "modified", path, text)
        self.unindex(head)
        words = words_of(path) + text.words
        self._tx.send(
            self._sql.move_head,
            memory=head.id,
            path=path,
            version=version_id,
            sha256=text.sha256,
            size_bytes=len(text.content),
            words=len(words),
            now=self.now,
        )
        self._index(head.id, words)
        return self._memory(head.id, version_id, path, text, head.created_at)

    def deleted(self, head: Head) -> None:
        """Delete a live memory and write its `deleted` version."""
        self._version(head.id, "deleted", head.path, None)
        self.unindex(head)
        self._tx.send(self._sql.delete_memory, memory=head.id)
        self._memories -= 1

    def close(self) -> None:
        """Write the totals and the last link, if anything was written."""
        if self._link is self.store.link:
            return
        self._tx.send(
            self._sql.touch_store,
            store=self.store.id,
            memories=self._memories,
            words=self._words,
            seq=self._tx.seq,
            now=self.now,
            link=self._link,
        )

    def _version(self, memory_id: str, operation: Operation, path: str, text: Text | None) -> str:
        version_id = self._context.ids.new("memver", self.now)
        actor, salt = self._context.actor, secrets.token_bytes(SALT_BYTES)
        seal = content_seal(salt, path, text.content if text else b"")
        self._link = next_link(
            self._link,
            version_id=version_id,
            memory_id=memory_id,
            operation=operation,
            created_at=self.now,
            actor=actor,
            seal=seal,
        )
        self._tx.send(
            self._sql.insert_version,
            version=version_id,
            store=self.store.id,
            memory=memory_id,
            seq=self._tx.seq,
            operation=operation,
            path=path,
            content=text.content if text else None,
            sha256=text.sha256 if text else None,
            size_bytes=len(text.content) if text else None,
            now=self.now,
            actor_kind=actor.kind,
            actor_id=actor.id,
            salt=salt,
            seal=seal,
            link=self._link,
        )
        self._link_person(version_id)
        self._tx.note(
            Event(
                type=f"memory.{operation}",
                at=from_microseconds(self.now),
                workspace=self._context.workspace,
                actor=self._context.actor,
                ids={
                    "memory_store_id": self.store.id,
                    "memory_id": memory_id,
                    "memory_version_id": version_id,
                },
                data={"size_bytes": len(text.content) if text else 0},
            )
        )
        return version_id

    def _link_person(self, version_id: str) -> None:
        """Link the version to the person of the context, if it has one.

        Raise Forgotten if the person was erased after the work of the handle began.
        """
        subject, tx, sql = self._context.subject, self._tx, self._sql
        if subject is None:
            return
        secret = tx.first(scalar, sql.workspace_secret)
        if secret is not None:
            hashed = user_hash(secret, subject.user)
            erased_at = tx.first(scalar, sql.erased_at, user_hash=hashed)
            if erased_at is not None and subject.outlived(erased_at):
                raise Forgotten(from_microseconds(erased_at), "the erasure of its person")
        tx.send(sql.link_version, user=subject.user, version=version_id, now=self.now)

    def _index(self, memory_id: str, words: list[str]) -> None:
        self._words += len(words)
        if words:
            text = marked(self.store.number, words)
            self._tx.send(self._sql.insert_words, memory=memory_id, words=text)

    def unindex(self, head: Head) -> None:
        """Delete the words of a live memory from the index."""
        self._words -= head.words
        if head.words:
            words = words_of(head.path) + words_of(head.content.decode())
            text = marked(self.store.number, words)
            self._tx.send(self._sql.delete_words, memory=head.id, words=text)

    def _memory(
        self, memory_id: str, version_id: str, path: str, text: Text, created_at: int
    ) -> Memory:
        return Memory(
            id=memory_id,
            memory_store_id=self.store.id,
            memory_version_id=version_id,
            path=path,
            content=text.content.decode(),
            content_sha256=text.sha256,
            content_size_bytes=len(text.content),
            created_at=from_microseconds(created_at),
            updated_at=from_microseconds(self.now),
        )


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
