"""The JSON Schemas of a plan: as a dict or as JSON text, and what may be wrong with one."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, cast

import jsonschema
import msgspec
import referencing
import referencing.exceptions
import referencing.jsonschema

from holdfast.tools.base import Schema


class BadSchema(ValueError):
    """It is no JSON Schema; the text says why."""


def schema_of(given: Schema | str | None) -> Schema | None:
    """Return *given* as a dict, None for none; BadSchema when it cannot be used as a schema."""
    if given is None:
        return None
    schema = _parsed(given) if isinstance(given, str) else given
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    except (TypeError, ValueError, RecursionError) as error:
        raise BadSchema(f"is not JSON: {error}") from error
    _check(encoded)
    return schema


@lru_cache(maxsize=256)
def _check(encoded: bytes) -> None:
    """Raise BadSchema for what is no schema; steps often have the same one, and this is slow."""
    schema = msgspec.json.decode(encoded)
    checker = cast("Any", jsonschema.Draft202012Validator)
    try:
        checker.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise BadSchema(f"is no JSON Schema: {error.message} at {error.json_path}") from error
    except RecursionError as error:
        raise BadSchema("is nested too deeply") from error
    for reference in sorted(set(_references(schema))):
        _resolved(schema, reference)


def _parsed(text: str) -> Schema:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadSchema(f"does not parse: {error}") from error
    if not isinstance(found, dict):
        raise BadSchema(f"must be an object, not {type(found).__name__}")
    return cast("Schema", found)


def _resolved(schema: Schema, reference: str) -> None:
    """Follow *reference* within *schema*; nothing is ever fetched from elsewhere."""
    root = referencing.jsonschema.DRAFT202012.create_resource(schema)
    resolver = referencing.Registry[Any]().resolver_with_root(root)
    try:
        resolver.lookup(reference)
    except referencing.exceptions.Unresolvable as error:
        raise BadSchema(f"refers to {reference!r}, which is not in it") from error


def _references(part: object) -> Iterator[str]:
    """Find where *part* refers to; a part with an id of its own speaks of other places."""
    if isinstance(part, dict):
        members = cast("dict[str, object]", part)
        if isinstance(members.get("$id"), str):
            return
        if isinstance(reference := members.get("$ref"), str):
            yield reference
        for name, value in members.items():
            if name not in ("const", "enum", "default", "examples"):
                yield from _references(value)
    elif isinstance(part, list):
        for value in cast("list[object]", part):
            yield from _references(value)
