"""Rows of stores to records; NotFound errors; access checks of sessions."""

import re
from collections.abc import Generator, Hashable, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace
from typing import cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine, Reader, scalar
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import InvalidInput, NotAuthenticated, NotFound, NotPermitted
from holdfast.ground.ids import KINDS, Ids
from holdfast.ground.scope import Actor, ActorKind, WriteSubject
from holdfast.ground.text import nearest
from holdfast.ground.trust import (
    HELD_TIERS,
    HeldFor,
    Provenance,
    Tier,
    provenance,
    tier_of_writer,
)
from holdfast.memories.stores.records import (
    Access,
    JSONObject,
    Memory,
    Metadata,
    Operation,
    Resource,
    SessionRecord,
    Store,
    Version,
)
from holdfast.memories.stores.session_input import NewSession

STORE_FIELDS = (
    "id",
    "name",
    "description",
    "metadata",
    "created_at",
    "updated_at",
    "archived_at",
)
"""Columns of a store that are in its record."""

_metadata = msgspec.json.Decoder(Metadata)


class LockedStore(Struct, frozen=True, kw_only=True):
    """A locked store with its totals and the last link of its hash chain."""

    id: str
    number: int
    name: str
    description: str
    metadata: str
    created_at: int
    updated_at: int
    archived_at: int | None
    memories: int
    words: int
    seq: int
    last_at: int
    link: bytes
    memories_cap: int | None

    def record(self) -> Store:
        """Return the store as it was before the transaction."""
        return store_of(**{name: getattr(self, name) for name in STORE_FIELDS})


class Head(Struct, frozen=True, kw_only=True):
    """A live memory with its content, read by a write."""

    id: str
    store_id: str
    version_id: str
    path: str
    content: bytes
    content_sha256: str
    content_size_bytes: int
    created_at: int
    updated_at: int
    words: int
    tier: Tier
    held: HeldFor | None
    origin_ref: str | None

    @property
    def provenance(self) -> Provenance:
        """Where its content came from."""
        return Provenance(self.tier, self.origin_ref, self.held)


def store_of(
    *,
    id: str,
    name: str,
    description: str,
    metadata: str,
    created_at: int,
    updated_at: int,
    archived_at: int | None,
) -> Store:
    """Return a row as a `Store`."""
    return Store(
        id=id,
        name=name,
        description=description,
        metadata=_metadata.decode(metadata),
        created_at=from_microseconds(created_at),
        updated_at=from_microseconds(updated_at),
        archived_at=from_microseconds_or_none(archived_at),
    )


def memory_of(
    *,
    id: str,
    store_id: str,
    version_id: str,
    path: str,
    content: bytes | None,
    content_sha256: str,
    content_size_bytes: int,
    created_at: int,
    updated_at: int,
    tier: str,
    held: str | None,
) -> Memory:
    """Return a row as a `Memory`."""
    return Memory(
        id=id,
        memory_store_id=store_id,
        memory_version_id=version_id,
        path=path,
        content=None if content is None else content.decode(),
        content_sha256=content_sha256,
        content_size_bytes=content_size_bytes,
        created_at=from_microseconds(created_at),
        updated_at=from_microseconds(updated_at),
        tier=cast("Tier", tier),
        held=cast("HeldFor | None", held),
    )


def version_of(
    *,
    id: str,
    store_id: str,
    memory_id: str,
    operation: str,
    path: str | None,
    content: bytes | None,
    content_size_bytes: int | None,
    content_sha256: str | None,
    created_at: int,
    actor_kind: str,
    actor_id: str,
    redacted_at: int | None,
    redacted_by_kind: str | None,
    redacted_by_id: str | None,
    tier: str,
    origin_ref: str | None,
    held: str | None,
) -> Version:
    """Return a row as a `Version`."""
    redacted_by = (
        None
        if redacted_by_id is None
        else Actor(cast("ActorKind", redacted_by_kind), redacted_by_id)
    )
    return Version(
        id=id,
        memory_store_id=store_id,
        memory_id=memory_id,
        operation=cast("Operation", operation),
        path=path,
        content=None if content is None else content.decode(),
        content_size_bytes=content_size_bytes,
        content_sha256=content_sha256,
        created_at=from_microseconds(created_at),
        created_by=Actor(cast("ActorKind", actor_kind), actor_id),
        redacted_at=from_microseconds_or_none(redacted_at),
        redacted_by=redacted_by,
        tier=cast("Tier", tier),
        origin_ref=origin_ref,
        held=cast("HeldFor | None", held),
    )


_BODY = re.compile(r"_[0-9A-Za-z]{24}")


def is_id(prefix: str, given: object) -> bool:
    """Return whether *given* has the form of an id of the kind *prefix*."""
    return (
        isinstance(given, str)
        and given.startswith(prefix)
        and _BODY.fullmatch(given, len(prefix)) is not None
    )


def shaped(prefix: str, given: str) -> str:
    """Return *given* if it has the form of an id; else raise NotFound.

    Malformed text is never passed to an engine, which may reject it.
    """
    if not is_id(prefix, given):
        raise missing(prefix, given)
    return given


def sought(prefix: str, given: str) -> str:
    """Return *given* for a lookup, or "" when it cannot be an id.

    No object has the id "". An engine may reject malformed text (U+0000), and a malformed id is
    merely not found.
    """
    return given if is_id(prefix, given) else ""


def missing(prefix: str, given: object) -> NotFound:
    """Return the NotFound error of *given*, an id of the kind *prefix*.

    If *given* has the prefix of another kind, the message says so.
    """
    shown = given if isinstance(given, str) else repr(given)
    return NotFound(KINDS[prefix], shown, next=_of_another_kind(prefix, shown) or "Check the id.")


def _of_another_kind(prefix: str, given: str) -> str | None:
    tag = given.partition("_")[0]
    if tag == prefix or tag not in KINDS:
        return None
    return f"That is the id of a different kind of thing, {KINDS[tag]}: send {prefix}_…"


def id_of_name(
    wanted: str,
    names: Sequence[tuple[str, str]],
    *,
    field: str,
    place: str,
    kind: str = KINDS["memstore"],
) -> str:
    """Return the id of the store called *wanted* among *names*, each with its id.

    Raises NotFound with the nearest name and *place*, where the names are from, and InvalidInput
    with the ids when several stores have the name.
    """
    ids = [id for name, id in names if name == wanted]
    if len(ids) > 1:
        reason = f"{len(ids)} stores have this name: {' '.join(ids)}"
        raise InvalidInput(field, reason, given=wanted, next="Say which by its id.")
    if not ids:
        near = nearest(wanted, [name for name, _ in names])
        found = "There are no stores" if near is None else f"The nearest is {near!r},"
        other = _of_another_kind("memstore", wanted)
        raise NotFound(kind, wanted, next=f"{found} in {place}." + (f" {other}" if other else ""))
    return ids[0]


class StoresContext(Struct, frozen=True, kw_only=True, dict=True):
    """The workspace and actor of calls, with their engine, clock and ids.

    `engine` is scoped to `workspace`. With a `session_id` only the stores attached to that session
    can be accessed, with the rights of the attachment. Written versions are linked to `subject`.
    They are of `tier`, unless the actor's own is lower, and come from `origin_ref`.
    """

    engine: Engine
    workspace: str
    actor: Actor
    clock: Clock
    ids: Ids
    session_id: str | None = None
    subject: WriteSubject | None = None
    tier: Tier | None = None
    origin_ref: str | None = None

    def provenance(self, content: bytes) -> Provenance:
        """Return the provenance of *content*, as the actor writes it."""
        tier = tier_of_writer(self.actor, self.tier)
        # Other tiers are never held, so their contents are not searched.
        if tier not in HELD_TIERS:
            return Provenance(tier, self.origin_ref)
        return provenance(content.decode(), tier, self.origin_ref)

    @cached_property
    def authorship(self) -> tuple[Hashable, ...]:
        """All that the writes of two contexts of one engine may differ in."""
        shared = ("engine", "clock", "ids")
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in shared)

    @cached_property
    def sql(self) -> SimpleNamespace:
        """The statements of stores, as the engine spells them."""
        return self.engine.queries("holdfast.memories.stores")

    def now(self) -> int:
        """Return the current time in microseconds since 1970."""
        return to_microseconds(self.clock.now())


def seq_at(context: StoresContext, reader: Reader, store: str, at: int) -> int:
    """Return the store's last number up to the instant *at*, 0 before all."""
    return reader.one(scalar, context.sql.seq_at, store=store, at=at) or 0


class SessionRow(Struct, frozen=True, kw_only=True):
    """A row of `sessions`: instants are microseconds since 1970, JSON is text."""

    id: str
    title: str | None
    environment_id: str
    agent: str
    metadata: str
    created_at: int
    updated_at: int
    archived_at: int | None

    def with_metadata(self) -> Metadata:
        """Return its metadata."""
        return msgspec.json.decode(self.metadata, type=Metadata)

    def record(self, resources: tuple[Resource, ...]) -> SessionRecord:
        """Return the row as a session with *resources*."""
        return SessionRecord(
            id=self.id,
            status="idle" if self.archived_at is None else "terminated",
            title=self.title,
            environment_id=self.environment_id,
            agent=msgspec.json.decode(self.agent, type=JSONObject),
            resources=resources,
            metadata=self.with_metadata(),
            created_at=from_microseconds(self.created_at),
            updated_at=from_microseconds(self.updated_at),
            archived_at=from_microseconds_or_none(self.archived_at),
        )


class ResourceRow(Struct, frozen=True, kw_only=True):
    """A row of `session_stores`."""

    session_id: str
    memory_store_id: str
    access: Access
    name: str
    description: str
    instructions: str | None
    mount_path: str

    def record(self) -> Resource:
        """Return the row as a `Resource`."""
        return msgspec.convert(self, Resource, from_attributes=True)


def new_row(session_id: str, new: NewSession, agent: JSONObject, now: int) -> SessionRow:
    """Return the row of a new session at *now* with the snapshot *agent*."""
    return SessionRow(
        id=session_id,
        title=new.title,
        environment_id=new.environment_id,
        agent=msgspec.json.encode(agent).decode(),
        metadata=msgspec.json.encode(new.metadata).decode(),
        created_at=now,
        updated_at=now,
        archived_at=None,
    )


def resources_of(
    reader: Reader, sql: SimpleNamespace, session_ids: Sequence[str]
) -> dict[str, tuple[Resource, ...]]:
    """Return the resources of each session, in the order given at its creation."""
    ids = msgspec.json.encode(session_ids).decode()
    rows = reader.all(ResourceRow, sql.stores_of_sessions, session_ids=ids)
    return {
        session_id: tuple(row.record() for row in its_rows)
        for session_id, its_rows in groupby(rows, key=attrgetter("session_id"))
    }


def as_records(
    reader: Reader, sql: SimpleNamespace, rows: Sequence[SessionRow]
) -> list[SessionRecord]:
    """Return *rows* as sessions with their resources."""
    attached = resources_of(reader, sql, [row.id for row in rows]) if rows else {}
    return [row.record(attached.get(row.id, ())) for row in rows]


class _Attachment(Struct, frozen=True, kw_only=True):
    session_archived_at: int | None
    access: Access | None
    name: str | None


def reach(context: StoresContext, reader: Reader, store_id: str, *, write: bool) -> None:
    """Raise unless *context* may read, or with *write* change, the store.

    Only a context with a session is checked; *reader* is its engine, or the open read or
    transaction. Raises NotAuthenticated when the session was deleted or archived; NotPermitted when
    the store is not attached, whether it exists or not, or is attached `read_only` and *write* is
    set.
    """
    if context.session_id is None:
        return
    sql = context.sql
    found = reader.first(
        _Attachment,
        sql.attachment,
        session_id=context.session_id,
        store_id=store_id if is_id("memstore", store_id) else "",
    )
    if found is None or found.session_archived_at is not None:
        raise NotAuthenticated
    if found.access is None:
        raise NotPermitted(
            "This session reaches only the memory stores that were attached when it was created.",
            needed="attached store",
            next="Use a store of the session, or an API key.",
        )
    if write and found.access != "read_write":
        raise NotPermitted(
            f"The memory store {found.name!r} ({store_id}) is attached {found.access}.",
            needed="read_write access",
            next="Write to a store attached read_write, or only read this one.",
        )


def refuse_narrowed(context: StoresContext, needed: str) -> None:
    """Raise NotPermitted if *context* is limited to a session.

    *needed* is the missing right.
    """
    if context.session_id is not None:
        raise NotPermitted(
            "A session reaches only itself and the memories of its attached stores.",
            needed=needed,
            next="Use an API key for this.",
        )


@contextmanager
def existence_first(
    context: StoresContext, store_id: str, memory_id: str | None = None, *, write: bool = False
) -> Generator[None, None, None]:
    """Replace InvalidInput if the store, or the named memory, is missing.

    Then NotFound, or what `reach` raises, takes its place. Costs nothing when the input is valid.
    """
    try:
        yield
    except InvalidInput:
        engine = context.engine
        reach(context, engine, store_id, write=write)
        demand_store(context, engine, store_id)
        if memory_id is not None:
            sql = context.sql
            if not engine.first(
                memory_of, sql.get_memory_basic, memory=sought("mem", memory_id), store=store_id
            ):
                raise missing("mem", memory_id) from None
        raise


def demand_store(context: StoresContext, reader: Reader, store_id: str) -> None:
    """Raise NotFound if the store does not exist."""
    sql = context.sql
    if reader.first(store_of, sql.get_store, store=sought("memstore", store_id)) is None:
        raise missing("memstore", store_id)
