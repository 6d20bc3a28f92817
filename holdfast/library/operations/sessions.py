"""Operations of sessions, agents, environments, keys and tokens."""

from functools import partial
from typing import Annotated, Any, Final, get_args

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.ground.errors import Unsupported
from holdfast.library.operations.base import (
    Existence,
    Operation,
    OperationTable,
    Param,
    WireForm,
    field_form,
)
from holdfast.library.operations.stores import DELETED, bounds, list_form, record_form
from holdfast.memories.stores.agents import Agents, Environments
from holdfast.memories.stores.credentials import Keys
from holdfast.memories.stores.records import (
    ApiKey,
    KeyScope,
    Resource,
    SessionRecord,
    SessionToken,
)
from holdfast.memories.stores.sessions import Sessions

_SESSIONS: Final = "/v1/sessions"
_SESSION: Final = f"{_SESSIONS}/{{id}}"
_OWN: Final = "/api/sessions/{id}"
_TOKENS: Final = f"{_OWN}/tokens"
_TOKEN: Final = f"{_TOKENS}/{{tid}}"
_AGENTS: Final = "/v1/agents"
_KEYS: Final = "/api/keys"

_RESOURCES: Final = list_form(Resource)
_KEY: Final = record_form(ApiKey)
_TOKEN_FORM: Final = record_form(SessionToken)
_RECORD: Final = record_form(SessionRecord)


class CreateSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new session; the library validates each of them."""

    agent: Any
    environment_id: str
    resources: Any = ()
    title: str | UnsetType | None = UNSET
    metadata: dict[str, str] | UnsetType | None = UNSET
    initial_events: Any = UNSET
    budget: Any = UNSET
    vault_ids: Any = UNSET


class UpdateSession(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes of a session."""

    title: str | UnsetType | None = UNSET
    metadata: dict[str, str | None] | UnsetType | None = UNSET
    agent: Any = UNSET
    budget: Any = UNSET
    vault_ids: Any = UNSET


class CreateToken(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lifetime of a token in seconds; null: as long as its session."""

    expires_in: float | None = None


_Scope = Annotated[str, Meta(extra_json_schema={"enum": get_args(KeyScope)})]
"""Validated by the library: its message names the scopes, that of a conversion does not."""


class CreateKey(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new key."""

    name: str
    scope: _Scope | None = None
    workspace: str | None = None
    agent: str | None = None
    user: str | None = None


def _lenient(strict: object) -> None:
    if strict:
        raise Unsupported("strict over HTTP", next="Start the server with --strict.")


def _scope(given: object) -> object:
    return "write" if given is None else given


def _listed(given: Any) -> list[Any] | None:
    return None if given is None else [*given]


_ID: Final = {"session_id": Param(wire="id")}

_get = partial(Operation, method="GET", scope="read")
_post = partial(Operation, method="POST", scope="write", lane="write")
_delete = partial(Operation, method="DELETE")
_read = partial(_get, special=_ID)
_write = partial(_post, special=_ID)

RESOURCES: Final = _read(
    "sessions.resources",
    f"{_SESSION}/resources",
    "List what a session attaches.",
    WireForm(_RESOURCES.encode, lambda wire: tuple(_RESOURCES.decode(wire))),
    session="own",
    existence="session",
)
SESSIONS: Final = OperationTable(
    facade=Sessions,
    operations=(
        _post(
            "sessions.create",
            _SESSIONS,
            "Create a session that attaches memory stores.",
            _RECORD,
            params=CreateSession,
            special={"strict": Param(encode=_lenient, sent=False)},
        ),
        _get(
            "sessions.list",
            _SESSIONS,
            "List sessions.",
            _RECORD,
            special={
                **bounds("gt", "gte", "lt", "lte"),
                "statuses": Param(wire="statuses[]", encode=_listed),
            },
            paged=True,
            both_ways=True,
            lane="slow",
        ),
        _read("sessions.retrieve", _SESSION, "Retrieve a session.", _RECORD, session="own"),
        _write(
            "sessions.update",
            _SESSION,
            "Update a session's title or metadata.",
            _RECORD,
            params=UpdateSession,
            existence="session",
        ),
        _delete(
            "sessions.delete",
            _SESSION,
            "Delete a session and its tokens.",
            DELETED,
            scope="write",
            special=_ID,
            lane="slow",
        ),
        _write(
            "sessions.archive",
            f"{_SESSION}/archive",
            "End a session and revoke its tokens.",
            _RECORD,
            retry="safe",
        ),
        RESOURCES,
        _read(
            "sessions.note",
            f"{_OWN}/note",
            "Write a note about the attached stores for a system prompt.",
            field_form("note", str),
            session="own",
            existence="session",
            lane="slow",
        ),
        _read(
            "sessions.resource",
            f"{_SESSION}/resources/{{rid}}",
            "Retrieve an attached store.",
            record_form(Resource),
            special={**_ID, "memory_store_id": Param(wire="rid")},
            session="own",
        ),
        _write(
            "sessions.create_token",
            _TOKENS,
            "Create a session token; its secret is in this answer alone.",
            _TOKEN_FORM,
            params=CreateToken,
            optional=True,
            existence="session",
        ),
        _read(
            "sessions.list_tokens",
            _TOKENS,
            "List a session's tokens, without their secrets.",
            list_form(SessionToken, next_page=None),
            existence="session",
            lane="slow",
        ),
        _delete(
            "sessions.revoke_token",
            _TOKEN,
            "Revoke a session token at once.",
            _TOKEN_FORM,
            scope="write",
            special={**_ID, "id": Param(wire="tid")},
            existence="session",
            retry="safe",
            lane="write",
        ),
    ),
)

KEYS: Final = OperationTable(
    facade=Keys,
    operations=(
        _post(
            "keys.create",
            _KEYS,
            "Create a key; its secret is in this answer alone.",
            _KEY,
            scope="admin",
            params=CreateKey,
            special={"scope": Param(decode=_scope)},
            lane="slow",
        ),
        _get(
            "keys.list",
            _KEYS,
            "List keys, without their secrets.",
            list_form(ApiKey, next_page=None),
            scope="admin",
            lane="slow",
        ),
        _delete(
            "keys.revoke",
            f"{_KEYS}/{{id}}",
            "Revoke a key.",
            _KEY,
            scope="admin",
            retry="safe",
            lane="slow",
        ),
    ),
)


def _same(value: Any) -> Any:
    return value


def _objects(facade: str, path: str, noun: Existence, *, versions: bool) -> tuple[Operation, ...]:
    """Return the operations of agents or environments; only agents have *versions*."""
    one, form, created_at = f"{path}/{{id}}", WireForm(_same, _same), bounds("gte", "lte")
    as_of = ", as it is or as it was in a version" if versions else ""
    return (
        _post(
            f"{facade}.create",
            path,
            f"Create an {noun}{', version 1' if versions else ''}.",
            form,
            body="body",
        ),
        _get(
            f"{facade}.list",
            path,
            f"List {noun}s, newest first.",
            form,
            special=created_at,
            paged=True,
            lane="slow",
        ),
        _get(
            f"{facade}.retrieve",
            one,
            f"Retrieve an {noun}{as_of}.",
            form,
            existence=noun if versions else None,
        ),
        _post(
            f"{facade}.update",
            one,
            f"Update an {noun}{': its next version' if versions else ''}.",
            form,
            body="body",
            existence=noun,
        ),
        _post(f"{facade}.archive", f"{one}/archive", f"Archive an {noun}.", form, retry="safe"),
    )


AGENTS: Final = OperationTable(
    facade=Agents,
    paging_last=False,
    operations=(
        *_objects("agents", _AGENTS, "agent", versions=True),
        _get(
            "agents.versions",
            f"{_AGENTS}/{{id}}/versions",
            "List an agent's versions, newest first.",
            WireForm(_same, _same),
            paged=True,
            existence="agent",
            lane="slow",
        ),
    ),
)
ENVIRONMENTS: Final = OperationTable(
    facade=Environments,
    paging_last=False,
    operations=_objects("environments", "/v1/environments", "environment", versions=False),
)
