"""What a tool returned, as JSON: models, dataclasses and dates in their JSON form."""

from collections.abc import Mapping
from dataclasses import is_dataclass
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, cast
from uuid import UUID

import msgspec
from pydantic import BaseModel
from pydantic_core import PydanticSerializationError, to_jsonable_python

from holdfast.ground import json_values
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import JSON

DEPTH = 200
"""How deep what a tool returns may be nested."""

_TOLD = (BaseModel, date, time, timedelta, Decimal, Enum, UUID)


class NotJSON(Exception):
    """What was returned has no JSON form; the text says where and what."""


def json_form(value: object) -> JSON:
    """Return the JSON form of *value*, a copy of its own; NotJSON if it has none."""
    try:
        encoded = json_values.encode(
            _plain(value, DEPTH),
            root="returned",
            depth=DEPTH,
            field="returned",
            largest_int=2**63 - 1,
        )
    except InvalidInput as error:
        raise NotJSON(error.reason) from error
    except (PydanticSerializationError, TypeError, ValueError) as error:
        raise NotJSON(f"{type(value).__name__} is not JSON: {error}") from error
    return json_values.decode(encoded)


def _plain(value: Any, deeper: int) -> Any:
    if isinstance(value, _TOLD) or (is_dataclass(value) and not isinstance(value, type)):
        return to_jsonable_python(value)
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value)
    if deeper and isinstance(value, list | tuple):
        return [_plain(each, deeper - 1) for each in cast("list[Any]", value)]
    if deeper and isinstance(value, Mapping):
        members = cast("Mapping[Any, Any]", value)
        return {name: _plain(each, deeper - 1) for name, each in members.items()}
    # If this is none, it is said with its place by whoever writes it down.
    return value
