"""The memories that one host reaches: of a user, of an agent, and a store.

A store that is named but does not exist is created by the first write to it.
"""

from typing import Final, Literal

from msgspec import Struct

from holdfast import LongTermMemory
from holdfast.ground.errors import NotFound
from holdfast.library.bridges import NamedStore
from holdfast.library.holdfast import Holdfast

Profile = Literal["standard", "full", "files", "graph"]
NOTES: Final = "Notes"
GRAPH: Final = "Knowledge graph"


class Owners(Struct, frozen=True, kw_only=True):
    """The owners and the profile that a host was configured with."""

    user: str | None = None
    agent: str | None = None
    store: str | None = None
    profile: Profile = "standard"
    read_only: bool = False

    @property
    def nobody(self) -> bool:
        """Whether no memory is named."""
        return self.user is None and self.agent is None and self.store is None


class HostMemories:
    """What one host may read and write, through one handle.

    *enabled* enables long-term memory; with None HOLDFAST_LTM_ENABLED does.
    """

    def __init__(self, hf: Holdfast, owners: Owners, *, enabled: bool | None = True) -> None:
        # What a host writes comes from a model.
        self.hf = hf = hf.for_tier("assistant")
        self.owners = owners
        self.longterm = self._longterm(enabled=enabled)
        self.durable = hf.durable(owners.agent) if owners.agent is not None else None
        self.store = (
            NamedStore(hf.memory_stores, owners.store) if owners.store is not None else None
        )

    def store_id(self) -> str | None:
        """Return the store's id; None if it does not exist, or no longer."""
        if self.store is None:
            return None
        try:
            id = self.store.id()
            return None if id is None else self.hf.memory_stores.retrieve(id).id
        except NotFound as error:
            return self.store.id() if self.store.forget_missing(error) else None

    @property
    def disabled(self) -> bool:
        """Whether the user's long-term memory is disabled here."""
        return self.owners.user is not None and self.longterm is None

    def _longterm(self, *, enabled: bool | None) -> "LongTermMemory | None":
        if self.owners.user is None or self.owners.profile in {"files", "graph"}:
            return None
        return self.hf.longterm(self.owners.user, enabled=enabled)
