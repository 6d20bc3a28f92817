"""What was forgotten: a keyed hash of its key, when, and by whom; never the key."""

import hmac
import secrets
from typing import Final

from msgspec import Struct

SECRET_BYTES: Final = 32

_AGENT = "\0agent\0"
"""Before an agent's name where that is hashed: no key begins like this."""


class Tombstone(Struct, frozen=True, kw_only=True):
    """That a key was forgotten."""

    key_hash: bytes
    agent: str
    seq: int
    at: int
    actor: str


def new_secret() -> bytes:
    """Return a random key for the hashes of a workspace."""
    return secrets.token_bytes(SECRET_BYTES)


def key_hash(secret: bytes, key: str) -> bytes:
    """Return HMAC-SHA256 of *key* with the workspace's random *secret*."""
    return hmac.digest(secret, key.encode(), "sha256")


def agent_hash(secret: bytes, agent: str) -> bytes:
    """Return what is kept of the name of an agent that was forgotten."""
    return key_hash(secret, _AGENT + agent)
