"""How a handle was opened, for another process that is to reach the same."""

from msgspec import Struct

from holdfast.memories.longterm.room import CACHE_BYTES


class Opened(Struct, frozen=True, kw_only=True):
    """A target as `holdfast.open` takes it, the credential of a server, and the room for caches.

    With *trace_content* spans tell texts.
    """

    target: str
    api_key: str | None = None
    trace_content: bool = False
    cache_bytes: int = CACHE_BYTES

    def __repr__(self) -> str:
        """Show neither: a target may hold a password."""
        return "Opened(…)"
