"""Routes that open, keep alive and end the runs of an agent."""

from typing import cast

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.durable_asked import (
    RUN,
    agents_route,
    caller_of,
    idempotency_key_of,
    memory_of,
)
from holdfast.doors.http.params import Body
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.records import to_milliseconds_text
from holdfast.memories.durable.runs import Ending, begin, end, heartbeat
from holdfast.memories.durable.wire import entry_to_wire

OF_RUN = "/runs/{run_id}"


class OpenRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a new run; without a `run_id` it gets a new id."""

    run_id: str | None = None
    lane: str = "main"
    budget: int | None = None
    resume: bool = False


class EndRun(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a run ended."""

    outcome: str = "ok"


async def open_run(call: Call) -> Response:
    """Open a run; return its id, its token and its hydration."""
    body = call.body(OpenRun) if call.raw.strip() else OpenRun()
    idempotency_key_of(call)
    begun = await call.write(
        lambda hf: begin(
            memory_of(call, hf).context,
            body.run_id,
            lane=body.lane,
            budget=body.budget,
            resume=body.resume,
        )
    )
    opened = {"run_id": begun.run_id, "token": begun.token, "lane": begun.lane}
    return of_json({**opened, "hydration": entry_to_wire(begun.hydration)}, status=201)


async def keep_alive(call: Call) -> Response:
    """Record that a run is alive; return when it lapses."""
    idempotency_key_of(call)
    lapses_at = await call.write(lambda hf: heartbeat(_within(call, hf)))
    return of_json({"lapses_at": to_milliseconds_text(lapses_at)})


async def end_run(call: Call) -> Response:
    """End a run."""
    body = call.body(EndRun) if call.raw.strip() else EndRun()
    outcome = cast("Ending", body.outcome)
    ended = await call.write(
        lambda hf: end(_within(call, hf), outcome, idempotency_key=idempotency_key_of(call))
    )
    return of_json(entry_to_wire(ended))


def _within(call: Call, hf: Holdfast) -> AgentContext:
    """Return the run's context; raise InvalidInput if headers and path differ."""
    context = caller_of(call, hf)
    if context.run is not None and context.run.run_id != call["run_id"]:
        raise InvalidInput(RUN.decode(), "names another run than the path", given=context.run_id)
    return context


ROUTES = (
    agents_route("POST", "/runs", "write", open_run, "Open a run and hydrate it.", body=OpenRun),
    agents_route("POST", f"{OF_RUN}/heartbeat", "write", keep_alive, "Say that a run is alive."),
    agents_route("POST", f"{OF_RUN}/end", "write", end_run, "End a run.", body=EndRun),
)
