"""How a handle was opened, for another process that is to reach the same."""

from msgspec import Struct

from holdfast.memories.longterm.room import CACHE_BYTES


class Opened(Struct, frozen=True, kw_only=True):
    """A target as `holdfast.open` takes it, the credential of a server, and the room for caches."""

    target: str
    api_key: str | None = None
    cache_bytes: int = CACHE_BYTES

    def __repr__(self) -> str:
        """Show neither: a target may hold a password."""
        return "Opened(…)"
