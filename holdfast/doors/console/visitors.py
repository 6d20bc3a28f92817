"""Visitors of the console: sign-in, the cookie, rights, requests of other sites."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct

from holdfast.ground.clock import Clock
from holdfast.ground.errors import InvalidInput, NotPermitted, ScopeDenied
from holdfast.ground.scope import Actor, checked_name
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import KeyScope

T = TypeVar("T")

SIGN_IN: Final = "holdfast_session"
WORKSPACE: Final = "holdfast_workspace"
THEME: Final = "holdfast_theme"
Theme = Literal["system", "light", "dark"]
_RANK: Final[dict[KeyScope, int]] = {"read": 0, "write": 1, "admin": 2}


class Rights(Protocol):
    """The rights of a credential, as the server knows them."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def name(self) -> str | None: ...  # noqa: D102
    @property
    def scope(self) -> KeyScope: ...  # noqa: D102
    @property
    def workspace(self) -> str: ...  # noqa: D102
    @property
    def agent(self) -> str | None: ...  # noqa: D102
    @property
    def user(self) -> str | None: ...  # noqa: D102


class SignInTable(Protocol):
    """Sign-ins of the console, by the secret in a visitor's cookie."""

    def begin(self, key: str) -> str | None:
        """Sign in with an API key; return the cookie's secret, None if it is no key."""
        ...

    def find(self, secret: str) -> Rights | None:
        """Return the rights of the key signed in with; None once the sign-in is over."""
        ...

    def end(self, secret: str) -> None:
        """End the sign-in; a repeat changes nothing."""
        ...


class ConsoleServer(Protocol):
    """What the console needs of the server process that it is part of."""

    @property
    def clock(self) -> Clock: ...  # noqa: D102
    @property
    def stopping(self) -> asyncio.Event:
        """Set once the server stops; live pages end then."""
        ...

    @property
    def public_url(self) -> str | None:
        """The address at which other machines reach the server."""
        ...

    @property
    def sign_ins(self) -> SignInTable: ...  # noqa: D102

    @property
    def hf(self) -> Holdfast:
        """The handle that is served, of no particular visitor."""
        ...

    def is_open(self) -> bool:
        """Return whether requests need no credential."""
        ...

    def metrics_text(self) -> str:
        """Return all metrics, as `/metrics` shows them."""
        ...

    async def run(self, work: Callable[[], T]) -> T:
        """Return *work*(), run on a thread: it may wait or compute for long."""
        ...

    async def wait(self, work: Callable[[], T]) -> T:
        """Return *work*(), which waits for events, run on a thread for that purpose."""
        ...


class ConsoleVisitor(Struct, frozen=True, kw_only=True):
    """Who sent a request to the console, and what they may do."""

    name: str
    """The name of the key, or `Open server`."""
    actor: Actor
    scope: KeyScope
    workspace: str
    agent: str | None = None
    user: str | None = None
    key_id: str | None = None

    @property
    def bound(self) -> bool:
        """Whether the key reaches one agent or one person only."""
        return self.agent is not None or self.user is not None

    def may(self, needed: KeyScope) -> bool:
        """Return whether the scope includes *needed*."""
        return _RANK[self.scope] >= _RANK[needed]

    def demand(self, needed: KeyScope) -> None:
        """Raise NotPermitted unless the scope includes *needed*."""
        if not self.may(needed):
            raise NotPermitted(
                f"This needs a key of scope {needed}; yours is {self.scope}.",
                needed=needed,
                next="Sign in with another key.",
            )

    def demand_owner(self, bound: str, segments: Mapping[str, str]) -> None:
        """Raise ScopeDenied for a page that is not of the agent or person of a bound key."""
        if not self.bound or bound == "any":
            return
        owners = {"agent": self.agent, "user": self.user}
        owner = owners.get(bound)
        if owner is None or segments.get(bound, owner) != owner:
            raise ScopeDenied(
                "This key is bound to one agent's or one person's memory.",
                needed="a key that is not bound",
                next="Sign in with another key.",
            )


def visitor_of(rights: Rights) -> ConsoleVisitor:
    """Return the visitor that signed in with a key of these *rights*."""
    name = rights.name or rights.id
    return ConsoleVisitor(
        name=name,
        actor=Actor.user(f"user_{name}"),
        scope=rights.scope,
        workspace=rights.workspace,
        agent=rights.agent,
        user=rights.user,
        key_id=rights.id,
    )


def open_visitor(workspace: str) -> ConsoleVisitor:
    """Return the visitor of an open server, who may do everything."""
    return ConsoleVisitor(
        name="Open server", actor=Actor.user("user_console"), scope="admin", workspace=workspace
    )


def chosen_workspace(query: Mapping[str, str], cookies: Mapping[str, str]) -> str:
    """Return the workspace that the address selects, else the cookie, else `default`."""
    if given := query.get("workspace"):
        return checked_name("workspace", given)
    try:
        return checked_name("workspace", cookies.get(WORKSPACE, "default"))
    except InvalidInput:
        return "default"


def theme_of(cookies: Mapping[str, str]) -> Theme:
    """Return the theme that the visitor chose."""
    match cookies.get(THEME):
        case "light":
            return "light"
        case "dark":
            return "dark"
        case _:
            return "system"


def cookie(name: str, value: str, *, seconds: int | None, secure: bool) -> str:
    """Return a `Set-Cookie` header; *seconds* None ends it with the browser's session."""
    age = "" if seconds is None else f"; Max-Age={seconds}"
    return (
        f"{name}={value}; Path=/console; HttpOnly; SameSite=Lax{age}{'; Secure' if secure else ''}"
    )


def demand_same_site(headers: Mapping[str, str], public_url: str | None) -> None:
    """Raise NotPermitted for a form that a page of another site sent.

    Browsers say so in `Sec-Fetch-Site`; of one that does not, the `Origin` must be the server's.
    """
    site = headers.get("sec-fetch-site")
    if site is not None:
        allowed = site == "same-origin"
    else:
        origin = urlsplit(headers.get("origin", ""))
        hosts = {headers.get("host", "")}
        if public_url is not None:
            hosts.add(urlsplit(public_url).netloc)
        allowed = bool(origin.netloc) and origin.netloc in hosts
    if not allowed:
        raise NotPermitted(
            "The console acts on forms of its own pages only.",
            needed="a request from this site",
            next="Open the page of the console, and send its form.",
        )


def safe_next(given: str) -> str:
    """Return *given* if it leads to a page of the console, else `/console`."""
    parts = urlsplit(given)
    below = parts.path == "/console" or parts.path.startswith("/console/")
    if parts.scheme or parts.netloc or not below or "\\" in given or not given.isprintable():
        return "/console"
    return given
