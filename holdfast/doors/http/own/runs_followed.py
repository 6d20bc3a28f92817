"""What happens in a run, as it happens: server-sent events, until the run is over."""

import asyncio
from time import monotonic

import msgspec

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.runs import RUN
from holdfast.doors.http.own.streams import BEAT, STILL_HERE, lines
from holdfast.doors.http.params import integer
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import LiveAnswer, Piece
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.read import (
    ENDED,
    LOOKS_EVERY,
    RunProgress,
    checked_after,
    event_to_wire,
    look,
)

_DIGITS = 18


async def follow_run(call: Call) -> LiveAnswer:
    """Send what happened in a run past a number, and what happens."""
    house, run_id, after = call.house, call["run"], _after(call)
    with house.room_for_live():
        first = await call.slow(lambda hf: _first(hf, run_id, after))

    async def run(piece: Piece) -> None:
        seen, told_at = first, monotonic()
        with house.room_for_live():
            await piece(STILL_HERE)
            while True:
                told = _told(run_id, seen)
                if not told and monotonic() - told_at >= BEAT:
                    told = STILL_HERE
                if told:
                    await piece(told)
                    told_at = monotonic()
                if seen.over:
                    return
                await asyncio.sleep(LOOKS_EVERY)
                last = seen.after
                try:
                    seen = await call.slow(lambda hf: look(hf.runs.caller, run_id, last))  # noqa: B023 - it is awaited here
                except NotFound:
                    return

    return LiveAnswer(run=run)


def _first(hf: Holdfast, run_id: str, after: int) -> RunProgress:
    """Return what can be seen now, what happened in this process included."""
    hf.run_attachments.flush()
    return look(hf.runs.caller, run_id, after)


def _after(call: Call) -> int:
    """Return the number of the last event that was seen; the header stands before the query."""
    header = call.headers.get(b"last-event-id", b"").strip().decode("latin-1")
    if not header:
        return checked_after(call.query.get("after", 0))
    if not (header.isascii() and header.isdigit() and len(header) <= _DIGITS):
        raise InvalidInput("last-event-id", "must be the number of an event", given=header)
    return checked_after(int(header))


def _told(run_id: str, seen: RunProgress) -> bytes:
    """Return what *seen* comes to as messages of a stream."""
    told = [lines(str(each.seq), each.type, event_to_wire(run_id, each)) for each in seen.events]
    if seen.over:
        told.append(lines("", ENDED, msgspec.json.encode({"run_id": run_id, "state": seen.state})))
    return b"".join(told)


RUN_EVENT_ROUTES = (
    HttpRoute(
        method="GET",
        path=f"{RUN}/events",
        needs="read",
        answer=follow_run,
        query=(integer("after"),),
        summary="Follow what happens in a run, as server-sent events.",
    ),
)
