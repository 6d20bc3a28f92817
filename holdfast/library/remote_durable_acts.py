"""Requests shared by an agent's memory on a server and its runs."""

from collections.abc import Iterable

from msgspec import UNSET, Struct, UnsetType

from holdfast.ground.errors import NotFound
from holdfast.ground.pages import Page
from holdfast.ground.validation import check_limit
from holdfast.library.remote_durable_wire import (
    DurableWire,
    Sendable,
    coded_errors,
    record,
    since_of,
    value_of,
)
from holdfast.memories.durable.hydration import Hydration, checked_budget
from holdfast.memories.durable.read import LISTED, MOST_LISTED, EntryQuery
from holdfast.memories.durable.records import (
    DurableEntry,
    EntryScope,
    Explanation,
    StoredEntry,
    StoredMany,
)
from holdfast.memories.durable.validation import checked_key, checked_tags
from holdfast.memories.durable.write import OnError

ENTRIES = "entries"


class RemoteEntryWrite(Struct, frozen=True, kw_only=True):
    """An entry to write."""

    content: str
    category: str
    tags: Iterable[str]
    refresh: bool = True
    expected_seq: int | None = None
    promoted_from: dict[str, object] | UnsetType = UNSET


def set_one(
    wire: DurableWire, key: str, entry: RemoteEntryWrite, *, idempotency_key: str | None = None
) -> StoredEntry:
    """Write one entry."""
    with coded_errors():
        checked_key(key)
    body = {name: getattr(entry, name) for name in entry.__struct_fields__}
    answer = wire.write("PUT", ENTRIES, key, body=body, idempotency_key=idempotency_key)
    return record(StoredEntry, answer)


def set_many(
    wire: DurableWire, items: Iterable[object], *, on_error: OnError, refresh: bool
) -> StoredMany:
    """Write many entries in one transaction."""
    with coded_errors():
        sendable = Sendable(items)
        if sendable.refused and on_error != "skip":
            raise sendable.refused[0].error
    body = {"entries": sendable.wires, "on_error": on_error, "refresh": refresh}
    return sendable.many(wire.write("POST", ENTRIES, body=body))


def get(wire: DurableWire, key: str) -> DurableEntry | None:
    """Return the nearest entry under exactly *key*, or None."""
    with coded_errors():
        checked_key(key)
    try:
        return record(DurableEntry, wire.read(ENTRIES, key))
    except NotFound as missing:
        if missing.kind == "entry":
            return None
        raise


def list_entries(
    wire: DurableWire, filters: EntryQuery, *, limit: int | None, page: str | None
) -> Page[DurableEntry]:
    """Return a page of the entries that pass *filters*, newest first."""
    with coded_errors():
        tags, since = list(checked_tags(filters.tags or ())), since_of(filters.since)
        rows = check_limit(limit, most=MOST_LISTED, default=LISTED)
    return wire.page(
        lambda each: record(DurableEntry, each),
        ENTRIES,
        category=filters.category,
        tag=tags,
        since=since,
        key_prefix=filters.key_prefix,
        query=filters.query,
        limit=rows,
        page=page,
    )


def forget(wire: DurableWire, key: str, scope: EntryScope | None) -> bool:
    """Forget *key*; return whether anything was removed."""
    with coded_errors():
        checked_key(key)
    answer = wire.write("DELETE", ENTRIES, key, query={"scope": scope})
    return value_of(answer, "forgotten", bool)


def hydrate(wire: DurableWire, budget: int | None) -> Hydration:
    """Return what the agent would see now."""
    with coded_errors():
        checked_budget(budget)
    return record(Hydration, wire.read("hydration", budget=budget))


def explain(wire: DurableWire, key: str, budget: int | None) -> Explanation:
    """Explain why *key* is hydrated or not."""
    with coded_errors():
        checked_key(key)
        checked_budget(budget)
    return record(Explanation, wire.read(ENTRIES, key, "explanation", budget=budget))
