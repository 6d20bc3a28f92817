"""What a server tells of itself: that it lives, that it is ready, its numbers, its routes."""

from importlib.metadata import version

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.admin import described
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import TEXT, Response, of_json
from holdfast.ground.errors import Unavailable
from holdfast.library.holdfast import Holdfast

DESCRIPTION = "/openapi.json"


async def healthz(call: Call) -> Response:
    """Tell that the process answers; the database is not asked."""
    del call
    return of_json({"status": "ok"})


async def readyz(call: Call) -> Response:
    """Tell that a request would be served: a row can be read, and the server is not stopping."""
    if call.house.stopping.is_set():
        raise Unavailable(
            "The server is stopping.", reason="closed", next="Retry on another server."
        )
    await call.slow(_demand_ready)
    return of_json({"status": "ready"})


def _demand_ready(hf: Holdfast) -> None:
    hf.memory_stores.settings()
    status = hf.engine.status()
    if not status.ready:
        raise Unavailable(
            f"The database is not ready: {status.reason}.",
            reason="io",
            next="Run holdfast doctor where the server runs.",
        )


async def metrics(call: Call) -> Response:
    """Tell the numbers, as Prometheus reads them."""
    house = call.house
    status = await call.slow(lambda hf: hf.engine.status())
    durable = await call.slow(lambda _: house.durable_numbers())
    longterm = await call.slow(lambda _: house.longterm_numbers())
    runs = await call.slow(lambda _: house.run_numbers())
    sizes = house.hf.longterm_shared.room.sizes()
    engine = status.metrics | {f'cache_bytes{{cache="{name}"}}': sizes[name] for name in sizes}
    return Response(body=house.metrics.text(engine, durable, longterm, runs).encode(), type=TEXT)


async def root(call: Call) -> Response:
    """Name the server, and where its routes are described."""
    del call
    return of_json({"name": "holdfast", "version": version("holdfast"), "openapi": DESCRIPTION})


async def openapi(call: Call) -> Response:
    """Tell every route."""
    return of_json(described(call.house.table.routes))


ROUTES = (
    HttpRoute(
        method="GET",
        path="/metrics",
        needs="read",
        answer=metrics,
        summary="Numbers for Prometheus.",
    ),
    HttpRoute(
        method="GET",
        path="/",
        needs="nothing",
        answer=root,
        summary="The server's name, and where its routes are described.",
    ),
    HttpRoute(
        method="GET",
        path=DESCRIPTION,
        needs="nothing",
        answer=openapi,
        summary="This description.",
    ),
    HttpRoute(
        method="GET",
        path="/healthz",
        needs="nothing",
        answer=healthz,
        summary="Whether the process answers.",
    ),
    HttpRoute(
        method="GET",
        path="/readyz",
        needs="nothing",
        answer=readyz,
        summary="Whether a request would be served.",
    ),
)
