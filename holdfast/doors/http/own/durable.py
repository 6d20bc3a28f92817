"""Routes of the durable entries of one agent, and of their hydration."""

from typing import Any, cast, get_args

from msgspec import UNSET, UnsetType, field

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.durable_asked import (
    acted,
    agents_route,
    caller_of,
    idempotency_key_of,
    memory_of,
)
from holdfast.doors.http.params import PAGE, Body, integer, moment, one_of, several, text
from holdfast.doors.http.response import Response, of_json, told_of
from holdfast.ground.errors import NotFound
from holdfast.memories.durable.forget import forget
from holdfast.memories.durable.history import restore as restore_change
from holdfast.memories.durable.hydration import explain, hydrate
from holdfast.memories.durable.read import LISTED, EntryQuery, get, list_entries
from holdfast.memories.durable.records import Cause, EntryScope, NotStored, StoredEntry, StoredMany
from holdfast.memories.durable.wire import Wire, entry_to_wire
from holdfast.memories.durable.write import OnError, PromotionSource, set_many, set_one
from holdfast.memories.durable.write_entry import EntryWrite

ENTRIES, ENTRY = "/entries", "/entries/{key}"

_FILTERS = frozenset(EntryQuery.__struct_fields__)


class PutEntry(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole entry; `promoted_from` is the source of its content."""

    content: str
    category: str
    tags: list[str] = field(default_factory=list[str])
    refresh: bool = True
    expected_seq: int | UnsetType | None = UNSET
    promoted_from: str | PromotionSource | None = None


class PostEntries(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Entries to write in one transaction, in their order."""

    entries: list[Any]
    on_error: str = "abort"
    refresh: bool = True


class Restore(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The change with the content to restore."""

    seq: int


async def list_all(call: Call) -> Response:
    """List entries, newest first."""
    params = dict(call.query)
    filters = EntryQuery(**{name: params.pop(name) for name in _FILTERS & params.keys()})
    limit: int = params.get("limit", LISTED)
    page = await call.slow(
        lambda hf: acted(
            call,
            hf,
            "list",
            lambda context: list_entries(context, filters, limit=limit, page=params.get("page")),
            query=filters.query,
        )
    )
    return of_json(
        {"data": [entry_to_wire(each) for each in page.data], "next_page": page.next_page}
    )


async def put_many(call: Call) -> Response:
    """Write entries in one transaction."""
    body = call.body(PostEntries)
    on_error = cast("OnError", body.on_error)
    idempotency_key = idempotency_key_of(call)
    many = await call.write(
        lambda hf: acted(
            call,
            hf,
            "set_many",
            lambda context: set_many(
                context,
                body.entries,
                on_error=on_error,
                refresh=body.refresh,
                idempotency_key=idempotency_key,
            ),
        )
    )
    return of_json(_many(many))


async def put(call: Call) -> Response:
    """Write one entry, whole."""
    body = call.body(PutEntry)
    wish = EntryWrite(
        refresh=body.refresh,
        expected_seq=body.expected_seq,
        cause=_cause(body.promoted_from),
        idempotency_key=idempotency_key_of(call),
    )
    stored = await call.write(
        lambda hf: acted(
            call,
            hf,
            "set",
            lambda context: set_one(
                context, call["key"], body.content, body.category, body.tags, wish=wish
            ),
        )
    )
    return _stored(stored)


async def retrieve(call: Call) -> Response:
    """Retrieve the entry under a key."""
    key = call["key"]
    entry = await call.quick(
        lambda hf: acted(call, hf, "get", lambda context: get(context, key), query=key)
    )
    if entry is None:
        raise NotFound("entry", key, next="Check the key, or list the entries.")
    return of_json(entry_to_wire(entry))


async def delete(call: Call) -> Response:
    """Forget a key; run on a thread, which waits for the erasure after the write."""
    scope = cast("EntryScope | None", call.query.get("scope"))
    idempotency_key = idempotency_key_of(call)
    forgotten = await call.slow(
        lambda hf: acted(
            call,
            hf,
            "forget",
            lambda context: forget(context, call["key"], scope, idempotency_key=idempotency_key),
        )
    )
    return of_json({"forgotten": forgotten, "key": call["key"]})


async def explanation(call: Call) -> Response:
    """Explain why an entry is hydrated, or is not."""
    budget: int | None = call.query.get("budget")
    explained = await call.slow(lambda hf: explain(caller_of(call, hf), call["key"], budget))
    return of_json(entry_to_wire(explained))


async def restore(call: Call) -> Response:
    """Restore the content of an earlier change."""
    body = call.body(Restore)
    idempotency_key = idempotency_key_of(call)
    stored = await call.write(
        lambda hf: restore_change(
            memory_of(call, hf).context, call["key"], body.seq, idempotency_key=idempotency_key
        )
    )
    return _stored(stored)


async def hydration(call: Call) -> Response:
    """Return what the agent would see at a run's start."""
    budget: int | None = call.query.get("budget")
    hydrated = await call.slow(
        lambda hf: acted(call, hf, "hydrate", lambda context: hydrate(context, budget))
    )
    return of_json(entry_to_wire(hydrated))


def _stored(stored: StoredEntry) -> Response:
    return of_json(entry_to_wire(stored), status=201 if stored.outcome == "created" else 200)


def _many(many: StoredMany) -> Wire:
    return {
        "stored": [entry_to_wire(each) for each in many.stored],
        "refused": [_refused(each) for each in many.refused],
    }


def _refused(refused: NotStored) -> Wire:
    return {"index": refused.index, "key": refused.key, "error": told_of(refused.error)}


def _cause(promoted_from: str | PromotionSource | None) -> Cause:
    if promoted_from is None:
        return {}
    origin = PromotionSource(key=promoted_from) if isinstance(promoted_from, str) else promoted_from
    return origin.cause()


ROUTES = (
    agents_route(
        "GET",
        ENTRIES,
        "read",
        list_all,
        "List entries, newest first.",
        query=(
            text("category"),
            several("tag", "tags"),
            moment("since"),
            text("key_prefix"),
            text("query"),
            *PAGE,
        ),
    ),
    agents_route(
        "POST",
        ENTRIES,
        "write",
        put_many,
        "Write entries in one transaction.",
        body=PostEntries,
    ),
    agents_route("PUT", ENTRY, "write", put, "Write an entry.", body=PutEntry),
    agents_route("GET", ENTRY, "read", retrieve, "Retrieve the entry under a key."),
    agents_route(
        "DELETE",
        ENTRY,
        "write",
        delete,
        "Forget a key.",
        query=(one_of("scope", *get_args(EntryScope)),),
    ),
    agents_route(
        "GET",
        f"{ENTRY}/explanation",
        "read",
        explanation,
        "Explain why an entry is hydrated, or is not.",
        query=(integer("budget"),),
    ),
    agents_route(
        "POST",
        f"{ENTRY}/restore",
        "write",
        restore,
        "Restore the content of an earlier change.",
        body=Restore,
    ),
    agents_route(
        "GET",
        "/hydration",
        "read",
        hydration,
        "Retrieve what the agent would see at a run's start.",
        query=(integer("budget"),),
    ),
)
