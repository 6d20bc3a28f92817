"""Routes of the tokens by which a worker or a mount writes as a session."""

from holdfast.doors.http.call import Call, session_there
from holdfast.doors.http.params import Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_page, of_record
from holdfast.ground.pages import Page

TOKENS = "/api/sessions/{id}/tokens"


class CreateToken(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lifetime of a token in seconds; null: as long as its session."""

    expires_in: float | None = None


async def create(call: Call) -> Response:
    """Create a token; its secret is in this response only."""
    body = call.body(CreateToken) if call.raw.strip() else CreateToken()
    return of_record(
        await call.write(
            lambda hf: hf.sessions.create_token(call["id"], expires_in=body.expires_in)
        )
    )


async def list_all(call: Call) -> Response:
    """List a session's valid tokens."""
    return await call.slow(lambda hf: of_page(Page(hf.sessions.list_tokens(call["id"]))))


async def revoke(call: Call) -> Response:
    """Revoke a token."""
    return of_record(
        await call.write(lambda hf: hf.sessions.revoke_token(call["tid"], session_id=call["id"]))
    )


TOKEN_ROUTES = (
    HttpRoute(
        method="POST",
        path=TOKENS,
        needs="write",
        answer=create,
        body=CreateToken,
        behind=session_there,
        summary="Create a session token; its secret is in this answer alone.",
    ),
    HttpRoute(
        method="GET",
        path=TOKENS,
        needs="read",
        answer=list_all,
        behind=session_there,
        summary="List a session's tokens, without their secrets.",
    ),
    HttpRoute(
        method="DELETE",
        path=f"{TOKENS}/{{tid}}",
        needs="write",
        answer=revoke,
        behind=session_there,
        summary="Revoke a session token at once.",
    ),
)
