"""A request's limits, and its body as JSON that says one thing and no more.

msgspec checks shapes, but keeps the last of two equal keys in silence, and so might another
reader keep the first. The standard library's parser shows every pair, so it reads, and msgspec
judges what was read.
"""

import json
import math
import re
from typing import Any, NoReturn, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.errors import InvalidInput, shortened
from holdfast.ground.text import encoded
from holdfast.memories.state.frozen import DEEPEST
from holdfast.memories.stores.records import JSONObject

B = TypeVar("B", bound="Body")

DEPTH = 64
"""Levels of objects and lists in one another; no request needs more than a few."""

_INTEGER = 2**63
_MISSING = re.compile(r"Object missing required field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.?(.*)`)?", re.DOTALL)
_OTHER = re.compile(r"(.*?)(?: - at `\$\.?(.*)`)?", re.DOTALL)
_EXPECTED = re.compile(r"Expected `(.*)`, got `(.*)`")
_NAMES = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "object": "an object",
    "array": "a list",
    "null": "null",
}


class RequestLimits(Struct, frozen=True, kw_only=True):
    """Limits of what a client sends: sizes in bytes, times in seconds."""

    head_bytes: int = 65_536
    head_lines: int = 100
    head_seconds: float = 20.0
    body_seconds: float = 30.0


LIMITS = RequestLimits()


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the bodies that requests may have; a key beyond its fields is refused."""


class Room(Struct, frozen=True, kw_only=True):
    """How deep a body may be nested, and what reads it."""

    depth: int
    parser: json.JSONDecoder


def read_json(raw: bytes, room: Room | None = None) -> JSONObject:
    """Return the JSON object in *raw*; InvalidInput names the key that is wrong."""
    room = room or USUAL
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput("body", "is not UTF-8") from None
    try:
        value = room.parser.decode(text)
    except RecursionError:
        raise InvalidInput("body", f"is nested more than {room.depth} levels deep") from None
    except json.JSONDecodeError as error:
        raise _no_json(text, error) from None
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a JSON object")
    _check_text_and_depth(cast("JSONObject", value), room.depth, escapes="\\u" in text)
    return cast("JSONObject", value)


def read_lines(raw: bytes) -> list[object]:
    """Return the JSON value in each line of *raw*; InvalidInput tells which line has none."""
    values: list[object] = []
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            values.append(_line(line))
        except InvalidInput as error:
            reason = f"{error.reason}, in line {number}"
            raise InvalidInput(error.field, reason, index=number - 1) from None
    return values


def _line(raw: bytes) -> object:
    try:
        value: object = _parser.decode(raw.decode())
    except UnicodeDecodeError:
        raise InvalidInput("body", "is not UTF-8") from None
    except RecursionError:
        raise InvalidInput("body", f"is nested more than {DEPTH} levels deep") from None
    except json.JSONDecodeError:
        raise InvalidInput("body", "is not JSON") from None
    if isinstance(value, dict):
        _check_text_and_depth(cast("JSONObject", value), DEPTH, escapes=b"\\u" in raw)
    return cast("object", value)


def _no_json(text: str, error: json.JSONDecodeError) -> InvalidInput:
    place = f" at line {error.lineno}, column {error.colno}" if text.strip() else ", it is empty"
    return InvalidInput("body", f"is not JSON{place}", next="Send a JSON object.")


def read_body(raw: bytes, make: type[B], room: Room | None = None) -> B:
    """Return the *make* in *raw*; InvalidInput names the key that is wrong."""
    value = read_json(raw, room)
    try:
        return msgspec.convert(value, make)
    except msgspec.ValidationError as error:
        raise _explained(str(error), make) from None


def _explained(said: str, make: type[Body]) -> InvalidInput:
    """Return msgspec's complaint *said* of a *make* as an error that names the key."""
    if found := _MISSING.fullmatch(said):
        return InvalidInput(_field(found[2], found[1]), "is required")
    if found := _UNKNOWN.fullmatch(said):
        known = "" if found[2] else f"Known: {', '.join(make.__struct_fields__)}."
        return InvalidInput(_field(found[2], found[1]), "is not a key here", next=known)
    found = _OTHER.fullmatch(said)
    reason, where = (found[1], found[2]) if found else (said, "")
    if types := _EXPECTED.fullmatch(reason):
        whose = "each value " if (where or "").endswith("[...]") else ""
        reason = f"{whose}must be {_named(types[1])}, is {_named(types[2])}"
    return InvalidInput(_field(where, ""), reason)


def _field(where: str | None, key: str) -> str:
    path = (where or "").replace("[...]", "")
    return shortened(".".join(filter(None, (path, key))) or "body")


def _named(types: str) -> str:
    return " or ".join(_NAMES.get(each, each) for each in types.split(" | "))


def _pairs(pairs: list[tuple[str, object]]) -> JSONObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise InvalidInput(shortened(twice), "is given twice", next="Send each key once.")
    return value


def _integer(digits: str) -> int:
    return _integer_below(_INTEGER, digits)


def _any_integer(digits: str) -> int:
    return _integer_below(2 * _INTEGER, digits)


def _integer_below(end: int, digits: str) -> int:
    if len(digits) > len(str(end)) or not -_INTEGER <= (value := int(digits)) < end:
        raise InvalidInput("body", "holds an integer of more than 64 bits", given=digits)
    return value


def _number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidInput("body", "holds a number out of range", given=digits)
    return value


def _constant(name: str) -> NoReturn:
    raise InvalidInput("body", "holds what JSON does not have", given=name)


_parser = json.JSONDecoder(
    object_pairs_hook=_pairs, parse_int=_integer, parse_float=_number, parse_constant=_constant
)
USUAL = Room(depth=DEPTH, parser=_parser)
WIDE = Room(
    depth=DEPTH + DEEPEST,
    parser=json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_int=_any_integer,
        parse_float=_number,
        parse_constant=_constant,
    ),
)
"""For what models and tools said, which is nested as they please and may hold any 64 bits."""


def _check_text_and_depth(body: JSONObject, depth: int, *, escapes: bool) -> None:
    """Raise InvalidInput for a lone surrogate, which only *escapes* can write, or deep nesting."""
    for key, value in body.items():
        field = shortened(key)
        if escapes:
            encoded(field, key)
        level: list[Any] = [value]
        for _ in range(depth):
            level = _next_level(field, level, escapes=escapes)
            if not level:
                break
        else:
            raise InvalidInput(field, f"is nested more than {depth} levels deep", limit=depth)


def _next_level(field: str, level: list[Any], *, escapes: bool) -> list[Any]:
    below: list[Any] = []
    for value in level:
        if isinstance(value, str):
            if escapes:
                encoded(field, value)
        elif isinstance(value, dict):
            below += cast("JSONObject", value).values()
            if escapes:
                below += cast("JSONObject", value)
        elif isinstance(value, list):
            below += cast("list[Any]", value)
    return below
