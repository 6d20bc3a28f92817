"""Who asks, and the handles that act in their name."""

from msgspec import Struct

from holdfast.engines.async_writes import awaited_writes
from holdfast.ground.scope import Actor
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import KeyScope

MOST_KEPT = 1_024
"""Visitors whose handles are kept; past that all are let go and made anew."""


class Visitor(Struct, frozen=True):
    """Who a request is by, and how far it reaches."""

    actor: Actor
    scope: KeyScope
    workspace: str
    agent: str | None = None
    user: str | None = None
    session_id: str | None = None
    keyed: bool = True

    @property
    def bound(self) -> bool:
        """Whether it reaches one agent's or one user's memory and nothing else."""
        return self.agent is not None or self.user is not None


class LibraryHandles(Struct, frozen=True):
    """The library in a visitor's name: `plain` waits, `awaited` gives back what to await."""

    plain: Holdfast
    awaited: Holdfast


class HandleShelf:
    """Handles by visitor, since most requests are by one who was here before."""

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self._kept: dict[Visitor, LibraryHandles] = {}

    def of(self, visitor: Visitor) -> LibraryHandles:
        """Return the handles that act in the name of *visitor*."""
        handles = self._kept.get(visitor)
        if handles is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept = {}
            handles = self._kept[visitor] = self._made(visitor)
        return handles

    def _made(self, visitor: Visitor) -> LibraryHandles:
        plain = self._hf.acting(
            workspace=visitor.workspace, actor=visitor.actor, session_id=visitor.session_id
        )
        awaited = self._hf.acting(
            workspace=visitor.workspace,
            actor=visitor.actor,
            session_id=visitor.session_id,
            through=awaited_writes,
        )
        return LibraryHandles(plain, awaited)
