"""The record of a run: its reports and its control."""

import os
import socket
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from threading import Lock
from typing import Any, Final, Literal, Protocol, cast, get_args
from weakref import WeakSet

import msgspec
from msgspec import Struct

from holdfast.engines.base import Engine
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import decode
from holdfast.ground.scope import checked_name
from holdfast.ground.validation import check_one_of, check_text
from holdfast.memories.run import keys
from holdfast.memories.run.entry import (
    checked_description,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
)
from holdfast.memories.run.records.event import Ending


class RunsContext(Struct, frozen=True, kw_only=True):
    """Workspace, engine and clock for runs; `engine` is scoped to the workspace.

    `demand` raises NotPermitted when who acts has not the right that it is given.
    """

    engine: Engine
    workspace: str
    clock: Clock
    demand: Callable[[str], None]

    def now(self) -> int:
        """Return the present instant in microseconds since 1970."""
        return to_microseconds(self.clock.now())


# Several handles may use one database, such as a server's and the one that starts runs: a run of
# another handle is found by its holder, which is unique.


class RunControl(Protocol):
    """Control of a run. Threads other than the run's own call it."""

    def cancel(self, reason: str = ...) -> None:
        """Stop the run; clients that follow it get *reason*."""
        ...

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of every running step.

        Return the ids of these steps.

        Raises NotFound for a step that is finished or unknown.
        """
        ...


class Controls:
    """Controls of the runs of one handle, by workspace and id, and by holder."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], RunControl] = {}
        self._by_holder: dict[str, RunControl] = {}
        self._lock = Lock()
        with _lock:
            _every.add(self)

    def hold(
        self, workspace: str, run: str, control: RunControl, *, holder: str
    ) -> Callable[[], None]:
        """Register *control* of the run under *holder*; return a function to stop."""
        key = (workspace, run)
        with self._lock:
            self._held[key] = self._by_holder[holder] = control

        def release() -> None:
            with self._lock:
                self._by_holder.pop(holder, None)
                # The run may have been started again meanwhile.
                if self._held.get(key) is control:
                    del self._held[key]

        return release

    def of(self, workspace: str, run: str) -> RunControl | None:
        """Return the control of the run *run*, or None."""
        return self._held.get((workspace, run))

    def by_holder(self, holder: str) -> RunControl | None:
        """Return the control of the run of *holder*, or None."""
        return self._by_holder.get(holder)


_every: Final[WeakSet[Controls]] = WeakSet()
_lock: Final = Lock()


def held_by(holder: str) -> RunControl | None:
    """Return the control of the run of *holder* in this process, or None.

    It is found through every handle.
    """
    with _lock:
        every = list(_every)
    found = (each.by_holder(holder) for each in every)
    return next((each for each in found if each is not None), None)


@cache
def _host() -> str:
    return socket.gethostname()


def this_process() -> str:
    """Return the name of this process: its host and its process id."""
    return f"{_host()}:{os.getpid()}"


RunState = Literal["running", "completed", "failed", "cancelled", "lost"]
"""State of a run; `lost`: no heartbeat for LOST_AFTER, and no end was reported."""

LOST_AFTER: Final = 60_000_000
"""Microseconds without a heartbeat after which a run counts as lost."""

NAME_MOST: Final = 256
"""Characters of a run's or an agent's name."""

METADATA_MOST: Final = 16
"""Pairs of metadata; as those of a store they have at most 64 and 512 characters."""

_metadata = msgspec.json.Decoder(dict[str, str])


class WatchedRun(Struct, frozen=True, kw_only=True):
    """The public record of a run; `entries` and `bytes` are the size of its memory."""

    id: str
    name: str
    agent: str | None
    state: RunState
    entries: int
    bytes: int
    started_at: datetime
    ended_at: datetime | None
    metadata: dict[str, str]


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as it is stored."""

    id: str
    name: str
    agent: str | None
    metadata: str
    state: str
    holder: str
    place: str
    batch: int
    seq: int
    entries: int
    bytes: int
    started_at: int
    seen_at: int
    ended_at: int | None

    def state_at(self, now: int) -> RunState:
        """Return the state of the run at *now*, in microseconds since 1970."""
        lost = self.state == "running" and self.seen_at < now - LOST_AFTER
        return "lost" if lost else cast("RunState", self.state)

    def record(self, now: int) -> WatchedRun:
        """Return the public record at *now*."""
        return WatchedRun(
            id=self.id,
            name=self.name,
            agent=self.agent,
            state=self.state_at(now),
            entries=self.entries,
            bytes=self.bytes,
            started_at=from_microseconds(self.started_at),
            ended_at=from_microseconds_or_none(self.ended_at),
            metadata=_metadata.decode(self.metadata),
        )


def checked_ending(given: object) -> Ending:
    """Return *given* if it is a final state of a run; else InvalidInput."""
    reason = f"must be {' or '.join(get_args(Ending))}"
    return cast("Ending", check_one_of("state", given, get_args(Ending), reason))


def checked_state(given: object) -> RunState | None:
    """Return *given* if it is a state of a run, or None; else InvalidInput."""
    if given is None:
        return None
    reason = f"must be {' or '.join(get_args(RunState))}"
    return cast("RunState", check_one_of("state", given, get_args(RunState), reason))


def checked_name_of(field: str, given: object) -> str:
    """Return *given* if it can name a run or its agent; else InvalidInput."""
    return check_text(field, given, least=1, most=NAME_MOST)


def checked_metadata(given: object) -> dict[str, str]:
    """Return *given* if it is metadata of a run: at most 16 short pairs of text."""
    if not isinstance(given, Mapping):
        raise InvalidInput("metadata", "must be an object of strings", given=given)
    pairs = cast("Mapping[object, object]", given)
    if len(pairs) > METADATA_MOST:
        reason = f"must have at most {METADATA_MOST} pairs, has {len(pairs)}"
        raise InvalidInput("metadata", reason, limit=METADATA_MOST)
    return {
        check_text("metadata", key, least=1, most=64, part="a key "): check_text(
            "metadata", value, most=512, part="a value "
        )
        for key, value in pairs.items()
    }


MILLISECOND: Final = 1_000
"""One millisecond in microseconds: run memory has milliseconds, tables have microseconds."""

EVENTS_MOST: Final = 256
"""Events of one report."""

PART_BYTES: Final = 65_536
"""Bytes of a value's text beyond which only its beginning is stored."""

EVENT_TYPES: Final = (
    "run.entry_written",
    "run.entry_deleted",
    "run.entries_cleared",
    "run.entry_read",
    "run.entry_refused",
    "run.restored",
)
"""Types of the events of a run's memory."""

_encode: Final = msgspec.json.Encoder().encode


class RunStart(Struct, frozen=True, kw_only=True):
    """The start of a run: who reports it, where it runs, and since when (ms)."""

    run_id: str
    holder: str
    name: str
    agent: str | None
    metadata: dict[str, str]
    place: str
    started_at: int


class ReportedEvent(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event at *at*, in milliseconds since 1970; never with a value."""

    type: str
    at: int
    data: dict[str, Any]


class Value(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A stored value: its JSON, or as a JSON string its beginning.

    A beginning is `part_of` the value's text, or else of its JSON, of `total` characters.
    """

    value: str
    value_bytes: int
    part_of: Literal["text", "json"] | None = None
    total: int | None = None


class ReportedEntry(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry in a report, with times in milliseconds."""

    key: str
    kind: str
    source: str | None = None
    title: str | None = None
    description: str | None = None
    failed: bool = False
    version: int
    created_at: int
    updated_at: int


class RunReport(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes since the last report; `number` counts the holder's reports from 1.

    `entries` are in the order of their last writes. `missed` is the number of events before
    `events` that are left out. A report with `ended` is the last.
    """

    holder: str
    number: int
    events: tuple[ReportedEvent, ...] = ()
    entries: tuple[ReportedEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    missed: int = 0
    ended: Ending | None = None


def kept_value(value_json: bytes) -> Value:
    """Return the stored form of *value_json*, compact JSON: all of it or a beginning."""
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


KEPT_MOST: Final = 6 * PART_BYTES + 2
"""Bytes of the JSON of a stored value: each character of a part may take six."""


def checked_opening(opening: RunStart) -> RunStart:
    """Validate *opening*; raise `InvalidInput`."""
    checked_name("run", opening.run_id)
    checked_name("holder", opening.holder)
    checked_name_of("name", opening.name)
    if opening.agent is not None:
        checked_name_of("agent", opening.agent)
    checked_metadata(opening.metadata)
    check_text("place", opening.place, least=1, most=256)
    checked_time("started_at", opening.started_at)
    return opening


def checked_report(report: RunReport) -> RunReport:
    """Validate *report*; raise `InvalidInput`."""
    checked_name("holder", report.holder)
    checked_version("number", report.number, least=1)
    checked_version("missed", report.missed)
    if report.ended is not None:
        checked_ending(report.ended)
    if len(report.events) > EVENTS_MOST:
        raise InvalidInput("events", f"must be at most {EVENTS_MOST}", limit=EVENTS_MOST)
    for index, event in enumerate(report.events):
        check_one_of("type", event.type, EVENT_TYPES, index=index)
        checked_time("at", event.at)
    named = [each.key for each in report.entries] + list(report.deleted)
    if len(set(named)) != len(named):
        raise InvalidInput("entries", "must name each key once, and none of those deleted")
    for key in named:
        if keys.checked(key) != key:
            raise InvalidInput("key", "must be in Normalization Form C", given=key)
    for index, entry in enumerate(report.entries):
        _check_entry(index, entry)
    return report


def _check_entry(index: int, entry: ReportedEntry) -> None:
    if entry.kind != keys.kind_of(entry.key):
        raise InvalidInput("kind", "must be that of the key", given=entry.kind, index=index)
    checked_source(entry.source)
    checked_title(entry.title)
    checked_description(entry.description)
    checked_time("created_at", entry.created_at)
    checked_time("updated_at", entry.updated_at)
    checked_version("version", entry.version, least=1)
    checked_version("value_bytes", entry.value_bytes, least=1)
    _check_value(index, entry)


def _check_value(index: int, entry: ReportedEntry) -> None:
    if len(entry.value.encode()) > KEPT_MOST:
        raise InvalidInput("value", f"must be kept in part past {PART_BYTES:,} bytes", index=index)
    try:
        value: object = decode(entry.value.encode())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise InvalidInput("value", "must be JSON, as text", index=index) from None
    if (entry.part_of is None) != (entry.total is None):
        raise InvalidInput("total", "belongs to a part, and only to a part", index=index)
    if entry.part_of is not None:
        checked_version("total", entry.total)
        if not isinstance(value, str):
            raise InvalidInput("value", "must be text where it is a part", index=index)
