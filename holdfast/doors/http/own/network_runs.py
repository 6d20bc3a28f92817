"""Routes of the records of networks' runs, written at start and end."""

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import PAGE, WIDE, one_of, text
from holdfast.doors.http.request import THREADS_LIMIT, HttpRoute
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.state.run_records import STATUSES, RunRecord

RUNS = "/api/network_runs"
ONE = f"{RUNS}/{{id}}"


async def list_runs(call: Call) -> Response:
    """List runs, newest first."""
    query = call.query
    page = await call.slow(lambda hf: hf.network_runs.list(**query))
    return of_json({"data": [each.export() for each in page.data], "next_page": page.next_page})


async def retrieve(call: Call) -> Response:
    """Retrieve a run."""
    record = await call.quick(lambda hf: hf.network_runs.retrieve(call["id"]))
    return of_json(record.export())


async def put(call: Call) -> Response:
    """Store the current record of a run."""
    return of_json((await call.write(lambda hf: _put(call, hf))).export())


def _put(call: Call, hf: Holdfast) -> RunRecord:
    body = call.json(WIDE)
    if body.setdefault("id", call["id"]) != call["id"]:
        raise InvalidInput("id", "names another run than the path", given=body["id"])
    return hf.network_runs.put(body)


ROUTES = (
    HttpRoute(
        method="GET",
        path=RUNS,
        needs="read",
        answer=list_runs,
        summary="List runs of networks, newest first.",
        query=(text("network"), text("thread_id"), one_of("status", *STATUSES), *PAGE),
    ),
    HttpRoute(method="GET", path=ONE, needs="read", answer=retrieve, summary="Retrieve a run."),
    HttpRoute(
        method="PUT",
        path=ONE,
        needs="write",
        answer=put,
        summary="Keep a run's record: at its start, and at its end.",
        body="any",
        limit=THREADS_LIMIT,
    ),
)
