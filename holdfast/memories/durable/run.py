"""One run of an agent: what it saw at its start, and what it may do until it ends."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from holdfast.ground.errors import StaleRun
from holdfast.ground.pages import Page
from holdfast.memories.durable import runs
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.hydration import Hydration, explain, hydrate
from holdfast.memories.durable.read import LISTED, EntryQuery, get, list_entries
from holdfast.memories.durable.records import (
    DurableEntry,
    EntryScope,
    Explanation,
    RunEnded,
    StoredEntry,
    StoredMany,
    coded,
)
from holdfast.memories.durable.write import OnError, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite


class DurableRun:
    """A run under way, made by `DurableMemory.run`; as a context manager it ends on every way out.

    Everything it does is refused with StaleRun once another run took its lane, or it ended.
    """

    def __init__(self, begun: runs.Begun) -> None:
        self.caller: AgentContext = begun.caller
        self.hydration: Hydration = begun.hydration
        self.run_id, self.token, self.lane = begun.run_id, begun.token, begun.lane
        self._over = False

    def set(
        self,
        key: str,
        content: str,
        *,
        category: str,
        tags: Iterable[str] = (),
        refresh: bool = True,
        expected_seq: int | None = None,
        idempotency_key: str | None = None,
    ) -> StoredEntry:
        """Write the whole entry under *key*, replacing what was there."""
        wish = EntryWrite(
            refresh=refresh, expected_seq=expected_seq, idempotency_key=idempotency_key
        )
        return set_one(self.caller, key, content, category, tags, wish=wish)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order."""
        return set_many(self.caller, items, on_error=on_error, refresh=refresh)

    def capture(self, entries: Iterable[object]) -> StoredMany:
        """Store of *entries* those that differ from what is stored; the others stay as they are."""
        return set_many(self.caller, entries, on_error="skip", refresh=False)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        with coded():
            return get(self.caller, key)

    def list(  # noqa: PLR0917 - the filters, each of which may be left out
        self,
        category: str | None = None,
        tags: Iterable[str] | None = None,
        since: datetime | timedelta | None = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int | None = LISTED,
        page: str | None = None,
    ) -> Page[DurableEntry]:
        """Return the entries that pass all filters, newest first, shadowed ones included."""
        filters = EntryQuery(
            category=category, tags=tags, since=since, key_prefix=key_prefix, query=query
        )
        with coded():
            return list_entries(self.caller, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; True when something was removed."""
        return forget(self.caller, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent would see now."""
        with coded():
            return hydrate(self.caller, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Say whether a hydration with *budget* bytes takes the entry under *key*, and why."""
        return explain(self.caller, key, budget)

    def heartbeat(self) -> datetime:
        """Say that the run is alive; return when it would lapse."""
        return runs.heartbeat(self.caller)

    def end(self, outcome: runs.Ending = "ok") -> RunEnded:
        """End the run and delete its conversation entries."""
        ended = runs.end(self.caller, outcome)
        self._over = True
        return ended

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._over:
            return
        try:
            self.end("ok" if kind is None else "failed")
        except StaleRun:
            # It is over already: another run has its lane.
            self._over = True
