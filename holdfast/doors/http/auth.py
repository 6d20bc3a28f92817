"""Who may come in, and where to: credentials, workspaces, scopes, and what a session may ask."""

from collections.abc import Mapping

from holdfast.doors.http.lanes import Lanes
from holdfast.doors.http.routes import Found
from holdfast.doors.http.visitor import Visitor
from holdfast.ground.errors import InvalidInput, NotAuthenticated, NotPermitted, ScopeDenied
from holdfast.ground.scope import LOCAL, Actor, checked_name
from holdfast.memories.stores.credentials import Credential, Credentials
from holdfast.memories.stores.records import KeyScope
from holdfast.memories.stores.session_tokens import TOKEN_PREFIX

WORKSPACE, WORKSPACE_ALIAS = b"anthropic-workspace-id", b"holdfast-workspace"

_SHARE = "What agents share is kept in the category workspace."

_RANK: dict[KeyScope, int] = {"read": 0, "write": 1, "admin": 2}


class Gate:
    """Tells who a request is by.

    With *loopback* the server is open until somebody makes the first key.
    """

    def __init__(self, credentials: Credentials, lanes: Lanes, *, loopback: bool) -> None:
        self._credentials, self._lanes, self._loopback = credentials, lanes, loopback

    def open(self) -> bool:
        """Tell whether everybody comes in."""
        return self._loopback and not self._credentials.any_key()

    async def admit(self, headers: Mapping[bytes, bytes]) -> Visitor:
        """Return who sent *headers*.

        NotAuthenticated for a credential that is missing or opens nothing, ScopeDenied when a
        header names another workspace than the credential's.
        """
        secret = secret_of(headers)
        token = secret is not None and secret.startswith(TOKEN_PREFIX)

        def look() -> Credential | None:
            if not token and self.open():
                return None
            found = self._credentials.find(secret) if secret else None
            if found is None:
                raise NotAuthenticated
            return found

        credential = await self._lanes.quick(look)
        wanted = _workspaces_of(headers)
        if credential is None:
            _refuse_pages(headers)
            return Visitor(LOCAL, "admin", _chosen(wanted), keyed=False)
        if any(each != credential.workspace for each in wanted.values()):
            raise ScopeDenied(
                "The credential is of another workspace.",
                needed="workspace",
                next="Leave the workspace header out, or send a key of that workspace.",
            )
        return _visitor(credential)


def _visitor(credential: Credential) -> Visitor:
    session_id = credential.session_id
    return Visitor(
        Actor.api(credential.id) if session_id is None else Actor.session(session_id),
        credential.scope,
        credential.workspace,
        credential.agent,
        credential.user,
        session_id,
    )


def secret_of(headers: Mapping[bytes, bytes]) -> str | None:
    """Return the credential in *headers*: of two a session token, else `x-api-key`."""
    key = headers.get(b"x-api-key", b"").strip().decode("latin-1")
    kind, _, bearer = headers.get(b"authorization", b"").strip().partition(b" ")
    token = bearer.strip().decode("latin-1") if kind.lower() == b"bearer" else ""
    if token.startswith(TOKEN_PREFIX) and not key.startswith(TOKEN_PREFIX):
        return token
    return key or token or None


def _workspaces_of(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the workspace that each header names, by the header."""
    return {
        name.decode(): headers[name].decode("latin-1")
        for name in (WORKSPACE, WORKSPACE_ALIAS)
        if headers.get(name)
    }


def _chosen(wanted: Mapping[str, str]) -> str:
    """Return the workspace that is wanted of an open server; InvalidInput when it is two."""
    names = [checked_name(header, name) for header, name in wanted.items()]
    if len(set(names)) > 1:
        raise InvalidInput(WORKSPACE_ALIAS.decode(), f"names another than {WORKSPACE.decode()}")
    return names[0] if names else "default"


def _refuse_pages(headers: Mapping[bytes, bytes]) -> None:
    """Raise NotPermitted when a web page from elsewhere asks.

    A browser sends what any page tells it to, and an open server would take it for its user.
    """
    origin = headers.get(b"origin")
    if origin is None:
        return
    host = origin.partition(b"://")[2]
    if host != headers.get(b"host"):
        raise NotPermitted(
            "A page of another site asks an open server.",
            needed="a key",
            next="Make a key, and send it.",
        )


def demand_right(visitor: Visitor, found: Found) -> None:
    """Raise NotPermitted unless *visitor* may ask for what was *found*."""
    route = found.route
    if route.needs == "any":
        return
    if visitor.session_id is not None:
        own = route.session == "own" and found.segments["id"] == visitor.session_id
        if not own and route.session != "store":
            raise NotPermitted(
                "A session token reaches its own session and the stores attached to it.",
                needed=f"a key of scope {route.needs}",
                next="Use an API key for this.",
            )
        return
    if visitor.bound and not _bound_to(visitor, found):
        raise ScopeDenied(
            "This key is bound to one agent's or one user's memory.",
            needed=f"a key of scope {route.needs} that is not bound",
            next=_SHARE if route.durable else "For memory stores, use a session token.",
        )
    if route.needs != "nothing":
        demand_scope(visitor, route.needs)


def demand_scope(visitor: Visitor, needed: KeyScope) -> None:
    """Raise NotPermitted unless *visitor*'s scope is *needed* or a greater one."""
    if _RANK[visitor.scope] < _RANK[needed]:
        raise NotPermitted(
            f"This needs a key of scope {needed}; yours is {visitor.scope}.",
            needed=needed,
            next="Use another key, or ask who administers the server for one.",
        )


def _bound_to(visitor: Visitor, found: Found) -> bool:
    """Tell whether the route is one of the agent's or user's that *visitor*'s key is bound to."""
    owners = {"agent": visitor.agent, "user": visitor.user}
    owner = owners.get(found.route.bound)
    return owner is not None and found.segments[found.route.bound] == owner
