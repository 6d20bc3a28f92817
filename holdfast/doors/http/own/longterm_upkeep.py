"""Routes of a collection: status, background work, export and import."""

from math import isfinite
from time import monotonic
from typing import Final

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.longterm_asked import (
    data_of,
    memory_if_on,
    memory_of,
    of_lines,
    of_record,
    users_route,
)
from holdfast.doors.http.params import Body, read_lines
from holdfast.doors.http.response import Response, of_json
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.longterm.memory import LongTermMemory
from holdfast.memories.longterm.records import Flushed, Remembered, Wire, to_wire

MOST_SECONDS: Final = 60.0
SECONDS: Final = 30.0
"""Time that a flush waits by default."""
_PIECE: Final = 1.0
"""Seconds of one wait, so that a server can stop between two."""


class Wait(Body, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds to wait for the background work."""

    timeout: float | None = None


async def status(call: Call) -> Response:
    """Return the status of the collection, and whether memory is on."""

    def look(hf: Holdfast) -> Wire:
        memory = memory_if_on(call, hf)
        fields = to_wire((memory or data_of(call, hf)).status())
        return {**fields, "enabled": memory is not None}

    return of_json(await call.slow(look))


async def flush(call: Call) -> Response:
    """Wait for the background work."""
    seconds = _seconds(call, SECONDS)
    memory = await call.slow(lambda hf: memory_of(call, hf))
    return of_record(await _flushed(call, memory, seconds))


async def retry(call: Call) -> Response:
    """Queue failed jobs again, and wait for them if a timeout is given."""
    seconds = _seconds(call, 0.0)
    memory = await call.slow(lambda hf: memory_of(call, hf))
    queued = await call.slow(lambda _: memory.retry())
    flushed = await _flushed(call, memory, seconds)
    return of_json({"queued": queued, **to_wire(flushed)})


async def export(call: Call) -> Response:
    """Export every turn and every item."""
    return await call.slow(lambda hf: of_lines(data_of(call, hf).export()))


async def take_in(call: Call) -> Response:
    """Import the lines of an export."""

    def act(hf: Holdfast) -> Response:
        memory = memory_of(call, hf)
        return of_record(memory.import_(read_lines(call.raw)))

    return await call.slow(act)


async def _flushed(call: Call, memory: LongTermMemory, seconds: float) -> Flushed:
    """Wait at most *seconds*, on a thread that is reserved for waiting."""
    end = monotonic() + seconds
    results: tuple[Remembered, ...] = ()
    with call.house.room_for_live():
        while True:
            left = min(_PIECE, max(0.0, end - monotonic()))
            begun = monotonic()
            flushed = await call.house.lanes.live(lambda left=left: memory.flush(left))
            results += flushed.results
            idle = monotonic() - begun < left
            over = monotonic() >= end or call.house.stopping.is_set()
            if flushed.done or idle or over:
                return Flushed(
                    done=flushed.done,
                    results=results,
                    pending=flushed.pending,
                    failed=flushed.failed,
                )


def _seconds(call: Call, otherwise: float) -> float:
    given = call.body(Wait).timeout if call.raw.strip() else None
    if given is None:
        return otherwise
    if not (isfinite(given) and 0 <= given <= MOST_SECONDS):
        reason = f"must be 0 to {MOST_SECONDS:g} seconds"
        raise InvalidInput("timeout", reason, limit=int(MOST_SECONDS), given=given)
    return given


UPKEEP_ROUTES = (
    users_route("GET", "/status", "read", status, "Retrieve the status of the collection."),
    users_route("POST", "/flush", "write", flush, "Wait for the background work.", body=Wait),
    users_route("POST", "/retry", "write", retry, "Queue again what failed.", body=Wait),
    users_route("GET", "/export", "read", export, "Give out every turn and item, a line each."),
    users_route(
        "POST", "/import", "write", take_in, "Take in lines as they were given out.", body="lines"
    ),
)
