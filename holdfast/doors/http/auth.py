"""Authenticate requests: keys, session tokens, open servers."""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, TypedDict
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.doors.http.request import CallExecutor, RouteMatch, Visitor
from holdfast.doors.http.response import MisdirectedRequest
from holdfast.ground.clock import from_microseconds
from holdfast.ground.errors import (
    InvalidInput,
    NotAuthenticated,
    NotPermitted,
    ScopeDenied,
    shortened,
)
from holdfast.ground.scope import LOCAL, Actor, checked_name
from holdfast.ground.trust import WriterTier, checked_tier
from holdfast.ground.validation import checked_moment
from holdfast.memories.stores.credentials import TOKEN_PREFIX, Credential, Credentials
from holdfast.memories.stores.records import KeyScope

WORKSPACE, WORKSPACE_ALIAS = b"anthropic-workspace-id", b"holdfast-workspace"
SUBJECT = b"holdfast-subject"
"""Header with the person to whom the entries and versions that a request writes are linked."""
SINCE = b"holdfast-since"
"""Header with the time since which a request's work about that person goes on, as of `/api/me`."""
TIER = b"holdfast-tier"
"""Header with the tier of what a request writes to stores and durable memory."""

_LATEST: Final = 2**62

_SHARE = "What agents share is kept in the category workspace."

_RANK: dict[KeyScope, int] = {"read": 0, "write": 1, "admin": 2}


LOOPBACK_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})

_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\s:/@\[\]]+)(?::[0-9]*)?")
_ORIGIN = re.compile(r"(https?)://(\[[0-9a-f:.]+\]|[^\s:/?#@*\[\]]+)(?::([0-9]+))?")
_DEFAULT_PORTS = {"http": "80", "https": "443"}


class HostPolicy(Struct, frozen=True, kw_only=True):
    """The `Host` and `Origin` that requests may have.

    *hosts* are names without a port; None allows any `Host`. *origins* are allowed besides those
    with a host of *hosts*. *public_url* is the address at which other machines reach the server.
    """

    hosts: frozenset[str] | None = LOOPBACK_HOSTS
    origins: frozenset[str] = frozenset()
    public_url: str | None = None

    def check(self, headers: Iterable[tuple[bytes, bytes]], *, origin: bool = True) -> None:
        """Check the `Host` of a request, and its `Origin` unless *origin* is False.

        Raise MisdirectedRequest for a foreign `Host`, NotPermitted for a foreign `Origin`.
        A page on a name that was pointed at this machine sends that name as both, so that an
        `Origin` equal to the `Host` proves nothing.
        """
        hosts: list[str] = []
        origins: list[str] = []
        for name, value in headers:
            if name == b"host":
                hosts.append(value.decode("latin-1"))
            elif name == b"origin" and origin:
                origins.append(value.decode("latin-1"))
        if self.hosts is not None:
            found = _HOST.fullmatch(hosts[0].lower()) if len(hosts) == 1 else None
            if found is None or found[1] not in self.hosts:
                raise MisdirectedRequest(", ".join(hosts), sorted(self.hosts))
        if not all(map(self._allows, origins)):
            raise NotPermitted(
                "A page of another site sent this request.",
                needed="an allowed origin",
                next="Start the server with --allow-origin to allow the pages of that site.",
            )

    def _allows(self, origin: str) -> bool:
        found = _ORIGIN.fullmatch(origin.lower())
        if found is None:
            return False
        return found[2] in (self.hosts or ()) or _origin(found) in self.origins


def is_loopback(host: str) -> bool:
    """Return whether *host* is reachable from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def host_policy(
    host: str, *, public_url: str | None = None, allow_origins: Iterable[str] = ()
) -> HostPolicy:
    """Return the policy of a server bound to *host*.

    *public_url* is the address at which other machines reach it. Raise InvalidInput for an option
    that is not an origin.
    """
    hosts = LOOPBACK_HOSTS | {f"[{host}]" if ":" in host else host} if is_loopback(host) else None
    origins = {_origin_of("allow_origin", each) for each in allow_origins}
    if public_url is not None:
        parts = urlsplit(public_url)
        origins.add(_origin_of("public_url", f"{parts.scheme}://{parts.netloc}"))
    return HostPolicy(hosts=hosts, origins=frozenset(origins), public_url=public_url)


def _origin_of(field: str, given: str) -> str:
    found = _ORIGIN.fullmatch(given.removesuffix("/").lower())
    if found is None:
        raise InvalidInput(
            field, "must be a scheme and a host", given=given, next="Such as https://host:8443."
        )
    return _origin(found)


def _origin(found: re.Match[str]) -> str:
    """Return an origin with its port, which is the scheme's unless it is given."""
    scheme, host, port = found.groups()
    return f"{scheme}://{host}:{port or _DEFAULT_PORTS[scheme]}"


class Gate:
    """Authentication of requests.

    With *loopback* no credential is required until the first key is created.
    """

    def __init__(self, credentials: Credentials, executor: CallExecutor, *, loopback: bool) -> None:
        self._credentials, self._executor, self._loopback = credentials, executor, loopback

    def open(self) -> bool:
        """Return whether requests need no credential."""
        return self._loopback and not self._credentials.any_key()

    async def admit(self, headers: Mapping[bytes, bytes]) -> Visitor:
        """Return the visitor that sent *headers*.

        Raise NotAuthenticated for a credential that is missing or not valid, ScopeDenied if a
        header names another workspace than the credential's.
        """
        secret = secret_of(headers)
        token = secret is not None and secret.startswith(TOKEN_PREFIX)

        def look() -> Credential | None:
            # First the key: another process may just have created it, and closed this server.
            found = self._credentials.find(secret) if secret else None
            if found is None and (token or not self.open()):
                raise NotAuthenticated
            return found

        credential = await self._executor.quick(look)
        requested, stated = _workspaces_of(headers), _statements_of(headers)
        if credential is None:
            workspace = _chosen(requested) if requested else "default"
            return Visitor(LOCAL, "admin", workspace, keyed=False, **stated)
        if any(each != credential.workspace for each in requested.values()):
            raise ScopeDenied(
                "The credential is of another workspace.",
                needed="workspace",
                next="Leave the workspace header out, or send a key of that workspace.",
            )
        return _visitor(credential, stated)


def _visitor(credential: Credential, stated: "_Statements") -> Visitor:
    if credential.user is not None and stated["subject"] not in (None, credential.user):
        raise ScopeDenied(
            "The credential is of another user.",
            needed="the user of the key",
            next=f"Leave the header {SUBJECT.decode()} out.",
        )
    session_id = credential.session_id
    return Visitor(
        Actor.api(credential.id) if session_id is None else Actor.session(session_id),
        credential.scope,
        credential.workspace,
        credential.agent,
        credential.user,
        session_id,
        key=credential.name,
        **stated,
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


class _Statements(TypedDict):
    """What a request states about its writes."""

    subject: str | None
    since: datetime | None
    tier: WriterTier | None


def _statements_of(headers: Mapping[bytes, bytes]) -> _Statements:
    """Return the person and tier in *headers*; InvalidInput for invalid ones."""
    subject, since, tier = headers.get(SUBJECT), headers.get(SINCE), headers.get(TIER)
    return {
        "subject": checked_name(SUBJECT.decode(), subject.decode("latin-1")) if subject else None,
        "since": _since(since) if since else None,
        "tier": checked_tier(tier.decode("latin-1")) if tier else None,
    }


def _since(given: bytes) -> datetime:
    # It is the server's time, which lies ahead of its clock only if that was set back.
    text = given.decode("latin-1")
    return from_microseconds(checked_moment(SINCE.decode(), text, now=_LATEST))


def _chosen(requested: Mapping[str, str]) -> str:
    """Return the workspace that the headers name; raise InvalidInput if they name two."""
    names = [checked_name(header, name) for header, name in requested.items()]
    if len(set(names)) > 1:
        raise InvalidInput(WORKSPACE_ALIAS.decode(), f"names another than {WORKSPACE.decode()}")
    return names[0]


def demand_right(visitor: Visitor, found: RouteMatch) -> None:
    """Raise NotPermitted unless *visitor* may use the route that was *found*."""
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
    if (visitor.agent, visitor.user) != (None, None) and not _bound_to(visitor, found):
        raise ScopeDenied(
            "This key is bound to one agent's or one user's memory.",
            needed=f"a key of scope {route.needs} that is not bound",
            next=_SHARE if route.durable else "For memory stores, use a session token.",
        )
    if route.needs != "nothing":
        demand_scope(visitor, route.needs)


def demand_scope(visitor: Visitor, needed: KeyScope) -> None:
    """Raise NotPermitted unless *visitor*'s scope includes *needed*."""
    if _RANK[visitor.scope] < _RANK[needed]:
        raise NotPermitted(
            f"This needs a key of scope {needed}; yours is {visitor.scope}.",
            needed=needed,
            next="Use another key, or request one from the administrator of the server.",
        )


def _bound_to(visitor: Visitor, found: RouteMatch) -> bool:
    """Return whether the path names the agent or user of *visitor*'s bound key."""
    if found.route.bound == "named":
        return visitor.user is not None
    owners = {"agent": visitor.agent, "user": visitor.user}
    owner = owners.get(found.route.bound)
    return owner is not None and found.segments[found.route.bound] == owner


BETAS = frozenset({"agent-memory-2026-07-22", "managed-agents-2026-04-01"})
"""Either one gives access to the store routes; both together do not."""
DREAMING = "dreaming-2026-04-21"
"""Gives access to dreams."""


def demand_strictness(headers: Iterable[tuple[bytes, bytes]], path: str) -> None:
    """Raise InvalidInput when a request to *path* lacks what a strict server requires."""
    versions = [value for name, value in headers if name == b"anthropic-version" and value]
    if not versions:
        raise InvalidInput(
            "anthropic-version", "is required", next="Send the header, such as 2023-06-01."
        )
    if path.startswith("/v1/memory_stores"):
        _demand_one_beta(headers)
    elif path.startswith("/v1/dreams") and DREAMING not in _betas(headers):
        next = f"Send the header with {DREAMING}."
        raise InvalidInput("anthropic-beta", f"must name {DREAMING}", next=next)


def _betas(headers: Iterable[tuple[bytes, bytes]]) -> set[str]:
    return {
        beta.strip()
        for name, value in headers
        if name == b"anthropic-beta"
        for beta in value.decode("latin-1").split(",")
        if beta.strip()
    }


def _demand_one_beta(headers: Iterable[tuple[bytes, bytes]]) -> None:
    given = _betas(headers)
    advice = f"Send exactly one of {' and '.join(sorted(BETAS))}."
    if unknown := sorted(given - BETAS):
        raise InvalidInput("anthropic-beta", f"{shortened(unknown[0])} is not known", next=advice)
    if len(given) != 1:
        raise InvalidInput("anthropic-beta", "must name one beta", next=advice)
