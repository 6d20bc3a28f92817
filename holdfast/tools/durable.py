"""The four tools of durable memory.

An error of the model is a result, `{"error": …}`, never an exception.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict

from holdfast import memories
from holdfast.ground.errors import HoldfastError, InvalidInput, shortened
from holdfast.ground.trust import HELD_TIERS
from holdfast.ground.validation import check_limit, place_of
from holdfast.library.spans import traced_as
from holdfast.memories.durable.read import EntryQuery
from holdfast.memories.durable.records import DurableEntry, Gone, NewEntry, give_code
from holdfast.memories.durable.rules import similar_keys
from holdfast.memories.durable.wire import value_to_wire
from holdfast.tools.base import JSON, Schema, Tool, object_schema, told, toolset

A = TypeVar("A", bound=Struct)

MOST_LISTED: Final = 100

_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class StoreEntry(NewEntry, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_store`: an entry to write."""


class RecallEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_recall`: the key to look up."""

    key: str


class FilterArgument(EntryQuery, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of entries; all given conditions must hold."""

    tags: list[str] = field(default_factory=list[str])
    since: str | None = None  # pyright: ignore[reportIncompatibleVariableOverride] - of a model


class ListEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_list`: a page of entries."""

    filter: FilterArgument = FilterArgument()
    limit: int | None = None
    page: str | None = None


class ForgetEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_forget`: the key to forget."""

    key: str


_QUOTED: Final = re.compile(r"`([^`]*)`")
_MESSAGE_CHARS: Final = 200

_KEY = {"type": "string", "minLength": 1, "maxLength": 255}
_TEXT = {"type": "string"}

SCHEMAS: Final[dict[str, Schema]] = {
    "store": object_schema(
        {
            "key": _KEY,
            "category": {
                "type": "string",
                "minLength": 1,
                "maxLength": 64,
                "examples": ["core", "daily", "conversation", "workspace"],
            },
            "content": {"type": "string", "minLength": 1},
            "tags": {
                "type": "array",
                "items": {"type": "string", "minLength": 1, "maxLength": 64},
                "maxItems": 32,
            },
        },
        "key",
        "category",
        "content",
    ),
    "recall": object_schema({"key": _KEY}, "key"),
    "list": object_schema(
        {
            "filter": {
                "type": "object",
                "additionalProperties": False,
                "properties": {
                    "category": _TEXT,
                    "tags": {"type": "array", "items": _TEXT},
                    "since": {
                        "type": "string",
                        "description": "a time (RFC 3339), or how far back: 90m, 24h, 7d",
                    },
                    "key_prefix": _TEXT,
                    "query": _TEXT,
                },
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": MOST_LISTED},
            "page": _TEXT,
        }
    ),
    "forget": object_schema({"key": _KEY}, "key"),
}
"""The JSON Schema of each tool's arguments."""


def read(make: type[A], arguments: object) -> A:
    """Parse *arguments* as a *make*; InvalidInput names the wrong field."""
    if not isinstance(arguments, dict):
        raise InvalidInput("arguments", "must be an object", given=arguments)
    try:
        params = msgspec.convert(arguments, make)
    except msgspec.ValidationError as error:
        what, where = place_of(error)
        raise InvalidInput(where or "arguments", _lower(what)) from None
    except (UnicodeError, RecursionError):
        reason = "must be text of whole characters, not nested too deep"
        raise InvalidInput("arguments", reason) from None
    check_limit(getattr(params, "limit", None), most=MOST_LISTED)
    return params


def since_of(given: str | None) -> datetime | timedelta | None:
    """Parse *given* as an RFC 3339 time or a span such as 90m; else InvalidInput."""
    if not given:
        return None
    if span := _SPAN.fullmatch(given.strip()):
        try:
            return timedelta(**{_UNITS[span[2]]: int(span[1])})
        except OverflowError:
            raise InvalidInput("since", "reaches back too far", given=given) from None
    try:
        instant = datetime.fromisoformat(given.strip())
    except ValueError:
        raise InvalidInput(
            "since", "must be a time (RFC 3339), or how far back: 90m, 24h, 7d", given=given
        ) from None
    return instant if instant.tzinfo else instant.replace(tzinfo=UTC)


def _lower(text: str) -> str:
    """Return *text* as the rest of a sentence, of at most 200 characters."""
    message = _QUOTED.sub(lambda quoted: f"`{shortened(quoted[1])}`", text)
    return message[:1].lower() + message[1:_MESSAGE_CHARS]


LISTED: Final = 20
PAGE_BYTES: Final = 32_768
"""UTF-8 bytes of entries after which a page of `memory_list` ends."""
KEYS_ASKED: Final = 1_000
"""Entries per page in the search for keys similar to a missing one."""


def durable(memory: "memories.DurableEntries") -> list[Tool]:
    """Return the tools of durable memory.

    They are `memory_store`, `memory_recall`, `memory_list` and `memory_forget`. *memory* is
    `hf.durable(agent)`, or an open run of it, which includes the run's conversation entries. The
    author of what they write is the agent. Their results are JSON objects, errors too.
    """
    if hasattr(memory, "by_tool"):
        memory = traced_as(memory, cast("memories.DurableMemory", memory).by_tool())
    acts = {"store": _store, "recall": _recall, "list": _list, "forget": _forget}
    bound = {name: partial(act, memory) for name, act in acts.items()}
    return toolset("durable", "memory", bound, SCHEMAS, _refusal)


def _refusal(error: HoldfastError) -> JSON:
    give_code(error)
    return told(error, code=error.code)


def _store(memory: "memories.DurableEntries", arguments: object) -> JSON:
    params = read(StoreEntry, arguments)
    stored = memory.set(**asdict(params))
    return {
        "stored": _of(stored, "key", "category", "tags", "size_bytes", "seq", "expires_at"),
        "outcome": stored.outcome,
        "evicted": _gone(stored.evicted),
        "expired": _gone(stored.expired),
        "notices": list(stored.notices),
    }


def _recall(memory: "memories.DurableEntries", arguments: object) -> JSON:
    params = read(RecallEntries, arguments)
    entry = memory.get(params.key)
    return {
        "entry": None if entry is None else _entry(entry),
        "similar_keys": list(_similar(memory, params.key)) if entry is None else [],
    }


def _list(memory: "memories.DurableEntries", arguments: object) -> JSON:
    params = read(ListEntries, arguments)
    filters = {**asdict(params.filter), "since": since_of(params.filter.since)}
    ask = partial(memory.list, **filters)
    limit = LISTED if params.limit is None else params.limit
    page = ask(limit=limit, page=params.page)
    shown = _within(page.data)
    if len(shown) < len(page.data):
        # A shorter page of the same list, so that its cursor is after the last entry shown.
        page = ask(limit=len(shown), page=params.page)
        shown = _within(page.data)
    return {"entries": shown, "next_page": page.next_page}


def _forget(memory: "memories.DurableEntries", arguments: object) -> JSON:
    params = read(ForgetEntry, arguments)
    forgotten = memory.forget(params.key)
    left = memory.get(params.key)
    return {
        "forgotten": forgotten,
        "key": params.key,
        "still_visible": "workspace" if left is not None and left.scope == "workspace" else None,
        "similar_keys": [] if forgotten else list(_similar(memory, params.key)),
    }


def _similar(memory: "memories.DurableEntries", key: str) -> tuple[str, ...]:
    keys = (entry.key for entry in _all(memory) if entry.scope == "agent")
    return similar_keys(key, keys)


def _all(memory: "memories.DurableEntries") -> Iterator[DurableEntry]:
    return memory.list(limit=KEYS_ASKED).all()


def _within(entries: list[DurableEntry]) -> list[JSON]:
    """Return the first of *entries* that fit into `PAGE_BYTES`, and at least one."""
    shown: list[JSON] = []
    left = PAGE_BYTES
    for entry in entries:
        rendered = _entry(entry)
        left -= len(msgspec.json.encode(rendered))
        if shown and left < 0:
            break
        shown.append(rendered)
    return shown


_HELD: Final = "(held: it reads as an order to a machine; a person may accept it)"


def _entry(entry: DurableEntry) -> dict[str, JSON]:
    fields = _of(entry, "key", "category", "content", "tags", "seq", "updated_at", "expires_at")
    fields |= {"scope": entry.scope, "by": str(entry.updated_by)}
    if entry.held is not None:
        fields["content"] = _HELD
    return fields | {"tier": entry.tier} if entry.tier in HELD_TIERS else fields


def _of(entry: DurableEntry, *names: str) -> dict[str, JSON]:
    return {name: cast("JSON", value_to_wire(getattr(entry, name))) for name in names}


def _gone(entries: tuple[Gone, ...]) -> JSON:
    return [{"key": each.key, "category": each.category} for each in entries]
