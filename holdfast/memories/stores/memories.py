"""Memories by id and by path, directories of them, full-text search over heads."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import LiteralString

import msgspec
from msgspec import UNSET, Struct, UnsetType

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page, digest, read_key, write_cursor
from holdfast.ground.text import encoded
from holdfast.ground.trust import Provenance
from holdfast.ground.validation import check_limit
from holdfast.memories.stores.edits import Edit, apply
from holdfast.memories.stores.history import (
    PastSpan,
    changes,
    list_at,
    memory_at,
    moment_of,
    snapshot,
)
from holdfast.memories.stores.records import (
    Applied,
    ChangesPage,
    Deleted,
    Match,
    Memory,
    MemoryPrefix,
    Precondition,
    Snapshot,
    View,
)
from holdfast.memories.stores.rows import (
    StoresContext,
    demand_store,
    existence_first,
    memory_of,
    missing,
    reach,
    refuse_narrowed,
    sought,
)
from holdfast.memories.stores.text_index import (
    holds_phrase,
    marked,
    phrases_of,
    query_words,
    snippet,
    unescaped,
    words_of,
)
from holdfast.memories.stores.transaction import (
    SealedText,
    StoreTransaction,
    Text,
    seen,
)
from holdfast.memories.stores.validation import (
    FULL_VIEW_MAX,
    checked_content,
    checked_depth,
    checked_path,
    checked_precondition,
    checked_prefix,
    checked_sha256,
    checked_view,
    given_or_none,
    just_after,
)
from holdfast.memories.stores.write import (
    Change,
    Creation,
    Removal,
    create_all,
    delete_all,
    delete_under,
    rename,
    update,
    write,
)

EVERY = 2**31 - 1

MATCHES_MAX = 10_000
"""Matches of one search: as many as a store holds, unless it is configured otherwise."""

BATCH = 20
"""Contents read at a time: a phrase may be searched in every memory of a store."""


class _Hit(Struct, frozen=True, kw_only=True):
    id: str
    path: str
    words: int
    score: float


def search(
    context: StoresContext, store_id: str, query: str, *, limit: int, path_prefix: str
) -> list[Match]:
    """Return the memories that best match *query*, at most *limit*."""
    with existence_first(context, store_id):
        encoded("q", query)
        if not query.strip():
            raise InvalidInput("q", "must not be blank", next="Send at least one word.")
        rows = check_limit(limit, default=10, most=MATCHES_MAX)
        prefix = checked_prefix(path_prefix)
    words, phrases = query_words(query), phrases_of(query)
    sql = context.sql

    def work(reader: Reader) -> list[Match]:
        reach(context, reader, store_id, write=False)
        number = reader.first(scalar, sql.store_number, store=sought("memstore", store_id))
        if number is None:
            raise missing("memstore", store_id)
        if not words:
            return []
        hits = reader.all(
            _Hit,
            sql.search_memories,
            store=store_id,
            terms=msgspec.json.encode(marked(number, words).split(" ")).decode(),
            low=prefix,
            high=prefix[:-1] + "0",
            rows=EVERY if phrases else rows,
        )
        found = _with_phrases(_loaded(reader, sql.get_memories, store_id, hits), phrases)
        return [_match(memory, hit.score, words) for memory, hit in islice(found, rows)]

    return context.engine.read(work)


def _loaded(
    reader: Reader, statement: LiteralString, store_id: str, hits: list[_Hit]
) -> Iterator[tuple[Memory, _Hit]]:
    for first in range(0, len(hits), BATCH):
        batch = hits[first : first + BATCH]
        ids = msgspec.json.encode([hit.id for hit in batch]).decode()
        found = reader.all(memory_of, statement, memories=ids, store=store_id)
        by_id = {memory.id: memory for memory in found}
        yield from ((by_id[hit.id], hit) for hit in batch)


def _with_phrases(
    found: Iterator[tuple[Memory, _Hit]], phrases: list[list[str]]
) -> Iterator[tuple[Memory, _Hit]]:
    for memory, hit in found:
        words = words_of(memory.path) + words_of(memory.content or "") if phrases else []
        if all(holds_phrase(words, phrase) for phrase in phrases):
            yield memory, hit


def _match(memory: Memory, score: float, words: list[str]) -> Match:
    basic = msgspec.structs.replace(memory, content=None)
    return Match(memory=basic, score=score, snippet=snippet(unescaped(memory.content or ""), words))


class Memories:
    """The memories of a workspace's stores."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql

    def create(
        self, memory_store_id: str, *, path: str, content: str | None, view: View | None = None
    ) -> Memory:
        """Write a new memory at *path*, which must be free.

        *path* is 2 to 1,024 bytes, *content* 0 to 102,400 bytes of UTF-8. Raises InvalidInput,
        NotFound, StoreArchived, PathTaken, StoreFull.
        """
        with existence_first(self._context, memory_store_id, write=True):
            shown = checked_view(view, "basic")
            checked_path(path)
            text = Text.of(checked_content(content))
        item = Creation(SealedText.of(path, text), shown)
        return write(self._context, memory_store_id, item, create_all)

    def retrieve(self, memory_id: str, *, memory_store_id: str, view: View | None = None) -> Memory:
        """Return the memory, with its content unless *view* is basic; else NotFound."""
        engine = self._context.engine
        with existence_first(self._context, memory_store_id, memory_id):
            shown = checked_view(view, "full")
        reach(self._context, engine, memory_store_id, write=False)
        statement = self._sql.get_memory if shown == "full" else self._sql.get_memory_basic
        memory = engine.first(
            memory_of,
            statement,
            memory=sought("mem", memory_id),
            store=sought("memstore", memory_store_id),
        )
        if memory is None:
            demand_store(self._context, engine, memory_store_id)
            raise missing("mem", memory_id)
        return memory

    def update(
        self,
        memory_id: str,
        *,
        memory_store_id: str,
        content: str | UnsetType | None = UNSET,
        path: str | UnsetType | None = UNSET,
        precondition: Precondition | UnsetType | None = UNSET,
        view: View | None = None,
    ) -> Memory:
        """Change content, path or both in one `modified` version.

        A write of the stored values changes nothing and makes no version, even if *precondition*
        fails, so that a client can retry after a lost response. Raises InvalidInput, NotFound,
        StoreArchived, PreconditionFailed, PathTaken.
        """
        new_path, new_content = given_or_none(path), given_or_none(content)
        with existence_first(self._context, memory_store_id, memory_id, write=True):
            shown = checked_view(view, "basic")
            if new_path is None and new_content is None:
                raise InvalidInput("content", "or path must be given")
            moved = None if new_path is None else checked_path(new_path)
            edited = None if new_content is None else Text.of(checked_content(new_content))
            expected = checked_precondition(precondition)
        item = Change(memory_id=memory_id, path=moved, text=edited, expected=expected, view=shown)
        return update(self._context, memory_store_id, item)

    def delete(
        self,
        memory_id: str,
        *,
        memory_store_id: str,
        expected_content_sha256: str | None = None,
    ) -> Deleted:
        """Delete the memory and write a `deleted` version; its path is free at once.

        Raises InvalidInput, NotFound, PreconditionFailed.
        """
        expected = expected_content_sha256
        with existence_first(self._context, memory_store_id, memory_id, write=True):
            if expected is not None:
                checked_sha256(expected, field="expected_content_sha256")

        item = Removal(memory_id, expected)
        return write(self._context, memory_store_id, item, delete_all)

    def accept(self, memory_id: str, *, memory_store_id: str) -> Memory:
        """Release a held memory: write its text as a new version that a person confirmed.

        Raises NotFound, StoreArchived, NotPermitted in a session, and InvalidInput for a memory
        that is not held.
        """
        refuse_narrowed(self._context, "write")

        def work(tx: Transaction) -> Memory:
            unit = StoreTransaction(self._context, tx, memory_store_id)
            head = unit.head(memory_id)
            unit.refuse_archived()
            if head.held is None:
                raise InvalidInput("memory_id", "is not held", given=memory_id)
            source = Provenance("confirmed", head.origin_ref)
            memory = unit.modified(head, head.path, Text.of(head.content), source=source)
            unit.close()
            return seen(memory, "basic")

        return self._context.engine.write(work)

    def list(
        self,
        memory_store_id: str,
        *,
        path_prefix: str | None = None,
        depth: int | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
        at: datetime | str | None = None,
    ) -> Page[Memory | MemoryPrefix]:
        """Return the memories below *path_prefix*, in the order of path bytes.

        *depth* 1 gives direct children, and one prefix for each deeper first segment. *limit* is
        1 to 100, 20 unless given; with `view="full"` at most 20 come. With *at*, an aware datetime
        or RFC 3339, they are as they were then; `erased` of the page counts the memories of the
        store that were there with a version that was redacted since. Raises InvalidInput, NotFound.
        """
        with existence_first(self._context, memory_store_id):
            prefix, level = checked_prefix(path_prefix), checked_depth(depth)
            shown = checked_view(view, "basic")
            rows = check_limit(limit)
            moment = None if at is None else moment_of(self._context, memory_store_id, at)
            filters = digest(memory_store_id, prefix, level, *([] if at is None else [moment]))
            after = "" if page is None else read_key("memories", filters, page, str)
        rows = min(rows, FULL_VIEW_MAX) if shown == "full" else rows
        span = PastSpan(
            at=moment or 0,
            prefix=prefix,
            after=after,
            children=bool(level),
            rows=rows + 1,
            view=shown,
        )
        if moment is None:
            found, erased = self._now(memory_store_id, span), 0
        else:
            past = list_at(self._context, memory_store_id, span)
            found, erased = past.found, past.erased
        data = found[:rows]
        more = write_cursor("memories", filters, [data[-1].path]) if len(found) > rows else None
        return Page(
            data,
            more,
            erased=erased,
            more=lambda page: self.list(
                memory_store_id,
                path_prefix=path_prefix,
                depth=depth,
                limit=limit,
                page=page,
                view=view,
                at=at,
            ),
        )

    def _now(self, store: str, span: PastSpan) -> "list[Memory | MemoryPrefix]":
        engine = self._context.engine
        reach(self._context, engine, store, write=False)
        look = self._children if span.children else self._below
        found = look(store, span.prefix, span.after, span.rows, span.view)
        if not found:
            demand_store(self._context, engine, store)
        return found

    def _below(
        self, store: str, prefix: str, after: str, rows: int, view: View
    ) -> "list[Memory | MemoryPrefix]":
        statement = self._sql.list_memories_full if view == "full" else self._sql.list_memories
        # One lower bound: SQLite seeks to one only, and would scan to the other.
        return self._context.engine.all(
            memory_of,
            statement,
            store=sought("memstore", store),
            after=max(prefix, after),
            high=prefix[:-1] + "0",
            rows=rows,
        )

    def _children(
        self, store: str, prefix: str, after: str, rows: int, view: View
    ) -> "list[Memory | MemoryPrefix]":
        start = prefix
        if after:
            start = after[:-1] + "0" if after.endswith("/") else just_after(after)
        found = self._context.engine.all(
            memory_of,
            self._sql.list_children,
            store=sought("memstore", store),
            high=prefix[:-1] + "0",
            skip=len(prefix) + 1,
            rows=rows,
            full=int(view == "full"),
            **{"from": start},
        )
        return [self._child(memory, prefix) for memory in found]

    @staticmethod
    def _child(memory: Memory, prefix: str) -> Memory | MemoryPrefix:
        first, deeper, _ = memory.path[len(prefix) :].partition("/")
        return MemoryPrefix(path=f"{prefix}{first}/") if deeper else memory

    def at(
        self, memory_store_id: str, path: str, *, at: datetime | str | None = None
    ) -> Memory | None:
        """Return the memory at *path* with its content, or None.

        With *at*, an aware datetime or RFC 3339, it is the one that was there then, as it was; None
        also if its version of then was redacted. Raises InvalidInput, and NotFound without the
        store.
        """
        engine = self._context.engine
        with existence_first(self._context, memory_store_id):
            checked_path(path)
            moment = None if at is None else moment_of(self._context, memory_store_id, at)
        if moment is not None:
            return memory_at(self._context, memory_store_id, path, moment)
        reach(self._context, engine, memory_store_id, write=False)
        memory = engine.first(
            memory_of, self._sql.get_memory_at, store=sought("memstore", memory_store_id), path=path
        )
        if memory is None:
            demand_store(self._context, engine, memory_store_id)
        return memory

    def search(
        self, memory_store_id: str, query: str, *, limit: int = 10, path_prefix: str = "/"
    ) -> "list[Match]":
        """Return the memories that best match the words of *query*.

        At most *limit*, 1 to 10,000. The query is plain text without operators; a part within
        double quotes must occur as a phrase. Memories with more of the distinct words come first,
        then by BM25, then by path. Case and accents are ignored; in JSON an escape counts as the
        character that it stands for. Raises InvalidInput, NotFound.
        """
        return search(self._context, memory_store_id, query, limit=limit, path_prefix=path_prefix)

    def rename(self, memory_store_id: str, old_path: str, new_path: str) -> "list[Memory]":
        """Move a memory, or everything below a directory, in one transaction.

        Ids stay the same. Returns the moved memories by path, in the basic view. Raises
        InvalidInput, NotFound, StoreArchived, and PathTaken, when nothing moved.
        """
        return rename(self._context, memory_store_id, old_path, new_path)

    def delete_under(self, memory_store_id: str, path: str) -> int:
        """Delete the memory at *path*, or everything below it, in one transaction.

        "/" is everything. Returns how many were deleted; each has a `deleted` version. Raises
        InvalidInput, and NotFound without the store.
        """
        return delete_under(self._context, memory_store_id, path)

    def snapshot(self, memory_store_id: str) -> Snapshot:
        """Return all memories of the store at one moment, in the basic view, by path.

        `changes` continues from its `seq`. Raises NotFound.
        """
        return snapshot(self._context, memory_store_id)

    def changes(self, memory_store_id: str, after: int, *, wait: float = 0.0) -> ChangesPage:
        """Return the changes after the number *after*, oldest first.

        Of several changes of a memory only the last is returned. *after* is the `seq` of a
        snapshot, of changes or of an applied edit. Waits up to *wait* seconds (0 to 30) for the
        first change; returns without any when the time is over, or when the store itself or its cap
        changed. Returns at most 1,000, but a single transaction whole; the next call continues from
        `seq` of the result. Raises InvalidInput, NotFound, NotAuthenticated when the session ended,
        and CursorExpired when the store has no version *after*, as after a restore: then take a
        snapshot.
        """
        return changes(self._context, memory_store_id, after, wait=wait)

    def apply(
        self,
        memory_store_id: str,
        edits: Sequence[Edit],
        *,
        edit_id: str,
        origin_ref: str | None = None,
    ) -> "list[Applied]":
        """Apply 1 to 1,000 edits in order, in one transaction, all or none.

        Returns one result for each edit. *edit_id* is `edit_` and letters or digits that the client
        chooses. *origin_ref* says where the texts came from, such as a page or a tool: they are
        from outside, and held for a person if they give orders to a machine. A repeat within 24
        hours with the same id changes nothing and returns the first results. Raises InvalidInput
        with the index of the edit, NotFound, StoreArchived, PreconditionFailed, PathTaken,
        StoreFull, TooLarge for an append beyond the limit, and IdempotencyMismatch when the id was
        used for other edits.
        """
        return apply(self._context, memory_store_id, edits, edit_id, origin_ref)
