"""Runs of other processes, reported: that they begin, and what happened since the last report."""

from typing import Any, Literal

from msgspec import field
from msgspec.structs import asdict

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.runs import RUN
from holdfast.doors.http.params import Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.read import run_to_wire
from holdfast.memories.run.records.record import (
    Ending,
    ReportedEntry,
    ReportedEvent,
    RunReport,
    RunsContext,
    RunStart,
    checked_opening,
    checked_report,
)
from holdfast.memories.run.records.write import begin, take


class PutRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that begins; `holder` is whoever reports it, `started_at` milliseconds since 1970."""

    holder: str
    name: str
    agent: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    place: str
    started_at: int


class PostedEvent(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something that happened, at milliseconds since 1970."""

    type: str
    at: int
    data: dict[str, Any]


class PostedEntry(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An entry as it is now; `value` is JSON as text, or a string of JSON that is a part."""

    key: str
    kind: str
    source: str | None = None
    title: str | None = None
    description: str | None = None
    failed: bool = False
    version: int
    created_at: int
    updated_at: int
    value: str
    value_bytes: int
    part_of: Literal["text", "json"] | None = None
    total: int | None = None


class PostEvents(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A report: `number` counts those of the holder; the same number twice is taken once."""

    holder: str
    number: int
    events: list[PostedEvent] = field(default_factory=list[PostedEvent])
    entries: list[PostedEntry] = field(default_factory=list[PostedEntry])
    deleted: list[str] = field(default_factory=list[str])
    missed: int = 0
    ended: Ending | None = None


async def put(call: Call) -> Response:
    """Show a run that begins."""
    body, run_id = call.body(PutRun), call["run"]
    opening = checked_opening(RunStart(run_id=run_id, **asdict(body)))
    await call.write(lambda hf: begin(_writing(hf), opening))
    return of_json(run_to_wire(await call.quick(lambda hf: hf.runs.retrieve(run_id))))


async def post(call: Call) -> Response:
    """Take a report of a run."""
    body, run_id = call.body(PostEvents), call["run"]
    report = checked_report(
        RunReport(
            holder=body.holder,
            number=body.number,
            events=tuple(ReportedEvent(**asdict(each)) for each in body.events),
            entries=tuple(ReportedEntry(**asdict(each)) for each in body.entries),
            deleted=tuple(body.deleted),
            missed=body.missed,
            ended=body.ended,
        )
    )
    await call.write(lambda hf: take(_writing(hf), run_id, report, relay=True))
    return of_json({"id": run_id, "number": report.number})


def _writing(hf: Holdfast) -> RunsContext:
    """Return who reports, if it may."""
    caller = hf.runs.caller
    caller.demand("write")
    return caller


REPORT_ROUTES = (
    HttpRoute(
        method="PUT",
        path=RUN,
        needs="write",
        answer=put,
        body=PutRun,
        summary="Show a run of another process.",
    ),
    HttpRoute(
        method="POST",
        path=f"{RUN}/events",
        needs="write",
        answer=post,
        body=PostEvents,
        summary="Report what happened in a run of another process.",
    ),
)
