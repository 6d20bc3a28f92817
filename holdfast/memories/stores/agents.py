"""Agents as they were described to us: kept in versions, echoed, never run."""

from datetime import datetime
from types import SimpleNamespace

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import StoresContext, missing, refuse_narrowed, shaped
from holdfast.memories.stores.session_input import (
    AgentChoice,
    changed_agent,
    checked_version,
    external_agent,
    new_agent,
    session_agent,
)
from holdfast.memories.stores.validation import END, after_age, bounds


class _AgentRow(Struct, frozen=True, kw_only=True):
    id: str
    version: int
    parts: str
    created_at: int
    updated_at: int
    archived_at: int | None

    def decoded(self) -> JSONObject:
        return msgspec.json.decode(self.parts, type=JSONObject)

    def wire(self) -> JSONObject:
        archived_at = from_microseconds_or_none(self.archived_at)
        return {
            "type": "agent",
            "id": self.id,
            "version": self.version,
            **self.decoded(),
            "created_at": to_rfc3339(from_microseconds(self.created_at)),
            "updated_at": to_rfc3339(from_microseconds(self.updated_at)),
            "archived_at": None if archived_at is None else to_rfc3339(archived_at),
        }


class Agents:
    """The agents of a workspace. Each is a JSON object with every key of the wire."""

    def __init__(self, caller: StoresContext) -> None:
        self._caller = caller
        self._sql = caller.engine.queries("holdfast.memories.stores")

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new agent that *body* describes, version 1."""
        refuse_narrowed(self._caller, "write")
        parts = new_agent(body)
        now = self._caller.now()
        row = _AgentRow(
            id=self._caller.ids.new("agent", now),
            version=1,
            parts=msgspec.json.encode(parts).decode(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )

        def work(tx: Transaction) -> JSONObject:
            self._insert(tx, row)
            return row.wire()

        return self._caller.engine.write(work)

    def retrieve(self, id: str, *, version: int | None = None) -> JSONObject:
        """Return the agent, as it is or as it was in *version*."""
        refuse_narrowed(self._caller, "read")
        if version is not None:
            checked_version("version", version)
        return _found(self._caller.engine, self._sql, shaped("agent", id), version).wire()

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Return the agent with the changes of *body* made: its next version.

        What changes nothing makes no version. Conflict when *body* names a `version` that is
        not the present one.
        """
        refuse_narrowed(self._caller, "write")
        now = self._caller.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            asked = body.get("version")
            if asked is not None and checked_version("version", asked) != present.version:
                raise Conflict(
                    f"The agent {id} is at version {present.version}, not {asked}.",
                    reason="version",
                    next="Retrieve it, look at what changed, then update it again.",
                )
            parts = changed_agent(present.decoded(), body)
            if parts == present.decoded():
                return present.wire()
            row = msgspec.structs.replace(
                present,
                version=present.version + 1,
                parts=msgspec.json.encode(parts).decode(),
                updated_at=max(now, present.updated_at),
            )
            tx.run(self._sql.agent_is_no_longer_newest, id=id)
            self._insert(tx, row)
            return row.wire()

        return self._caller.engine.write(work)

    def list(
        self,
        *,
        limit: int | None = None,
        page: str | None = None,
        include_archived: bool = False,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[JSONObject]:
        """Return a page of the agents, newest first."""
        refuse_narrowed(self._caller, "read")
        most = checked_limit(limit)
        since, until = bounds(gte=created_at_gte, lte=created_at_lte)
        mark = digest(self._caller.workspace, since, until, include_archived)
        at, after = after_age(page, "agents", mark, until)
        rows = self._caller.engine.all(
            _AgentRow,
            self._sql.list_agents,
            since=since,
            until=until,
            at=at,
            after=after,
            include_archived=int(include_archived),
            rows=most + 1,
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire() for row in rows[:most]],
            end and write_cursor("agents", mark, [end.created_at, end.id]),
            more=lambda cursor: self.list(
                limit=limit,
                page=cursor,
                include_archived=include_archived,
                created_at_gte=created_at_gte,
                created_at_lte=created_at_lte,
            ),
        )

    def versions(
        self, id: str, *, limit: int | None = None, page: str | None = None
    ) -> Page[JSONObject]:
        """Return a page of the agent's versions, newest first."""
        refuse_narrowed(self._caller, "read")
        _found(self._caller.engine, self._sql, shaped("agent", id), None)
        most, mark = checked_limit(limit), digest(self._caller.workspace, id)
        before = _version_in(read_cursor("agent versions", mark, page)[0]) if page else END
        rows = self._caller.engine.all(
            _AgentRow, self._sql.list_agent_versions, id=id, before=before, rows=most + 1
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire() for row in rows[:most]],
            end and write_cursor("agent versions", mark, [end.version]),
            more=lambda cursor: self.versions(id, limit=limit, page=cursor),
        )

    def archive(self, id: str) -> JSONObject:
        """Return the agent, archived; again: unchanged. It keeps its version."""
        refuse_narrowed(self._caller, "write")
        now = self._caller.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if present.archived_at is not None:
                return present.wire()
            at = max(now, present.updated_at)
            tx.run(self._sql.archive_agent, id=id, now=at)
            return msgspec.structs.replace(present, archived_at=at, updated_at=at).wire()

        return self._caller.engine.write(work)

    def _locked(self, tx: Transaction, id: str) -> _AgentRow:
        tx.first(dict[str, str], self._sql.lock_agent, id=shaped("agent", id))
        return _found(tx, self._sql, id, None)

    def _insert(self, tx: Transaction, row: _AgentRow) -> None:
        tx.run(self._sql.insert_agent, **msgspec.structs.asdict(row))


def agent_for_session(
    reader: Reader, sql: SimpleNamespace, choice: AgentChoice, *, strict: bool
) -> JSONObject:
    """Return the snapshot of *choice* that a session keeps, with its overrides laid over it.

    An agent that is unknown here is described as one kept elsewhere, unless *strict*: NotFound.
    """
    known = reader.first(_AgentRow, sql.newest_agent, id=choice.id)
    if known is None:
        if strict:
            raise missing("agent", choice.id)
        return {**external_agent(choice.id, choice.version), **choice.overrides}
    row = known
    if choice.version not in (None, known.version):
        row = _found(reader, sql, choice.id, choice.version)
    return {**session_agent(row.id, row.version, row.decoded()), **choice.overrides}


def _version_in(key: Key) -> int:
    try:
        (version,) = key
        return checked_version("page", version)
    except (ValueError, InvalidInput):
        raise InvalidInput("page", "is not a cursor of this list") from None


def _found(reader: Reader, sql: SimpleNamespace, id: str, version: int | None) -> _AgentRow:
    if version is None:
        row = reader.first(_AgentRow, sql.newest_agent, id=id)
    else:
        row = reader.first(_AgentRow, sql.agent_version, id=id, version=version)
    if row is not None:
        return row
    if version is not None and reader.first(_AgentRow, sql.newest_agent, id=id) is not None:
        raise NotFound("agent version", f"{id} {version}", next="List the agent's versions.")
    raise missing("agent", id)
