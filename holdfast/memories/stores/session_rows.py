"""Sessions as rows: read with the stores they attach, and made into records."""

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from types import SimpleNamespace

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none
from holdfast.memories.stores.records import Access, JSONObject, Metadata, Resource, SessionRecord
from holdfast.memories.stores.session_input import NewSession


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
        """Return the session, which attaches *resources*."""
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
        """Return the attached store as a resource."""
        return Resource(
            memory_store_id=self.memory_store_id,
            access=self.access,
            name=self.name,
            description=self.description,
            instructions=self.instructions,
            mount_path=self.mount_path,
        )


def new_row(session_id: str, asked: NewSession, agent: JSONObject, now: int) -> SessionRow:
    """Return the row of a session made at *now*, for *agent* as it is then."""
    return SessionRow(
        id=session_id,
        title=asked.title,
        environment_id=asked.environment_id,
        agent=msgspec.json.encode(agent).decode(),
        metadata=msgspec.json.encode(asked.metadata).decode(),
        created_at=now,
        updated_at=now,
        archived_at=None,
    )


def resources_of(
    reader: Reader, sql: SimpleNamespace, session_ids: Sequence[str]
) -> dict[str, tuple[Resource, ...]]:
    """Return what each of *session_ids* attaches, in the order given at its creation."""
    asked = msgspec.json.encode(session_ids).decode()
    rows = reader.all(ResourceRow, sql.stores_of_sessions, session_ids=asked)
    return {
        session_id: tuple(row.record() for row in its_rows)
        for session_id, its_rows in groupby(rows, key=attrgetter("session_id"))
    }


def as_records(
    reader: Reader, sql: SimpleNamespace, rows: Sequence[SessionRow]
) -> list[SessionRecord]:
    """Return *rows* as sessions, with what they attach."""
    attached = resources_of(reader, sql, [row.id for row in rows]) if rows else {}
    return [row.record(attached.get(row.id, ())) for row in rows]
