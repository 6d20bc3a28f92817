"""What a model hands over as a step's result: found in what it sent, and held to the schema."""

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, Final, cast

import msgspec
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.runtime.plans.plan import BadSchema, schema_of
from holdfast.tools.base import Schema

PROBLEMS: Final = 5
"""So many problems go back to the model at once."""

DEPTH: Final = 200
"""How deep a result may be nested."""

SHOWN: Final = 120
"""Characters of what came that a problem shows."""

_KINDS: Final[dict[type[Any], str]] = {
    dict: "object",
    list: "array",
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    type(None): "null",
}


def checked_schema(given: Schema | str | None) -> Schema | None:
    """Return *given* as a dict, None for none; InvalidInput when it is no schema to hold to."""
    if given is None:
        return None
    text = given if isinstance(given, str) else msgspec.json.encode(given)
    try:
        return _schema_of(text)
    except BadSchema as error:
        raise InvalidInput("output_schema", str(error)) from error


@lru_cache(maxsize=256)
def _schema_of(text: str | bytes) -> Schema | None:
    # Checking one takes longer than the rest of a step, and the steps of a list share one.
    return schema_of(text if isinstance(text, str) else text.decode())


class ResultSchema:
    """The result that *schema* describes."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self._checks = cast("Any", Draft202012Validator)(schema)

    def candidate(self, arguments: dict[str, Any]) -> Any:
        """Return what *arguments* of `finish_step` hand over.

        That is `result` if it is there, else all of them. JSON text stands for its value where no
        text is wanted, and `{"items": […]}` for its list where a list is.
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
        """Return what is wrong with *candidate*, up to five: where, what was wanted, what came."""
        try:
            json_values.encode(candidate, root="", depth=DEPTH, field="result")
            found = _problems_of(self._checks.iter_errors(candidate))
        except InvalidInput as error:
            return [error.reason]
        except RecursionError:
            return ["it is nested too deeply"]
        return found

    @property
    def _is_array(self) -> bool:
        kinds: Any = self.schema.get("type")
        return kinds == "array" or (isinstance(kinds, list) and "array" in kinds)

    def _untexted(self, text: str) -> Any:
        """Return the value that *text* says as JSON, if that is wanted and no text is."""
        if self._wants(text):
            return text
        try:
            value: Any = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return text
        may_wrap = self._is_array and type(cast("object", value)) is dict
        return value if may_wrap or self._wants(value) else text

    def _wants(self, value: object) -> bool:
        """Tell whether the type of *value*, whatever is in it, is one that may come."""
        kinds: Any = self.schema.get("type")
        if kinds is None:
            return self._checks.is_valid(value)
        listed = cast("list[str]", kinds if isinstance(kinds, list) else [kinds])
        return any(self._checks.is_type(value, kind) for kind in listed)


def _problems_of(errors: Iterable[ValidationError]) -> list[str]:
    found: list[str] = []
    for error in errors:
        found.append(_problem(error))
        if len(found) == PROBLEMS:
            break
    return found


def _problem(error: ValidationError) -> str:
    where = "".join(f"/{_escaped(part)}" for part in error.absolute_path)
    came: Any = error.instance
    return f'at "{where}": expected {_expected(error)}; came {_kind(came)} {_shown(came)}'


def _expected(error: ValidationError) -> str:
    rule, said = str(error.validator), cast("Any", error.validator_value)
    match rule:
        case "type":
            told = " or ".join(cast("list[str]", said)) if isinstance(said, list) else str(said)
        case "enum":
            told = f"one of {_shown(said)}"
        case "required":
            missing = [name for name in said if name not in cast("Any", error.instance)]
            told = f"the members {_shown(missing)} as well"
        case "additionalProperties" | "unevaluatedProperties":
            told = f"no others ({error.message[:SHOWN]})"
        case _:
            told = f"{rule} {_shown(said)}"
    return told


def _kind(value: object) -> str:
    kind: type[Any] = type(value)
    return _KINDS.get(kind, kind.__name__)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else text[:SHOWN] + "…"


def _escaped(part: object) -> str:
    return str(part).replace("~", "~0").replace("/", "~1")


def parameters(schema: Schema) -> Schema:
    """Return the schema of `finish_step`'s arguments, whose `result` is as *schema* says.

    Definitions move to its root, where every provider looks for them; what else refers to the
    schema's own places is made to point there.
    """
    moved = {name: schema[name] for name in ("$defs", "definitions") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in moved}
    return {
        "type": "object",
        "properties": {"result": _pointed(rest)},
        "required": ["result"],
        "additionalProperties": False,
        **{name: _pointed(value) for name, value in moved.items()},
    }


def _pointed(part: object) -> Any:
    if isinstance(part, dict):
        return dict(_pointed_members(cast("dict[str, Any]", part)))
    if isinstance(part, list):
        return [_pointed(each) for each in cast("list[object]", part)]
    return part


def _pointed_members(part: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in part.items():
        if name == "$ref" and isinstance(value, str) and value.startswith("#"):
            kept = value.startswith(("#/$defs/", "#/definitions/"))
            yield name, value if kept else f"#/properties/result{value[1:]}"
        elif name not in ("$schema", "$id"):
            yield name, _pointed(value)
