"""The stored record of a run: its row, its lease, its reports and its control."""

import os
import socket
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Any, Final, Literal, Protocol, cast, get_args
from weakref import WeakSet

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.engines.base import Engine
from holdfast.ground.clock import (
    Clock,
    from_microseconds,
    from_microseconds_or_none,
    to_microseconds,
)
from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import decode
from holdfast.ground.scope import LOCAL, Actor, WriteSubject, checked_name
from holdfast.ground.validation import check_one_of, check_text
from holdfast.memories.run import keys
from holdfast.memories.run.entry import (
    checked_description,
    checked_source,
    checked_time,
    checked_title,
    checked_version,
)
from holdfast.memories.run.records.event import ENDS, GAP, LIVE, TYPES, Ending, RunEvent
from holdfast.memories.run.records.run import (
    ENDINGS,
    KINDS,
    NO_METADATA,
    NO_PARTS,
    Run,
    RunKind,
    RunStatus,
    checked_ending,
    checked_metadata,
    checked_run_id_or_none,
    checked_run_name_or_none,
)
from holdfast.memories.state.message import NO_EXTRAS
from holdfast.memories.state.result import NO_USAGE, Usage


class RunsContext(Struct, frozen=True, kw_only=True):
    """Workspace, engine and clock for runs; `engine` is scoped to the workspace.

    `demand` raises NotPermitted when who acts has not the right that it is given. Runs about
    `subject` are refused once the person was erased since the work began.
    """

    engine: Engine
    workspace: str
    clock: Clock
    demand: Callable[[str], None]
    actor: Actor = LOCAL
    subject: WriteSubject | None = None

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


NAME_MOST: Final = 256
"""Characters of the name of a run that is attached, and of its agent."""

RESTING: Final = frozenset(("queued", "waiting"))
"""The statuses of a run that has no owner, and goes on once another takes it."""

LEASE: Final = 60_000_000
"""Microseconds for which an owner has a run from its last renewal on; then the run is lost."""

TakeOver = Literal["expired", "never", "always"]
"""When an owner takes a run from another: once its lease has expired, never, or always."""

_questions: Final = msgspec.json.Decoder(list[tuple[str, int | None]])
_metadata = msgspec.json.Decoder(dict[str, str])
_counts: Final = msgspec.json.Decoder(dict[str, int])
_json: Final = msgspec.json.Decoder(dict[str, Any])


class RunRow(Struct, frozen=True, kw_only=True):
    """A run as it is stored."""

    id: str
    kind: str
    name: str
    definition: str | None
    agent: str | None
    status: str
    reason: str | None
    detail: str | None
    error: str | None
    metadata: str
    thread_id: str | None
    parent_id: str | None
    queue: str | None
    priority: int | None
    fence: int
    holder: str | None
    place: str | None
    lease_until: int | None
    cancel_wanted: str | None
    usage: str | None
    extras: str | None
    batch: int
    seq: int
    entries: int
    bytes: int
    versions: int
    started_at: int
    seen_at: int
    ended_at: int | None
    forked_run: str | None = None
    forked_version: int | None = None
    parts: str | None = None
    questions: str | None = None

    def status_at(self, now: int) -> RunStatus:
        """Return the status of the run at *now*, in microseconds since 1970."""
        return "lost" if self.lapsed_at(now) else cast("RunStatus", self.status)

    def lapsed_at(self, now: int) -> bool:
        """Return whether its owner's lease has run out at *now*, and nothing says so yet."""
        until = self.lease_until
        return self.status == "running" and until is not None and until < now

    def live_at(self, now: int) -> bool:
        """Return whether an owner has it at *now*."""
        return self.status == "running" and self.lease_until is not None and self.lease_until >= now

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.status in ENDINGS

    @property
    def is_owned(self) -> bool:
        """Whether its last holder has it, or had it until its lease ran out."""
        return self.status in {"running", "lost"}

    def rests_at(self, now: int) -> bool:
        """Return whether nothing follows at *now* before another owner takes the run."""
        return self.lease_until is None or self.lease_until < now

    def has_due_at(self, now: int) -> bool:
        """Return whether the time of an open question of it is over at *now*."""
        return any(due is not None and due <= now for _, due in self._open())

    def _open(self) -> list[tuple[str, int | None]]:
        """Return the ids of its open questions, each with the instant at which it is due."""
        return [] if self.questions is None else _questions.decode(self.questions)

    def record(self, now: int) -> Run:
        """Return the public record at *now*."""
        return Run(
            id=self.id,
            kind=cast("RunKind", self.kind),
            name=self.name,
            definition=self.definition,
            agent=self.agent,
            status=self.status_at(now),
            reason=self.reason,
            detail=self.detail,
            error=None if self.error is None else _json.decode(self.error),
            thread_id=self.thread_id,
            parent_id=self.parent_id,
            forked_from=None
            if self.forked_run is None
            else (self.forked_run, self.forked_version or 0),
            queue=self.queue or None,
            priority=self.priority,
            metadata=_metadata.decode(self.metadata),
            started_at=from_microseconds(self.started_at),
            seen_at=from_microseconds(self.seen_at),
            ended_at=from_microseconds_or_none(self.ended_at),
            place=self.place,
            fence=self.fence,
            usage=NO_USAGE if self.usage is None else Usage.from_dict(_json.decode(self.usage)),
            parts=NO_PARTS if self.parts is None else _counts.decode(self.parts),
            entries=self.entries,
            bytes=self.bytes,
            versions=self.versions,
            questions=tuple(id for id, _ in self._open()),
            extras=NO_EXTRAS if self.extras is None else _json.decode(self.extras),
        )


def checked_name_of(field: str, given: object) -> str:
    """Return *given* if it can name a run or its agent; else InvalidInput."""
    return check_text(field, given, least=1, most=NAME_MOST)


MILLISECOND: Final = 1_000
"""One millisecond in microseconds: run memory has milliseconds, tables have microseconds."""

EVENTS_MOST: Final = 256
"""Events of one report."""

PART_BYTES: Final = 65_536
"""Bytes of a value's text beyond which only its beginning is stored."""

EVENT_BYTES: Final = 65_536
"""Bytes of an event's data as JSON; of more only the size is stored."""

_MOST_OF_NAMES: Final = 4_096
_encode: Final = msgspec.json.Encoder().encode


class RunAcquisition(Struct, frozen=True, kw_only=True):
    """The start of a run: what it is, who has it, where, and since when (ms).

    `inputs` are the keys of its inputs. It is linked to its `user` and to those of its parent. Of
    one that is over nothing is left, unless it `continues`. With `claimed` the holder has claimed
    the queued run, and acquires it only while that holds.
    """

    run_id: str
    holder: str
    name: str
    kind: RunKind = "memory"
    definition: str | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    user: str | None = None
    metadata: dict[str, str] = NO_METADATA
    inputs: tuple[str, ...] = ()
    place: str
    started_at: int
    take_over: TakeOver = "always"
    continues: bool = False
    claimed: bool = False


class LeaseGrant(Struct, frozen=True, kw_only=True):
    """A lease on a run: its fencing token, and the number of the run's last event.

    `opened` are the events of the acquisition; a repeated one has none.
    """

    fence: int
    seq: int
    opened: tuple[RunEvent, ...] = ()


class ReportReceipt(Struct, frozen=True, kw_only=True):
    """What the owner of a run learns from the storage.

    That is the number of the run's last event, and why another process wants it cancelled.
    """

    seq: int
    cancel: str | None = None


class HeldRun(Struct, frozen=True, kw_only=True):
    """A run that an owner has; `number` is that of its last report."""

    run_id: str
    holder: str
    fence: int
    number: int


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

    `fence` is the token of the holder's lease; 0 where it is not known. `entries` are in the order
    of their last writes. A report with `ended` is the last; the event that tells the end is its
    last one.
    """

    holder: str
    number: int
    fence: int = 0
    events: tuple[RunEvent, ...] = ()
    entries: tuple[ReportedEntry, ...] = ()
    deleted: tuple[str, ...] = ()
    ended: Ending | None = None


def storable(event: RunEvent) -> RunEvent:
    """Return *event* as it can be stored.

    Data that is too large is replaced by its size, and so is what is no JSON.

    Names in it have no U+0000 and no lone surrogates.
    """
    try:
        size = len(_encode(event.data))
    except (msgspec.MsgspecError, UnicodeEncodeError, TypeError, RecursionError, ValueError):
        size = -1
    names = {name: _plain(getattr(event, name)) for name in ("part", "agent", "call_id")}
    data: dict[str, Any] = event.data
    if not 0 <= size <= EVENT_BYTES:
        data = {"omitted": "not JSON" if size < 0 else size}
    return replace(event, data=data, **names)


def _plain(text: str | None) -> str | None:
    return None if text is None else text.encode(errors="replace").decode().replace("\0", "�")


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


def checked_opening(opening: RunAcquisition) -> RunAcquisition:
    """Validate *opening*; raise `InvalidInput`."""
    checked_name("run", opening.run_id)
    checked_name("holder", opening.holder)
    checked_name_of("name", opening.name)
    if opening.agent is not None:
        checked_name_of("agent", opening.agent)
    check_one_of("kind", opening.kind, KINDS)
    check_one_of("take_over", opening.take_over, get_args(TakeOver))
    checked_run_name_or_none("definition", opening.definition)
    checked_run_id_or_none("thread_id", opening.thread_id)
    checked_run_id_or_none("parent_id", opening.parent_id)
    if opening.user is not None:
        checked_name("user", opening.user)
    checked_metadata(opening.metadata)
    check_text("place", opening.place, least=1, most=256)
    checked_time("started_at", opening.started_at)
    return opening


def checked_report(report: RunReport) -> RunReport:
    """Validate *report*; raise `InvalidInput`."""
    checked_name("holder", report.holder)
    checked_version("number", report.number, least=1)
    checked_version("fence", report.fence)
    if report.ended is not None:
        checked_ending(report.ended)
    if len(report.events) > EVENTS_MOST:
        raise InvalidInput("events", f"must be at most {EVENTS_MOST}", limit=EVENTS_MOST)
    for index, event in enumerate(report.events):
        _check_event(index, event)
    _check_end(report)
    named = [each.key for each in report.entries] + list(report.deleted)
    if len(set(named)) != len(named):
        raise InvalidInput("entries", "must name each key once, and none of those deleted")
    for key in named:
        if keys.checked(key) != key:
            raise InvalidInput("key", "must be in Normalization Form C", given=key)
    for index, entry in enumerate(report.entries):
        _check_entry(index, entry)
    return report


def _check_event(index: int, event: RunEvent) -> None:
    if event.type not in TYPES - LIVE - {GAP}:
        raise InvalidInput("type", "must be a type of stored events", given=event.type, index=index)
    checked_version("seq", event.seq)
    checked_time("at", event.at)
    for name in ("part", "agent", "call_id"):
        if (text := getattr(event, name)) is not None:
            check_text(name, text, most=_MOST_OF_NAMES)


def _check_end(report: RunReport) -> None:
    ends = [event.type for event in report.events if event.type in ENDS]
    wanted = [] if report.ended is None else [f"run.{report.ended}"]
    if ends not in ([], wanted) or (ends and report.events[-1].type not in ENDS):
        raise InvalidInput("events", "must tell the end of the run last, and as `ended` does")


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
