"""Routes below `/api/runs`."""

from typing import Any, Literal, get_args

from msgspec import field
from msgspec.structs import asdict

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import PAGE, Body, integer, one_of, several, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.entry import filter_of
from holdfast.memories.run.model_view import ORDERS
from holdfast.memories.run.records.read import (
    asked_for,
    checked_wish,
    entries_told,
    entry_told,
    run_to_wire,
)
from holdfast.memories.run.records.record import (
    Ending,
    ReportedEntry,
    ReportedEvent,
    RunReport,
    RunsContext,
    RunStart,
    RunState,
    checked_opening,
    checked_report,
)
from holdfast.memories.run.records.runs import CANCELLED
from holdfast.memories.run.records.write import begin, take

RUNS = "/api/runs"
RUN = f"{RUNS}/{{run}}"


class CancelRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = CANCELLED


class Steer(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to a run, and the step that gets it; null: all running steps."""

    text: str
    step: str | None = None


async def list_all(call: Call) -> Response:
    """List runs, those that began last first."""
    query = call.query
    page = await call.slow(lambda hf: hf.runs.list(**query))
    return of_json({"data": [run_to_wire(each) for each in page], "next_page": page.next_page})


async def retrieve(call: Call) -> Response:
    """Retrieve a run."""
    return of_json(run_to_wire(await call.slow(lambda hf: hf.runs.retrieve(call["run"]))))


async def entries(call: Call) -> Response:
    """List the last entries of a run's memory, in the format of its list tool."""
    query = call.query
    among = filter_of(
        query.get("kinds"), query.get("keys"), query.get("key_prefix"), query.get("sources")
    )
    request = asked_for(
        among, order=query.get("order"), limit=query.get("limit"), page=query.get("page")
    )
    return of_json(await call.slow(lambda hf: entries_told(_reading(hf), call["run"], request)))


async def entry(call: Call) -> Response:
    """Retrieve one entry of a run, in the format of its read tool."""
    part = checked_wish(call.query.get("path"), call.query.get("offset", 0))

    def look(hf: Holdfast) -> Response:
        return of_json(entry_told(_reading(hf), call["run"], call["key"], part))

    return await call.slow(look)


def _reading(hf: Holdfast) -> RunsContext:
    """Return the context, after the pending events of this process are written."""
    context = hf.runs.context
    context.demand("read")
    hf.run_attachments.flush()
    return context


async def delete(call: Call) -> Response:
    """Delete the record of a run; run on a thread, which waits for the erasure."""
    await call.slow(lambda hf: hf.runs.delete(call["run"]))
    return of_json({"id": call["run"], "type": "run_deleted"})


async def cancel(call: Call) -> Response:
    """Cancel a run of this process; it ends once its current work is torn down."""
    body = call.body(CancelRun) if call.raw.strip() else CancelRun()
    await call.slow(lambda hf: hf.runs.cancel(call["run"], body.reason))
    return of_json({"id": call["run"]}, status=202)


async def steer(call: Call) -> Response:
    """Send a message to the running steps of a run, before their next request."""
    body = call.body(Steer)
    steps = await call.slow(lambda hf: hf.runs.steer(call["run"], body.text, step=body.step))
    return of_json({"steps": steps})


ROUTES = (
    HttpRoute(
        method="GET",
        path=RUNS,
        needs="read",
        answer=list_all,
        query=(one_of("state", *get_args(RunState)), *PAGE),
        summary="List runs, those that began last first.",
    ),
    HttpRoute(method="GET", path=RUN, needs="read", answer=retrieve, summary="Retrieve a run."),
    HttpRoute(
        method="DELETE",
        path=RUN,
        needs="write",
        answer=delete,
        summary="Delete the record of a run that has ended.",
    ),
    HttpRoute(
        method="GET",
        path=f"{RUN}/entries",
        needs="read",
        answer=entries,
        query=(
            several("kind", "kinds"),
            several("key", "keys"),
            text("key_prefix"),
            several("source", "sources"),
            one_of("order", *ORDERS),
            *PAGE,
        ),
        summary="List what the memory of a run held last, without values.",
    ),
    HttpRoute(
        method="GET",
        path=f"{RUN}/entries/{{key}}",
        needs="read",
        answer=entry,
        query=(text("path", nul=True), integer("offset")),
        summary="Retrieve one entry of a run's memory.",
    ),
    HttpRoute(
        method="POST",
        path=f"{RUN}/cancel",
        needs="write",
        answer=cancel,
        body=CancelRun,
        summary="Cancel a run of this process.",
    ),
    HttpRoute(
        method="POST",
        path=f"{RUN}/steer",
        needs="write",
        answer=steer,
        body=Steer,
        summary="Send a message to the steps of a run, before their next request.",
    ),
)


class PutRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that begins, reported by `holder`.

    `started_at` is in milliseconds since 1970.
    """

    holder: str
    name: str
    agent: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    place: str
    started_at: int


class PostedEvent(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An event of a run, at milliseconds since 1970."""

    type: str
    at: int
    data: dict[str, Any]


class PostedEntry(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The current state of an entry.

    `value` is JSON as text; if it is only a part, a JSON string with that part.
    """

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
    """A report of what happened in a run.

    `number` counts the reports of the holder; a repeated number is taken once.
    """

    holder: str
    number: int
    events: list[PostedEvent] = field(default_factory=list[PostedEvent])
    entries: list[PostedEntry] = field(default_factory=list[PostedEntry])
    deleted: list[str] = field(default_factory=list[str])
    missed: int = 0
    ended: Ending | None = None


async def put(call: Call) -> Response:
    """Record the start of a run of another process."""
    body, run_id = call.body(PutRun), call["run"]
    opening = checked_opening(RunStart(run_id=run_id, **asdict(body)))
    await call.write(lambda hf: begin(_writing(hf), opening))
    return of_json(run_to_wire(await call.quick(lambda hf: hf.runs.retrieve(run_id))))


async def post(call: Call) -> Response:
    """Record a report of a run."""
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
    """Return the context, if it may write."""
    context = hf.runs.context
    context.demand("write")
    return context


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
