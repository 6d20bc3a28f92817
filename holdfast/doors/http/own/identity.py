"""Routes for the identity of a client, API keys, and the tokens of sessions."""

from typing import Annotated, cast, get_args

from msgspec import Meta

from holdfast.doors.http.call import Call, session_there
from holdfast.doors.http.params import Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record
from holdfast.ground.errors import ScopeDenied
from holdfast.ground.pages import Page
from holdfast.memories.stores.records import Identity, KeyScope

TOKENS = "/api/sessions/{id}/tokens"
_Scope = Annotated[str, Meta(extra_json_schema={"enum": get_args(KeyScope)})]
"""Validated by the library: its message names the scopes, that of a conversion does not."""


class CreateKey(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fields of a new key."""

    name: str
    scope: _Scope | None = None
    workspace: str | None = None
    agent: str | None = None
    user: str | None = None


async def me(call: Call) -> Response:
    """Return the client's identity and scope."""
    visitor = call.visitor
    return of_record(
        Identity(
            actor=visitor.actor,
            scope=visitor.scope,
            workspace=visitor.workspace,
            agent=visitor.agent,
            user=visitor.user,
        )
    )


async def create_key(call: Call) -> Response:
    """Create a key; its secret is in this response only."""
    body, visitor = call.body(CreateKey), call.visitor
    scope = cast("KeyScope", "write" if body.scope is None else body.scope)
    if visitor.keyed and body.workspace not in {None, visitor.workspace}:
        raise ScopeDenied(
            "A key makes keys to its own workspace only.",
            needed="a key of that workspace",
            next="Leave workspace out.",
        )
    return of_record(
        await call.slow(
            lambda hf: hf.keys.create(body.name, scope, body.workspace, body.agent, body.user)
        )
    )


async def list_keys(call: Call) -> Response:
    """List the workspace's keys."""
    return await call.slow(lambda hf: of_page(Page(hf.keys.list())))


async def revoke_key(call: Call) -> Response:
    """Revoke a key."""
    return of_record(await call.slow(lambda hf: hf.keys.revoke(call["id"])))


class CreateToken(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lifetime of a token in seconds; null: as long as its session."""

    expires_in: float | None = None


async def create_token(call: Call) -> Response:
    """Create a token; its secret is in this response only."""
    body = call.body(CreateToken) if call.raw.strip() else CreateToken()
    return of_record(
        await call.write(
            lambda hf: hf.sessions.create_token(call["id"], expires_in=body.expires_in)
        )
    )


async def list_tokens(call: Call) -> Response:
    """List a session's valid tokens."""
    return await call.slow(lambda hf: of_page(Page(hf.sessions.list_tokens(call["id"]))))


async def revoke_token(call: Call) -> Response:
    """Revoke a token."""
    return of_record(
        await call.write(lambda hf: hf.sessions.revoke_token(call["tid"], session_id=call["id"]))
    )


ROUTES = (
    HttpRoute(
        method="GET",
        path="/api/me",
        needs="any",
        answer=me,
        session="store",
        summary="Retrieve the caller's identity and scope.",
    ),
    HttpRoute(
        method="POST",
        path="/api/keys",
        needs="admin",
        answer=create_key,
        body=CreateKey,
        summary="Create a key; its secret is in this answer alone.",
    ),
    HttpRoute(
        method="GET",
        path="/api/keys",
        needs="admin",
        answer=list_keys,
        summary="List keys, without their secrets.",
    ),
    HttpRoute(
        method="DELETE",
        path="/api/keys/{id}",
        needs="admin",
        answer=revoke_key,
        summary="Revoke a key.",
    ),
    HttpRoute(
        method="POST",
        path=TOKENS,
        needs="write",
        answer=create_token,
        body=CreateToken,
        behind=session_there,
        summary="Create a session token; its secret is in this answer alone.",
    ),
    HttpRoute(
        method="GET",
        path=TOKENS,
        needs="read",
        answer=list_tokens,
        behind=session_there,
        summary="List a session's tokens, without their secrets.",
    ),
    HttpRoute(
        method="DELETE",
        path=f"{TOKENS}/{{tid}}",
        needs="write",
        answer=revoke_token,
        behind=session_there,
        summary="Revoke a session token at once.",
    ),
)
