"""Records as JSON values, and back.

Instants become RFC 3339 with six fraction digits, actors objects of their own type. What is
shown once (`token`, `secret`) is left out where it is None.
"""

from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.scope import Actor
from holdfast.memories.stores.records import JSONObject, Record

R = TypeVar("R", bound=Record)

SHOWN_ONCE = frozenset({"token", "secret"})


def record_to_wire(record: Record) -> JSONObject:
    """Return *record* as the JSON object of the wire."""
    return {
        name: _value(value)
        for name in record.__struct_fields__
        if (value := getattr(record, name)) is not None or name not in SHOWN_ONCE
    }


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return to_rfc3339(value)
    if isinstance(value, Record):
        return record_to_wire(value)
    if isinstance(value, Actor):
        return value.to_wire()
    if isinstance(value, tuple):
        return [_value(each) for each in cast("tuple[object, ...]", value)]
    return value


def from_wire(make: type[R], wire: JSONObject) -> R:
    """Return the *make* that *wire*, an object of the wire, tells of."""
    fields: JSONObject = {name: None for name in SHOWN_ONCE if name in make.__struct_fields__}
    for name, value in wire.items():
        fields[name] = msgspec.to_builtins(Actor.from_wire(value)) if _is_actor(value) else value
    return msgspec.convert(fields, make)


def _is_actor(value: Any) -> bool:
    return isinstance(value, dict) and str(cast("JSONObject", value).get("type")).endswith("_actor")
