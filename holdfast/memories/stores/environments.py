"""Environments as they were described to us: kept, echoed, never started."""

from types import SimpleNamespace
from typing import Any, cast

import msgspec
from msgspec import Struct

from holdfast.engines.base import Reader, Transaction
from holdfast.ground.clock import from_microseconds, from_microseconds_or_none, to_rfc3339
from holdfast.ground.errors import InvalidInput
from holdfast.ground.pages import Page, checked_limit, digest, write_cursor
from holdfast.ground.text import within
from holdfast.memories.stores.records import JSONObject
from holdfast.memories.stores.rows import StoresContext, missing, refuse_narrowed, shaped
from holdfast.memories.stores.session_input import as_json
from holdfast.memories.stores.validation import END, after_age, checked_metadata, patched_metadata

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
    """The environments of a workspace. Each is a JSON object with every key of the wire."""

    def __init__(self, caller: StoresContext) -> None:
        self._caller = caller
        self._sql = caller.engine.queries("holdfast.memories.stores")

    def create(self, body: JSONObject) -> JSONObject:
        """Return the new environment that *body* describes."""
        refuse_narrowed(self._caller, "write")
        parts = new_environment(body)
        now = self._caller.now()
        row = _EnvironmentRow(
            id=self._caller.ids.new("env", now),
            parts=msgspec.json.encode(parts).decode(),
            created_at=now,
            updated_at=now,
            archived_at=None,
        )

        def work(tx: Transaction) -> JSONObject:
            tx.run(self._sql.insert_environment, id=row.id, parts=row.parts, now=now)
            return row.wire()

        return self._caller.engine.write(work)

    def retrieve(self, id: str) -> JSONObject:
        """Return the environment, an archived one too."""
        refuse_narrowed(self._caller, "read")
        row = self._caller.engine.first(
            _EnvironmentRow, self._sql.get_environment, id=shaped("env", id)
        )
        if row is None:
            raise missing("env", id)
        return row.wire()

    def update(self, id: str, body: JSONObject) -> JSONObject:
        """Return the environment with the changes of *body* made; what is left out stays."""
        refuse_narrowed(self._caller, "write")
        now = self._caller.now()

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

        return self._caller.engine.write(work)

    def list(
        self, *, limit: int | None = None, page: str | None = None, include_archived: bool = False
    ) -> Page[JSONObject]:
        """Return a page of the environments, newest first."""
        refuse_narrowed(self._caller, "read")
        most, mark = checked_limit(limit), digest(self._caller.workspace, include_archived)
        at, after = after_age(page, _LIST, mark, END)
        rows = self._caller.engine.all(
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
        """Return the environment, archived; again: unchanged."""
        refuse_narrowed(self._caller, "write")
        now = self._caller.now()

        def work(tx: Transaction) -> JSONObject:
            present = self._locked(tx, id)
            if present.archived_at is not None:
                return present.wire()
            at = max(now, present.updated_at)
            row = msgspec.structs.replace(present, archived_at=at, updated_at=at)
            self._change(tx, row)
            return row.wire()

        return self._caller.engine.write(work)

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
    """Return the parts of the environment that *body* asks for; InvalidInput names the key."""
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
    """Return *present*, the parts of an environment, with the changes of *body* made."""
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
    """Return the whole of the config *given*; what a cloud config leaves out stays."""
    if given is None:
        # Nothing is started here: whoever described nothing runs it themselves.
        return {"type": "self_hosted"}
    if not isinstance(given, dict):
        raise InvalidInput("config", "must be an object", given=repr(given))
    asked = as_json("config", cast("dict[str, Any]", given))
    if asked.get("type") not in ("cloud", "self_hosted"):
        raise InvalidInput("config.type", "must be cloud or self_hosted", given=asked.get("type"))
    if asked["type"] == "self_hosted":
        return asked
    base = present if present.get("type") == "cloud" else {}
    packages = asked.get("packages")
    if packages is not None and not isinstance(packages, dict):
        raise InvalidInput("config.packages", "must be an object", given=repr(packages))
    return {
        "networking": {"type": "unrestricted"},
        **base,
        **{key: value for key, value in asked.items() if value is not None},
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
