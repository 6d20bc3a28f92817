"""Durable memory: what one agent knows between runs."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec import UNSET, UnsetType

from holdfast.ground.pages import Page
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.codes import coded
from holdfast.memories.durable.entry import DurableEntry, EntryScope, StoredEntry
from holdfast.memories.durable.forgetting import forget
from holdfast.memories.durable.hydrating import Hydration, hydrate
from holdfast.memories.durable.reading import Filters, get, list_entries
from holdfast.memories.durable.setting import set_one


class DurableMemory:
    """What one agent remembers between runs, by key.

    >>> import holdfast
    >>> durable = holdfast.open(":memory:").durable("agent_7")
    >>> durable.set("deploy_target", "fly.io", category="core").content
    'fly.io'
    >>> durable.get("owner") is None
    True
    """

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def set(
        self,
        key: str,
        content: str,
        *,
        category: str,
        tags: Iterable[str] = (),
        refresh: bool = True,
        expected_seq: int | UnsetType | None = UNSET,
        idempotency_key: str | None = None,
    ) -> StoredEntry:
        """Write the whole entry under *key*, replacing what was there."""
        with coded():
            return set_one(
                self._caller, key, content, category, tags, refresh=refresh, expected=expected_seq
            )

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        with coded():
            return get(self._caller, key)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; True when something was removed."""
        with coded():
            return forget(self._caller, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees at a run's start."""
        with coded():
            return hydrate(self._caller, budget)
