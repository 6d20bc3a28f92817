"""The table of routes."""

from holdfast.doors.http.compat import sessions, stores
from holdfast.doors.http.compat.sessions import AGENT_ROUTES
from holdfast.doors.http.compat.stores import MEMORY_ROUTES, VERSION_ROUTES
from holdfast.doors.http.own import (
    admin,
    durable,
    durable_runs,
    durable_upkeep,
    durable_workspace,
    files,
    following,
    identity,
    longterm,
    longterm_upkeep,
    network_runs,
    networks,
    runs,
    settings,
    streams,
    threads,
    tokens,
)
from holdfast.doors.http.own import stores as own_stores
from holdfast.doors.http.own.runs import REPORT_ROUTES
from holdfast.doors.http.own.streams import RUN_EVENT_ROUTES
from holdfast.doors.http.request import HttpRoute


def routes(*, strict: bool) -> tuple[HttpRoute, ...]:
    """Return every route; a *strict* server knows no PATCH of the contract's."""
    every = (
        *stores.ROUTES,
        *MEMORY_ROUTES,
        *VERSION_ROUTES,
        *sessions.ROUTES,
        *AGENT_ROUTES,
        *identity.ROUTES,
        *tokens.TOKEN_ROUTES,
        *settings.ROUTES,
        *own_stores.ROUTES,
        *following.ROUTES,
        *durable_workspace.ROUTES,
        *durable.ROUTES,
        *durable_runs.ROUTES,
        *files.ROUTES,
        *durable_upkeep.ROUTES,
        *longterm_upkeep.ROUTES,
        *longterm.ROUTES,
        *threads.ROUTES,
        *networks.ROUTES,
        *network_runs.ROUTES,
        *runs.ROUTES,
        *REPORT_ROUTES,
        *RUN_EVENT_ROUTES,
        *streams.ROUTES,
        *admin.ROUTES,
    )
    return tuple(
        each for each in every if not (strict and each.contract and each.method == "PATCH")
    )
