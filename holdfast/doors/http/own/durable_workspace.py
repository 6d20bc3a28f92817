"""Routes for a workspace's durable memory: agents, limits, sweep and erasure."""

from typing import Any, cast

from msgspec import Struct

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.durable_upkeep import SetLimits
from holdfast.doors.http.params import PAGE, Body
from holdfast.doors.http.request import Handler, HttpRoute, Method, Needs
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.erasure import ForgetReport
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.wire import entry_to_wire

SETTINGS = "/api/settings/durable"


class ForgetOwner(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The agent or the user to forget."""

    agent: str | None = None
    user: str | None = None


async def agents(call: Call) -> Response:
    """List the agents that have durable memory, by name."""
    query = call.query
    page = await call.quick(lambda hf: hf.durable_agents(**query))
    return of_json(
        {"data": [entry_to_wire(each) for each in page.data], "next_page": page.next_page}
    )


async def limits(call: Call) -> Response:
    """Return the workspace's limits."""
    return of_json(entry_to_wire(await call.quick(lambda hf: hf.durable_limits())))


async def set_limits(call: Call) -> Response:
    """Set the workspace's limits."""
    body = call.body(SetLimits)
    changed = await call.write(lambda hf: hf.set_durable_limits(evict=body.evict, **body.given()))
    return of_json(entry_to_wire(changed))


async def sweep(call: Call) -> Response:
    """Remove expired entries and lapsed runs of all agents, in many transactions."""
    return of_json(entry_to_wire(await call.slow(lambda hf: hf.sweep())))


async def forget(call: Call) -> Response:
    """Forget everything of an agent or of a user."""
    body = call.body(ForgetOwner)
    if (body.agent is None) == (body.user is None):
        raise InvalidInput("agent", "or user is required, and not both")
    report: Struct = await call.slow(lambda hf: _forgotten(hf, body))
    return of_json({"type": "forget_report", **entry_to_wire(report)})


def _forgotten(hf: Holdfast, whom: ForgetOwner) -> ForgetReport:
    if whom.agent is not None:
        return hf.forget_agent(whom.agent)
    return hf.forget_user(cast("str", whom.user))


def _route(
    method: Method, path: str, needs: Needs, answer: Handler, summary: str, **more: Any
) -> HttpRoute:
    return HttpRoute(
        method=method,
        path=path,
        needs=needs,
        answer=answer,
        summary=summary,
        durable=True,
        **more,
    )


ROUTES = (
    _route(
        "GET", "/api/durable", "read", agents, "List agents that have durable memory.", query=PAGE
    ),
    _route("GET", SETTINGS, "read", limits, "Retrieve the workspace's limits of durable memory."),
    _route(
        "PATCH",
        SETTINGS,
        "admin",
        set_limits,
        "Set the workspace's limits of durable memory.",
        body=SetLimits,
    ),
    _route(
        "POST",
        "/api/sweep",
        "admin",
        sweep,
        "Remove expired entries and lapsed runs of all agents.",
    ),
    _route(
        "POST",
        "/api/forget",
        "admin",
        forget,
        "Forget all of an agent's or a user's.",
        body=ForgetOwner,
    ),
)
