"""Records of durable memory to JSON values, and back.

Instants have three fraction digits.
"""

from datetime import datetime
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from holdfast.ground.scope import Actor
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.records import By, EntryChange, to_milliseconds_text

R = TypeVar("R", bound=Struct)
Wire = dict[str, Any]


def entry_to_wire(record: Struct) -> Wire:
    """Serialize *record* to a JSON object."""
    if isinstance(record, By):
        return _by(record)
    wire = {name: value_to_wire(getattr(record, name)) for name in record.__struct_fields__}
    if isinstance(record, EntryChange):
        wire["actor"] = record.actor.actor.to_wire()
        wire |= {"run_id": record.run_id, "run_token": record.run_token}
    if isinstance(record, Hydration):
        wire["rendered"] = record.render()
    return wire


def value_to_wire(value: object) -> object:
    """Serialize *value*, a record or a field of one, to a JSON value."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, datetime):
        return to_milliseconds_text(value)
    if isinstance(value, Actor):
        return value.to_wire()
    if isinstance(value, Struct):
        return entry_to_wire(value)
    if isinstance(value, tuple | list):
        return [value_to_wire(each) for each in cast("tuple[object, ...]", value)]
    return value


def from_wire(make: type[R], wire: Wire) -> R:
    """Parse *wire* as a *make*; raise msgspec.ValidationError if invalid."""
    if make is EntryChange:
        wire = {**wire, "actor": {**wire["actor"], **_run_of(wire)}}
    return msgspec.convert(_read(wire), make)


def _by(by: By) -> Wire:
    """Serialize the actor, with its run if there is one."""
    run = {"run_id": by.run_id, "run_token": by.run_token} if by.run_id is not None else {}
    return by.actor.to_wire() | run


def _run_of(wire: Wire) -> Wire:
    return {name: wire[name] for name in ("run_id", "run_token") if wire.get(name) is not None}


def _read(value: Any) -> Any:
    """Return *value* with each actor in the shape of `By`."""
    if isinstance(value, list):
        return [_read(each) for each in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    wire = cast("Wire", value)
    if str(wire.get("type")).endswith("_actor"):
        return {"actor": msgspec.to_builtins(Actor.from_wire(wire)), **_run_of(wire)}
    return {name: _read(each) for name, each in wire.items()}
