"""Routes that start runs of a server's definitions, and run its networks."""

from typing import Any

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from holdfast.doors import http
from holdfast.doors.http.call import Call
from holdfast.doors.http.own.streams import BEAT, checked_wait, live, rested, stored_events
from holdfast.doors.http.params import WIDE, Body
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import LiveAnswer, Response, of_json
from holdfast.doors.http.state import ActiveRun
from holdfast.library.operations.runs import RUNS, StartRun
from holdfast.library.operations.threads import LIMIT

NETWORKS = "/api/networks"


DEFINITIONS = "/api/definitions"


class Make(Body, frozen=True):
    """Input and options of a new run."""

    input: str
    thread_id: str | None = None
    data: dict[str, Any] | None = None
    run_id: str | None = None
    max_turns: int | UnsetType | None = UNSET
    system_prompt: str | None = None


async def list_definitions(call: Call) -> Response:
    """List what the server can run, by name."""
    found = call.state.registry.definitions.values()
    return of_json(
        {
            "data": [
                {
                    "name": each.name,
                    "kind": None if each.served is None else each.kind,
                    "description": each.description,
                    "version": each.version,
                    "queue": each.queue,
                }
                for each in found
            ]
        }
    )


async def start(call: Call) -> Response | LiveAnswer:
    """Queue a run; return its record, or stream its events."""
    body = call.body(StartRun, WIDE)
    seconds = checked_wait(body.wait)
    known = call.state.registry.definitions.get(body.definition)
    options: dict[str, Any] = asdict(body)
    del options["wait"]
    if body.queue is None and known is not None:
        options["queue"] = known.queue
    name = options.pop("definition")
    run = await call.slow(lambda hf: hf.runs.start(name, **options))
    if b"text/event-stream" in call.headers.get(b"accept", b""):
        return await stored_events(call, run.id)
    return of_json(await rested(call, run.id, seconds), status=202)


async def list_networks(call: Call) -> Response:
    """List the networks that are served, and their agents."""
    networks = call.state.registry.networks
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
    return await _streamed(call, active)


async def _streamed(call: Call, active: ActiveRun) -> LiveAnswer:
    await _begun(active)
    return live(call, active)


async def _begun(active: ActiveRun) -> None:
    """Wait until the run has begun; raise the error that kept it from starting."""
    while not active.frames and not active.over:
        await active.news(BEAT)
    if not active.frames:
        await active.waited()


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


ROUTES = (
    HttpRoute("GET", DEFINITIONS, "read", list_definitions, "List what the server can run."),
    HttpRoute(
        "POST",
        RUNS,
        "write",
        start,
        "Queue a run of a definition; with Accept: text/event-stream, as its events.",
        body=StartRun,
        limit=LIMIT,
    ),
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
)
