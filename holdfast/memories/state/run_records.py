"""Records of runs: put at a run's start and at its end, and read."""

from typing import Final

import msgspec
from msgspec import Struct

from holdfast.engines.base import Transaction
from holdfast.ground.errors import Conflict, LimitExceeded, NotFound
from holdfast.ground.pages import Page, checked_limit, digest, write_cursor
from holdfast.memories.state import message
from holdfast.memories.state.run_record import STATUSES, RunRecord, checked_name_or_none
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

MOST_BYTES: Final = 16_777_216
"""Of a record, as JSON."""

_RUNS: Final = "network_runs"

_encode: Final = msgspec.json.Encoder(order="deterministic").encode


class _Row(Struct, frozen=True, kw_only=True):
    id: str
    started_at: int
    body: str


class RunFilters(Struct, frozen=True, kw_only=True):
    """Which runs to list; None is not asked for."""

    network: str | None = None
    thread_id: str | None = None
    status: str | None = None

    def __post_init__(self) -> None:
        """InvalidInput for a filter that no run can pass."""
        checked_name_or_none("network", self.network)
        checked_id_or_none("thread_id", self.thread_id)
        if self.status is not None:
            message.one_of("status", self.status, STATUSES)


def put_run(caller: ThreadsContext, given: object) -> RunRecord:
    """Write a run's record, as it is now, and return it; the same twice is once.

    Its thread is made if it is not there. A run that has ended is not changed: Conflict.
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
        sql = queries_of(caller)
        if record.thread_id is not None:
            tx.send(sql.hold_thread, thread=record.thread_id, now=caller.now())
        if tx.run(sql.put_run, **row):
            return record
        held = tx.one(_body, sql.hold_run, id=record.id)
        if held == body:
            return record
        if record_of(held).ended:
            raise already_ended(record.id)
        tx.send(sql.change_run, **row)
        return record

    return caller.engine.write(work)


def already_ended(run_id: str) -> Conflict:
    """Return the error of a record of a run that ended otherwise."""
    return Conflict(
        f"The run {run_id} has ended, and its record is another.",
        reason="ended",
        next="Use a new run_id to run it again.",
    )


def retrieve_run(caller: ThreadsContext, run_id: str) -> RunRecord:
    """Return the record of the run; NotFound if it is not there."""
    id = checked_id("run_id", run_id)
    body = caller.engine.first(_body, queries_of(caller).get_run, id=id)
    if body is None:
        raise NotFound("run", id, next="Check the id, or list the runs.")
    return record_of(body)


def list_runs(
    caller: ThreadsContext, filters: RunFilters, limit: int | None, page: str | None
) -> Page[RunRecord]:
    """Return a page of the runs that pass *filters*, newest first."""
    most = checked_limit(limit, most=MOST_LISTED, default=PER_PAGE)
    stamp = digest(caller.workspace, *msgspec.structs.astuple(filters))
    at, after = by_age(_RUNS, stamp, page)
    asked: dict[str, object] = {
        "network": filters.network or "",
        "status": filters.status or "",
        "at": at,
        "after": after,
        "rows": most + 1,
    }
    sql = queries_of(caller)
    if filters.thread_id is None:
        rows = caller.engine.all(_Row, sql.list_runs, **asked)
    else:
        rows = caller.engine.all(_Row, sql.list_runs_of_thread, thread=filters.thread_id, **asked)
    end = rows[most - 1] if len(rows) > most else None
    return Page(
        [record_of(row.body) for row in rows[:most]],
        end and write_cursor(_RUNS, stamp, [end.started_at, end.id]),
        more=lambda page: list_runs(caller, filters, limit, page),
    )


def runs_of(caller: ThreadsContext, thread_id: str) -> list[RunRecord]:
    """Return the records of the thread's runs, newest first; NotFound if it is not there."""
    filters = RunFilters(thread_id=checked_id("thread_id", thread_id))
    found = list(list_runs(caller, filters, MOST_LISTED, None).all())
    if not found:
        retrieve_thread(caller, thread_id)
    return found


def body_of(record: RunRecord) -> str:
    """Return what the row of *record* holds; LimitExceeded if it is too much."""
    body = _encode(record.export())
    if len(body) > MOST_BYTES:
        raise LimitExceeded("run_bytes", allowed=MOST_BYTES, actual=len(body), what=record.id)
    return body.decode()


def record_of(body: str) -> RunRecord:
    """Return the record whose row holds *body*."""
    return RunRecord.from_dict(msgspec.json.decode(body))


def _body(*, body: str) -> str:
    return body
