"""Read query parameters and bodies.

msgspec validates types, but silently keeps the last of two equal keys, where another parser might
keep the first. The standard library's parser reports every pair, so it parses, and msgspec
validates the result.
"""

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NoReturn, TypeVar, cast
from urllib.parse import unquote_to_bytes

import msgspec
from msgspec import Struct

from holdfast.doors.http.response import RequestTimeout
from holdfast.ground.errors import InvalidInput, TooLarge, Unavailable, shortened
from holdfast.ground.json_values import DEEPEST
from holdfast.ground.text import encoded
from holdfast.ground.validation import check_no_nul
from holdfast.memories.stores.records import JSONObject

_DIGITS = re.compile(r"-?[0-9]+")
_NUMBER = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{1,18})?(?:e-?[0-9]{1,2})?")
_DIGITS_MOST = 18
"""Beyond, an integer may not fit 64 bits."""

_INSTANT = re.compile(
    r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:[Zz]|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)

_SPAN = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)([smhd])", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


class Name(Struct, frozen=True):
    """A query parameter: its wire name, its parser and its name in the library.

    With *many* it may be given more than once and is a list. A *checked* one is parsed, but not
    passed to the library.
    """

    wire: str
    read: Callable[[str, str], Any]
    schema: Mapping[str, Any]
    library: str = ""
    many: bool = False
    checked: bool = False
    required: bool = False

    @property
    def key(self) -> str:
        """The library's name for it."""
        return self.library or self.wire


def text(wire: str, *, nul: bool = False) -> Name:
    """Return a text parameter; with *nul* it may hold U+0000."""
    return Name(wire, _any_text if nul else check_no_nul, {"type": "string"})


def integer(wire: str) -> Name:
    """Return an integer parameter; the library checks its range."""
    return Name(wire, _integer, {"type": "integer"})


def number(wire: str) -> Name:
    """Return a number parameter, with or without a decimal point."""
    return Name(wire, _number, {"type": "number"})


def flag(wire: str) -> Name:
    """Return a parameter that is `true` or `false`."""
    return Name(wire, _flag, {"type": "boolean"})


def one_of(wire: str, *values: str) -> Name:
    """Return a parameter that is one of *values*."""
    return Name(wire, _one_of(values), {"type": "string", "enum": list(values)})


def fixed(wire: str, value: str) -> Name:
    """Return an optional parameter that can only be *value*.

    The library always uses that value.
    """
    return Name(wire, _one_of((value,)), {"type": "string", "enum": [value]}, checked=True)


def refused(wire: str, why: str) -> Name:
    """Return a parameter that is refused with the reason *why*.

    Other servers know it, so it must not be ignored.
    """

    def read(field: str, _given: str) -> str:
        raise InvalidInput(field, why, next="Leave it out.")

    return Name(wire, read, {"not": {}}, checked=True)


def several(wire: str, library: str) -> Name:
    """Return a text parameter that may be given more than once."""
    schema = {"type": "array", "items": {"type": "string"}}
    return Name(wire, check_no_nul, schema, library, many=True)


def instant(wire: str) -> Name:
    """Return an instant as a parameter; without a zone it is UTC."""
    return Name(wire, _instant, {"type": "string", "format": "date-time"})


def read_query(raw: bytes, names: Mapping[str, Name], *, strict: bool) -> dict[str, Any]:
    """Parse the query *raw*; return the values of *names* by the library's names.

    An unknown name is ignored, or InvalidInput if *strict*. Raise InvalidInput also for a name
    given twice, a required name that is missing, and a value of the wrong type.
    """
    found: dict[str, Any] = {}
    for pair in raw.split(b"&") if raw else ():
        if not pair:
            continue
        wire, _, value = pair.partition(b"=")
        name = names.get(_decoded("query", wire))
        if name is None:
            if strict:
                known = ", ".join(names) or "none"
                raise InvalidInput(
                    shortened(_decoded("query", wire)),
                    "is not a name this query knows",
                    next=f"Known: {known}.",
                )
            continue
        read = name.read(name.wire, _decoded(name.wire, value))
        if name.many:
            found.setdefault(name.key, []).append(read)
        elif name.key in found:
            raise InvalidInput(name.wire, "is given twice", next="Send it once.")
        else:
            found[name.key] = read
    for name in names.values():
        if name.required and name.key not in found:
            raise InvalidInput(name.wire, "is required")
        if name.checked:
            found.pop(name.key, None)
    return found


def _decoded(field: str, raw: bytes) -> str:
    try:
        return unquote_to_bytes(raw.replace(b"+", b" ")).decode()
    except UnicodeDecodeError:
        raise InvalidInput(field, "is not UTF-8") from None


def _any_text(_field: str, given: str) -> str:
    return given


def _integer(field: str, given: str) -> int:
    if not _DIGITS.fullmatch(given):
        raise InvalidInput(field, "must be an integer", given=given)
    if len(given) > _DIGITS_MOST:
        raise InvalidInput(field, "is out of range", given=given)
    return int(given)


def _number(field: str, given: str) -> float:
    if not _NUMBER.fullmatch(given):
        raise InvalidInput(field, "must be a number", given=given)
    return float(given)


def _flag(field: str, given: str) -> bool:
    if given not in {"true", "false"}:
        raise InvalidInput(field, "must be true or false", given=given)
    return given == "true"


def _one_of(values: tuple[str, ...]) -> Callable[[str, str], str]:
    def read(field: str, given: str) -> str:
        if given not in values:
            raise InvalidInput(field, f"must be {' or '.join(values)}", given=given)
        return given

    return read


def _instant(field: str, given: str) -> datetime:
    try:
        instant = datetime.fromisoformat(given.upper() if _INSTANT.fullmatch(given) else "")
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            field,
            "must be an instant",
            given=given,
            next="Send RFC 3339, such as 2026-11-21T10:00:00Z, with + as %2B.",
        ) from None


def moment(wire: str) -> Name:
    """Return an instant parameter, or a span back from now, such as `90m` or `7d`."""
    return Name(wire, _moment, {"type": "string"})


def span_of(given: str) -> timedelta | None:
    """Parse a span: a number, then s, m, h or d; return None if it is none."""
    found = _SPAN.fullmatch(given)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None
    except OverflowError:
        return None


def _moment(field: str, given: str) -> datetime | timedelta | None:
    return span_of(given) or _instant(field, given) if given else None


PAGE = (integer("limit"), text("page"))


B = TypeVar("B", bound=Struct)
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
    """Incomplete requests without a credential: a quarter of the requests in flight."""

    def body_deadline(self, size: int) -> float:
        """Return the seconds from a body's start to the next byte's deadline.

        *size* is the number of bytes that have arrived.
        """
        return min(self.body_seconds, self.body_grace + size / self.body_rate)


LIMITS = RequestLimits()


class Bodies:
    """Registry of the request bodies that one server holds in memory."""

    def __init__(self, limits: RequestLimits) -> None:
        self.limits = limits
        self.held = 0
        """Bytes in memory."""
        self.half_sent: set[IncomingBody] = set()
        """Incomplete bodies of requests without a credential."""

    def take(self, size: int) -> None:
        """Count *size* more bytes; raise Unavailable if that exceeds the limit."""
        if self.held + size > self.limits.bodies_bytes:
            raise Unavailable(
                f"The server holds {self.held:,} bytes of request bodies and has no memory for"
                " more.",
                reason="overloaded",
                retry_after=1,
            )
        self.held += size

    def enter(self, body: "IncomingBody") -> None:
        """Add an incomplete *body*; if there are too many, end the most overdue one."""
        if len(self.half_sent) >= self.limits.half_sent:
            slowest = min(self.half_sent, key=IncomingBody.deadline)
            self.half_sent.discard(slowest)
            slowest.end()
        self.half_sent.add(body)


class IncomingBody:
    """Body of one request; its bytes count as held in memory until `release`."""

    def __init__(self, bodies: Bodies, *, keyed: bool) -> None:
        self._bodies, self._keyed = bodies, keyed
        self._size = 0
        self._timeout = asyncio.timeout(None)
        self._ended = False

    async def read(self, headers: Mapping[bytes, bytes], receive: Receive, limit: int) -> bytes:
        """Return the whole body.

        Raise TooLarge if it has more than *limit* bytes; RequestTimeout if it is late; Unavailable
        if there is no memory for it, or if too many bodies without a credential are incomplete.
        """
        declared = headers.get(b"content-length")
        if declared is not None and declared.isdigit() and int(declared) > limit:
            raise TooLarge(limit)
        # A body that has already arrived is read before the loop runs this.
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
        """Return the deadline of its next byte, by the loop's clock."""
        return self._timeout.when() or 0.0

    def end(self) -> None:
        """Stop reading it, in favour of another request."""
        self._ended = True
        self._timeout.reschedule(0.0)

    def release(self) -> None:
        """Stop counting its bytes as held."""
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
    """Greatest nesting of a body, and its parser."""

    depth: int
    parser: json.JSONDecoder


def read_json(raw: bytes, limits: BodyLimits | None = None) -> JSONObject:
    """Parse the JSON object in *raw*; raise InvalidInput with the wrong key."""
    limits = limits or USUAL
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise InvalidInput("body", "is not UTF-8") from None
    except MemoryError:
        raise out_of_memory() from None
    try:
        value = limits.parser.decode(text)
    except MemoryError:
        raise out_of_memory() from None
    except RecursionError:
        raise InvalidInput("body", f"is nested more than {limits.depth} levels deep") from None
    except json.JSONDecodeError as error:
        raise _no_json(text, error) from None
    if not isinstance(value, dict):
        raise InvalidInput("body", "must be a JSON object")
    _check_text_and_depth(cast("JSONObject", value), limits.depth, escapes="\\u" in text)
    return cast("JSONObject", value)


def read_lines(raw: bytes) -> list[object]:
    """Parse each line of *raw* that is not blank as JSON.

    Raise InvalidInput with the number of a line that is invalid.
    """
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


def read_body(raw: bytes, make: type[B], limits: BodyLimits | None = None) -> B:
    """Parse *raw* as a *make*; raise InvalidInput with the wrong key."""
    value = read_json(raw, limits)
    try:
        return msgspec.convert(value, make)
    except msgspec.ValidationError as error:
        raise _explained(str(error), make) from None


def _explained(message: str, make: type[Struct]) -> InvalidInput:
    """Return msgspec's *message* about a *make* as an error with the key."""
    if found := _MISSING.fullmatch(message):
        return InvalidInput(_field(found[2], found[1]), "is required")
    if found := _UNKNOWN.fullmatch(message):
        known = "" if found[2] else f"Known: {', '.join(make.__struct_fields__)}."
        return InvalidInput(_field(found[2], found[1]), "is not a key here", next=known)
    found = _OTHER.fullmatch(message)
    reason, where = (found[1], found[2]) if found else (message, "")
    if types := _EXPECTED.fullmatch(reason):
        subject = "each value " if (where or "").endswith("[...]") else ""
        reason = f"{subject}must be {_named(types[1])}, is {_named(types[2])}"
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
"""For output of models and tools: nested deeper, with signed or unsigned 64-bit integers."""


def _check_text_and_depth(body: JSONObject, depth: int, *, escapes: bool) -> None:
    """Raise InvalidInput for a lone surrogate, or nesting deeper than *depth*.

    Only text with *escapes* can contain a lone surrogate.
    """
    for key, value in body.items():
        if escapes:
            encoded(shortened(key), key)
        elif not isinstance(value, dict | list):
            continue
        field = shortened(key)
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
