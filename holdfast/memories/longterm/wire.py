"""What long-term memory answers, as JSON values, and back. Instants have six fraction digits."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.clock import to_rfc3339
from holdfast.memories.longterm.records import Recalled

R = TypeVar("R", bound=Struct)
Wire = dict[str, Any]


def to_wire(record: Struct) -> Wire:
    """Return *record* as the JSON object of the wire."""
    told = {name: _plain(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, Recalled):
        return {"id": record.id, "text": record.text, **told}
    return told


def from_wire(make: type[R], wire: object) -> R:
    """Return the *make* that *wire* tells of; msgspec.ValidationError for something else."""
    return msgspec.convert(wire, make)


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, Struct):
        return to_wire(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in cast("tuple[object, ...]", value)]
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in cast("Mapping[str, object]", value).items()}
    return value
