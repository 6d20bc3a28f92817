"""The hash chain over a store's versions: it proves their order and that none is missing.

`seal` covers a version's path and content under a random salt; `link` covers the previous link
and everything about the version that redaction keeps. Redaction takes path, content and salt,
so the chain stays whole and the seal tells nothing of what was in it.
"""

import json
from hashlib import sha256

from holdfast.ground.scope import Actor

SALT_BYTES = 32

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode


def first_link(store_id: str) -> bytes:
    """Return what the first version of a store links to."""
    return sha256(store_id.encode()).digest()


def content_seal(salt: bytes, path: str, content: bytes) -> bytes:
    """Return sha256(salt ‖ path ‖ 0 ‖ content); *content* is empty for a `deleted` version."""
    return sha256(salt + path.encode() + b"\0" + content).digest()


def next_link(
    previous: bytes,
    *,
    version_id: str,
    memory_id: str,
    operation: str,
    created_at: int,
    actor: Actor,
    seal: bytes,
) -> bytes:
    """Return the link of a version that follows *previous*.

    sha256(previous ‖ version id ‖ 0 ‖ memory id ‖ 0 ‖ operation ‖ 0 ‖ created_at ‖ 0 ‖ actor ‖
    0 ‖ seal), *created_at* in microseconds as decimal digits, *actor* as canonical JSON.
    """
    by = _canonical(actor.to_wire())
    said = "\0".join((version_id, memory_id, operation, str(created_at), by))
    return sha256(previous + said.encode() + b"\0" + seal).digest()
