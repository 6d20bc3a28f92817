"""What the keys of a network state may be."""

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded
from holdfast.memories.state.limits import StateLimits

RESERVED = "holdfast:"
"""How keys begin that the product keeps for itself."""


def checked_key(key: object, limits: StateLimits) -> str:
    """Return *key* if it is well formed; else InvalidInput."""
    told = encoded("key", key).decode()
    size = len(told.encode())
    if not 1 <= size <= limits.key_bytes:
        raise InvalidInput(
            "key",
            f"must have 1 to {limits.key_bytes:,} bytes of UTF-8, has {size:,}",
            limit=limits.key_bytes,
            given=told,
        )
    if any(char < " " or char == "\x7f" for char in told):
        raise InvalidInput("key", "must not hold control characters", given=told)
    if told.startswith(RESERVED):
        raise InvalidInput("key", f"must not begin with {RESERVED}", given=told)
    return told
