"""Agents and environments of the wire contract: one table of stored JSON objects."""

from collections.abc import Callable
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, replace

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import Conflict, InvalidInput, NotFound
from holdfast.ground.pages import Key, Page, digest, read_cursor, write_cursor
from holdfast.ground.validation import check_limit, check_one_of, check_text
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import KINDS, StoresContext, missing, refuse_narrowed, shaped
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

ObjectKind = Literal["agent", "env"]
"""Prefix of an object's id."""


class _ObjectRow(Struct, frozen=True, kw_only=True):
    id: str
    version: int
    parts: str
    created_at: int
    updated_at: int
    archived_at: int | None

    def decoded(self) -> JSONObject:
        return msgspec.json.decode(self.parts, type=JSONObject)

    def wire(self, kind: ObjectKind) -> JSONObject:
        archived_at = from_microseconds_or_none(self.archived_at)
        return {
            "type": KINDS[kind],
            "id": self.id,
            **({"version": self.version} if kind == "agent" else {}),
            **self.decoded(),
            "created_at": to_rfc3339(from_microseconds(self.created_at)),
            "updated_at": to_rfc3339(from_microseconds(self.updated_at)),
            "archived_at": None if archived_at is None else to_rfc3339(archived_at),
        }


class _StoredObjects:
    """Objects of one kind, which *changed*(parts, body) updates.

    Each update of an agent makes a version; an environment has one, which updates replace.
    """

    def __init__(
        self,
        context: StoresContext,
        kind: ObjectKind,
        changed: Callable[[JSONObject, JSONObject], JSONObject],
    ) -> None:
        self._context, self._changed = context, changed
        self._kind: ObjectKind = kind
        self._sql = context.sql

    def create(self, new: Callable[[], JSONObject]) -> JSONObject:
        """Store and return the object whose parts *new* returns."""
        refuse_narrowed(self._context, "write")
        parts, now = new(), self._context.now()
        row = _ObjectRow(
            id=self._context.ids.new(self._kind, now),
            version=1,
            parts=msgspec.json.encode(parts).decode(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )

        def work(tx: Transaction) -> JSONObject:
            tx.run(self._sql.insert_object, kind=self._kind, **asdict(row))
            return row.wire(self._kind)

        return self._context.engine.write(work)

    def retrieve(self, id: str, version: int | None = None) -> JSONObject:
        """Return the object in its newest version, or in *version*."""
        refuse_narrowed(self._context, "read")
        if version is not None:
            checked_version("version", version)
        id = shaped(self._kind, id)
        return _found(self._context.engine, self._sql, id, self._kind, version).wire(self._kind)

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply *body* and return the object; a body without changes writes nothing."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if self._kind == "agent":
                version = body.get("version")
                if version is not None and checked_version("version", version) != present.version:
                    raise Conflict(
                        f"The agent {present.id} is at version {present.version}, not {version}.",
                        reason="version",
                        next="Retrieve it, look at what changed, then update it again.",
                    )
            parts = self._changed(present.decoded(), body)
            if parts == present.decoded():
                return present.wire(self._kind)
            row = replace(
                present,
                version=present.version + (self._kind == "agent"),
                parts=msgspec.json.encode(parts).decode(),
                updated_at=max(now, present.updated_at),
            )
            if self._kind == "agent":
                tx.run(self._sql.object_is_no_longer_newest, id=id)
                tx.run(self._sql.insert_object, kind=self._kind, **asdict(row))
            else:
                tx.run(self._sql.replace_object, id=id, parts=row.parts, updated_at=row.updated_at)
            return row.wire(self._kind)

        return self._context.engine.write(work)

    def page(
        self,
        limit: int | None,
        page: str | None,
        more: Callable[[str], Page[JSONObject]],
        *,
        include_archived: bool,
        created_at_gte: datetime | None = None,
        created_at_lte: datetime | None = None,
    ) -> Page[JSONObject]:
        """Return a page of the objects, newest first; *more* returns the one at a cursor."""
        refuse_narrowed(self._context, "read")
        most, title = check_limit(limit), KINDS[self._kind]
        since, until = bounds(gte=created_at_gte, lte=created_at_lte)
        mark = digest(self._context.workspace, since, until, include_archived)
        at, after = after_age(page, title, mark, until)
        rows = self._context.engine.all(
            _ObjectRow,
            self._sql.list_objects,
            kind=self._kind,
            since=since,
            until=until,
            at=at,
            after=after,
            include_archived=int(include_archived),
            rows=most + 1,
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire(self._kind) for row in rows[:most]],
            end and write_cursor(title, mark, [end.created_at, end.id]),
            more=more,
        )

    def versions(self, id: str, limit: int | None, page: str | None) -> Page[JSONObject]:
        """Return a page of the object's versions, newest first."""
        refuse_narrowed(self._context, "read")
        _found(self._context.engine, self._sql, shaped(self._kind, id), self._kind, None)
        most, mark = check_limit(limit), digest(self._context.workspace, id)
        before = _version_in(read_cursor("versions", mark, page)[0]) if page else END
        rows = self._context.engine.all(
            _ObjectRow, self._sql.list_object_versions, id=id, before=before, rows=most + 1
        )
        end = rows[most - 1] if len(rows) > most else None
        return Page(
            [row.wire(self._kind) for row in rows[:most]],
            end and write_cursor("versions", mark, [end.version]),
            more=lambda cursor: self.versions(id, limit, cursor),
        )

    def archive(self, id: str) -> JSONObject:
        """Archive the object and return it; a repeat changes nothing."""
        refuse_narrowed(self._context, "write")
        now = self._context.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if present.archived_at is not None:
                return present.wire(self._kind)
            at = max(now, present.updated_at)
            tx.run(self._sql.archive_object, id=id, now=at)
            return replace(present, archived_at=at, updated_at=at).wire(self._kind)

        return self._context.engine.write(work)

    def _locked(self, tx: Transaction, id: str) -> _ObjectRow:
        tx.first(dict[str, str], self._sql.lock_object, id=shaped(self._kind, id))
        return _found(tx, self._sql, id, self._kind, None)


class Agents:
    """The agents of a workspace, as JSON objects with every wire key."""

    def __init__(self, context: StoresContext) -> None:
        self._objects = _StoredObjects(context, "agent", changed_agent)

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new agent that *body* describes, version 1."""
        return self._objects.create(lambda: new_agent(body))

    def retrieve(self, id: str, *, version: int | None = None) -> JSONObject:
        """Return the agent in its newest version, or in *version*."""
        return self._objects.retrieve(id, version)

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply *body* to the agent and return its next version.

        A body without changes makes no version. Raises Conflict when *body* names a `version` that
        is not the current one.
        """
        return self._objects.update(id, body)

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
        return self._objects.page(
            limit,
            page,
            lambda cursor: self.list(
                limit=limit,
                page=cursor,
                include_archived=include_archived,
                created_at_gte=created_at_gte,
                created_at_lte=created_at_lte,
            ),
            include_archived=include_archived,
            created_at_gte=created_at_gte,
            created_at_lte=created_at_lte,
        )

    def versions(
        self, id: str, *, limit: int | None = None, page: str | None = None
    ) -> Page[JSONObject]:
        """Return a page of the agent's versions, newest first."""
        return self._objects.versions(id, limit, page)

    def archive(self, id: str) -> JSONObject:
        """Archive the agent and return it; a repeat changes nothing. It keeps its version."""
        return self._objects.archive(id)


class Environments:
    """The environments of a workspace, as JSON objects with every wire key."""

    def __init__(self, context: StoresContext) -> None:
        self._objects = _StoredObjects(context, "env", changed_environment)

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new environment that *body* describes."""
        return self._objects.create(lambda: new_environment(body))

    def retrieve(self, id: str) -> JSONObject:
        """Return the environment, an archived one too."""
        return self._objects.retrieve(id)

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Apply *body* to the environment and return it; absent keys stay as they are."""
        return self._objects.update(id, body)

    def list(
        self, *, limit: int | None = None, page: str | None = None, include_archived: bool = False
    ) -> Page[JSONObject]:
        """Return a page of the environments, newest first."""
        return self._objects.page(
            limit,
            page,
            lambda cursor: self.list(limit=limit, page=cursor, include_archived=include_archived),
            include_archived=include_archived,
        )

    def archive(self, id: str) -> JSONObject:
        """Archive the environment and return it; a repeat changes nothing."""
        return self._objects.archive(id)


def agent_for_session(
    reader: Reader, sql: SimpleNamespace, choice: AgentChoice, *, strict: bool
) -> JSONObject:
    """Return the snapshot of *choice* for a session, with its overrides.

    An agent that is unknown here is taken as external; with *strict* it raises NotFound.
    """
    row = reader.first(_ObjectRow, sql.newest_object, id=choice.id, kind="agent")
    if row is None:
        if strict:
            raise missing("agent", choice.id)
        return {**external_agent(choice.id, choice.version), **choice.overrides}
    if choice.version not in (None, row.version):
        row = _found(reader, sql, choice.id, "agent", choice.version)
    return {**session_agent(row.id, row.version, row.decoded()), **choice.overrides}


def require_environment(reader: Reader, sql: SimpleNamespace, id: str) -> None:
    """Raise NotFound if there is no environment *id*."""
    _found(reader, sql, id, "env", None)


def _found(
    reader: Reader, sql: SimpleNamespace, id: str, kind: ObjectKind, version: int | None
) -> _ObjectRow:
    newest = reader.first(_ObjectRow, sql.newest_object, id=id, kind=kind)
    if newest is None:
        raise missing(kind, id)
    if version in (None, newest.version):
        return newest
    row = reader.first(_ObjectRow, sql.object_version, id=id, version=version)
    if row is None:
        raise NotFound("agent version", f"{id} {version}", next="List the agent's versions.")
    return row


def _version_in(key: Key) -> int:
    try:
        (version,) = key
        return checked_version("page", version)
    except (ValueError, InvalidInput):
        raise InvalidInput("page", "is not a cursor of this list") from None


MOST_ENVIRONMENT_NAME, MOST_ENVIRONMENT_DESCRIPTION = 256, 2_048
"""Code points."""

_PARTS = ("name", "description", "config", "metadata", "scope")
_PACKAGES = ("apt", "cargo", "gem", "go", "npm", "pip")


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
        parts["name"] = check_text("name", body["name"], least=1, most=MOST_ENVIRONMENT_NAME)
    if "description" in body:
        given = body["description"]
        parts["description"] = (
            None
            if given is None
            else check_text("description", given, most=MOST_ENVIRONMENT_DESCRIPTION)
        )
    if body.get("config") is not None:
        parts["config"] = _config(present["config"], body["config"])
    if body.get("metadata") is not None:
        parts["metadata"] = patched_metadata(present["metadata"], body["metadata"])
    if body.get("scope") is not None:
        scopes, reason = ("organization", "account"), "must be organization or account"
        parts["scope"] = check_one_of("scope", body["scope"], scopes, reason)
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
