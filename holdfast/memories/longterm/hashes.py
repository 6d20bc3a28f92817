"""Keyed hashes of what must not be kept: terms, and what was said."""

import hmac
import secrets
from collections.abc import Iterable
from typing import Final

SECRET_BYTES: Final = 32
HASH_BYTES: Final = 8
MOST_TERMS: Final = 1_024
"""Terms of one text that are hashed: an item has not so many."""
ALIKE: Final = 0.6
"""The share of terms in common (Jaccard) from which on two texts are taken for the same."""


def new_secret() -> bytes:
    """Return a random key for the hashes of a workspace."""
    return secrets.token_bytes(SECRET_BYTES)


def hashed(secret: bytes, text: str) -> bytes:
    """Return 8 bytes of HMAC-SHA256 of *text* with *secret*."""
    return hmac.digest(secret, text.encode(), "sha256")[:HASH_BYTES]


def user_hash(secret: bytes, user: str) -> bytes:
    """Return what is kept of the name of a user who was forgotten: 32 bytes of HMAC-SHA256."""
    return hmac.digest(secret, f"user\0{user}".encode(), "sha256")


def terms_hash(secret: bytes, terms: Iterable[str]) -> bytes:
    """Return the hashes of the distinct *terms*, sorted, one after the other."""
    distinct = list(dict.fromkeys(terms))[:MOST_TERMS]
    return b"".join(sorted(hashed(secret, f"term\0{term}") for term in distinct))


def fingerprint(secret: bytes, role: str, speaker: str | None, text: str) -> bytes:
    """Return the hash by which a turn is known again."""
    return hashed(secret, "\0".join(("turn", role, speaker or "", text)))


def alike(one: bytes, other: bytes) -> bool:
    """Tell whether the terms that *one* and *other* are hashes of are mostly the same."""
    ours, theirs = split(one), split(other)
    union = len(ours | theirs)
    return bool(union) and len(ours & theirs) >= ALIKE * union


def split(hashes: bytes) -> frozenset[bytes]:
    """Return the distinct hashes that stand one after the other in *hashes*."""
    return frozenset(in_order(hashes))


def in_order(hashes: bytes) -> list[bytes]:
    """Return the hashes that stand one after the other in *hashes*."""
    return [hashes[start : start + HASH_BYTES] for start in range(0, len(hashes), HASH_BYTES)]
