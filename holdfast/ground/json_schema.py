"""Check JSON Schemas, and JSON values against them, within stated limits.

Patterns are matched by an engine of linear time, and a check has a deadline, so that neither a
schema nor a value can keep a thread for long. The libraries that it needs come with an extra, and
are loaded on first use.
"""

import json
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, lru_cache
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

import msgspec

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

JSONSchema: TypeAlias = dict[str, Any]

LEVELS, NODES = 64, 2_000
"""Limits of a schema: levels of its objects and lists, and their number."""

DEPTH: Final = 200
"""Greatest nesting depth of a value."""

PROBLEMS: Final = 5
"""Problems returned at once."""

SHOWN: Final = 120
"""Characters of a value that a problem shows."""

SECONDS: Final = 2.0
"""Longest check of a value."""

TOO_DEEP: Final = "it is nested too deeply"


class BadSchema(ValueError):
    """The value is no schema that can be used; the text gives the reason.

    *code* is that of the problem of a plan.
    """

    def __init__(self, message: str, code: Literal["schema", "pattern"] = "schema") -> None:
        super().__init__(message)
        self.code = code


class LateCheck(Exception):
    """The check of a value has passed its deadline."""


class SchemaCheck:
    """Checks values against a JSON Schema, which `check_schema` has passed."""

    def __init__(self, schema: JSONSchema) -> None:
        self._validator = _validator()(schema)

    def problems(self, value: object) -> list[str]:
        """Return up to five problems of *value*: place, expectation, value.

        Raise `LateCheck` past the end of a block of `time_limit`.
        """
        try:
            json_values.encode(value, root="", depth=DEPTH, field="result")
            errors = islice(self._validator.iter_errors(value), PROBLEMS)
            return [_problem(each) for each in errors]
        except InvalidInput as error:
            return [error.reason]
        except RecursionError:
            return [TOO_DEEP]

    def allows(self, value: object, kinds: object) -> bool:
        """Return whether *value* is of one of *kinds*, the `type` of a schema.

        Without kinds, whether the schema allows it.
        """
        if kinds is None:
            return self._validator.is_valid(value)
        listed = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
        return any(self._validator.is_type(value, kind) for kind in listed)


@contextmanager
def time_limit(seconds: float) -> Generator[None]:
    """Let every check of the block end within *seconds*."""
    token = _deadline.set(monotonic() + seconds)
    try:
        yield
    finally:
        _deadline.reset(token)


def check_schema(schema: JSONSchema) -> None:
    """Raise `BadSchema` for a schema that is invalid, too large or not JSON."""
    _check_size(schema)
    try:
        encoded = msgspec.json.encode(schema, order="sorted")
    except (TypeError, ValueError) as error:
        raise BadSchema(f"is not JSON: {error}") from error
    _check(encoded)


def _check_size(schema: JSONSchema) -> None:
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
    members = cast("JSONSchema", part).values() if isinstance(part, dict) else part
    return [each for each in cast("list[object]", members) if isinstance(each, dict | list | tuple)]


@lru_cache(maxsize=256)
def _check(encoded: bytes) -> None:
    """Raise BadSchema for an invalid schema; cached, as it is slow and steps repeat."""
    draft, schema = _draft(), msgspec.json.decode(encoded)
    import jsonschema

    try:
        # Patterns are checked below, by the engine that matches them.
        draft.check_schema(schema, format_checker=jsonschema.FormatChecker(()))
    except jsonschema.SchemaError as error:
        raise BadSchema(f"is no JSON Schema: {error.message} at {error.json_path}") from error
    for part, root in _parts(schema, schema):
        _check_part(part, root)


def _check_part(part: JSONSchema, root: JSONSchema) -> None:
    """Raise BadSchema for a pattern or a reference of *part*, whose root is *root*."""
    patterns = [part["pattern"]] if "pattern" in part else []
    for pattern in (*patterns, *part.get("patternProperties", ())):
        matcher(pattern)
    if "unevaluatedProperties" in part and b'"patternProperties"' in msgspec.json.encode(root):
        raise BadSchema("has unevaluatedProperties together with patternProperties")
    for name in ("$ref", "$dynamicRef"):
        if isinstance(reference := part.get(name), str):
            _resolved(root, reference)


def _resolved(schema: JSONSchema, reference: str) -> None:
    """Resolve *reference* within *schema*; nothing is fetched."""
    if not reference.startswith("#"):
        raise BadSchema(f"refers to {reference!r}; a reference must begin with #")
    import referencing.exceptions
    import referencing.jsonschema

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


def _parts(part: object, root: JSONSchema) -> Iterator[tuple[JSONSchema, JSONSchema]]:
    """Yield each schema within *part*, with the root of its references."""
    if isinstance(part, list):
        for each in cast("list[object]", part):
            yield from _parts(each, root)
    elif isinstance(part, dict):
        schema = cast("JSONSchema", part)
        root = schema if isinstance(schema.get("$id"), str) else root
        yield schema, root
        for name, value in schema.items():
            if name in _NAMED and isinstance(value, dict):
                yield from _parts(list(cast("JSONSchema", value).values()), root)
            elif name not in _DATA:
                yield from _parts(value, root)


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Callable[[str], bool]:
    """Return the search of linear time for *pattern*, or raise BadSchema."""
    try:
        from pydantic_core import SchemaError, SchemaValidator, core_schema
    except ImportError as error:
        raise MissingExtra("agents") from error
    rule = core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")
    try:
        return SchemaValidator(rule).isinstance_python
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip()
        message = f"the pattern {pattern[:SHOWN]!r} cannot be used: {reason}"
        raise BadSchema(message, "pattern") from error


# The keywords of JSON Schema, each bounded by the deadline of its check.

Found: TypeAlias = "Generator[ValidationError]"
Keyword: TypeAlias = Callable[[Any, Any, Any, Any], Found]

_deadline: ContextVar[float | None] = ContextVar("_deadline", default=None)


@cache
def _draft() -> Any:
    """Return the validator of JSON Schema that ours extends."""
    try:
        import jsonschema
    except ImportError as error:
        raise MissingExtra("agents") from error
    return jsonschema.Draft202012Validator


@cache
def _validator() -> Any:
    """Return our validator: bounded in time, with patterns of linear time."""
    draft = _draft()
    from jsonschema import validators

    ours: dict[str, Keyword] = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional,
        "uniqueItems": _unique,
    }
    keywords = {**draft.VALIDATORS, **ours}
    bounded = {name: _bounded(keyword) for name, keyword in keywords.items()}
    return cast("Any", validators).extend(draft, bounded)


def _error(text: str) -> "ValidationError":
    from jsonschema.exceptions import ValidationError

    return ValidationError(text)


def _bounded(keyword: Keyword) -> Keyword:
    def checked(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
        deadline = _deadline.get()
        if deadline is not None and monotonic() > deadline:
            raise LateCheck
        yield from keyword(validator, rule, instance, schema) or ()

    return checked


def _pattern(validator: Any, rule: str, instance: Any, schema: Any) -> Found:
    del schema
    if validator.is_type(instance, "string") and not matcher(rule)(instance):
        yield _error(f"{instance!r} does not match {rule!r}")


def _pattern_properties(validator: Any, rule: JSONSchema, instance: Any, schema: Any) -> Found:
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
    yield from _draft().VALIDATORS["additionalProperties"](validator, rule, instance, schema)


def _unique(validator: Any, rule: Any, instance: Any, schema: Any) -> Found:
    del schema
    listed = instance if rule and validator.is_type(instance, "array") else ()
    if len(set(map(_hashable, listed))) < len(listed):
        yield _error("it has the same item twice")


def _hashable(value: Any) -> Hashable:
    """Return a key that is equal for equal JSON values, and differs for 1 and true."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return ("object", frozenset((name, _hashable(each)) for name, each in members.items()))
    if isinstance(value, list):
        return ("array", tuple(map(_hashable, cast("list[Any]", value))))
    return (isinstance(value, bool), cast("Hashable", value))


_KINDS: Final[dict[type[Any], str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def _problem(error: "ValidationError") -> str:
    return problem_at(error.absolute_path, f"expected {_expected(error)}", error.instance)


def problem_at(place: Iterable[object], expected: str, came: object) -> str:
    """Return a problem in words: where, what was expected, what came."""
    return f"{_at(place)}: {expected}; came {_kind(came)} {_shown(came)}"


def _at(path: Iterable[object]) -> str:
    return 'at "' + "".join(f"/{_escaped(part)}" for part in path) + '"'


def _expected(error: "ValidationError") -> str:
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
