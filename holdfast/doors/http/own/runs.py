"""Records of runs: listed, looked into, deleted; and a run of this process cancelled or steered."""

from typing import get_args

from holdfast.doors.http.answers import Answer, of_json
from holdfast.doors.http.bodies import Body
from holdfast.doors.http.call import Call
from holdfast.doors.http.query import PAGE, one_of
from holdfast.doors.http.routes import Route
from holdfast.memories.run.commanding import CANCELLED
from holdfast.memories.run.record import RunState
from holdfast.memories.run.wire import run_to_wire

RUNS = "/api/runs"
RUN = f"{RUNS}/{{run}}"


class Cancel(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why a run is cancelled."""

    reason: str = CANCELLED


class Steer(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is told to a run, and to which of its steps: null is all that are running."""

    text: str
    step: str | None = None


async def list_all(call: Call) -> Answer:
    """List runs, those that began last first."""
    query = call.query
    page = await call.slow(lambda hf: hf.runs.list(**query))
    return of_json({"data": [run_to_wire(each) for each in page], "next_page": page.next_page})


async def retrieve(call: Call) -> Answer:
    """Tell of a run."""
    return of_json(run_to_wire(await call.slow(lambda hf: hf.runs.retrieve(call["run"]))))


async def delete(call: Call) -> Answer:
    """Delete the record of a run; on a thread, because erased bytes are waited for."""
    await call.slow(lambda hf: hf.runs.delete(call["run"]))
    return of_json({"id": call["run"], "type": "run_deleted"})


async def cancel(call: Call) -> Answer:
    """Cancel a run of this process; it ends when what it is doing is torn down."""
    body = call.body(Cancel) if call.raw.strip() else Cancel()
    await call.slow(lambda hf: hf.runs.cancel(call["run"], body.reason))
    return of_json({"id": call["run"]}, status=202)


async def steer(call: Call) -> Answer:
    """Put a message before the next request of a run's steps."""
    body = call.body(Steer)
    steps = await call.slow(lambda hf: hf.runs.steer(call["run"], body.text, step=body.step))
    return of_json({"steps": steps})


ROUTES = (
    Route(
        method="GET",
        path=RUNS,
        needs="read",
        answer=list_all,
        query=(one_of("state", *get_args(RunState)), *PAGE),
        summary="List runs, those that began last first.",
    ),
    Route(method="GET", path=RUN, needs="read", answer=retrieve, summary="Retrieve a run."),
    Route(
        method="DELETE",
        path=RUN,
        needs="write",
        answer=delete,
        summary="Delete the record of a run that is over.",
    ),
    Route(
        method="POST",
        path=f"{RUN}/cancel",
        needs="write",
        answer=cancel,
        body=Cancel,
        summary="Cancel a run of this process.",
    ),
    Route(
        method="POST",
        path=f"{RUN}/steer",
        needs="write",
        answer=steer,
        body=Steer,
        summary="Tell the steps of a run something before their next request.",
    ),
)
