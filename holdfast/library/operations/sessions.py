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
_TOKENS: Final = "/api/sessions/{id}/tokens"
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
    name="sessions.resources",
    path=f"{_SESSION}/resources",
    summary="List what a session attaches.",
    result=WireForm(_RESOURCES.encode, lambda wire: tuple(_RESOURCES.decode(wire))),
    session="own",
    existence="session",
)
SESSIONS: Final = OperationTable(
    facade=Sessions,
    operations=(
        _post(
            name="sessions.create",
            path=_SESSIONS,
            summary="Create a session that attaches memory stores.",
            params=CreateSession,
            special={"strict": Param(encode=_lenient, sent=False)},
            result=_RECORD,
        ),
        _get(
            name="sessions.list",
            path=_SESSIONS,
            summary="List sessions.",
            special={
                **bounds("gt", "gte", "lt", "lte"),
                "statuses": Param(wire="statuses[]", encode=_listed),
            },
            result=_RECORD,
            paged=True,
            both_ways=True,
            lane="slow",
        ),
        _read(
            name="sessions.retrieve",
            path=_SESSION,
            summary="Retrieve a session.",
            result=_RECORD,
            session="own",
        ),
        _write(
            name="sessions.update",
            path=_SESSION,
            summary="Update a session's title or metadata.",
            params=UpdateSession,
            result=_RECORD,
            existence="session",
        ),
        _delete(
            name="sessions.delete",
            path=_SESSION,
            summary="Delete a session and its tokens.",
            scope="write",
            special=_ID,
            result=DELETED,
            lane="slow",
        ),
        _write(
            name="sessions.archive",
            path=f"{_SESSION}/archive",
            summary="End a session and revoke its tokens.",
            result=_RECORD,
            retry="safe",
        ),
        RESOURCES,
        _read(
            name="sessions.resource",
            path=f"{_SESSION}/resources/{{rid}}",
            summary="Retrieve an attached store.",
            special={**_ID, "memory_store_id": Param(wire="rid")},
            result=record_form(Resource),
            session="own",
        ),
        _write(
            name="sessions.create_token",
            path=_TOKENS,
            summary="Create a session token; its secret is in this answer alone.",
            params=CreateToken,
            optional=True,
            result=_TOKEN_FORM,
            existence="session",
        ),
        _read(
            name="sessions.list_tokens",
            path=_TOKENS,
            summary="List a session's tokens, without their secrets.",
            result=list_form(SessionToken, next_page=None),
            existence="session",
            lane="slow",
        ),
        _delete(
            name="sessions.revoke_token",
            path=_TOKEN,
            summary="Revoke a session token at once.",
            scope="write",
            special={**_ID, "id": Param(wire="tid")},
            result=_TOKEN_FORM,
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
            name="keys.create",
            path=_KEYS,
            summary="Create a key; its secret is in this answer alone.",
            scope="admin",
            params=CreateKey,
            special={"scope": Param(decode=_scope)},
            result=_KEY,
            lane="slow",
        ),
        _get(
            name="keys.list",
            path=_KEYS,
            summary="List keys, without their secrets.",
            scope="admin",
            result=list_form(ApiKey, next_page=None),
            lane="slow",
        ),
        _delete(
            name="keys.revoke",
            path=f"{_KEYS}/{{id}}",
            summary="Revoke a key.",
            scope="admin",
            result=_KEY,
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
            name=f"{facade}.create",
            path=path,
            summary=f"Create an {noun}{', version 1' if versions else ''}.",
            body="body",
            result=form,
        ),
        _get(
            name=f"{facade}.list",
            path=path,
            summary=f"List {noun}s, newest first.",
            special=created_at,
            result=form,
            paged=True,
            lane="slow",
        ),
        _get(
            name=f"{facade}.retrieve",
            path=one,
            summary=f"Retrieve an {noun}{as_of}.",
            result=form,
            existence=noun if versions else None,
        ),
        _post(
            name=f"{facade}.update",
            path=one,
            summary=f"Update an {noun}{': its next version' if versions else ''}.",
            body="body",
            result=form,
            existence=noun,
        ),
        _post(
            name=f"{facade}.archive",
            path=f"{one}/archive",
            summary=f"Archive an {noun}.",
            result=form,
            retry="safe",
        ),
    )


AGENTS: Final = OperationTable(
    facade=Agents,
    paging_last=False,
    operations=(
        *_objects("agents", _AGENTS, "agent", versions=True),
        _get(
            name="agents.versions",
            path=f"{_AGENTS}/{{id}}/versions",
            summary="List an agent's versions, newest first.",
            result=WireForm(_same, _same),
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
