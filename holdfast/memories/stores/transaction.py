"""One store, locked, within one transaction: what each change to its memories writes.

A change is a version on the chain, the memory's row, its words in the index, the store's
counts, and a note of what happened; all in the transaction that the ledger was opened in.
"""

import secrets

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import PathTaken, StoreArchived, StoreFull
from holdfast.ground.events import Event
from holdfast.ground.text import sha256_hex
from holdfast.memories.stores import chain
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

MEMORIES_CAP = 10_000
"""Live memories in a store, unless its workspace is configured otherwise."""

NOBODY = ""
"""The id of no memory: whose own place is not to be passed over."""


class Text(Struct, frozen=True):
    """A content with what is known of it before the store is locked."""

    content: bytes
    sha256: str
    words: list[str]

    @classmethod
    def of(cls, content: bytes) -> "Text":
        """Return *content*, hashed and split into words."""
        return cls(content, sha256_hex(content), words_of(content.decode()))


class Ledger:
    """The open book of one store. Opening it locks the store; `close` writes the totals."""

    def __init__(
        self, caller: StoresContext, tx: Transaction, store_id: str, *, write: bool = True
    ) -> None:
        self._caller, self._tx = caller, tx
        self._sql = caller.engine.queries("holdfast.memories.stores")
        now = caller.now()
        reach(caller, tx, store_id, write=write)
        store = tx.first(LockedStore, self._sql.lock_store, store=sought("memstore", store_id))
        if store is None:
            raise missing("memstore", store_id)
        self.store = store
        self.now = now if now >= store.last_at else store.last_at + 1
        self._link, self._memories, self._words = store.link, 0, 0

    def as_record(self) -> Store:
        """Return the store as it was found."""
        row = self.store
        return store_of(**{name: getattr(row, name) for name in STORE_FIELDS})

    def refuse_archived(self) -> None:
        """Raise StoreArchived if the store is."""
        if self.store.archived_at is not None:
            raise StoreArchived(self.store.id)

    @property
    def seq(self) -> int:
        """The number of the store's last write, of this one once it changed something."""
        return self.store.seq if self._link is self.store.link else self._tx.seq

    def refuse_taken(self, path: str, *, mine: str = NOBODY) -> None:
        """Raise PathTaken if a memory other than *mine* sits at *path*, above it or below it."""
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
        """Raise StoreFull if the store holds as many memories as it may."""
        cap = self.store.memories_cap or MEMORIES_CAP
        if self.store.memories + self._memories >= cap:
            raise StoreFull(self.store.id, cap)

    def head(self, memory_id: str) -> Head:
        """Return the live memory *memory_id*; NotFound if there is none."""
        head = self._tx.first(
            Head, self._sql.get_head, memory=sought("mem", memory_id), store=self.store.id
        )
        if head is None:
            raise missing("mem", memory_id)
        return head

    def unchanged(self, head: Head) -> Memory:
        """Return a live memory as it is."""
        text = Text(head.content, head.content_sha256, [])
        memory = self._memory(head.id, head.version_id, head.path, text, head.created_at)
        return msgspec.structs.replace(memory, updated_at=from_microseconds(head.updated_at))

    def created(
        self, path: str, text: Text, *, memory_id: str | None = None, born: int | None = None
    ) -> Memory:
        """Write a new memory; a *memory_id* and its first instant when it comes back."""
        memory_id = memory_id or self._caller.ids.new("mem", self.now)
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
        """Take a live memory away, leaving its `deleted` version."""
        self._version(head.id, "deleted", head.path, None)
        self.unindex(head)
        self._tx.send(self._sql.delete_memory, memory=head.id)
        self._memories -= 1

    def close(self) -> None:
        """Write what the store's totals and its chain now stand at, if anything was written."""
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
        version_id = self._caller.ids.new("memver", self.now)
        actor, salt = self._caller.actor, secrets.token_bytes(chain.SALT_BYTES)
        seal = chain.content_seal(salt, path, text.content if text else b"")
        self._link = chain.next_link(
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
        self._note(memory_id, version_id, operation, len(text.content) if text else 0)
        return version_id

    def _note(self, memory_id: str, version_id: str, operation: Operation, size: int) -> None:
        self._tx.note(
            Event(
                type=f"memory.{operation}",
                at=from_microseconds(self.now),
                workspace=self._caller.workspace,
                actor=self._caller.actor,
                ids={
                    "memory_store_id": self.store.id,
                    "memory_id": memory_id,
                    "memory_version_id": version_id,
                },
                data={"size_bytes": size},
            )
        )

    def _index(self, memory_id: str, words: list[str]) -> None:
        self._words += len(words)
        if words:
            text = marked(self.store.number, words)
            self._tx.send(self._sql.insert_words, memory=memory_id, words=text)

    def unindex(self, head: Head) -> None:
        """Take the words of a live memory out of the index."""
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
    """Return *memory* in *view*: without its content when that is basic."""
    return memory if view == "full" else msgspec.structs.replace(memory, content=None)
