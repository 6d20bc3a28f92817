"""What is known of a value: when and through whom it was written, and what changed."""

from datetime import datetime
from typing import Literal

from msgspec import Struct

from holdfast.ground import json_values
from holdfast.ground.json_values import JSON
from holdfast.memories.state.message import to_milliseconds

What = Literal["value", "deleted", "message", "result", "results", "thread_id"]


class WriteOrigin(Struct, frozen=True, kw_only=True):
    """Through whom a write came; all None where it came from outside a run."""

    agent: str | None = None
    run_id: str | None = None
    tool: str | None = None
    call_id: str | None = None


OUTSIDE = WriteOrigin()


class Cell(Struct, frozen=True, gc=False):
    """One value as its JSON, and what is known of it; every write makes one, by position."""

    data: bytes
    version: int
    created_at: datetime
    updated_at: datetime
    origin: WriteOrigin


class ValueInfo(Struct, frozen=True, kw_only=True):
    """A value, and what is known of it.

    `version` is the state's revision of the write, so no two writes share one. `source` is the
    agent whose run wrote it; None for a write from outside.
    """

    key: str
    value: JSON
    kind: Literal["value"] = "value"
    source: str | None
    version: int
    created_at: datetime
    updated_at: datetime
    size_bytes: int
    agent: str | None
    run_id: str | None
    tool: str | None
    call_id: str | None


class StateChange(Struct, frozen=True, kw_only=True):
    """One committed write: what it was of, and through whom; never the value itself.

    `key` is that of a value, or the id of a result. The `revision` is a value's new version.
    """

    what: What
    revision: int
    key: str | None
    origin: WriteOrigin


def info_of(key: str, cell: Cell) -> ValueInfo:
    """Return what is known of *cell*, which is under *key*, with a copy of its value."""
    origin = cell.origin
    return ValueInfo(
        key=key,
        value=json_values.decode(cell.data),
        source=origin.agent,
        version=cell.version,
        created_at=to_milliseconds("created_at", cell.created_at),
        updated_at=to_milliseconds("updated_at", cell.updated_at),
        size_bytes=len(cell.data),
        agent=origin.agent,
        run_id=origin.run_id,
        tool=origin.tool,
        call_id=origin.call_id,
    )
