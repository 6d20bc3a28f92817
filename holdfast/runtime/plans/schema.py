"""Schemas of results: JSON Schemas and types, and checks of results.

A check that could take long runs on a thread with a deadline, so that neither a schema nor what a
model says can stop the event loop.
"""

import asyncio
from collections.abc import Hashable
from functools import lru_cache
from inspect import isroutine
from typing import Any, Final, TypeAlias, cast

import msgspec
from msgspec import Struct
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic import ValidationError as Misfit
from pydantic_core import to_jsonable_python

from holdfast.ground.json_schema import (
    PROBLEMS,
    SECONDS,
    TOO_DEEP,
    BadSchema,
    LateCheck,
    SchemaCheck,
    check_schema,
    problem_at,
    time_limit,
)
from holdfast.tools.base import Schema

OutputSchema: TypeAlias = object
"""A JSON Schema as a dict or as text; a pydantic model, a dataclass, a `TypedDict`, or any other
type that pydantic has a schema for."""

INLINE: Final = 65_536
"""Bytes of a result up to which it is checked without a thread."""

LATE: Final = f"its check took more than {SECONDS:g} s: give a smaller or simpler result"


def schema_of(given: OutputSchema | None) -> Schema | None:
    """Return *given* as a JSON Schema, None for None; raise BadSchema if it is none."""
    if given is None:
        return None
    if isinstance(given, str):
        schema = _parsed(given)
    elif isinstance(given, dict):
        schema = cast("Schema", given)
    else:
        schema = _generated(_adapter(given))
    check_schema(schema)
    return schema


def plain_json(value: Any) -> Any:
    """Return *value* with models of pydantic and dataclasses as JSON objects."""
    return to_jsonable_python(value, fallback=lambda other: other)


def _parsed(text: str) -> Schema:
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise BadSchema(f"does not parse: {error}") from error
    if not isinstance(found, dict):
        raise BadSchema(f"must be an object, not {type(found).__name__}")
    return cast("Schema", found)


def _adapter(given: object) -> TypeAdapter[Any]:
    """Return the validator of the type *given*; recent ones are cached."""
    if isinstance(given, Hashable):
        return _made_adapter(given)
    return _made_adapter.__wrapped__(given)


@lru_cache(maxsize=256, typed=True)
def _made_adapter(given: Hashable) -> TypeAdapter[Any]:
    if isroutine(given):
        # It has a schema for its arguments, and would be called with them.
        raise BadSchema("is a function, and must be a JSON Schema or a type")
    try:
        return TypeAdapter(cast("Any", given))
    except (PydanticUserError, PydanticUndefinedAnnotation) as error:
        reason = str(error).partition("\n")[0]
        raise BadSchema(f"is neither a JSON Schema nor a type that has one: {reason}") from error


def _generated(adapter: TypeAdapter[Any]) -> Schema:
    try:
        return adapter.json_schema()
    except PydanticUserError as error:
        reason = str(error).partition("\n")[0]
        raise BadSchema(f"is a type without a JSON Schema: {reason}") from error


class Candidate(Struct, frozen=True):
    """A result that a model handed over, and its problems."""

    value: Any
    problems: list[str]


class ResultSchema:
    """The schema of a step's result: a JSON Schema, or a type and its schema.

    A check on a thread takes at most *seconds*.
    """

    def __init__(self, given: OutputSchema, *, seconds: float = SECONDS) -> None:
        schema = schema_of(given)
        self.schema: Schema = {} if schema is None else schema
        self._adapter = None if isinstance(given, str | dict) else _adapter(given)
        self._checks = SchemaCheck(self.schema)
        kinds: Any = self.schema.get("type")
        self._is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
        self._seconds = seconds
        self._slow = b'"uniqueItems"' in msgspec.json.encode(self.schema)

    async def checked(self, arguments: dict[str, Any]) -> Candidate:
        """Return the result in *arguments* of `finish_step`, with up to five problems."""
        if not self._slow and _bytes_of(arguments) <= INLINE:
            return self._judged(arguments)
        with time_limit(self._seconds):
            try:
                checking = asyncio.to_thread(self._judged, arguments)
                return await asyncio.wait_for(checking, self._seconds)
            except (LateCheck, TimeoutError):
                return Candidate(None, [LATE])

    def instance(self, value: Any) -> Any:
        """Return the JSON *value* as an instance of the type; unchanged without a type."""
        if self._adapter is None:
            return value
        return self._adapter.validate_json(msgspec.json.encode(value))

    def candidate(self, arguments: dict[str, Any]) -> Any:
        """Return the result in *arguments* of `finish_step`.

        That is `result` if it exists, else all of them. JSON text is decoded where the schema
        allows no text, and `{"items": […]}` becomes its list where it allows a list.
        """
        found: Any = arguments.get("result") if "result" in arguments else arguments
        if isinstance(found, str):
            found = self._untexted(found)
        if self._is_array and isinstance(found, dict):
            items = cast("dict[str, Any]", found)
            if items.keys() == {"items"} and isinstance(items["items"], list):
                return cast("list[Any]", items["items"])
        return cast("Any", found)

    def problems(self, candidate: object) -> list[str]:
        """Return up to five problems of *candidate*: place, expectation, value."""
        try:
            return self._checks.problems(candidate) or self._misfits(candidate)
        except RecursionError:
            return [TOO_DEEP]

    def _judged(self, arguments: dict[str, Any]) -> Candidate:
        try:
            candidate = self.candidate(arguments)
        except RecursionError:
            return Candidate(None, [TOO_DEEP])
        return Candidate(candidate, self.problems(candidate))

    def _misfits(self, candidate: object) -> list[str]:
        """Return the problems that the type has with *candidate* beside its schema."""
        try:
            self.instance(candidate)
        except Misfit as error:
            found = error.errors(include_url=False)[:PROBLEMS]
            return [problem_at(each["loc"], each["msg"], each["input"]) for each in found]
        return []

    def _untexted(self, text: str) -> Any:
        """Return the JSON value of *text*, if the schema allows it and no text."""
        if self._wants(text):
            return text
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return text
        may_wrap = self._is_array and type(cast("object", value)) is dict
        return value if may_wrap or self._wants(value) else text

    def _wants(self, value: object) -> bool:
        """Return whether the schema allows the type of *value*."""
        return self._checks.allows(value, self.schema.get("type"))


def _bytes_of(arguments: dict[str, Any]) -> int:
    """Return the size of *arguments* as JSON; more than any limit for what is no JSON."""
    try:
        return len(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError):
        return INLINE + 1
