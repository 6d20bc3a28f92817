"""How a handle was opened, for another process that is to reach the same."""

from msgspec import Struct


class Opened(Struct, frozen=True, kw_only=True):
    """A target as `holdfast.open` takes it, and the credential for it if it is a server.

    With *trace_content* spans tell texts.
    """

    target: str
    api_key: str | None = None
    trace_content: bool = False

    def __repr__(self) -> str:
        """Show neither: a target may hold a password."""
        return "Opened(…)"
