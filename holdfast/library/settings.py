"""Settings of a handle: target, credential, cache budget."""

from msgspec import Struct

from holdfast.memories.longterm.cache_budget import CACHE_BYTES


class HandleTarget(Struct, frozen=True, kw_only=True):
    """A target as `holdfast.open` takes it, the credential of a server, and the room for caches.

    With *trace_content* spans tell texts.
    """

    target: str
    api_key: str | None = None
    trace_content: bool = False
    cache_bytes: int = CACHE_BYTES

    @property
    def shown(self) -> str:
        """The target for a message: a URL without the password and the parameters."""
        if "://" not in self.target:
            return self.target
        scheme, _, rest = self.target.partition("://")
        address = rest.partition("?")[0]
        user, at, host = address.rpartition("@")
        return f"{scheme}://{user.partition(':')[0]}{at}{host}"

    def __repr__(self) -> str:
        """Show neither: a target may hold a password."""
        return "Opened(…)"


def location(opened: HandleTarget | None, workspace: str) -> str:
    """Return where a handle looks, for a message: its target, and a workspace of a name."""
    where = opened.shown if opened else "the database"
    return where if workspace == "default" else f"{where}, workspace {workspace}"
