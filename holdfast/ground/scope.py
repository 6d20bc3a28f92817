"""Scope of a statement (workspace, agent, user) and actor of a change."""

import hmac
import re
from typing import Literal

from msgspec import Struct

from holdfast.ground.errors import InvalidInput

ActorKind = Literal["session", "api", "user", "service_account", "agent"]
ActorType = Literal[
    "session_actor", "api_actor", "user_actor", "service_account_actor", "agent_actor"
]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")
_ID_KEYS: dict[ActorKind, str] = {
    "session": "session_id",
    "api": "api_key_id",
    "user": "user_id",
    "service_account": "service_account_id",
    "agent": "agent_id",
}
_TYPES: dict[ActorKind, ActorType] = {
    "session": "session_actor",
    "api": "api_actor",
    "user": "user_actor",
    "service_account": "service_account_actor",
    "agent": "agent_actor",
}
_KINDS: dict[str, ActorKind] = {type: kind for kind, type in _TYPES.items()}


class Actor(Struct, frozen=True):
    """Author of a change: its kind and id."""

    kind: ActorKind
    id: str

    @property
    def type(self) -> ActorType:
        """Its type on the wire, `<kind>_actor`."""
        return _TYPES[self.kind]

    @classmethod
    def session(cls, session_id: str) -> "Actor":
        """Return the session *session_id* as an actor."""
        return cls("session", session_id)

    @classmethod
    def api(cls, api_key_id: str) -> "Actor":
        """Return the holder of the API key *api_key_id* as an actor."""
        return cls("api", api_key_id)

    @classmethod
    def user(cls, user_id: str) -> "Actor":
        """Return the person *user_id* as an actor."""
        return cls("user", user_id)

    @classmethod
    def service_account(cls, service_account_id: str) -> "Actor":
        """Return the service account *service_account_id* as an actor."""
        return cls("service_account", service_account_id)

    @classmethod
    def agent(cls, agent_id: str) -> "Actor":
        """Return the agent *agent_id* as an actor."""
        return cls("agent", agent_id)

    def to_wire(self) -> dict[str, str]:
        """Return `{"type": "<kind>_actor", "<kind's id key>": id}`."""
        return {"type": self.type, _ID_KEYS[self.kind]: self.id}

    @classmethod
    def from_wire(cls, wire: dict[str, str]) -> "Actor":
        """Return the actor that `to_wire` encoded as *wire*."""
        kind = _KINDS[wire["type"]]
        return cls(kind, wire[_ID_KEYS[kind]])


def checked_actor(given: Actor) -> Actor:
    """Return *given* if a handle may act as it; InvalidInput for an agent.

    An agent acts through its sessions and runs.
    """
    if given.kind == "agent":
        raise InvalidInput(
            "actor",
            "must not be an agent",
            given=given.id,
            next="Open the handle as a user or a service account, or act through a session.",
        )
    return given


LOCAL = Actor.api("apikey_local")
"""Actor where no key was created: the embedded library, an open server."""


class Scope(Struct, frozen=True, kw_only=True):
    """Owners of the rows that a statement may read and write.

    None matches rows without such an owner, `*` those of every owner (upkeep only). `credential`
    is the hash of a secret with an owner still unknown: it admits that one row of the keys and
    session tokens.
    """

    workspace: str
    agent: str | None = None
    user: str | None = None
    credential: str | None = None


class WriteSubject(Struct, frozen=True, kw_only=True):
    """The person about whom a handle writes, with whom its writes are erased.

    Once the person was erased after `since`, in microseconds since 1970, they are refused.
    """

    user: str
    since: int | None = None

    def outlived(self, erased_at: int | None) -> bool:
        """Return whether an erasure at *erased_at*, None for none, came after `since`."""
        return erased_at is not None and self.since is not None and erased_at >= self.since


def user_hash(secret: bytes, user: str) -> bytes:
    """Return the hash of a forgotten user's name: 32 bytes of HMAC-SHA256."""
    return hmac.digest(secret, f"user\0{user}".encode(), "sha256")


EVERYBODY = Scope(workspace="*", agent="*", user="*")
"""The scope of upkeep that spans owners."""


def checked_name(field: str, given: object) -> str:
    """Return *given* if it can name a workspace, agent, user or run.

    Raises InvalidInput otherwise.
    """
    if not isinstance(given, str) or not _NAME.fullmatch(given):
        raise InvalidInput(
            field,
            "must be 1 to 128 of the characters A-Z a-z 0-9 . _ : @ + - and start with a letter"
            " or digit",
            limit=128,
            given=given,
            next="Choose such a name.",
        )
    return given
