"""Records of network runs."""

from datetime import datetime
from typing import Any, Final, Literal, Self, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import asdict, force_setattr

from holdfast.engines.base import Transaction, scalar
from holdfast.ground import json_values
from holdfast.ground.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import Page, digest, write_cursor
from holdfast.ground.validation import check_limit
from holdfast.memories.state import message
from holdfast.memories.state.frozen import kept
from holdfast.memories.state.message import from_text, to_milliseconds, to_text
from holdfast.memories.state.result import NO_USAGE, Usage
from holdfast.memories.state.thread import (
    MOST_LISTED,
    PER_PAGE,
    ThreadsContext,
    by_age,
    checked_id,
    checked_id_or_none,
    cut,
    queries_of,
    retrieve_thread,
)

RunStatus = Literal["running", "completed", "failed", "cancelled"]

STATUSES: Final[tuple[str, ...]] = get_args(RunStatus)
MOST_NAME: Final = 512
"""Bytes of a network's or an agent's name."""


class RunRecord(Struct, frozen=True, kw_only=True):
    """A run of a network or an agent: `running`, or how it ended.

    `network` is None for an agent that runs alone. `extras` has more JSON members that the run
    stores; they are deleted with the run's thread.
    """

    id: str
    network: str | None = None
    thread_id: str | None = None
    status: RunStatus = "running"
    stop_reason: str | None = None
    stop_detail: str | None = None
    error: dict[str, JSON] | None = None
    usage: Usage = NO_USAGE
    calls: int = 0
    started_at: datetime
    ended_at: datetime | None = None
    extras: dict[str, JSON] = message.NO_EXTRAS

    def __post_init__(self) -> None:
        """Check every field; InvalidInput names the one that is wrong."""
        checked_id("id", self.id)
        checked_name_or_none("network", self.network)
        checked_id_or_none("thread_id", self.thread_id)
        message.one_of("status", self.status, STATUSES)
        message.text_or_none("stop_reason", self.stop_reason)
        message.text_or_none("stop_detail", self.stop_detail)
        message.whole("calls", self.calls)
        force_setattr(self, "error", _error(self.error))
        force_setattr(self, "started_at", to_milliseconds("started_at", self.started_at))
        if (self.status == "running") != (self.ended_at is None):
            raise InvalidInput("ended_at", "must be given when the run has ended, and only then")
        if self.ended_at is not None:
            force_setattr(self, "ended_at", to_milliseconds("ended_at", self.ended_at))
        force_setattr(self, "extras", message.extra_members(self.extras, _FIELDS))

    @property
    def ended(self) -> bool:
        """Whether the run is over."""
        return self.status != "running"

    @classmethod
    def from_dict(cls, given: object) -> Self:
        """Convert the dict *given* to a record; unknown members go to `extras`."""
        with message.whole_is("record"):
            members = message.gathered(message.members(given), _FIELDS)
        for name in ("started_at", "ended_at"):
            if isinstance(members.get(name), str):
                members[name] = from_text(name, members[name])
        if "usage" in members and not isinstance(members["usage"], Usage):
            with message.inside("usage"):
                members["usage"] = Usage.from_dict(members["usage"])
        return message.made(cls, members, ("id", "started_at"))

    def export(self) -> dict[str, Any]:
        """Return it as a dict of JSON, each of `extras` beside the fields."""
        wire = asdict(self)
        extras = wire.pop("extras")
        wire["usage"] = self.usage.export()
        wire["started_at"] = to_text(self.started_at)
        wire["ended_at"] = None if self.ended_at is None else to_text(self.ended_at)
        return wire | extras


_FIELDS: Final = frozenset(RunRecord.__struct_fields__) - {"extras"}


def _error(given: object) -> dict[str, JSON] | None:
    """Return *given*, the name and the message of an error, read-only.

    Raise `InvalidInput` for other values.
    """
    if given is None:
        return None
    found = kept(given, "error")
    if not isinstance(found, dict) or found.keys() != {"name", "message"}:
        raise InvalidInput("error", "must hold name and message, and nothing else")
    for name, text in found.items():
        message.text(f"error.{name}", text)
    return found


def checked_name_or_none(field: str, given: object) -> str | None:
    """Return *given* if it is None or names a network or an agent; else InvalidInput."""
    return None if given is None else checked_name(field, given)


def checked_name(field: str, given: object) -> str:
    """Validate the name of a network or an agent: 1 to 512 bytes."""
    name = message.text(field, given, least=1)
    if len(name.encode()) > MOST_NAME or "\0" in name:
        reason = f"must be at most {MOST_NAME} bytes, without U+0000"
        raise InvalidInput(field, reason, limit=MOST_NAME, given=name)
    return name


MOST_BYTES: Final = 16_777_216
"""Limit of a record as JSON."""

_RUNS: Final = "network_runs"

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class _Row(Struct, frozen=True, kw_only=True):
    id: str
    started_at: int
    body: str


class RunFilters(Struct, frozen=True, kw_only=True):
    """Filters of a list of runs; None is no filter."""

    network: str | None = None
    thread_id: str | None = None
    status: str | None = None

    def __post_init__(self) -> None:
        """Raise `InvalidInput` for a filter that no run can pass."""
        checked_name_or_none("network", self.network)
        checked_id_or_none("thread_id", self.thread_id)
        if self.status is not None:
            message.one_of("status", self.status, STATUSES)


def put_run(context: ThreadsContext, given: object) -> RunRecord:
    """Write a run's record and return it; writing the same record again does nothing.

    Its thread is created if needed. Raise `Conflict` for a run that ended with another record.
    """
    record = given if isinstance(given, RunRecord) else RunRecord.from_dict(given)
    body = body_of(record)
    row: dict[str, object] = {
        "id": record.id,
        "network": record.network,
        "thread": record.thread_id,
        "status": record.status,
        "started_at": cut(record.started_at),
        "body": body,
    }

    def work(tx: Transaction) -> RunRecord:
        sql = queries_of(context)
        if record.thread_id is not None:
            tx.send(sql.hold_thread, thread=record.thread_id, now=context.now())
        if tx.run(sql.put_run, **row):
            return record
        held = tx.one(scalar, sql.hold_run, id=record.id)
        if held == body:
            return record
        if record_of(held).ended:
            raise already_ended(record.id)
        tx.send(sql.change_run, **row)
        return record

    return context.engine.write(work)


def already_ended(run_id: str) -> Conflict:
    """Return the error for a run that ended with another record."""
    return Conflict(
        f"The run {run_id} has ended, and its record is another.",
        reason="ended",
        next="Use a new run_id to run it again.",
    )


def retrieve_run(context: ThreadsContext, run_id: str) -> RunRecord:
    """Return the record of the run; NotFound if it is not there."""
    id = checked_id("run_id", run_id)
    body = context.engine.first(scalar, queries_of(context).get_run, id=id)
    if body is None:
        raise NotFound("run", id, next="Check the id, or list the runs.")
    return record_of(body)


def list_runs(
    context: ThreadsContext, filters: RunFilters, limit: int | None, page: str | None
) -> Page[RunRecord]:
    """Return a page of the runs that pass *filters*, newest first."""
    most = check_limit(limit, most=MOST_LISTED, default=PER_PAGE)
    stamp = digest(context.workspace, *msgspec.structs.astuple(filters))
    at, after = by_age(_RUNS, stamp, page)
    params: dict[str, object] = {
        "network": filters.network or "",
        "status": filters.status or "",
        "at": at,
        "after": after,
        "rows": most + 1,
    }
    sql = queries_of(context)
    if filters.thread_id is None:
        rows = context.engine.all(_Row, sql.list_runs, **params)
    else:
        rows = context.engine.all(_Row, sql.list_runs_of_thread, thread=filters.thread_id, **params)
    end = rows[most - 1] if len(rows) > most else None
    return Page(
        [record_of(row.body) for row in rows[:most]],
        end and write_cursor(_RUNS, stamp, [end.started_at, end.id]),
        more=lambda page: list_runs(context, filters, limit, page),
    )


def runs_of(context: ThreadsContext, thread_id: str) -> list[RunRecord]:
    """Return the thread's runs, newest first; `NotFound` if there is no thread."""
    filters = RunFilters(thread_id=checked_id("thread_id", thread_id))
    found = list(list_runs(context, filters, MOST_LISTED, None).all())
    if not found:
        retrieve_thread(context, thread_id)
    return found


def body_of(record: RunRecord) -> str:
    """Encode *record* for its row; raise `LimitExceeded` if it is too large."""
    body = _encode(record.export())
    if len(body) > MOST_BYTES:
        raise LimitExceeded("run_bytes", allowed=MOST_BYTES, actual=len(body), what=record.id)
    return body.decode()


def record_of(body: str) -> RunRecord:
    """Decode the record in a row's *body*."""
    return RunRecord.from_dict(json_values.read(body, "body"))
