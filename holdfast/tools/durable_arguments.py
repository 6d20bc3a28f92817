"""What a model asked of the durable tools: their schemas, and arguments read by them."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct, field

from holdfast.ground.errors import InvalidInput, shortened
from holdfast.tools.base import Schema

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
