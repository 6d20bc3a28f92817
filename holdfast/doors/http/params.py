"""A request's limits, its body while it arrives, and that body as unambiguous JSON.

msgspec checks shapes, but keeps the last of two equal keys in silence, and so might another
reader keep the first. The standard library's parser shows every pair, so it reads, and msgspec
judges what was read.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Literal, NoReturn, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.doors.http.response import RequestTimeout
from holdfast.ground.errors import InvalidInput, TooLarge, Unavailable, shortened
from holdfast.ground.text import encoded
from holdfast.memories.state.frozen import DEEPEST
from holdfast.memories.stores.records import JSONObject

B = TypeVar("B", bound="Body")
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

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
    body_grace: float = 5.0
    """Seconds before the rate of a body counts."""
    body_rate: int = 8_192
    """The least bytes in each second after that, on average."""
    bodies_bytes: int = 128 * 1_048_576
    """Bytes of all bodies that are held in memory at once."""
    half_sent: int = 250
    """Requests without a credential whose bodies are incomplete: a quarter of all places."""

    def body_deadline(self, size: int) -> float:
        """Return the seconds within which more must follow the first *size* bytes of a body."""
        return min(self.body_seconds, self.body_grace + size / self.body_rate)


LIMITS = RequestLimits()


class Bodies:
    """The bodies that one server holds in memory, and those of them that are incomplete."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.held = 0
        """Bytes in memory."""
        self.half_sent: set[IncomingBody] = set()
        """Incomplete bodies of requests without a credential."""

    def take(self, size: int) -> None:
        """Count *size* more bytes; Unavailable if all would be over the limit."""
        if self.held + size > self.limits.bodies_bytes:
            raise Unavailable(
                f"The server holds {self.held:,} bytes of request bodies and has no memory for"
                " more.",
                reason="overloaded",
                retry_after=1,
            )
        self.held += size

    def enter(self, body: "IncomingBody") -> None:
        """Add *body* to the half-sent ones; if they are too many, end the one most behind."""
        if len(self.half_sent) >= self.limits.half_sent:
            slowest = min(self.half_sent, key=IncomingBody.deadline)
            self.half_sent.discard(slowest)
            slowest.end()
        self.half_sent.add(body)


class IncomingBody:
    """The body of one request, counted as held in memory from its first byte to `release`."""

    def __init__(self, bodies: Bodies, *, keyed: bool) -> None:
        self._bodies, self._keyed = bodies, keyed
        self._size = 0
        self._timeout = asyncio.timeout(None)
        self._ended = False

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive, limit: int) -> bytes:
        """Return the whole body.

        TooLarge if it has more than *limit* bytes; RequestTimeout if it is late; Unavailable if
        there is no memory for it, or if too many others without a credential are incomplete.
        """
        declared = headers.get(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise TooLarge(limit)
        # A body that is there already is read before the loop comes to this.
        entry = None if self._keyed else asyncio.get_running_loop().call_soon(self._enter)
        parts: list[bytes] = []
        try:
            async with self._timeout:
                await self._receive(receive, parts, limit)
            return b"".join(parts)
        except TimeoutError:
            raise self._late() from None
        except MemoryError:
            parts.clear()
            raise out_of_memory() from None
        finally:
            if entry is not None:
                entry.cancel()
                self._bodies.half_sent.discard(self)

    async def _receive(self, receive: Receive, parts: list[bytes], limit: int) -> None:
        began, more = asyncio.get_running_loop().time(), True
        while more:
            self._timeout.reschedule(began + self._bodies.limits.body_deadline(self._size))
            message = await receive()
            if message["type"] == "http.disconnect":
                raise InvalidInput("body", "ended early")
            part = message.get("body", b"")
            if self._size + len(part) > limit:
                raise TooLarge(limit)
            self._bodies.take(len(part))
            self._size += len(part)
            parts.append(part)
            more = message.get("more_body", False)

    def deadline(self) -> float:
        """Return when more of it must arrive, by the loop's clock."""
        return self._timeout.when() or 0.0

    def end(self) -> None:
        """Stop reading it: another request takes its place."""
        self._ended = True
        self._timeout.reschedule(0.0)

    def release(self) -> None:
        """Count its bytes as held no longer."""
        self._bodies.held -= self._size
        self._size = 0

    def _enter(self) -> None:
        self._bodies.enter(self)

    def _late(self) -> Unavailable:
        if not self._ended:
            return RequestTimeout("body")
        return Unavailable(
            "Too many requests without a credential are incomplete.",
            reason="overloaded",
            retry_after=1,
        )


def out_of_memory(written: Literal[False] | None = False) -> Unavailable:
    """Return the error of a request for which the process has no memory."""
    return Unavailable(
        "The server has no memory for this request.",
        reason="overloaded",
        written=written,
        retry_after=1,
    )


class Body(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of the bodies that requests may have; a key beyond its fields is refused."""


class BodyLimits(Struct, frozen=True, kw_only=True):
    """How deep a body may be nested, and what reads it."""

    depth: int
    parser: json.JSONDecoder


def read_json(raw: bytes, room: BodyLimits | None = None) -> JSONObject:
    """Return the JSON object in *raw*; InvalidInput names the key that is wrong."""
    room = room or USUAL
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput("body", "is not UTF-8") from None
    except MemoryError:
        raise out_of_memory() from None
    try:
        value = room.parser.decode(text)
    except MemoryError:
        raise out_of_memory() from None
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
    except MemoryError:
        raise out_of_memory() from None
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


def read_body(raw: bytes, make: type[B], room: BodyLimits | None = None) -> B:
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


def _parse_integer(digits: str) -> int:
    return _integer_below(_INTEGER, digits)


def _any_integer(digits: str) -> int:
    return _integer_below(2 * _INTEGER, digits)


def _integer_below(end: int, digits: str) -> int:
    if len(digits) > len(str(end)) or not -_INTEGER <= (value := int(digits)) < end:
        raise InvalidInput("body", "holds an integer of more than 64 bits", given=digits)
    return value


def _parse_number(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise InvalidInput("body", "holds a number out of range", given=digits)
    return value


def _constant(name: str) -> NoReturn:
    raise InvalidInput("body", "holds what JSON does not have", given=name)


_parser = json.JSONDecoder(
    object_pairs_hook=_pairs,
    parse_int=_parse_integer,
    parse_float=_parse_number,
    parse_constant=_constant,
)
USUAL = BodyLimits(depth=DEPTH, parser=_parser)
WIDE = BodyLimits(
    depth=DEPTH + DEEPEST,
    parser=json.JSONDecoder(
        object_pairs_hook=_pairs,
        parse_int=_any_integer,
        parse_float=_parse_number,
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
