"""List, read, redact, restore and compare versions of memories."""

import difflib
from datetime import datetime
from typing import Any, get_args

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Transaction, scalar
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import ContentGone, HeadVersion, InvalidInput
from holdfast.ground.events import Event
from holdfast.ground.pages import Key, Page, digest, write_cursor
from holdfast.ground.scope import Actor, ActorKind
from holdfast.ground.validation import check_limit, check_text
from holdfast.memories.stores.records import Memory, Operation, Version, View
from holdfast.memories.stores.rows import (
    Head,
    StoresContext,
    demand_store,
    existence_first,
    missing,
    reach,
    refuse_narrowed,
    seq_at,
    sought,
    version_of,
)
from holdfast.memories.stores.transaction import (
    StoreTransaction,
    Text,
    forget_proposals,
    seen,
    unchanged,
)
from holdfast.memories.stores.validation import (
    BEGINNING,
    END,
    FULL_VIEW_MAX,
    after_age,
    bounds,
    checked_view,
)

ACTOR_ID_MAX = 128
NOBODY = Actor.user("")
"""Author of no version."""

LIST = "memory_versions"


class _VersionFilter(Struct, frozen=True):
    """Filters of a list of versions."""

    store_id: str
    memory_id: str | None
    operation: Operation | None
    actors: "list[Actor]"
    oldest: int
    newest: int

    @property
    def digest(self) -> str:
        """The digest that a cursor of this list must match."""
        return digest(*msgspec.structs.astuple(self))

    @property
    def actor(self) -> Actor | None:
        """The author, None for any; no version has two authors, so `NOBODY` for several."""
        return self.actors[0] if len(self.actors) == 1 else NOBODY if self.actors else None


def _numbered(*, seq: int, **fields: Any) -> tuple[int, Version]:
    return seq, version_of(**fields)


class Versions:
    """The versions of a workspace's memories."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.sql

    def list(
        self,
        memory_store_id: str,
        *,
        memory_id: str | None = None,
        operation: Operation | None = None,
        session_id: str | None = None,
        api_key_id: str | None = None,
        service_account_id: str | None = None,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
        limit: int | None = None,
        page: str | None = None,
        view: View | None = None,
    ) -> Page[Version]:
        """Return versions that match all filters, newest first.

        *limit* is 1 to 100, 20 unless given; with `view="full"` at most 20 come. Raises
        InvalidInput, NotFound without the store.
        """
        oldest, newest = bounds(gte=created_at_gte, lte=created_at_lte)
        with existence_first(self._context, memory_store_id):
            if operation is not None and operation not in get_args(Operation):
                raise InvalidInput(
                    "operation", 'must be "created", "modified" or "deleted"', given=operation
                )
            actors = _actors(session_id, api_key_id, service_account_id)
            filters = _VersionFilter(memory_store_id, memory_id, operation, actors, oldest, newest)
            shown, rows = checked_view(view, "basic"), check_limit(limit)
            key = after_age(page, LIST, filters.digest, END)
        rows = min(rows, FULL_VIEW_MAX) if shown == "full" else rows
        reach(self._context, self._context.engine, memory_store_id, write=False)
        return self._page(filters, key, rows, shown)

    def _page(self, filters: "_VersionFilter", key: Key, rows: int, view: View) -> Page[Version]:
        engine, store = self._context.engine, sought("memstore", filters.store_id)
        seq, last_id = key
        since = 0
        if filters.newest < END and seq == END:
            seq = seq_at(self._context, engine, store, filters.newest)
        if filters.oldest > BEGINNING:
            since = seq_at(self._context, engine, store, filters.oldest - 1)
        found = engine.all(
            _numbered,
            self._sql.list_versions
            if filters.memory_id is None
            else self._sql.list_versions_of_memory,
            store=store,
            memory=None if filters.memory_id is None else sought("mem", filters.memory_id),
            operation=filters.operation,
            actor_kind=filters.actor and filters.actor.kind,
            actor_id=filters.actor and filters.actor.id,
            oldest=filters.oldest,
            newest=filters.newest,
            since=since,
            seq=seq,
            id=last_id,
            full=int(view == "full"),
            rows=rows + 1,
        )
        if not found:
            demand_store(self._context, engine, filters.store_id)
        data = [version for _, version in found[:rows]]
        last: Key = [found[len(data) - 1][0], data[-1].id] if data else []
        return Page(
            data,
            write_cursor(LIST, filters.digest, last) if len(found) > rows else None,
            more=lambda page: self._page(
                filters, after_age(page, LIST, filters.digest, END), rows, view
            ),
        )

    def retrieve(
        self, memory_version_id: str, *, memory_store_id: str, view: View | None = None
    ) -> Version:
        """Return the version, with its content unless *view* is basic; else NotFound."""
        engine = self._context.engine
        with existence_first(self._context, memory_store_id):
            shown = checked_view(view, "full")
        reach(self._context, engine, memory_store_id, write=False)
        return self._version(engine, memory_version_id, memory_store_id, shown)

    def redact(self, memory_version_id: str, *, memory_store_id: str) -> Version:
        """Erase content, path, hash and size of one version.

        A repeat changes nothing. When this returns the bytes are in no file of the database. Raises
        NotFound, and HeadVersion for the current version of a live memory.
        """
        refuse_narrowed(self._context, "admin")
        context, actor = self._context, self._context.actor

        def work(tx: Transaction) -> Version:
            unit = StoreTransaction(context, tx, memory_store_id)
            version = self._version(tx, memory_version_id, memory_store_id, "full")
            if version.redacted_at is not None:
                return version
            memory_id = version.memory_id
            if tx.first(scalar, self._sql.head_of, version=version.id, memory=memory_id):
                raise HeadVersion(version.id, memory_id)
            tx.send(
                self._sql.redact_version,
                version=version.id,
                store=memory_store_id,
                now=unit.now,
                actor_kind=actor.kind,
                actor_id=actor.id,
            )
            tx.send(self._sql.forget_digests, store=memory_store_id)
            forget_proposals(tx, self._sql, memory_store_id, memory_id)
            tx.note(
                Event(
                    type="version.redacted",
                    at=from_microseconds(unit.now),
                    workspace=context.workspace,
                    actor=actor,
                    ids={
                        "memory_store_id": memory_store_id,
                        "memory_id": memory_id,
                        "memory_version_id": version.id,
                    },
                )
            )
            return self._version(tx, version.id, memory_store_id, "full")

        redacted = context.engine.write(work)
        context.engine.scrub()
        return redacted

    def restore(self, memory_version_id: str, *, memory_store_id: str) -> Memory:
        """Write the content of an old version as the newest one.

        A live memory keeps its path; a deleted one is restored with its id at the version's path.
        Writes nothing when the content is the current one. Raises InvalidInput for a `deleted`
        version, ContentGone, NotFound, StoreArchived, PathTaken, StoreFull.
        """

        def work(tx: Transaction) -> Memory:
            unit = StoreTransaction(self._context, tx, memory_store_id)
            version = self._version(tx, memory_version_id, memory_store_id, "full")
            unit.refuse_archived()
            text = Text.of(_content(version).encode())
            head = tx.first(
                Head, self._sql.get_head, memory=version.memory_id, store=memory_store_id
            )
            if head is None:
                memory = self._back(tx, unit, version, text)
            elif head.content_sha256 == text.sha256:
                return seen(unchanged(head), "basic")
            else:
                memory = unit.modified(head, head.path, text, source=version.provenance)
            unit.close()
            return seen(memory, "basic")

        return self._context.engine.write(work)

    def _back(
        self, tx: Transaction, unit: StoreTransaction, version: Version, text: Text
    ) -> Memory:
        path = version.path or ""
        unit.refuse_taken(path)
        unit.refuse_full()
        born = tx.one(
            scalar, self._sql.first_version_at, memory=version.memory_id, store=unit.store.id
        )
        return unit.created(
            path, text, memory_id=version.memory_id, born=born, source=version.provenance
        )

    def diff(self, from_id: str, to_id: str, *, memory_store_id: str) -> str:
        """Return a unified diff of two versions, "" when they are equal.

        Has three lines of context; a deleted version counts as empty. Raises NotFound, ContentGone.
        """
        context = self._context

        def work(reader: Reader) -> tuple[Version, Version]:
            reach(context, reader, memory_store_id, write=False)
            return (
                self._version(reader, from_id, memory_store_id, "full"),
                self._version(reader, to_id, memory_store_id, "full"),
            )

        before, after = context.engine.read(work)
        return unified(before, after)

    def _version(self, reader: Reader, version_id: str, store_id: str, view: View) -> Version:
        version = reader.first(
            version_of,
            self._sql.get_version,
            version=sought("memver", version_id),
            store=sought("memstore", store_id),
            full=int(view == "full"),
        )
        if version is None:
            demand_store(self._context, reader, store_id)
            raise missing("memver", version_id)
        return version


def _actors(
    session_id: str | None, api_key_id: str | None, service_account_id: str | None
) -> "list[Actor]":
    """Return the actors to filter versions by."""
    named: tuple[tuple[str, ActorKind, str | None], ...] = (
        ("session_id", "session", session_id),
        ("api_key_id", "api", api_key_id),
        ("service_account_id", "service_account", service_account_id),
    )
    return [
        Actor(kind, check_text(field, given, most=ACTOR_ID_MAX))
        for field, kind, given in named
        if given is not None
    ]


def _content(version: Version) -> str:
    """Return the content of *version*.

    Raises ContentGone after redaction, InvalidInput when it is `deleted`.
    """
    if version.redacted_at is not None:
        raise ContentGone(version.id, version.redacted_at)
    if version.content is None:
        raise InvalidInput(
            "memory_version_id",
            "is of a deletion, which holds no content",
            given=version.id,
            next="Restore the version before it.",
        )
    return version.content


def unified(before: Version, after: Version) -> str:
    """Return the unified diff of two versions' contents, "" when they are equal."""
    for version in (before, after):
        if version.redacted_at is not None:
            raise ContentGone(version.id, version.redacted_at)
    if (before.content or "") == (after.content or ""):
        return ""
    lines = difflib.unified_diff(
        _lines(before.content or ""),
        _lines(after.content or ""),
        _header(before),
        _header(after),
        n=3,
    )
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    )


def _lines(content: str) -> list[str]:
    """Split *content* into lines that end in a line feed.

    No other character ends a line.
    """
    lines = content.split("\n")
    whole = [f"{line}\n" for line in lines[:-1]]
    return [*whole, lines[-1]] if lines[-1] else whole


def _header(version: Version) -> str:
    return "/dev/null" if version.operation == "deleted" else f"{version.path}@{version.id}"
