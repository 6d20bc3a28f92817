"""A durable run of an agent on a server, with the methods of the embedded one."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

from holdfast.ground.errors import StaleRun
from holdfast.ground.pages import Page
from holdfast.library import remote_durable_acts as acts
from holdfast.library.remote_durable_wire import DurableWire, record, value_of
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.read import LISTED, EntryQuery
from holdfast.memories.durable.records import (
    DurableEntry,
    EntryScope,
    Explanation,
    RunEnded,
    StoredEntry,
    StoredMany,
)
from holdfast.memories.durable.runs import Ending
from holdfast.memories.durable.wire import Wire
from holdfast.memories.durable.write import OnError


class RemoteDurableRun:
    """An open run, created by `RemoteDurable.run`.

    As a context manager it ends on every exit. Every call raises StaleRun once another run took
    over its lane, or it has ended.
    """

    def __init__(self, wire: DurableWire, opened: Wire) -> None:
        self.run_id, self.token = value_of(opened, "run_id", str), value_of(opened, "token", int)
        self.lane = value_of(opened, "lane", str)
        self.hydration = record(Hydration, value_of(opened, "hydration", Wire))
        self._wire, self._over = wire.within(self.run_id, self.token), False

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
        """Write the whole entry under *key*, replacing an existing one."""
        entry = acts.RemoteEntryWrite(
            content=content,
            category=category,
            tags=tags,
            refresh=refresh,
            expected_seq=expected_seq,
        )
        return acts.set_one(self._wire, key, entry, idempotency_key=idempotency_key)

    def set_many(
        self, items: Iterable[object], *, on_error: OnError = "abort", refresh: bool = True
    ) -> StoredMany:
        """Write at most 1,000 entries in one transaction, in their order."""
        return acts.set_many(self._wire, items, on_error=on_error, refresh=refresh)

    def capture(self, entries: Iterable[object]) -> StoredMany:
        """Store those *entries* that differ from the stored ones."""
        return acts.set_many(self._wire, entries, on_error="skip", refresh=False)

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under exactly *key*, or None."""
        return acts.get(self._wire, key)

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
        return acts.list_entries(self._wire, filters, limit=limit, page=page)

    def forget(self, key: str, *, scope: EntryScope | None = None) -> bool:
        """Forget *key*; return whether anything was removed."""
        return acts.forget(self._wire, key, scope)

    def hydrate(self, budget: int | None = None) -> Hydration:
        """Return what the agent would see now."""
        return acts.hydrate(self._wire, budget)

    def explain(self, key: str, budget: int | None = None) -> Explanation:
        """Explain why *key* is hydrated or not."""
        return acts.explain(self._wire, key, budget)

    def heartbeat(self) -> datetime:
        """Renew the run's lease; return when it would lapse."""
        answer = self._wire.write("POST", "runs", self.run_id, "heartbeat")
        return value_of(answer, "lapses_at", datetime)

    def end(self, outcome: Ending = "ok") -> RunEnded:
        """End the run and delete its conversation entries."""
        answer = self._wire.write("POST", "runs", self.run_id, "end", body={"outcome": outcome})
        self._over = True
        return record(RunEnded, answer)

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
            # The run has ended already: another run has its lane.
            self._over = True
