"""The four tools of durable memory.

A mistake of the model's is an answer, `{"error": …}`, never an exception.
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
    """An entry to keep."""

    key: str
    category: str
    content: str
    tags: list[str] = field(default_factory=list[str])


class RecallEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to look under."""

    key: str


class Filter(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which entries are wanted; all that is given must hold."""

    category: str | None = None
    tags: list[str] = field(default_factory=list[str])
    since: str | None = None
    key_prefix: str | None = None
    query: str | None = None


class ListEntries(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of entries."""

    filter: Filter = Filter()
    limit: int | None = None
    page: str | None = None


class ForgetEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A key to forget."""

    key: str


def _schema(properties: dict[str, Any], *required: str) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


_QUOTED: Final = re.compile(r"`([^`]*)`")
_MOST_TOLD: Final = 200

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
    """Return *arguments* as a *make*; InvalidInput names what is wrong."""
    if not isinstance(arguments, dict):
        raise InvalidInput("arguments", "must be an object", given=arguments)
    try:
        asked = msgspec.convert(arguments, make)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `$.")
        raise InvalidInput(where.rstrip("`") or "arguments", _lower(what)) from None
    except (UnicodeError, RecursionError):
        reason = "must be text of whole characters, not nested too deep"
        raise InvalidInput("arguments", reason) from None
    limit = getattr(asked, "limit", None)
    if limit is not None and not 1 <= limit <= MOST_LISTED:
        raise InvalidInput("limit", f"must be 1 to {MOST_LISTED}", limit=MOST_LISTED, given=limit)
    return asked


def since_of(given: str | None) -> datetime | timedelta | None:
    """Return the time that *given* names, or how far back it reaches; InvalidInput if neither."""
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
    """Return *text* as the rest of a sentence, and no longer than that: it may quote what came."""
    told = _QUOTED.sub(lambda quoted: f"`{shortened(quoted[1])}`", text)
    return told[:1].lower() + told[1:_MOST_TOLD]


LISTED: Final = 20
PAGE_BYTES: Final = 32_768
"""UTF-8 bytes of entries after which a page of `memory_list` ends."""
KEYS_ASKED: Final = 1_000
"""Entries to a page when keys like a missed one are sought."""


class Durable(Protocol):
    """What the tools ask of an agent's durable memory, or of one of its runs."""

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
    """Return the tools `memory_store`, `memory_recall`, `memory_list` and `memory_forget`.

    *memory* is `hf.durable(agent)`, or an open run of it, whose conversation entries are then
    reached as well. What they write is by the agent. Their answers are JSON objects; what goes
    wrong is one too.
    """
    if isinstance(memory, memories.DurableMemory):
        by = Actor.agent(memory.caller.agent)
        memory = traced_as(memory, memories.DurableMemory(replace(memory.caller, actor=by)))
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
    asked = read(StoreEntry, arguments)
    stored = memory.set(asked.key, asked.content, category=asked.category, tags=tuple(asked.tags))
    return {
        "stored": _of(stored, "key", "category", "tags", "size_bytes", "seq", "expires_at"),
        "outcome": stored.outcome,
        "evicted": _gone(stored.evicted),
        "expired": _gone(stored.expired),
        "notices": list(stored.notices),
    }


def _recall(memory: Durable, arguments: object) -> JSON:
    asked = read(RecallEntries, arguments)
    entry = memory.get(asked.key)
    return {
        "entry": None if entry is None else _entry(entry),
        "similar_keys": list(_similar(memory, asked.key)) if entry is None else [],
    }


def _list(memory: Durable, arguments: object) -> JSON:
    asked = read(ListEntries, arguments)
    wanted = asked.filter
    ask = partial(
        memory.list,
        category=wanted.category,
        tags=tuple(wanted.tags),
        since=since_of(wanted.since),
        key_prefix=wanted.key_prefix,
        query=wanted.query,
    )
    limit = LISTED if asked.limit is None else asked.limit
    page = ask(limit=limit, page=asked.page)
    shown = _within(page.data)
    if len(shown) < len(page.data):
        # A shorter page of the same list, so that its cursor stands after what is shown.
        page = ask(limit=len(shown), page=asked.page)
        shown = _within(page.data)
    return {"entries": shown, "next_page": page.next_page}


def _forget(memory: Durable, arguments: object) -> JSON:
    asked = read(ForgetEntry, arguments)
    forgotten = memory.forget(asked.key)
    left = memory.get(asked.key)
    return {
        "forgotten": forgotten,
        "key": asked.key,
        "still_visible": "workspace" if left is not None and left.scope == "workspace" else None,
        "similar_keys": [] if forgotten else list(_similar(memory, asked.key)),
    }


def _similar(memory: Durable, key: str) -> tuple[str, ...]:
    keys = (entry.key for entry in _all(memory) if entry.scope == "agent")
    return similar_keys(key, keys)


def _all(memory: Durable) -> Iterator[DurableEntry]:
    return memory.list(limit=KEYS_ASKED).all()


def _within(entries: list[DurableEntry]) -> list[JSON]:
    """Return *entries* as far as they fit a page, and at least the first."""
    shown: list[JSON] = []
    left = PAGE_BYTES
    for entry in entries:
        told = _entry(entry)
        left -= len(msgspec.json.encode(told))
        if shown and left < 0:
            break
        shown.append(told)
    return shown


def _entry(entry: DurableEntry) -> dict[str, JSON]:
    told = _of(entry, "key", "category", "content", "tags", "seq", "updated_at", "expires_at")
    return told | {"scope": entry.scope, "by": str(entry.updated_by)}


def _of(entry: DurableEntry, *names: str) -> dict[str, JSON]:
    return {name: cast("JSON", value_to_wire(getattr(entry, name))) for name in names}


def _gone(entries: tuple[Gone, ...]) -> JSON:
    return [{"key": each.key, "category": each.category} for each in entries]


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name).lstrip("_")
