"""Arguments held to a JSON Schema, for tools that have a schema and no signature.

jsonschema takes 30 ms to import, so the functions that need it import it.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

from pydantic_ai.exceptions import ModelRetry
from pydantic_core import SchemaValidator

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

PROBLEMS = 5
"""So many problems are told at once."""

Partial = bool | Literal["off", "on", "trailing-strings"]


class Checks(Protocol):
    """What is used of a validator of jsonschema."""

    def iter_errors(self, instance: object) -> "Iterator[ValidationError]":
        """Give each way in which *instance* breaks the schema."""
        ...


def checks(schema: Mapping[str, Any]) -> Checks:
    """Return what holds values to *schema*, in the draft it names, 2020-12 by default."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for

    return cast("Checks", validator_for(schema, default=Draft202012Validator)(schema))


def unusable(schema: object) -> str | None:
    """Return why *schema* cannot be a tool's, or None."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return "the schema is no object"
    known = cast("dict[str, Any]", schema)
    if known.get("type") != "object":
        return "the schema is not one of an object"
    if foreign := next((ref for ref in _references(known) if not ref.startswith("#")), None):
        return f"the schema refers to {foreign!r}"
    try:
        validator_for(known, default=Draft202012Validator).check_schema(known)
    except SchemaError as error:
        return f"the schema is broken at {error.json_path}: {error.message}"
    return None


def takes_anything(validator: object) -> bool:
    """Tell whether *validator* lets every argument pass."""
    return isinstance(validator, SchemaValidator) and validator.title in {"any", "dict[str,any]"}


class BySchema:
    """Lets only arguments pass that *schema* allows; what is wrong goes back to the model."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._schema = schema

    @cached_property
    def _checks(self) -> Checks:
        return checks(self._schema)

    def validate_json(
        self, input: str | bytes | bytearray, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments in the text *input*."""
        try:
            given: object = json.loads(input)
        except ValueError as error:
            raise ModelRetry(f"the arguments are not JSON: {error}") from error
        return self.validate_python(given, allow_partial=allow_partial, **kwargs)

    def validate_python(
        self,
        input: Any,
        *,
        allow_partial: Partial = False,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> dict[str, Any]:
        """Return the arguments *input*."""
        if not isinstance(input, dict):
            raise ModelRetry(f"the arguments must be an object, not {json.dumps(input)[:60]}")
        problems = list(self._checks.iter_errors(cast("object", input)))
        if problems:
            raise ModelRetry("; ".join(map(_told, problems[:PROBLEMS])))
        return cast("dict[str, Any]", input)


def _told(problem: "ValidationError") -> str:
    return f"{problem.json_path}: {problem.message}"


def _references(schema: object) -> Iterator[str]:
    if isinstance(schema, dict):
        for key, value in cast("dict[str, object]", schema).items():
            if key in {"$ref", "$dynamicRef"} and isinstance(value, str):
                yield value
            else:
                yield from _references(value)
    elif isinstance(schema, list):
        for value in cast("list[object]", schema):
            yield from _references(value)
