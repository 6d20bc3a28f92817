"""Agents and environments of the wire contract."""

from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.ground.pages import Key, Page, checked_limit, digest, read_cursor, write_cursor
from holdfast.ground.text import within
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import StoresContext, missing, refuse_narrowed, shaped
from holdfast.memories.stores.session_input import (
    AgentChoice,
    as_json,
    changed_agent,
    checked_version,
    external_agent,
    new_agent,
    session_agent,
)
from holdfast.memories.stores.validation import (
    END,
    after_age,
    bounds,
    checked_metadata,
    patched_metadata,
)


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
    """The agents of a workspace, as JSON objects with every wire key."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.engine.queries("holdfast.memories.stores")

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new agent that *body* describes, version 1."""
        refuse_narrowed(self._context, "write")
        parts = new_agent(body)
        now = self._context.now()
        row = _AgentRow(
            id=self._context.ids.new("agent", now),
            version=1,
            parts=msgspec.json.encode(parts).decode(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )

        def work(tx: Transaction) -> JSONObject:
            self._insert(tx, row)
            return row.wire()

        return self._context.engine.write(work)

    def retrieve(self, id: str, *, version: int | None = None) -> JSONObject:
        """Return the agent in its newest version, or in *version*."""
        refuse_narrowed(self._context, "read")
        if version is not None:
            checked_version("version", version)
        return _found(self._context.engine, self._sql, shaped("agent", id), version).wire()

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply *body* to the agent and return its next version.

        A body without changes makes no version. Raises Conflict when *body* names a `version` that
        is not the current one.
        """
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            version = body.get("version")
            if version is not None and checked_version("version", version) != present.version:
                raise Conflict(
                    f"The agent {id} is at version {present.version}, not {version}.",
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

        return self._context.engine.write(work)

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
        refuse_narrowed(self._context, "read")
        most = checked_limit(limit)
        since, until = bounds(gte=created_at_gte, lte=created_at_lte)
        mark = digest(self._context.workspace, since, until, include_archived)
        at, after = after_age(page, "agents", mark, until)
        rows = self._context.engine.all(
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
        refuse_narrowed(self._context, "read")
        _found(self._context.engine, self._sql, shaped("agent", id), None)
        most, mark = checked_limit(limit), digest(self._context.workspace, id)
        before = _version_in(read_cursor("agent versions", mark, page)[0]) if page else END
        rows = self._context.engine.all(
            _AgentRow, self._sql.list_agent_versions, id=id, before=before, rows=most + 1
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire() for row in rows[:most]],
            end and write_cursor("agent versions", mark, [end.version]),
            more=lambda cursor: self.versions(id, limit=limit, page=cursor),
        )

    def archive(self, id: str) -> JSONObject:
        """Archive the agent and return it; a repeat changes nothing. It keeps its version."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if present.archived_at is not None:
                return present.wire()
            at = max(now, present.updated_at)
            tx.run(self._sql.archive_agent, id=id, now=at)
            return msgspec.structs.replace(present, archived_at=at, updated_at=at).wire()

        return self._context.engine.write(work)

    def _locked(self, tx: Transaction, id: str) -> _AgentRow:
        tx.first(dict[str, str], self._sql.lock_agent, id=shaped("agent", id))
        return _found(tx, self._sql, id, None)

    def _insert(self, tx: Transaction, row: _AgentRow) -> None:
        tx.run(self._sql.insert_agent, **msgspec.structs.asdict(row))


def agent_for_session(
    reader: Reader, sql: SimpleNamespace, choice: AgentChoice, *, strict: bool
) -> JSONObject:
    """Return the snapshot of *choice* for a session, with its overrides.

    An agent that is unknown here is taken as external; with *strict* it raises NotFound.
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


MOST_ENVIRONMENT_NAME, MOST_ENVIRONMENT_DESCRIPTION = 256, 2_048
"""Code points."""

_PARTS = ("name", "description", "config", "metadata", "scope")
_PACKAGES = ("apt", "cargo", "gem", "go", "npm", "pip")
_LIST = "environments"


class _EnvironmentRow(Struct, frozen=True, kw_only=True):
    id: str
    parts: str
    created_at: int
    updated_at: int
    archived_at: int | None

    def decoded(self) -> JSONObject:
        return msgspec.json.decode(self.parts, type=JSONObject)

    def wire(self) -> JSONObject:
        archived_at = from_microseconds_or_none(self.archived_at)
        return {
            "type": "environment",
            "id": self.id,
            **self.decoded(),
            "created_at": to_rfc3339(from_microseconds(self.created_at)),
            "updated_at": to_rfc3339(from_microseconds(self.updated_at)),
            "archived_at": None if archived_at is None else to_rfc3339(archived_at),
        }


class Environments:
    """The environments of a workspace, as JSON objects with every wire key."""

    def __init__(self, context: StoresContext) -> None:
        self._context = context
        self._sql = context.engine.queries("holdfast.memories.stores")

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new environment that *body* describes."""
        refuse_narrowed(self._context, "write")
        parts = new_environment(body)
        now = self._context.now()
        row = _EnvironmentRow(
            id=self._context.ids.new("env", now),
            parts=msgspec.json.encode(parts).decode(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )

        def work(tx: Transaction) -> JSONObject:
            tx.run(self._sql.insert_environment, id=row.id, parts=row.parts, now=now)
            return row.wire()

        return self._context.engine.write(work)

    def retrieve(self, id: str) -> JSONObject:
        """Return the environment, an archived one too."""
        refuse_narrowed(self._context, "read")
        row = self._context.engine.first(
            _EnvironmentRow, self._sql.get_environment, id=shaped("env", id)
        )
        if row is None:
            raise missing("env", id)
        return row.wire()

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply *body* to the environment and return it; absent keys stay as they are."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            parts = changed_environment(present.decoded(), body)
            if parts == present.decoded():
                return present.wire()
            row = msgspec.structs.replace(
                present,
                parts=msgspec.json.encode(parts).decode(),
                updated_at=max(now, present.updated_at),
            )
            self._change(tx, row)
            return row.wire()

        return self._context.engine.write(work)

    def list(
        self, *, limit: int | None = None, page: str | None = None, include_archived: bool = False
    ) -> Page[JSONObject]:
        """Return a page of the environments, newest first."""
        refuse_narrowed(self._context, "read")
        most, mark = checked_limit(limit), digest(self._context.workspace, include_archived)
        at, after = after_age(page, _LIST, mark, END)
        rows = self._context.engine.all(
            _EnvironmentRow,
            self._sql.list_environments,
            at=at,
            after=after,
            include_archived=int(include_archived),
            rows=most + 1,
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire() for row in rows[:most]],
            end and write_cursor(_LIST, mark, [end.created_at, end.id]),
            more=lambda cursor: self.list(
                limit=limit, page=cursor, include_archived=include_archived
            ),
        )

    def archive(self, id: str) -> JSONObject:
        """Archive the environment and return it; a repeat changes nothing."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if present.archived_at is not None:
                return present.wire()
            at = max(now, present.updated_at)
            row = msgspec.structs.replace(present, archived_at=at, updated_at=at)
            self._change(tx, row)
            return row.wire()

        return self._context.engine.write(work)

    def _locked(self, tx: Transaction, id: str) -> _EnvironmentRow:
        row = tx.first(_EnvironmentRow, self._sql.lock_environment, id=shaped("env", id))
        if row is None:
            raise missing("env", id)
        return row

    def _change(self, tx: Transaction, row: _EnvironmentRow) -> None:
        tx.run(
            self._sql.change_environment,
            id=row.id,
            parts=row.parts,
            now=row.updated_at,
            archived_at=row.archived_at,
        )


def require_environment(reader: Reader, sql: SimpleNamespace, id: str) -> None:
    """Raise NotFound if there is no environment *id*."""
    if reader.first(_EnvironmentRow, sql.get_environment, id=id) is None:
        raise missing("env", id)


def new_environment(body: JSONObject) -> JSONObject:
    """Return the environment of *body*; InvalidInput names the invalid key."""
    if body.get("name") is None:
        raise InvalidInput("name", "is required")
    metadata = body.get("metadata")
    return changed_environment(
        {
            "name": "",
            "description": None,
            "config": _config({}, None),
            "metadata": {} if metadata is None else checked_metadata(metadata),
            "scope": None,
        },
        {key: value for key, value in body.items() if key != "metadata"},
    )


def changed_environment(present: JSONObject, body: JSONObject) -> JSONObject:
    """Return *present*, the parts of an environment, with *body* applied."""
    for key in body:
        if key not in _PARTS:
            raise InvalidInput(key, "is not a key of an environment", next="Leave it out.")
    parts = dict(present)
    if body.get("name") is not None:
        parts["name"] = _text("name", body["name"], least=1, most=MOST_ENVIRONMENT_NAME)
    if "description" in body:
        given = body["description"]
        parts["description"] = (
            None
            if given is None
            else _text("description", given, most=MOST_ENVIRONMENT_DESCRIPTION)
        )
    if body.get("config") is not None:
        parts["config"] = _config(present["config"], body["config"])
    if body.get("metadata") is not None:
        parts["metadata"] = patched_metadata(present["metadata"], body["metadata"])
    if body.get("scope") is not None:
        if body["scope"] not in ("organization", "account"):
            raise InvalidInput("scope", "must be organization or account", given=body["scope"])
        parts["scope"] = body["scope"]
    return parts


def _config(present: JSONObject, given: object) -> JSONObject:
    """Return the whole config *given*; keys absent from a cloud config stay."""
    if given is None:
        # Holdfast starts no environment: without a description the user hosts it.
        return {"type": "self_hosted"}
    if not isinstance(given, dict):
        raise InvalidInput("config", "must be an object", given=repr(given))
    config = as_json("config", cast("dict[str, Any]", given))
    if config.get("type") not in ("cloud", "self_hosted"):
        raise InvalidInput("config.type", "must be cloud or self_hosted", given=config.get("type"))
    if config["type"] == "self_hosted":
        return config
    base = present if present.get("type") == "cloud" else {}
    packages = config.get("packages")
    if packages is not None and not isinstance(packages, dict):
        raise InvalidInput("config.packages", "must be an object", given=repr(packages))
    return {
        "networking": {"type": "unrestricted"},
        **base,
        **{key: value for key, value in config.items() if value is not None},
        "packages": {
            "type": "packages",
            **{manager: [] for manager in _PACKAGES},
            **(base.get("packages") or {}),
            **{
                manager: names
                for manager, names in cast("dict[str, Any]", packages or {}).items()
                if names is not None
            },
        },
    }


def _text(field: str, given: object, *, most: int, least: int = 0) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must be a string", given=repr(given))
    return within(field, given, least=least, most=most)
