"""What crosses between a network's state and other memories: they know only what they ask for."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from holdfast.ground.errors import NotFound
from holdfast.memories.state.info import ValueInfo

E_co = TypeVar("E_co", covariant=True)

NAMESPACE = "shared:"
"""How the keys of a run's memory begin that its agents share."""


class DurableSource(Protocol):
    """What an agent remembers under a key."""

    @property
    def key(self) -> str:
        """Its key."""
        ...

    @property
    def content(self) -> str:
        """Its text."""
        ...


class Hydrated(Protocol):
    """What an agent remembers at a run's start, and what was left out."""

    @property
    def entries(self) -> Sequence[DurableSource]:
        """What there is."""
        ...

    @property
    def omitted(self) -> Sequence[object]:
        """What was left out."""
        ...


class Shares(Protocol[E_co]):
    """A memory that a value can be given to."""

    def set(self, key: str, value: object, /, *, source: str | None = None) -> E_co:
        """Write *value* under *key* as of *source*."""
        ...


def share(found: ValueInfo | None, key: str, memory: Shares[E_co], as_key: str | None) -> E_co:
    """Set the value *found* under *key* in *memory*, for all its agents; NotFound if it is None.

    Its source is the agent that wrote it, or `network`. It is shared under its own key unless
    *as_key* is given.
    """
    if found is None:
        raise NotFound("value", key, next="List the keys of the state.")
    name = (as_key or key).removeprefix(NAMESPACE)
    return memory.set(f"{NAMESPACE}{name}", found.value, source=found.source or "network")
