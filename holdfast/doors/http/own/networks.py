"""Routes that list, run, follow and cancel the networks of a server."""

import asyncio
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from holdfast.doors import http
from holdfast.doors.http.call import Call
from holdfast.doors.http.own.streams import BEAT, STILL_HERE, last_received, lines
from holdfast.doors.http.params import WIDE, Body, integer
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import LiveAnswer, Piece, Response, of_json
from holdfast.doors.http.state import ActiveRun, followed
from holdfast.ground.errors import Conflict
from holdfast.library.operations.threads import LIMIT
from holdfast.memories.run.records.read import LOOKS_EVERY
from holdfast.memories.state.message import to_text
from holdfast.memories.state.run_records import RunRecord

NETWORKS = "/api/networks"
ONE = "/api/network_runs/{id}"


class Make(Body, frozen=True):
    """Input and options of a new run."""

    input: str
    thread_id: str | None = None
    data: dict[str, Any] | None = None
    run_id: str | None = None
    max_turns: int | UnsetType | None = UNSET
    system_prompt: str | None = None


class CancelNetworkRun(Body, frozen=True):
    """The reason to cancel a run."""

    reason: str = ""


async def list_networks(call: Call) -> Response:
    """List the networks that are served, and their agents."""
    networks = call.state.registry.networks.values()
    return of_json(
        {
            "data": [
                {
                    "name": network.name,
                    "description": network.description,
                    "agents": [
                        {"name": agent.name, "description": agent.description}
                        for agent in network.agents
                    ],
                }
                for network in networks
            ]
        }
    )


async def run(call: Call) -> Response | LiveAnswer:
    """Run a network; return its result, or stream its events."""
    network = call.state.registry.network(call["name"])
    active = _started(call, network)
    if b"text/event-stream" not in call.headers.get(b"accept", b""):
        return of_json((await active.waited()).to_dict())
    while not active.frames and not active.over:
        await active.news(BEAT)
    if not active.frames:
        await active.waited()
    return _live(call, active, -1)


async def follow(call: Call) -> LiveAnswer:
    """Stream the events of a run after a number, then its end."""
    run_id, after = call["id"], last_received(call, -1)
    active = call.state.registry.active(call.visitor.workspace, run_id)
    if active is not None:
        return _live(call, active, after)
    first = await call.quick(lambda hf: hf.network_runs.retrieve(run_id))

    async def send(piece: Piece) -> None:
        record, quiet = first, 0.0
        with call.state.count_live():
            await piece(STILL_HERE)
            while not record.ended:
                await asyncio.sleep(LOOKS_EVERY)
                quiet += LOOKS_EVERY
                if quiet >= BEAT:
                    await piece(STILL_HERE)
                    quiet = 0.0
                record = await call.slow(lambda hf: hf.network_runs.retrieve(run_id))
            await piece(_end(record))

    return LiveAnswer(run=send)


async def cancel(call: Call) -> Response:
    """Cancel a run that is active in this process."""
    run_id = call["id"]
    reason = call.body(CancelNetworkRun).reason if call.raw else ""
    active = call.state.registry.active(call.visitor.workspace, run_id)
    if active is not None and active.run is not None and active.run.status == "running":
        active.run.cancel(reason)
        return of_json({"id": run_id, "cancelling": True}, status=202)
    record = await call.quick(lambda hf: hf.network_runs.retrieve(run_id))
    if record.ended:
        raise Conflict(f"The run {run_id} has ended.", reason="ended")
    raise Conflict(
        f"The run {run_id} is active in another process.",
        reason="elsewhere",
        next="Cancel it where it was started.",
    )


def _started(call: Call, network: Any) -> ActiveRun:
    body = call.body(Make, WIDE)
    message = http.UserMessage(body.input, system_prompt=body.system_prompt)
    options: dict[str, Any] = {
        name: value
        for name in ("thread_id", "data", "run_id")
        if (value := getattr(body, name)) is not None
    }
    if body.max_turns is not UNSET:
        options["max_turns"] = body.max_turns
    return call.state.registry.start(network, call.handles.plain, message, options)


def _live(call: Call, active: ActiveRun, after: int) -> LiveAnswer:
    async def send(piece: Piece) -> None:
        with call.state.count_live():
            async for event in followed(active, after, BEAT):
                await piece(STILL_HERE if event is None else lines(str(event[0]), *event[1:]))

    return LiveAnswer(run=send)


def _end(record: RunRecord) -> bytes:
    """Return the final event of *record*, as far as it is recorded."""
    type = f"run.{record.status}"
    event = {
        "type": type,
        "seq": None,
        "at": None if record.ended_at is None else to_text(record.ended_at),
        "run_id": record.id,
        "thread_id": record.thread_id,
        "network": record.network,
        "agent": None,
        "call_id": None,
        "data": {
            "reason": record.stop_reason,
            "detail": record.stop_detail or "",
            "error": record.error,
            "usage": record.usage.export(),
            "dropped": record.extras.get("dropped", []),
        },
    }
    return lines("", type, msgspec.json.encode(event))


ROUTES = (
    HttpRoute(
        "GET", NETWORKS, "read", list_networks, "List the networks of agents that the server runs."
    ),
    HttpRoute(
        "POST",
        f"{NETWORKS}/{{name}}/runs",
        "write",
        run,
        "Run a network; with Accept: text/event-stream, as its events.",
        body=Make,
        limit=LIMIT,
    ),
    HttpRoute(
        "GET",
        f"{ONE}/events",
        "read",
        follow,
        "Follow what happens in a run of a network, as server-sent events.",
        query=(integer("after"),),
    ),
    HttpRoute(
        "POST",
        f"{ONE}/cancel",
        "write",
        cancel,
        "Cancel a run of a network.",
        body=CancelNetworkRun,
    ),
)
