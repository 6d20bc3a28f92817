"""The table of routes: those of the operations, and the handwritten ones."""

from typing import Final

from holdfast.doors.http.call import table_routes
from holdfast.doors.http.own import (
    admin,
    durable,
    files,
    longterm,
    networks,
    runs,
    stores,
    streams,
)
from holdfast.doors.http.own.longterm import SCOPE, opened, opened_data
from holdfast.doors.http.own.streams import RUN_EVENT_ROUTES
from holdfast.doors.http.request import HttpRoute
from holdfast.library.operations import durable as durable_operations
from holdfast.library.operations import longterm as longterm_operations
from holdfast.library.operations import runs as run_operations
from holdfast.library.operations import sessions as session_operations
from holdfast.library.operations import stores as store_operations
from holdfast.library.operations import threads


def routes(*, strict: bool) -> tuple[HttpRoute, ...]:
    """Return every route; a *strict* server knows no PATCH of the contract's."""
    every = (
        *_STORES,
        *stores.ROUTES,
        *_DURABLE_WORKSPACE,
        *_DURABLE_ENTRIES,
        *_DURABLE,
        *_DURABLE_RUN,
        *files.ROUTES,
        *longterm.ROUTES,
        *_LONGTERM_DATA,
        *_LONGTERM,
        *_THREADS,
        *networks.ROUTES,
        *_NETWORK_RUNS,
        *_RUNS,
        *runs.ROUTES,
        *RUN_EVENT_ROUTES,
        *streams.ROUTES,
        *admin.ROUTES,
    )
    return tuple(
        each for each in every if not (strict and each.contract and each.method == "PATCH")
    )


_STORES: Final = tuple(
    route
    for table in (
        store_operations.MEMORY_STORES,
        store_operations.MEMORIES,
        store_operations.VERSIONS,
        session_operations.SESSIONS,
        session_operations.AGENTS,
        session_operations.ENVIRONMENTS,
        session_operations.KEYS,
    )
    for route in table_routes(
        table, handlers=stores.HANDLERS, acts=stores.ACTS, further=stores.QUERIES
    )
)
_THREADS: Final = tuple(table_routes(threads.THREADS))
_NETWORK_RUNS: Final = tuple(table_routes(threads.NETWORK_RUNS))
_RUNS: Final = tuple(table_routes(run_operations.RECORDS, acts=runs.ACTS))
_DURABLE_WORKSPACE: Final = tuple(table_routes(durable_operations.WORKSPACE, acts=admin.ACTS))
_DURABLE_ENTRIES: Final = tuple(
    table_routes(durable_operations.ENTRIES, durable.opened, durable.HANDLERS, acts=durable.ACTS)
)
_DURABLE: Final = tuple(table_routes(durable_operations.MEMORY, durable.opened))
_DURABLE_RUN: Final = tuple(table_routes(durable_operations.RUN, durable.opened, acts=durable.ACTS))
_LONGTERM_DATA: Final = tuple(table_routes(longterm_operations.DATA, opened_data, scope=SCOPE))
_LONGTERM: Final = tuple(
    table_routes(longterm_operations.MEMORY, opened, scope=SCOPE, acts=longterm.ACTS)
)
