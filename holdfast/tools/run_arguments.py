"""What a model asked of the tools of run memory: their schemas, and arguments checked singly."""

from collections.abc import Collection
from typing import Any, Final, cast

from holdfast.ground.errors import InvalidInput
from holdfast.memories.run.keys import KINDS
from holdfast.memories.run.model_view import ORDERS, PAGE_MOST
from holdfast.tools.base import Schema

KEYS_MOST: Final = 100
KEY_CHARS: Final = 200

_STRINGS: Final = {"type": "array", "items": {"type": "string"}}


def _schema(properties: dict[str, Any], *required: str) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "additionalProperties": False,
        "properties": properties,
    }


SCHEMAS: Final[dict[str, Schema]] = {
    "list": _schema(
        {
            "kind": {
                "type": "array",
                "items": {"type": "string", "enum": list(KINDS.values())},
                "description": "Only entries of these kinds.",
            },
            "key_prefix": {
                "type": "string",
                "description": "Only keys that begin with this, such as step: or shared:plan.",
            },
            "sources": {**_STRINGS, "description": "Only entries that one of these produced."},
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": PAGE_MOST,
                "default": PAGE_MOST,
                "description": "The most entries to list.",
            },
            "page": {
                "type": "string",
                "description": "The next_page of the list before, to go on from there.",
            },
            "order": {
                "type": "string",
                "enum": list(ORDERS),
                "default": "newest",
                "description": "Whether what was written last comes first or last.",
            },
        }
    ),
    "read": _schema(
        {
            "keys": {
                **_STRINGS,
                "maxItems": KEYS_MOST,
                "description": "The keys to read, as they are listed.",
            },
            "path": {
                "type": "string",
                "description": "A JSON Pointer into each value, such as /rows/0/name.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Where to go on in the value of one key: its next_offset.",
            },
        },
        "keys",
    ),
    "write": _schema(
        {
            "key": {
                "type": "string",
                "minLength": 1,
                "maxLength": KEY_CHARS,
                "description": "The name to store it under; shared: is put before it.",
            },
            "value": {"description": "What to store: any JSON value."},
            "title": {"type": "string", "description": "What it is, in a few words."},
            "description": {"type": "string", "description": "What it is about, for a list."},
            "expected_version": {
                "type": "integer",
                "minimum": 0,
                "description": "Write only over this version of it; 0 means only if it is new.",
            },
        },
        "key",
        "value",
    ),
}
"""The JSON Schema of each tool's arguments."""


class ToolArguments:
    """The arguments of one call. Null for an optional one is as if it were not there."""

    def __init__(self, given: object, tool: str) -> None:
        known = list(SCHEMAS[tool]["properties"])
        if not isinstance(given, dict):
            raise InvalidInput(
                "arguments",
                f"must be an object, is {_told(given)}",
                next=f"Send an object with {_named(known)}.",
            )
        self._given = cast("dict[object, object]", given)
        for name in self._given:
            if name not in known:
                raise InvalidInput(
                    str(name), f"is no argument; there are {_named(known)}", next="Leave it out."
                )

    def has(self, name: str) -> bool:
        """Tell whether *name* is there, be it null."""
        return name in self._given

    def any(self, name: str) -> object:
        """Return what *name* is, or None."""
        return self._given.get(name)

    def required(self, name: str, what: str) -> object:
        """Return what *name* is; InvalidInput if that is nothing. *what* says what it should be."""
        if (given := self._given.get(name)) is None:
            raise InvalidInput(name, f"must be {what}, is missing", next=f"Send {name}.")
        return given

    def text(self, name: str) -> str | None:
        """Return the string *name*, or None."""
        given = self._given.get(name)
        if given is not None and not isinstance(given, str):
            raise InvalidInput(
                name, f"must be a string, is {_told(given)}", next=f"Send {name} as a string."
            )
        return given

    def texts(self, name: str) -> list[str] | None:
        """Return the list of strings *name*, or None; a bare string is a list of it."""
        given = self._given.get(name)
        if given is None:
            return None
        many = [given] if isinstance(given, str) else given
        if not isinstance(many, list):
            raise _no_strings(name, _told(given))
        for index, each in enumerate(cast("list[object]", many)):
            if not isinstance(each, str):
                raise _no_strings(name, f"{_told(each)} at {index}")
        return cast("list[str]", many)

    def whole(self, name: str, least: int, most: int) -> int | None:
        """Return the whole number *name*, which is from *least* to *most*, or None."""
        given = self._given.get(name)
        if given is None:
            return None
        if not isinstance(given, int) or isinstance(given, bool) or not least <= given <= most:
            to = f" to {most:,}" if most < 2**63 - 1 else ""
            raise InvalidInput(
                name,
                f"must be a whole number from {least}{to}",
                limit=most if to else None,
                given=given,
                next=f"Send {name} as such a number, or leave it out.",
            )
        return given


def _no_strings(name: str, found: str) -> InvalidInput:
    return InvalidInput(
        name, f"must be a list of strings, is {found}", next=f"Send {name} as a list of strings."
    )


def _named(names: Collection[str]) -> str:
    return ", ".join(names)


_TYPES: Final[dict[type, str]] = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "an object",
    type(None): "null",
}


def _told(given: object) -> str:
    return _TYPES.get(type(given), type(given).__name__)
