"""Schemas of results: JSON Schemas and types, their limits, checks of results.

Patterns are matched by an engine of linear time, and a check that could take long runs on a thread
with a deadline, so that neither a schema nor what a model says can stop the event loop.
"""

import asyncio
import json
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping
from contextvars import ContextVar
from functools import lru_cache
from inspect import isroutine
from itertools import islice
from time import monotonic
from typing import Any, Final, Literal, TypeAlias, cast

import jsonschema
import msgspec
import referencing
import referencing.exceptions
import referencing.jsonschema
from jsonschema import validators
from jsonschema.exceptions import ValidationError
from msgspec import Struct
from pydantic import PydanticUndefinedAnnotation, PydanticUserError, TypeAdapter
from pydantic import ValidationError as Misfit
from pydantic_core import SchemaError, SchemaValidator, core_schema, to_jsonable_python

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.tools.base import Schema

OutputSchema: TypeAlias = object
"""A JSON Schema as a dict or as text; a pydantic model, a dataclass, a `TypedDict`, or any other
type that pydantic has a schema for."""

LEVELS, NODES = 64, 2_000
"""Limits of a schema: levels of its objects and lists, and their number."""

DEPTH: Final = 200
"""Greatest nesting depth of a result."""

PROBLEMS: Final = 5
"""Problems returned to the model at once."""

SHOWN: Final = 120
"""Characters of a value that a problem shows."""

INLINE: Final = 65_536
"""Bytes of a result up to which it is checked without a thread."""

SECONDS: Final = 2.0
"""Longest check of a result on a thread."""

LATE: Final = f"its check took more than {SECONDS:g} s: give a smaller or simpler result"


TOO_DEEP: Final = "it is nested too deeply"


class BadSchema(ValueError):
    """The value is no schema that can be used; the text gives the reason.

    *code* is that of the problem of a plan.
    """

    def __init__(self, message: str, code: Literal["schema", "pattern"] = "schema") -> None:
        super().__init__(message)
        self.code = code


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
    _check_size(schema)
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    except (TypeError, ValueError) as error:
        raise BadSchema(f"is not JSON: {error}") from error
    _check(encoded)
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


def _check_size(schema: Schema) -> None:
    """Raise BadSchema if *schema* is too deep or too large."""
    level: list[object] = [schema]
    nodes = 0
    for depth in range(LEVELS + 1):
        nodes += len(level)
        if nodes > NODES:
            raise BadSchema(f"has over {NODES:,} objects and lists")
        if not level:
            return
        if depth == LEVELS:
            raise BadSchema(f"is nested over {LEVELS} levels deep")
        level = [inner for part in level for inner in _inner(part)]


def _inner(part: object) -> list[object]:
    """Return the objects and lists directly within *part*."""
    members = cast("Schema", part).values() if isinstance(part, dict) else part
    return [each for each in cast("list[object]", members) if isinstance(each, dict | list | tuple)]


@lru_cache(maxsize=256)
def _check(encoded: bytes) -> None:
    """Raise BadSchema for an invalid schema; cached, as it is slow and steps repeat."""
    schema = msgspec.json.decode(encoded)
    try:
        # Patterns are checked below, by the engine that matches them.
        checker = cast("Any", jsonschema.Draft202012Validator)
        checker.check_schema(schema, format_checker=jsonschema.FormatChecker(()))
    except jsonschema.SchemaError as error:
        raise BadSchema(f"is no JSON Schema: {error.message} at {error.json_path}") from error
    for part, root in _parts(schema, schema):
        _check_part(part, root)


def _check_part(part: Schema, root: Schema) -> None:
    """Raise BadSchema for a pattern or a reference of *part*, whose root is *root*."""
    patterns = [part["pattern"]] if "pattern" in part else []
    for pattern in (*patterns, *part.get("patternProperties", ())):
        matcher(pattern)
    if "unevaluatedProperties" in part and b'"patternProperties"' in msgspec.json.encode(root):
        raise BadSchema("has unevaluatedProperties together with patternProperties")
    for name in ("$ref", "$dynamicRef"):
        if isinstance(reference := part.get(name), str):
            _resolved(root, reference)


def _resolved(schema: Schema, reference: str) -> None:
    """Resolve *reference* within *schema*; nothing is fetched."""
    if not reference.startswith("#"):
        raise BadSchema(f"refers to {reference!r}; a reference must begin with #")
    root = referencing.jsonschema.DRAFT202012.create_resource(schema)
    resolver = referencing.Registry[Any]().resolver_with_root(root)
    try:
        resolver.lookup(reference)
    except referencing.exceptions.Unresolvable as error:
        raise BadSchema(f"refers to {reference!r}, which is not in it") from error


_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_NAMED: Final = frozenset(
    {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
)
"""Keywords whose value has a schema under each name."""


def _parts(part: object, root: Schema) -> Iterator[tuple[Schema, Schema]]:
    """Yield each schema within *part*, with the root of its references."""
    if isinstance(part, list):
        for each in cast("list[object]", part):
            yield from _parts(each, root)
    elif isinstance(part, dict):
        schema = cast("Schema", part)
        root = schema if isinstance(schema.get("$id"), str) else root
        yield schema, root
        for name, value in schema.items():
            if name in _NAMED and isinstance(value, dict):
                yield from _parts(list(cast("Schema", value).values()), root)
            elif name not in _DATA:
                yield from _parts(value, root)


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the search of linear time for *pattern*, or raise BadSchema."""
    rule = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    try:
        return SchemaValidator(rule).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        message = f"the pattern {pattern[:SHOWN]!r} cannot be used: {reason}"
        raise BadSchema(message, "pattern") from error


# The keywords of JSON Schema, each bounded by the deadline of its check.

Found: TypeAlias = Generator[ValidationError]
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Found]


class _Late(Exception):
    """The check of a result has passed its deadline."""


_deadline: ContextVar[float | None] = ContextVar("_deadline", default=None)


def _bounded(keyword: Keyword) -> Keyword:
    def checked(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
        deadline = _deadline.get()
        if deadline is not None and monotonic() > deadline:
            raise _Late
        yield from keyword(validator, rule, instance, schema) or ()

    return checked


def _pattern(validator: Any, rule: str, instance: Any, schema: Any) -> Found:
    del schema
    if validator.is_type(instance, "string") and not matcher(rule)(instance):
        yield ValidationError(f"{instance!r} does not match {rule!r}")


def _pattern_properties(validator: Any, rule: Schema, instance: Any, schema: Any) -> Found:
    del schema
    if validator.is_type(instance, "object"):
        for pattern, inner in rule.items():
            for name in filter(matcher(pattern), instance):
                yield from validator.descend(instance[name], inner, path=name, schema_path=pattern)


def _additional(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
    patterns = list(map(matcher, schema.get("patternProperties", ())))
    if patterns and validator.is_type(instance, "object"):
        instance = {
            name: value
            for name, value in instance.items()
            if not any(matches(name) for matches in patterns)
        }
        schema = {name: value for name, value in schema.items() if name != "patternProperties"}
    yield from _KEYWORDS["additionalProperties"](validator, rule, instance, schema)


def _unique(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
    del schema
    listed = instance if rule and validator.is_type(instance, "array") else ()
    if len(set(map(_hashable, listed))) < len(listed):
        yield ValidationError("it has the same item twice")


def _hashable(value: Any) -> Hashable:
    """Return a key that is equal for equal JSON values, and differs for 1 and true."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return ("object", frozenset((name, _hashable(each)) for name, each in members.items()))
    if isinstance(value, list):
        return ("array", tuple(map(_hashable, cast("list[Any]", value))))
    return (isinstance(value, bool), cast("Hashable", value))


_KEYWORDS: Final[Mapping[str, Keyword]] = cast("Any", jsonschema.Draft202012Validator).VALIDATORS

_Validator: Final = cast("Any", validators).extend(
    jsonschema.Draft202012Validator,
    {
        name: _bounded(keyword)
        for name, keyword in {
            **_KEYWORDS,
            "pattern": _pattern,
            "patternProperties": _pattern_properties,
            "additionalProperties": _additional,
            "uniqueItems": _unique,
        }.items()
    },
)

_KINDS: Final[dict[type[Any], str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


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
        self._checks = _Validator(self.schema)
        kinds: Any = self.schema.get("type")
        self._is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
        self._seconds = seconds
        self._slow = b'"uniqueItems"' in msgspec.json.encode(self.schema)

    async def checked(self, arguments: dict[str, Any]) -> Candidate:
        """Return the result in *arguments* of `finish_step`, with up to five problems."""
        if not self._slow and _bytes_of(arguments) <= INLINE:
            return self._judged(arguments)
        token = _deadline.set(monotonic() + self._seconds)
        try:
            checking = asyncio.to_thread(self._judged, arguments)
            return await asyncio.wait_for(checking, self._seconds)
        except (_Late, TimeoutError):
            return Candidate(None, [LATE])
        finally:
            _deadline.reset(token)

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
            json_values.encode(candidate, root="", depth=DEPTH, field="result")
            errors = islice(self._checks.iter_errors(candidate), PROBLEMS)
            found = [_problem(each) for each in errors] or self._misfits(candidate)
        except InvalidInput as error:
            return [error.reason]
        except RecursionError:
            return [TOO_DEEP]
        return found

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
            return [_misfit(each) for each in error.errors(include_url=False)[:PROBLEMS]]
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
        kinds: Any = self.schema.get("type")
        if kinds is None:
            return self._checks.is_valid(value)
        listed = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
        return any(self._checks.is_type(value, kind) for kind in listed)


def _bytes_of(arguments: dict[str, Any]) -> int:
    """Return the size of *arguments* as JSON; more than any limit for what is no JSON."""
    try:
        return len(msgspec.json.encode(arguments))
    except (TypeError, ValueError, RecursionError):
        return INLINE + 1


def _problem(error: ValidationError) -> str:
    where, came = _at(error.absolute_path), cast("Any", error.instance)
    return f"{where}: expected {_expected(error)}; came {_kind(came)} {_shown(came)}"


def _misfit(error: Mapping[str, Any]) -> str:
    came: Any = error["input"]
    return f"{_at(error['loc'])}: {error['msg']}; came {_kind(came)} {_shown(came)}"


def _at(path: Any) -> str:
    return 'at "' + "".join(f"/{_escaped(part)}" for part in path) + '"'


def _expected(error: ValidationError) -> str:
    rule, said = str(error.validator), cast("Any", error.validator_value)
    match rule:
        case "type":
            expected = " or ".join(cast("list[str]", said)) if isinstance(said, list) else str(said)
        case "enum":
            expected = f"one of {_shown(said)}"
        case "required":
            missing = [name for name in said if name not in cast("Any", error.instance)]
            expected = f"the members {_shown(missing)} as well"
        case "additionalProperties" | "unevaluatedProperties":
            expected = f"no others ({error.message[:SHOWN]})"
        case _:
            expected = f"{rule} {_shown(said)}"
    return expected


def _kind(value: object) -> str:
    kind: type[Any] = type(value)
    return _KINDS.get(kind, kind.__name__)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")
