"""What a process reports of a run: that it begins, what happened since, how its entries are now."""

from typing import Final, Literal

import msgspec
from msgspec import Struct

from holdfast.ground.clock import from_microseconds
from holdfast.ground.events import Event, Fact
from holdfast.ground.json_values import JSON, decode
from holdfast.memories.run.record import Ending

MILLISECOND: Final = 1_000
"""In microseconds; run memory counts the former, tables hold the latter."""

EVENTS_MOST: Final = 256
"""Events of one report."""

PART_BYTES: Final = 65_536
"""Bytes of a value's text past which only a part of it is kept."""

EVENT_TYPES: Final = (
    "run.entry_written",
    "run.entry_deleted",
    "run.entries_cleared",
    "run.entry_read",
    "run.entry_refused",
    "run.restored",
)
"""What happens in a run, as its memory tells it."""

_encode: Final = msgspec.json.Encoder().encode


class RunStart(Struct, frozen=True, kw_only=True):
    """A run that begins: who reports it, where it runs, and since when, in milliseconds."""

    run_id: str
    holder: str
    name: str
    agent: str | None
    metadata: dict[str, str]
    place: str
    started_at: int


class ReportedEvent(Struct, frozen=True, kw_only=True):
    """Something that happened at *at*, in milliseconds since 1970; never with a value."""

    type: str
    at: int
    data: dict[str, JSON]


class Value(Struct, frozen=True, kw_only=True):
    """A value as it is kept: JSON, whole, or a string that is the first part of it.

    A part is `part_of` the value's text, or else of its JSON, of `total` characters.
    """

    value: str
    value_bytes: int
    part_of: Literal["text", "json"] | None = None
    total: int | None = None


class ReportedEntry(Value, frozen=True, kw_only=True):
    """An entry as it is now, with times in milliseconds."""

    key: str
    kind: str
    source: str | None
    title: str | None
    description: str | None
    failed: bool
    version: int
    created_at: int
    updated_at: int


class RunReport(Struct, frozen=True, kw_only=True):
    """What happened since the last report; `number` counts the holder's reports from 1.

    `entries` are in the order in which they were last written. `missed` events came before
    `events`, and are not told. With `ended` it is the last.
    """

    holder: str
    number: int
    events: tuple[ReportedEvent, ...] = ()
    entries: tuple[ReportedEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    missed: int = 0
    ended: Ending | None = None


def kept_value(value_json: bytes) -> Value:
    """Return the value that *value_json*, compact JSON, is, or as much of it as is kept."""
    size = len(value_json)
    if size <= PART_BYTES:
        return Value(value=value_json.decode(), value_bytes=size)
    value: object = decode(value_json) if value_json[:1] == b'"' else None
    text = value if isinstance(value, str) else value_json.decode()
    part = text.encode()[:PART_BYTES].decode(errors="ignore")
    return Value(
        value=_encode(part).decode(),
        value_bytes=size,
        part_of="text" if isinstance(value, str) else "json",
        total=len(text),
    )


def notice_of(workspace: str, run_id: str, event: ReportedEvent) -> Event:
    """Return *event* as it goes through the bus: the run and its key are ids."""
    data = dict(event.data)
    key = data.pop("key", None)
    return Event(
        type=event.type,
        at=from_microseconds(event.at * MILLISECOND),
        workspace=workspace,
        ids={"run_id": run_id} | ({"key": key} if isinstance(key, str) else {}),
        data={name: _fact(each) for name, each in data.items()},
    )


def _fact(value: JSON) -> Fact:
    return _encode(value).decode() if isinstance(value, dict | list) else value
