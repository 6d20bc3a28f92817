"""Encode a call as the path, query and body of a request.

Arguments are sent unchanged, so that the server, which knows the limits, validates them. Only
values that a request cannot encode are refused here.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from math import isfinite
from typing import cast
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, Struct

from holdfast.ground.errors import InvalidInput
from holdfast.ground.text import encoded


def route(prefix: str, *segments: str) -> str:
    """Return *prefix* and each of *segments* as one percent-encoded segment of a path.

    A segment of invalid text is sent too: the server responds NotFound.
    """
    return "/".join((prefix, *(_segment(each) for each in segments)))


def _segment(given: str) -> str:
    # A proxy would take "." and ".." for directories.
    quoted = quote(given.encode("utf-8", "surrogatepass"), safe="")
    return quoted.replace(".", "%2E") if quoted in {".", ".."} else quoted


def query_of(fields: Mapping[str, object]) -> str:
    """Encode *fields* as a query string with its `?`.

    None is left out, a list repeats its name.

    Raises InvalidInput for a value that a query cannot encode.
    """
    pairs = [
        (name, _in_query(name, each))
        for name, value in fields.items()
        for each in (cast("list[object]", value) if isinstance(value, list) else [value])
        if each is not None
    ]
    return f"?{urlencode(pairs, quote_via=quote)}" if pairs else ""


def _in_query(field: str, value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        encoded(field, value)
        return value
    if isinstance(value, int | float):
        return str(value)
    raise InvalidInput(field, "must be text, a number, a truth value or an instant", given=value)


def edits_on_wire(edits: object) -> object:
    """Encode *edits* for a body; invalid ones are left for the server to refuse."""
    if not isinstance(edits, list | tuple):
        return edits
    given = cast("Iterable[object]", edits)
    return [msgspec.to_builtins(each) if isinstance(each, Struct) else each for each in given]


def body_of(fields: Mapping[str, object]) -> bytes:
    """Encode *fields* as a JSON object, without those that are UNSET.

    Raises InvalidInput naming the field with a value that JSON cannot encode unchanged.
    """
    given = {name: value for name, value in fields.items() if value is not UNSET}
    return msgspec.json.encode({name: _within(name, value) for name, value in given.items()})


def json_of(field: str, value: object) -> bytes:
    """Encode *value* as JSON; InvalidInput about *field* if JSON cannot hold it."""
    return msgspec.json.encode(_within(field, value))


def _within(field: str, value: object) -> object:
    try:
        return _plain(field, value)
    except RecursionError:
        raise InvalidInput(field, "is nested too deeply") from None


def _plain(field: str, value: object) -> object:
    """Convert *value* to JSON's own types; InvalidInput for invalid text or types."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        encoded(field, value)
        return value
    if isinstance(value, float):
        return _finite(field, value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {_key(field, key): _plain(field, each) for key, each in pairs}
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray):
        return [_plain(field, each) for each in cast("Iterable[object]", value)]
    raise InvalidInput(field, "must be a JSON value", given=value)


def _finite(field: str, value: float) -> float:
    if not isfinite(value):
        raise InvalidInput(field, "must be a finite number", given=value)
    return value


def _key(field: str, given: object) -> str:
    if not isinstance(given, str):
        raise InvalidInput(field, "must have strings as keys", given=given)
    encoded(field, given)
    return given
