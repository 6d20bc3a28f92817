"""The four tools of durable memory.

An error of the model is a result, `{"error": …}`, never an exception.
"""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from holdfast.ground.errors import HoldfastError, InvalidInput, shortened
from holdfast.ground.pages import Page
from holdfast.ground.scope import Actor
from holdfast.ground.validation import check_limit, place_of
from holdfast.library.spans import traced_as
from holdfast.memories import durable as memories
from holdfast.memories.durable.records import DurableEntry, Gone, StoredEntry, give_code
from holdfast.memories.durable.rules import similar_keys
from holdfast.memories.durable.wire import value_to_wire
from holdfast.tools.base import JSON, Schema, Tool, wording

A = TypeVar("A", bound=Struct)

MOST_LISTED: Final = 100

_SPAN = re.compile(r"(\d{1,9})([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class StoreEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_store`: an entry to write."""

    key: str
    category: str
    content: str
    tags: list[str] = field(default_factory=list[str])


class RecallEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_recall`: the key to look up."""

    key: str


class Filter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter of entries; all given conditions must hold."""

    category: str | None = None
    tags: list[str] = field(default_factory=list[str])
    since: str | None = None
    key_prefix: str | None = None
    query: str | None = None


class ListEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_list`: a page of entries."""

    filter: Filter = Filter()
    limit: int | None = None
    page: str | None = None


class ForgetEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Arguments of `memory_forget`: the key to forget."""

    key: str


def _schema(properties: dict[str, Any], *required: str) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


_QUOTED: Final = re.compile(r"`([^`]*)`")
_MESSAGE_CHARS: Final = 200

_KEY = {"type": "string", "minLength": 1, "maxLength": 255}
_TEXT = {"type": "string"}

SCHEMAS: Final[dict[str, Schema]] = {
    "store": _schema(
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
    "recall": _schema({"key": _KEY}, "key"),
    "list": _schema(
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
    "forget": _schema({"key": _KEY}, "key"),
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


class Durable(Protocol):
    """The durable memory of an agent, or of one of its runs, as the tools use it."""

    def set(self, key: str, content: str, *, category: str, tags: tuple[str, ...]) -> StoredEntry:
        """Write an entry."""
        ...

    def get(self, key: str) -> DurableEntry | None:
        """Return the nearest entry under a key, or None."""
        ...

    def list(  # noqa: PLR0917 - the filters of durable memory
        self,
        category: str | None = None,
        tags: tuple[str, ...] | None = None,
        since: Any = None,
        key_prefix: str | None = None,
        query: str | None = None,
        limit: int = 100,
        page: str | None = None,
    ) -> Page[DurableEntry]:
        """Return entries, newest first."""
        ...

    def forget(self, key: str) -> bool:
        """Forget a key."""
        ...


def durable(memory: Durable) -> list[Tool]:
    """Return the tools of durable memory.

    They are `memory_store`, `memory_recall`, `memory_list` and `memory_forget`. *memory* is
    `hf.durable(agent)`, or an open run of it, which includes the run's conversation entries. The
    author of what they write is the agent. Their results are JSON objects, errors too.
    """
    if isinstance(memory, memories.DurableMemory):
        by = Actor.agent(memory.context.agent)
        memory = traced_as(memory, memories.DurableMemory(replace(memory.context, actor=by)))
    words = wording("durable").parameters
    acts: dict[str, Callable[[Durable, object], JSON]] = {
        "store": _store,
        "recall": _recall,
        "list": _list,
        "forget": _forget,
    }
    return [
        Tool(
            id=f"durable.{name}",
            name=f"memory_{name}",
            description=words[name],
            parameters=SCHEMAS[name],
            work=partial(_answered, act, memory),
            refused=_is_error,
            checks=True,
        )
        for name, act in acts.items()
    ]


def _answered(act: Callable[[Durable, object], JSON], memory: Durable, arguments: object) -> JSON:
    try:
        return act(memory, arguments)
    except HoldfastError as error:
        give_code(error)
        return {
            "error": {
                "code": error.code,
                "type": _snake(type(error).__name__),
                "message": error.message,
                "next": error.next,
                "field": error.field if isinstance(error, InvalidInput) else None,
            }
        }


def _is_error(answer: JSON) -> bool:
    return isinstance(answer, dict) and "error" in answer


def _store(memory: Durable, arguments: object) -> JSON:
    params = read(StoreEntry, arguments)
    stored = memory.set(
        params.key, params.content, category=params.category, tags=tuple(params.tags)
    )
    return {
        "stored": _of(stored, "key", "category", "tags", "size_bytes", "seq", "expires_at"),
        "outcome": stored.outcome,
        "evicted": _gone(stored.evicted),
        "expired": _gone(stored.expired),
        "notices": list(stored.notices),
    }


def _recall(memory: Durable, arguments: object) -> JSON:
    params = read(RecallEntries, arguments)
    entry = memory.get(params.key)
    return {
        "entry": None if entry is None else _entry(entry),
        "similar_keys": list(_similar(memory, params.key)) if entry is None else [],
    }


def _list(memory: Durable, arguments: object) -> JSON:
    params = read(ListEntries, arguments)
    wanted = params.filter
    ask = partial(
        memory.list,
        category=wanted.category,
        tags=tuple(wanted.tags),
        since=since_of(wanted.since),
        key_prefix=wanted.key_prefix,
        query=wanted.query,
    )
    limit = LISTED if params.limit is None else params.limit
    page = ask(limit=limit, page=params.page)
    shown = _within(page.data)
    if len(shown) < len(page.data):
        # A shorter page of the same list, so that its cursor is after the last entry shown.
        page = ask(limit=len(shown), page=params.page)
        shown = _within(page.data)
    return {"entries": shown, "next_page": page.next_page}


def _forget(memory: Durable, arguments: object) -> JSON:
    params = read(ForgetEntry, arguments)
    forgotten = memory.forget(params.key)
    left = memory.get(params.key)
    return {
        "forgotten": forgotten,
        "key": params.key,
        "still_visible": "workspace" if left is not None and left.scope == "workspace" else None,
        "similar_keys": [] if forgotten else list(_similar(memory, params.key)),
    }


def _similar(memory: Durable, key: str) -> tuple[str, ...]:
    keys = (entry.key for entry in _all(memory) if entry.scope == "agent")
    return similar_keys(key, keys)


def _all(memory: Durable) -> Iterator[DurableEntry]:
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


def _entry(entry: DurableEntry) -> dict[str, JSON]:
    fields = _of(entry, "key", "category", "content", "tags", "seq", "updated_at", "expires_at")
    return fields | {"scope": entry.scope, "by": str(entry.updated_by)}


def _of(entry: DurableEntry, *names: str) -> dict[str, JSON]:
    return {name: cast("JSON", value_to_wire(getattr(entry, name))) for name in names}


def _gone(entries: tuple[Gone, ...]) -> JSON:
    return [{"key": each.key, "category": each.category} for each in entries]


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
