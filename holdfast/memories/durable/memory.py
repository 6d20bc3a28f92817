"""Durable memory: what one agent knows between runs."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec import UNSET, UnsetType

from holdfast.ground.pages import Page
from holdfast.memories.durable.caller import Caller
from holdfast.memories.durable.codes import coded
from holdfast.memories.durable.entry import DurableEntry, EntryScope, StoredEntry
from holdfast.memories.durable.forgetting import forget
from holdfast.memories.durable.hydrating import Hydration, hydrate
from holdfast.memories.durable.reading import Filters, get, list_entries
from holdfast.memories.durable.run import DurableRun
from holdfast.memories.durable.runs import begin
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
        self.caller = caller

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
                self.caller, key, content, category, tags, refresh=refresh, expected=expected_seq
            )

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        with coded():
            return get(self.caller, key)

    def list(
        self,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: datetime | timedelta | None = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int | None = None,
        page: str | None = None,
    ) -> Page[DurableEntry]:
        """Return the entries that pass all filters, newest first, shadowed ones included."""
        filters = Filters(
            category=category,
            tags=tuple(tags or ()),
            since=since,
            key_prefix=key_prefix,
            query=query,
        )
        with coded():
            return list_entries(self.caller, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; True when something was removed."""
        with coded():
            return forget(self.caller, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent sees at a run's start."""
        with coded():
            return hydrate(self.caller, budget)

    def run(
        self,
        run_id: str | None = None,
        *,
        lane: str = "main",
        budget: int | None = None,
        resume: bool = False,
    ) -> DurableRun:
        """Open a run, which supersedes the one that was open in its lane, and hydrate it."""
        with coded():
            return DurableRun(
                begin(self.caller, run_id, lane=lane, budget=budget, resume=resume)
            )
