"""Settings of a handle: target, credential, cache budget."""

from typing import Final

from msgspec import Struct

from holdfast.memories.longterm.cache_budget import CACHE_BYTES

EXTRACTOR_VARIABLE: Final = "HOLDFAST_LTM_EXTRACTOR"
"""Variable that names the extractor of collections without one of their own."""
BUDGET_VARIABLE: Final = "HOLDFAST_LTM_EXTRACTOR_BUDGET"
"""Variable for the tokens that mining may use a day in a workspace."""


class HandleTarget(Struct, frozen=True, kw_only=True):
    """Target of `holdfast.open`, with the server's credential and the cache budget.

    With *trace_content* spans record texts. `cache_bytes` bounds the caches, in bytes.
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
        """Show no field: a target may hold a password."""
        return "Opened(…)"


def location(opened: HandleTarget | None, workspace: str) -> str:
    """Return the location of a handle, for a message.

    It is the target, and the workspace unless that is the default.
    """
    where = opened.shown if opened else "the database"
    return where if workspace == "default" else f"{where}, workspace {workspace}"
