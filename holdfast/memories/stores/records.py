"""Records of stores, memories, versions and sessions, and their wire form.

The order of fields is the order on the wire.
"""

from datetime import datetime
from typing import Any, Final, Literal, TypeVar, cast

import msgspec
from msgspec import Struct, field

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.scope import Actor
from holdfast.ground.trust import HeldFor, Provenance, Tier

Metadata = dict[str, str]
JSONObject = dict[str, Any]  # sent by a client, returned unchanged and never interpreted
View = Literal["basic", "full"]
Operation = Literal["created", "modified", "deleted"]
Access = Literal["read_write", "read_only"]
KeyScope = Literal["read", "write", "admin"]
Precondition = dict[str, str]
"""`{"type": "content_sha256", "content_sha256": "<64 lowercase hex>"}`."""


_SAID: Final[Tier] = "said"


class Record(Struct, frozen=True, kw_only=True):
    """Base of the records: frozen, named fields."""


class Store(Record, frozen=True, kw_only=True):
    """A workspace's named collection of memories."""

    type: Literal["memory_store"] = "memory_store"
    id: str
    name: str
    description: str
    metadata: Metadata
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


class Deleted(Record, frozen=True, kw_only=True):
    """Id and type of a deleted object."""

    id: str
    type: Literal["memory_store_deleted", "memory_deleted", "session_deleted"]


class Memory(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A document with a path; `content` is None in the basic view.

    `tier` tells who stands behind its content, `held` why it waits for a person, if it does.
    """

    # Made by a call, so that the encoder does not omit it as a default.
    type: Literal["memory"] = field(default_factory=lambda: "memory")
    id: str
    memory_store_id: str
    memory_version_id: str
    path: str
    content: str | None
    content_sha256: str
    content_size_bytes: int
    created_at: datetime
    updated_at: datetime
    tier: Tier = _SAID
    held: HeldFor | None = None


class MemoryPrefix(Record, frozen=True, kw_only=True):
    """A directory in a list with `depth=1`: a path that ends in a slash."""

    type: Literal["memory_prefix"] = "memory_prefix"
    path: str


class Version(Record, frozen=True, kw_only=True):
    """One immutable snapshot of a memory; redacted fields are None.

    `tier` tells who stands behind it, `origin_ref` where a text from outside came from, `held` why
    the memory waits for a person while this is its head.
    """

    type: Literal["memory_version"] = "memory_version"
    id: str
    memory_store_id: str
    memory_id: str
    operation: Operation
    path: str | None
    content: str | None
    content_size_bytes: int | None
    content_sha256: str | None
    created_at: datetime
    created_by: Actor
    redacted_at: datetime | None
    redacted_by: Actor | None
    tier: Tier = "said"
    origin_ref: str | None = None
    held: HeldFor | None = None

    @property
    def provenance(self) -> Provenance:
        """Where its content came from."""
        return Provenance(self.tier, self.origin_ref, self.held)


class Match(Record, frozen=True, kw_only=True):
    """A memory that a search found, in the basic view, with its score and a snippet."""

    type: Literal["memory_match"] = "memory_match"
    memory: Memory
    score: float
    snippet: str


class Snapshot(Record, frozen=True, kw_only=True):
    """All heads of a store at one moment, and the store's `seq` then.

    `memories` are in the basic view.
    """

    type: Literal["memory_store_snapshot"] = "memory_store_snapshot"
    seq: int
    memories: tuple[Memory, ...]
    cap: int
    archived_at: datetime | None


class MemoryChange(Record, frozen=True, kw_only=True):
    """The last change of one memory.

    `memory` is its head in the basic view, or None once deleted.
    """

    type: Literal["memory_change"] = "memory_change"
    seq: int
    memory_id: str
    operation: Operation
    memory: Memory | None


class ChangesPage(Record, frozen=True, kw_only=True):
    """The heads that changed after a number, oldest first.

    The next call continues from `seq`.
    """

    type: Literal["memory_changes"] = "memory_changes"
    seq: int
    changes: tuple[MemoryChange, ...]
    cap: int
    archived_at: datetime | None


class Applied(Record, frozen=True, kw_only=True):
    """The result of one edit.

    `memories` are the heads after it in the basic view, `deleted` the ids of deleted memories.
    `seq` is the store's number after it; `changed` is False if the edit had no effect.
    """

    type: Literal["memory_edit_applied"] = "memory_edit_applied"
    seq: int
    changed: bool
    memories: tuple[Memory, ...]
    deleted: tuple[str, ...]


class RestoreEdit(Record, frozen=True, kw_only=True):
    """One change that brings a memory back to an earlier moment.

    `path` and `content_sha256` are those of that moment, None for a memory that was not there;
    those with `_before` are those of now, None for one that is not here.
    """

    type: Literal["memory_restore_edit"] = "memory_restore_edit"
    operation: Operation
    memory_id: str
    path_before: str | None
    path: str | None
    content_sha256_before: str | None
    content_sha256: str | None


class StoreRestore(Record, frozen=True, kw_only=True):
    """The edits that bring a store back to the moment `at`.

    `seq` is the store's number after them, with `dry_run` the number that they start from.
    `erased` counts memories that stay as they are, as their versions of that moment were redacted.
    """

    type: Literal["memory_store_restore"] = "memory_store_restore"
    memory_store_id: str
    at: datetime
    dry_run: bool
    seq: int
    edits: tuple[RestoreEdit, ...]
    erased: int


class StoreSettings(Record, frozen=True, kw_only=True):
    """A workspace's settings for its stores; None keeps every version."""

    type: Literal["memory_store_settings"] = "memory_store_settings"
    memories_cap: int
    versions_keep_days: int | None
    versions_keep_last: int | None


class Resource(Record, frozen=True, kw_only=True):
    """A store attached to a session, with its name and description at that time."""

    type: Literal["memory_store"] = "memory_store"
    memory_store_id: str
    access: Access
    name: str
    description: str
    instructions: str | None
    mount_path: str


class SessionRecord(Record, frozen=True, kw_only=True):
    """A session: the stores that an agent can access, and its rights to each."""

    type: Literal["session"] = "session"
    id: str
    status: Literal["idle", "terminated"]
    title: str | None
    environment_id: str
    agent: JSONObject
    resources: tuple[Resource, ...]
    vault_ids: tuple[str, ...] = ()
    metadata: Metadata
    outcome_evaluations: tuple[JSONObject, ...] = ()
    usage: dict[str, int] = field(default_factory=lambda: {"input_tokens": 0, "output_tokens": 0})
    stats: dict[str, int] = field(
        default_factory=lambda: {"active_seconds": 0, "duration_seconds": 0}
    )
    budget: None = None
    deployment_id: None = None
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None


class SessionToken(Record, frozen=True, kw_only=True):
    """A credential to act as a session.

    `token` is None except in the response to its creation.
    """

    type: Literal["session_token"] = "session_token"
    id: str
    session_id: str
    token: str | None
    created_at: datetime
    expires_at: datetime | None


class ApiKey(Record, frozen=True, kw_only=True):
    """A key to a workspace; `secret` is None except in the response to its creation."""

    type: Literal["api_key"] = "api_key"
    id: str
    name: str
    scope: KeyScope
    workspace: str
    agent: str | None
    user: str | None
    secret: str | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class Identity(Record, frozen=True, kw_only=True):
    """The identity and the rights of the caller, and the server's time."""

    type: Literal["identity"] = "identity"
    actor: Actor
    scope: KeyScope
    workspace: str
    agent: str | None
    user: str | None
    at: datetime


# Wire form: instants are RFC 3339 with six fraction digits, actors are objects of their own type.
# `token` and `secret` are omitted where they are None; what tells of trust is omitted where it is
# the ordinary, as the contract does not know it.

R = TypeVar("R", bound=Record)

SHOWN_ONCE = frozenset({"token", "secret"})
_OMITTED: dict[str, tuple[object, ...]] = {
    **dict.fromkeys((*SHOWN_ONCE, "origin_ref", "held"), (None,)),
    "tier": ("said",),
}


def record_to_wire(record: Record) -> JSONObject:
    """Serialize *record* to a JSON object."""
    return {
        name: _value(value)
        for name in record.__struct_fields__
        if (value := getattr(record, name)) not in _OMITTED.get(name, ())
    }


def encodable(value: object) -> Any:
    """Return an object that encodes to the wire form of *value*, a record or JSON.

    The encoder writes a memory as `record_to_wire` does, in an eighth of the time, except that it
    omits the six zeros of an instant on a whole second.
    """
    if isinstance(value, Memory) and value.created_at.microsecond and value.updated_at.microsecond:
        # The encoder omits a default by its identity.
        ordinary = value.tier == _SAID and value.tier is not _SAID
        return msgspec.structs.replace(value, tier=_SAID) if ordinary else value
    return record_to_wire(value) if isinstance(value, Record) else value


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, Record):
        return record_to_wire(value)
    if isinstance(value, Actor):
        return value.to_wire()
    if isinstance(value, tuple):
        return [_value(each) for each in cast("tuple[object, ...]", value)]
    return value


def from_wire(make: type[R], wire: JSONObject) -> R:
    """Parse the JSON object *wire* as a *make*."""
    fields: JSONObject = {name: None for name in SHOWN_ONCE if name in make.__struct_fields__}
    for name, value in wire.items():
        fields[name] = msgspec.to_builtins(Actor.from_wire(value)) if _is_actor(value) else value
    return msgspec.convert(fields, make)


def _is_actor(value: Any) -> bool:
    return isinstance(value, dict) and str(cast("JSONObject", value).get("type")).endswith("_actor")


class Save(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="save"
):
    """Write *content* to a memory.

    The target is the memory *memory_id*, else the memory at *path*, else a new one.

    With a *base_sha256* the head must have that hash; if it does not, *appended*, if given, is
    appended to the current head. A save by id leaves the memory's path unchanged. A *new* save
    never overwrites a memory at the path.
    """

    path: str
    content: str
    memory_id: str | None = None
    base_sha256: str | None = None
    appended: str | None = None
    new: bool = False


class Replace(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="replace"
):
    """Make *content* the head of *memory_id* at *path*; delete *source_id*."""

    memory_id: str
    path: str
    content: str
    source_id: str | None = None


class Moved(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A memory and its new path."""

    memory_id: str
    path: str


class Move(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="move"
):
    """Move memories to new paths, all or none."""

    moves: tuple[Moved, ...]


class Remove(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="type", tag="delete"
):
    """Delete a memory; a missing one is not an error."""

    memory_id: str


Edit = Save | Replace | Move | Remove
