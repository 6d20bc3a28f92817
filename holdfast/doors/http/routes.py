"""The table of routes: those of the operations, and the handwritten ones."""

from itertools import chain
from typing import Final

from holdfast.doors.http.call import table_routes
from holdfast.doors.http.own import (
    admin,
    durable,
    longterm,
    networks,
    runs,
    stores,
    streams,
)
from holdfast.doors.http.request import HttpRoute
from holdfast.library.operations import durable as durable_operations
from holdfast.library.operations import longterm as longterm_operations
from holdfast.library.operations import runs as run_operations
from holdfast.library.operations import sessions as session_operations
from holdfast.library.operations import stores as store_operations
from holdfast.library.operations import threads


def routes(*, strict: bool) -> tuple[HttpRoute, ...]:
    """Return every route; a *strict* server knows no PATCH of the contract's."""
    every = chain(_OPERATIONS, *(part.ROUTES for part in _HANDWRITTEN))
    return tuple(
        each for each in every if not (strict and each.contract and each.method == "PATCH")
    )


_HANDWRITTEN: Final = (stores, durable, longterm, networks, runs, streams, admin)
_OF_STORES: Final = (
    store_operations.MEMORY_STORES,
    store_operations.MEMORIES,
    store_operations.VERSIONS,
    session_operations.SESSIONS,
    session_operations.AGENTS,
    session_operations.ENVIRONMENTS,
    session_operations.KEYS,
)
_OPERATIONS: Final = (
    *(
        route
        for table in _OF_STORES
        for route in table_routes(
            table, handlers=stores.HANDLERS, acts=stores.ACTS, further=stores.QUERIES
        )
    ),
    *table_routes(durable_operations.WORKSPACE, acts=admin.ACTS),
    *table_routes(durable_operations.ENTRIES, durable.opened, durable.HANDLERS, acts=durable.ACTS),
    *table_routes(durable_operations.MEMORY, durable.opened),
    *table_routes(durable_operations.RUN, durable.opened, acts=durable.ACTS),
    *table_routes(longterm_operations.DATA, longterm.opened_data, scope=longterm.SCOPE),
    *table_routes(
        longterm_operations.MEMORY, longterm.opened, scope=longterm.SCOPE, acts=longterm.ACTS
    ),
    *table_routes(threads.THREADS),
    *table_routes(run_operations.RECORDS, acts=runs.ACTS),
)
