"""What was forgotten: a keyed hash of its key, when, and by whom; never the key."""

import hmac

from msgspec import Struct


class Tombstone(Struct, frozen=True, kw_only=True):
    """That a key was forgotten."""

    seq: int
    at: int
    actor: str


def key_hash(secret: bytes, key: str) -> str:
    """Return HMAC-SHA256 of *key* with the workspace's random *secret*, as hex digits."""
    return hmac.digest(secret, key.encode(), "sha256").hex()
