"""Rows as the stores' statements give them, and the records made of them."""

from typing import cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.ground.scope import Actor, ActorKind
from holdfast.memories.stores.records import Memory, Metadata, Operation, Store, Version

STORE_FIELDS = (
    "id",
    "name",
    "description",
    "metadata",
    "created_at",
    "updated_at",
    "archived_at",
)
"""Columns of a store that its record is made of."""

_metadata = msgspec.json.Decoder(Metadata)


class LockedStore(Struct, frozen=True, kw_only=True):
    """A store as a write finds it, with what its totals and its chain stand at."""

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


class Head(Struct, frozen=True, kw_only=True):
    """A live memory with its content, as a write finds it."""

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
    """Return the store that a row tells of."""
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
) -> Memory:
    """Return the memory that a row tells of."""
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
) -> Version:
    """Return the version that a row tells of."""
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
    )
