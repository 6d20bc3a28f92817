"""The memories that one host reaches: of a user, of an agent, and a store.

A store that is named but does not exist is created by the first write to it.
"""

import random
import threading
from time import sleep
from typing import Final, Literal

from msgspec import Struct

from holdfast import LongTermMemory
from holdfast.ground.errors import Conflict, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Store

Profile = Literal["standard", "full", "files", "graph"]
NOTES: Final = "Notes"
GRAPH: Final = "Knowledge graph"
_ID: Final = "memstore_"
_TRIES: Final = 20
_PAUSE: Final = 0.2
"""Seconds, at most, between two tries to create a store that others create at the same time."""


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


class StoreChoice:
    """A store by id, or by a name that the first write gives to a new store."""

    def __init__(self, hf: Holdfast, name: str) -> None:
        self._hf, self.name = hf, name
        self._lock = threading.Lock()
        self._id: str | None = None

    def id(self, *, create: bool = False) -> str | None:
        """Return the store's id; None if it does not exist and *create* is not set.

        Raise NotFound for an unknown id, Conflict for a name of several stores.
        """
        with self._lock:
            if self._id is None:
                self._id = self._found()
            if self._id is None and create:
                self._id = self._created()
            return self._id

    def forget_missing(self, error: NotFound) -> bool:
        """Look a named store up again after it was deleted; return whether that may help."""
        with self._lock:
            known, self._id = self._id, None
        return error.kind == "memory store" and known is not None and known != self.name

    def _found(self) -> str | None:
        if self.name.startswith(_ID):
            return self._hf.memory_stores.retrieve(self.name).id
        named = self._named()
        if len(named) > 1:
            raise Conflict(
                f"{len(named)} stores have the name {self.name}.",
                reason="ambiguous",
                next=f"Give an id: {', '.join(each.id for each in named)}.",
            )
        return named[0].id if named else None

    def _named(self) -> list[Store]:
        stores = self._hf.memory_stores.list(limit=100).all()
        return [each for each in stores if each.name == self.name]

    def _created(self) -> str:
        """Create the store; of several processes that do so at once, one succeeds.

        Each that sees another store of the name after creating its own deletes its own, which is
        empty, and looks again.
        """
        for _ in range(_TRIES):
            own = self._hf.memory_stores.create(name=self.name)
            if [each.id for each in self._named()] == [own.id]:
                return own.id
            self._hf.memory_stores.delete(own.id)
            sleep(random.uniform(0, _PAUSE))  # noqa: S311 - not for a secret
            if (found := self._found()) is not None:
                return found
        raise Conflict(f"The store {self.name} is created by others at this moment.", reason="busy")


class HostMemories:
    """What one host may read and write, through one handle.

    *enabled* enables long-term memory; with None HOLDFAST_LTM_ENABLED does.
    """

    def __init__(self, hf: Holdfast, owners: Owners, *, enabled: bool | None = True) -> None:
        self.hf, self.owners = hf, owners
        self.longterm = self._longterm(enabled=enabled)
        self.durable = hf.durable(owners.agent) if owners.agent is not None else None
        self.store = StoreChoice(hf, owners.store) if owners.store is not None else None

    @property
    def disabled(self) -> bool:
        """Whether the user's long-term memory is disabled here."""
        return self.owners.user is not None and self.longterm is None

    def _longterm(self, *, enabled: bool | None) -> "LongTermMemory | None":
        if self.owners.user is None or self.owners.profile in {"files", "graph"}:
            return None
        return self.hf.longterm(self.owners.user, enabled=enabled)
