"""What each object looks like on the wire: its keys in order, their types, and what may be null.

Written down apart from the records that make the objects, so that the two can disagree.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

ID = "[0-9A-Za-z]{24}$"

StoreId = Annotated[str, Meta(pattern=f"^memstore_{ID}")]
MemoryId = Annotated[str, Meta(pattern=f"^mem_{ID}")]
VersionId = Annotated[str, Meta(pattern=f"^memver_{ID}")]
SessionId = Annotated[str, Meta(pattern=f"^sesn_{ID}")]
AgentId = Annotated[str, Meta(pattern=f"^agent_{ID}")]
EnvironmentId = Annotated[str, Meta(pattern=f"^env_{ID}")]
KeyId = Annotated[str, Meta(pattern=f"^apikey_(local|{ID[:-1]})$")]
RequestId = Annotated[str, Meta(pattern="^req_.")]
Cursor = Annotated[str, Meta(pattern="^page_.")]
Instant = Annotated[str, Meta(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$")]
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Size = Annotated[int, Meta(ge=0)]


class Shape(Struct, frozen=True, forbid_unknown_fields=True):
    """An object: every key is there, and no other."""


class Store(Shape, frozen=True):
    type: Literal["memory_store"]
    id: StoreId
    name: str
    description: str
    metadata: dict[str, str]
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class DeletedStore(Shape, frozen=True):
    id: StoreId
    type: Literal["memory_store_deleted"]


class Memory(Shape, frozen=True, tag_field="type", tag="memory"):
    id: MemoryId
    memory_store_id: StoreId
    memory_version_id: VersionId
    path: str
    content: str | None
    content_sha256: Sha256
    content_size_bytes: Size
    created_at: Instant
    updated_at: Instant


class Prefix(Shape, frozen=True, tag_field="type", tag="memory_prefix"):
    path: Annotated[str, Meta(pattern="^/.*/$")]


class DeletedMemory(Shape, frozen=True):
    id: MemoryId
    type: Literal["memory_deleted"]


class SessionActor(Shape, frozen=True, tag_field="type", tag="session_actor"):
    session_id: SessionId


class ApiActor(Shape, frozen=True, tag_field="type", tag="api_actor"):
    api_key_id: KeyId


class UserActor(Shape, frozen=True, tag_field="type", tag="user_actor"):
    user_id: str


class ServiceAccountActor(Shape, frozen=True, tag_field="type", tag="service_account_actor"):
    service_account_id: str


Actor = SessionActor | ApiActor | UserActor | ServiceAccountActor


class Version(Shape, frozen=True):
    type: Literal["memory_version"]
    id: VersionId
    memory_store_id: StoreId
    memory_id: MemoryId
    operation: Literal["created", "modified", "deleted"]
    path: str | None
    content: str | None
    content_size_bytes: Size | None
    content_sha256: Sha256 | None
    created_at: Instant
    created_by: Actor
    redacted_at: Instant | None
    redacted_by: Actor | None


class Resource(Shape, frozen=True):
    type: Literal["memory_store"]
    memory_store_id: StoreId
    access: Literal["read_write", "read_only"]
    name: str
    description: str
    instructions: str | None
    mount_path: Annotated[str, Meta(pattern="^/mnt/memory/[a-z0-9-]+$")]


class Model(Struct, frozen=True):
    """Beyond its id a model is as the release that made it; nobody here reads it."""

    id: str


class Identity(Struct, frozen=True):
    type: str


class SessionAgent(Struct, frozen=True):
    """The agent as it was when the session began: a set of keys, whose order nobody promised."""

    type: Literal["agent"]
    id: str
    version: int
    name: str
    description: str | None
    model: Model
    system: str | None
    tools: list[object]
    mcp_servers: list[object]
    skills: list[object]
    multiagent: dict[str, object] | None
    execution_identity: Identity


class Usage(Shape, frozen=True):
    input_tokens: Literal[0]
    output_tokens: Literal[0]


class Stats(Shape, frozen=True):
    active_seconds: Literal[0]
    duration_seconds: Literal[0]


class Session(Shape, frozen=True):
    type: Literal["session"]
    id: SessionId
    status: Literal["idle", "terminated"]
    title: str | None
    environment_id: str
    agent: SessionAgent
    resources: list[Resource]
    vault_ids: Annotated[list[str], Meta(max_length=0)]
    metadata: dict[str, str]
    outcome_evaluations: Annotated[list[object], Meta(max_length=0)]
    usage: Usage
    stats: Stats
    budget: None
    deployment_id: None
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class DeletedSession(Shape, frozen=True):
    id: SessionId
    type: Literal["session_deleted"]


class Agent(SessionAgent, frozen=True):
    metadata: dict[str, str]
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class Environment(Struct, frozen=True):
    type: Literal["environment"]
    id: EnvironmentId
    name: str
    description: str | None
    config: dict[str, object]
    metadata: dict[str, str]
    scope: Literal["organization", "account"] | None
    created_at: Instant
    updated_at: Instant
    archived_at: Instant | None


class StoreRef(Shape, frozen=True, tag_field="type", tag="memory_store"):
    memory_store_id: StoreId


class SessionRefs(Shape, frozen=True, tag_field="type", tag="sessions"):
    session_ids: Annotated[list[SessionId], Meta(min_length=1, max_length=100)]


class CreateNew(Shape, frozen=True, tag_field="type", tag="create_new"):
    pass


class UpdateExisting(Shape, frozen=True, tag_field="type", tag="update_existing"):
    memory_store_id: StoreId


class DreamModel(Shape, frozen=True):
    id: str
    speed: Literal["standard"]


class DreamUsage(Shape, frozen=True):
    input_tokens: Size
    output_tokens: Size
    cache_read_input_tokens: Literal[0]
    cache_creation_input_tokens: Literal[0]


class DreamError(Shape, frozen=True):
    type: str
    message: str


class Dream(Shape, frozen=True):
    type: Literal["dream"]
    id: Annotated[str, Meta(pattern=f"^drm_{ID}")]
    status: Literal["pending", "running", "completed", "failed", "canceled"]
    inputs: Annotated[list[StoreRef | SessionRefs], Meta(min_length=2, max_length=2)]
    outputs: Annotated[list[StoreRef], Meta(max_length=1)]
    model: DreamModel
    instructions: str | None
    output_behavior: CreateNew | UpdateExisting
    session_id: SessionId
    created_at: Instant
    ended_at: Instant | None
    archived_at: Instant | None
    usage: DreamUsage
    error: DreamError | None


class StorePage(Shape, frozen=True):
    data: list[Store]
    next_page: Cursor | None


class MemoryPage(Shape, frozen=True):
    data: list[Memory | Prefix]
    next_page: Cursor | None


class VersionPage(Shape, frozen=True):
    data: list[Version]
    next_page: Cursor | None


class ResourcePage(Shape, frozen=True):
    data: list[Resource]
    next_page: Cursor | None


class SessionPage(Shape, frozen=True):
    data: list[Session]
    next_page: Cursor | None
    prev_page: Cursor | None


class Conflict(Shape, frozen=True):
    type: Literal["memory_precondition_failed_error"]
    message: str


class PathConflict(Shape, frozen=True):
    type: Literal["memory_path_conflict_error"]
    message: str
    conflicting_memory_id: MemoryId
    conflicting_path: str


class ConflictAnswer(Shape, frozen=True):
    type: Literal["error"]
    error: Conflict
    request_id: RequestId


class PathConflictAnswer(Shape, frozen=True):
    type: Literal["error"]
    error: PathConflict
    request_id: RequestId
