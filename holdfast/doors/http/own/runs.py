"""Routes of the records of runs: their entries, and reports of other processes."""

from collections.abc import Mapping
from typing import Any, Final

from msgspec import field
from msgspec.structs import asdict

from holdfast.doors.http.call import Act, Call
from holdfast.doors.http.params import PAGE, WIDE, Body, one_of, read_json, several, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.runs import CANCEL, DELETE, FORM, RUN
from holdfast.library.operations.threads import LIMIT
from holdfast.memories.run.entry import filter_of
from holdfast.memories.run.model_view import ORDERS
from holdfast.memories.run.records.read import asked_for, entries_told
from holdfast.memories.run.records.record import (
    RunAcquisition,
    RunReport,
    RunsContext,
    TakeOver,
    checked_opening,
    checked_report,
)
from holdfast.memories.run.records.write import begin, take


def cancel(call: Call, hf: Holdfast, given: dict[str, Any]) -> dict[str, str]:
    """Cancel a run; it ends once its current work is torn down."""
    active = call.state.registry.active(call.visitor.workspace, given["id"])
    if active is None or not active.cancel(given["reason"]):
        hf.runs.cancel(**given)
    return {"id": given["id"]}


def delete(_: Call, hf: Holdfast, given: dict[str, Any]) -> dict[str, str]:
    """Delete the record of a run; run on a thread, which waits for the erasure."""
    hf.runs.delete(**given)
    return {"id": given["id"], "type": "run_deleted"}


ACTS: Final[Mapping[str, Act]] = {CANCEL.name: cancel, DELETE.name: delete}


async def entries(call: Call) -> Response:
    """List the last entries of a run's memory, in the format of its list tool."""
    query = call.query
    filters = [query.get(name) for name in ("kind", "keys", "key_prefix", "sources")]
    order, limit, page = (query.get(name) for name in ("order", "limit", "page"))
    request = asked_for(filter_of(*filters), order=order, limit=limit, page=page)

    def look(hf: Holdfast) -> Response:
        context = _context(hf, "read")
        hf.run_attachments.flush()
        return of_json(entries_told(context, call["run"], request))

    return await call.slow(look)


def _context(hf: Holdfast, right: str) -> RunsContext:
    context = hf.runs.context
    context.demand(right)
    return context


class PutRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run that begins, owned by `holder`; in place of it, a record without an owner.

    `started_at` is in milliseconds since 1970 for a run with a holder, else RFC 3339. Further
    members of a record without a holder are its extras.
    """

    holder: str
    name: str
    kind: str = "memory"
    definition: str | None = None
    agent: str | None = None
    thread_id: str | None = None
    parent_id: str | None = None
    metadata: dict[str, str] = field(default_factory=dict[str, str])
    inputs: tuple[str, ...] = ()
    place: str
    started_at: int
    take_over: TakeOver = "always"


async def put(call: Call) -> Response:
    """Record the start of a run of another process, or a record without an owner."""
    run_id, given = call["run"], read_json(call.raw, WIDE)
    if "holder" not in given:
        if given.get("id", run_id) != run_id:
            raise InvalidInput("id", "must be that of the path", given=given["id"])
        record = {**given, "id": run_id}
        return of_json(FORM.encode(await call.write(lambda hf: hf.runs.put(record))))
    body = call.body(PutRun)
    opening = checked_opening(RunAcquisition(run_id=run_id, **asdict(body)))
    grant = await call.write(lambda hf: begin(_context(hf, "write"), opening))
    run = await call.quick(lambda hf: hf.runs.retrieve(run_id))
    opened = [each.to_dict() for each in grant.opened]
    return of_json(FORM.encode(run) | {"seq": grant.seq, "opened": opened})


async def post(call: Call) -> Response:
    """Record a report of a run."""
    report, run_id = checked_report(call.body(RunReport)), call["run"]
    receipt = await call.write(lambda hf: take(_context(hf, "write"), run_id, report, relay=True))
    return of_json({"id": run_id, "number": report.number, **asdict(receipt)})


_ENTRIES: Final = (
    several("kind", "kind"),
    several("key", "keys"),
    text("key_prefix"),
    several("source", "sources"),
    one_of("order", *ORDERS),
    *PAGE,
)

ROUTES: Final = (
    HttpRoute(
        "GET",
        f"{RUN}/entries",
        "read",
        entries,
        "List what the memory of a run held last, without values.",
        query=_ENTRIES,
    ),
    HttpRoute(
        "PUT",
        RUN,
        "write",
        put,
        "Show a run of another process, or write a run's record.",
        body="any",
        limit=LIMIT,
    ),
    HttpRoute(
        "POST",
        f"{RUN}/events",
        "write",
        post,
        "Report what happened in a run of another process.",
        body=RunReport,
    ),
)
