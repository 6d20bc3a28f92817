"""Runs and what happened in them as JSON, and back. Instants have three fraction digits."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from holdfast.ground.clock import from_microseconds, to_microseconds
from holdfast.ground.errors import EngineFault
from holdfast.memories.run.reading import RecordedRunEvent
from holdfast.memories.run.records.record import MILLISECOND, WatchedRun

Wire = dict[str, Any]
T = TypeVar("T")


def run_to_wire(record: WatchedRun) -> Wire:
    """Return *record* as the JSON object of the wire."""
    told = {name: getattr(record, name) for name in record.__struct_fields__}
    ended_at = record.ended_at
    return told | {
        "started_at": _instant(record.started_at),
        "ended_at": None if ended_at is None else _instant(ended_at),
    }


def run_from_wire(wire: Wire) -> WatchedRun:
    """Return the run that *wire* tells of."""
    return _read(lambda: msgspec.convert(wire, WatchedRun))


def event_from_wire(seq: int, type: str, data: str) -> RecordedRunEvent:
    """Return the event that a live route told."""

    def made() -> RecordedRunEvent:
        told = msgspec.json.decode(data, type=dict[str, Any])
        at = to_microseconds(datetime.fromisoformat(told.pop("at"))) // MILLISECOND
        told.pop("run_id", None)
        return RecordedRunEvent(seq=seq, type=type, at=at, data=told)

    return _read(made)


def event_to_wire(run_id: str, event: RecordedRunEvent) -> bytes:
    """Return what a live route tells of *event*, but for its number and its type."""
    at = _instant(from_microseconds(event.at * MILLISECOND))
    return msgspec.json.encode({"run_id": run_id, "at": at, **event.data})


def _read(make: Callable[[], T]) -> T:
    try:
        return make()
    except (msgspec.DecodeError, msgspec.ValidationError, KeyError, ValueError) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}.") from error


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds")[:-6] + "Z"
