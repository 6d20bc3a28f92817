"""Operations on a workspace: who has a memory, stored events, sizes by day."""

from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec.structs import asdict

from holdfast.ground.clock import to_rfc3339
from holdfast.ground.events import Event
from holdfast.ground.scope import Actor
from holdfast.library.activity import Sample, checked_types
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.base import Operation, OperationTable, Param, WireForm
from holdfast.library.operations.longterm import form
from holdfast.memories.longterm.records import Person


def event_to_wire(event: Event) -> dict[str, Any]:
    """Return *event* as the JSON object of the wire."""
    actor = event.actor and event.actor.to_wire()
    return {**asdict(event), "at": to_rfc3339(event.at), "actor": actor}


def event_from_wire(wire: Any) -> Event:
    """Convert *wire* to an event; raise ValidationError or KeyError otherwise."""
    fields = msgspec.convert(wire, dict[str, Any])
    actor = fields.get("actor")
    if isinstance(actor, dict) and "type" in actor:
        fields["actor"] = msgspec.to_builtins(Actor.from_wire(cast("dict[str, str]", actor)))
    return msgspec.convert(fields, Event)


def _samples(samples: list[Sample]) -> dict[str, Any]:
    return {"data": [msgspec.to_builtins(each) for each in samples]}


def _samples_from(wire: Any) -> list[Sample]:
    return msgspec.convert(wire["data"], list[Sample])


def _joined(types: object) -> str | None:
    checked = checked_types(types)
    return None if checked is None else ",".join(checked)


def _types(given: str) -> list[str]:
    return [each for each in given.split(",") if each]


_get = partial(Operation, method="GET", scope="read", lane="slow")

WORKSPACE: Final = OperationTable(
    facade=Holdfast,
    operations=(
        _get(
            "longterm_people",
            "/api/longterm",
            "List the users that have a long-term memory, by name.",
            form(Person),
            paged=True,
        ),
        _get(
            "activity",
            "/api/activity",
            "List stored events, newest first.",
            WireForm(event_to_wire, event_from_wire),
            special={"types": Param(type=str, encode=_joined, decode=_types)},
            paged=True,
        ),
        _get(
            "samples",
            "/api/samples",
            "List the sizes of the workspace by day, oldest first.",
            WireForm(_samples, _samples_from),
        ),
    ),
)
