"""A request's query: each name known, given once, and of its kind."""

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import unquote_to_bytes

from msgspec import Struct

from holdfast.ground.errors import InvalidInput, shortened

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
    """A name a route's query may hold: how it is read, and what the library calls it.

    With *many* it may be given more than once and is a list. A *checked* one is read and not
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


def text(wire: str, library: str = "", *, required: bool = False, nul: bool = False) -> Name:
    """Return a name whose value is text; with *nul* it may hold U+0000."""
    return Name(wire, _any_text if nul else _text, {"type": "string"}, library, required=required)


def integer(wire: str, *, required: bool = False) -> Name:
    """Return a name whose value is an integer; the library knows its range."""
    return Name(wire, _integer, {"type": "integer"}, required=required)


def number(wire: str) -> Name:
    """Return a name whose value is a number, with or without a decimal point."""
    return Name(wire, _number, {"type": "number"})


def flag(wire: str) -> Name:
    """Return a name whose value is `true` or `false`."""
    return Name(wire, _flag, {"type": "boolean"})


def one_of(wire: str, *values: str) -> Name:
    """Return a name whose value is one of *values*."""
    return Name(wire, _one_of(values), {"type": "string", "enum": list(values)})


def fixed(wire: str, value: str) -> Name:
    """Return a name that may be left out or have one *value*, which the library always takes."""
    return Name(wire, _one_of((value,)), {"type": "string", "enum": [value]}, checked=True)


def refused(wire: str, why: str) -> Name:
    """Return a name that other servers know and this one refuses with *why*, not ignores."""

    def read(field: str, _given: str) -> str:
        raise InvalidInput(field, why, next="Leave it out.")

    return Name(wire, read, {"not": {}}, checked=True)


def several(wire: str, library: str) -> Name:
    """Return a name that may be given more than once."""
    schema = {"type": "array", "items": {"type": "string"}}
    return Name(wire, _text, schema, library, many=True)


def instants(field: str, *bounds: str) -> tuple[Name, ...]:
    """Return the names `field[bound]`, whose values are instants; without a zone they are UTC."""
    schema = {"type": "string", "format": "date-time"}
    return tuple(Name(f"{field}[{b}]", _instant, schema, f"{field}_{b}") for b in bounds)


def read_query(raw: bytes, names: Mapping[str, Name], *, strict: bool) -> dict[str, Any]:
    """Return what *raw* gives for *names*, as the library calls them.

    A name that is not known is passed over, or InvalidInput when *strict*; so is one given
    twice, and a value that is not of its kind.
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


def _text(field: str, given: str) -> str:
    if "\0" in given:
        raise InvalidInput(field, "must not hold the character U+0000")
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
    """Return a name whose value is an instant, or a span back from now, such as `90m` or `7d`."""
    return Name(wire, _moment, {"type": "string"})


def span_of(given: str) -> timedelta | None:
    """Return the span that *given* says: a number, then s, m, h or d; None if it says none."""
    found = _SPAN.fullmatch(given)
    try:
        return timedelta(**{_UNITS[found[2]]: float(found[1])}) if found else None
    except OverflowError:
        return None


def _moment(field: str, given: str) -> datetime | timedelta | None:
    return span_of(given) or _instant(field, given) if given else None


VIEW = one_of("view", "basic", "full")
PAGE = (integer("limit"), text("page"))
