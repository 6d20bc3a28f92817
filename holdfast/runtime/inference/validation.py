"""Validate and repair what models and tools say: JSON, nesting, text.

JSON is nested at most 200 deep, without NaN and Infinity. A lone surrogate becomes U+FFFD, as no
provider and no store accepts one.
"""

import json
from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Literal, NoReturn, Protocol, TypeAlias, cast
from uuid import UUID, uuid4

import msgspec
from pydantic import BaseModel
from pydantic_ai.exceptions import ModelRetry
from pydantic_ai.messages import (
    ModelResponse,
    ModelResponsePart,
    NativeToolCallPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
)
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON
from holdfast.ground.text import whole

DEPTH: Final = 200
"""Greatest nesting depth of arguments and of a tool's return value."""

LARGEST_INT: Final = 2**63 - 1

_PYDANTIC = (BaseModel, date, time, timedelta, Decimal, Enum, UUID)


class NotJSON(Exception):
    """The value has no JSON form; the text names the place and the reason."""


def json_form(value: object) -> JSON:
    """Return the JSON form of *value* as a copy; raise NotJSON if it has none."""
    return JsonForm(value).value


class JsonForm:
    """The JSON form of a value as a copy; `repaired` if it had lone surrogates.

    Raise NotJSON if it has none, with *root* as the name of the whole value.
    """

    def __init__(self, value: object, *, root: str = "returned") -> None:
        self.repaired = False
        encoded = json_values.encode_plain(value, DEPTH, LARGEST_INT)
        self.value: JSON = json_values.decode(encoded or self._encoded(value, root))

    def _encoded(self, value: object, root: str) -> bytes:
        try:
            return json_values.encode(
                self._plain(value, DEPTH),
                root=root,
                depth=DEPTH,
                field=root,
                largest_int=LARGEST_INT,
            )
        except InvalidInput as error:
            raise NotJSON(error.reason) from error
        except (PydanticSerializationError, TypeError, ValueError, RecursionError) as error:
            raise NotJSON(f"{type(value).__name__} is not JSON: {error}") from error

    def _plain(self, value: Any, deeper: int) -> Any:
        if isinstance(value, str) and not isinstance(value, Enum):
            return self._text(value)
        if isinstance(value, _PYDANTIC) or (is_dataclass(value) and not isinstance(value, type)):
            return self._plain(to_jsonable_python(value), deeper)
        if isinstance(value, msgspec.Struct):
            return self._plain(msgspec.to_builtins(value), deeper)
        if deeper and isinstance(value, list | tuple):
            return [self._plain(each, deeper - 1) for each in cast("list[Any]", value)]
        if deeper and isinstance(value, Mapping):
            return self._members(cast("Mapping[Any, Any]", value), deeper)
        # If this is not JSON, encoding it raises with its place.
        return value

    def _members(self, members: Mapping[Any, Any], deeper: int) -> dict[Any, Any]:
        found = {
            self._text(name) if isinstance(name, str) else name: self._plain(each, deeper - 1)
            for name, each in members.items()
        }
        if len(found) < len(members):
            raise TypeError("two names differ in lone surrogates alone")
        return found

    def _text(self, text: str) -> str:
        found = whole(text)
        self.repaired = self.repaired or found is not text
        return found


Arguments: TypeAlias = str | dict[str, Any] | None


def repair(response: ModelResponse) -> list[str]:
    """Bring *response* within the limits; return the names of what was changed.

    It is changed in place. Arguments that are no such JSON become text. Calls get ids that differ.
    """
    found: list[str] = []
    ids: set[str] = set()
    parts: list[ModelResponsePart] = []
    for part in response.parts:
        made, changed = part, ()
        if isinstance(part, TextPart | ThinkingPart):
            if not part.content.isascii():
                made, changed = _repaired_text(part)
        elif isinstance(part, ToolCallPart | NativeToolCallPart):
            id, given = part.tool_call_id, part.args
            plain = isinstance(given, dict) and json_values.encode_plain(given, DEPTH, LARGEST_INT)
            if not (plain and id and id not in ids and id.isascii() and part.tool_name.isascii()):
                made, changed = _repaired_call(part, ids)
            ids.add(id)
        parts.append(made)
        found += changed
    if found:
        response.parts = parts
    return found


def _repaired_text(part: TextPart | ThinkingPart) -> tuple[ModelResponsePart, tuple[str, ...]]:
    text = whole(part.content)
    if text is part.content:
        return part, ()
    return replace(part, content=text), ("text" if isinstance(part, TextPart) else "reasoning",)


def _repaired_call(
    part: ToolCallPart | NativeToolCallPart, ids: set[str]
) -> tuple[ModelResponsePart, tuple[str, ...]]:
    name, id = whole(part.tool_name), whole(part.tool_call_id)
    if not id or id in ids:
        id = f"call_{uuid4().hex}"
    ids.add(id)
    arguments, changed = _arguments(part.args)
    found = {
        f"name of the tool {name}": name != part.tool_name,
        f"id of a call of {name}": id != part.tool_call_id,
        f"arguments of {name}": changed,
    }
    if not any(found.values()):
        return part, ()
    made = replace(part, tool_name=name, tool_call_id=id, args=arguments)
    return made, tuple(each for each, differs in found.items() if differs)


def _arguments(given: object) -> tuple[Arguments, bool]:
    """Return the arguments *given* as JSON within the limits, else as text."""
    if given is None:
        return None, False
    if isinstance(given, str):
        return _argument_text(given)
    try:
        form = JsonForm(given, root="arguments")
    except NotJSON as error:
        return _as_text(given, error), True
    if isinstance(form.value, dict):
        return (form.value, True) if form.repaired else (cast("dict[str, Any]", given), False)
    return msgspec.json.encode(form.value).decode(), True


def _argument_text(given: str) -> tuple[str, bool]:
    text = whole(given)
    if "\\ud" in text.lower():
        if json_values.is_nested_over(text, DEPTH):
            return text, text is not given
        try:
            form = JsonForm(json.loads(text), root="arguments")
        except (ValueError, NotJSON):
            return text, text is not given
        if form.repaired:
            return msgspec.json.encode(form.value).decode(), True
    return text, text is not given


def _as_text(given: object, error: NotJSON) -> str:
    try:
        return whole(json.dumps(given))
    except (TypeError, ValueError, RecursionError):
        return f"not JSON: {error}"


Partial: TypeAlias = bool | Literal["off", "on", "trailing-strings"]


class Validator(Protocol):
    """Validates the arguments of a tool, as pydantic-ai expects it."""

    def validate_json(
        self, input: str | bytes | bytearray, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments in the text *input*."""
        ...

    def validate_python(
        self, input: Any, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments *input*."""
        ...


class JsonArguments:
    """Validates arguments by *validator* if they are JSON within the limits."""

    def __init__(self, validator: Validator) -> None:
        self._validator = validator

    def validate_json(
        self, input: str | bytes | bytearray, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments in the text *input*."""
        _check_text(input)
        return self._validator.validate_json(input, allow_partial=allow_partial, **kwargs)

    def validate_python(
        self, input: Any, *, allow_partial: Partial = False, **kwargs: Any
    ) -> dict[str, Any]:
        """Return the arguments *input*."""
        _check_value(input)
        return self._validator.validate_python(input, allow_partial=allow_partial, **kwargs)


def _check_text(text: str | bytes | bytearray) -> None:
    """Raise ModelRetry if the JSON *text* breaks a limit."""
    if json_values.is_nested_over(bytes(text) if isinstance(text, bytearray) else text, DEPTH):
        raise ModelRetry(f"the arguments are nested over {DEPTH} deep")
    try:
        value: object = _decoded(text)
    except ValueError:
        # The validator names what is wrong with text that is no JSON at all.
        return
    _check_value(value)


def _decoded(text: str | bytes | bytearray) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text, parse_constant=_refused)


def _check_value(value: object) -> None:
    try:
        JsonForm(value, root="arguments")
    except NotJSON as error:
        raise ModelRetry(str(error)) from error


def _refused(constant: str) -> NoReturn:
    raise ModelRetry(f"{constant} is not JSON; give a number, or null")
