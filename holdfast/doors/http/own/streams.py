"""Server-sent events: the event feed, and runs followed live."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from time import monotonic

import msgspec

from holdfast.doors.http.call import Call
from holdfast.doors.http.own.runs import RUN
from holdfast.doors.http.params import integer, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import LiveAnswer, Piece
from holdfast.engines.base import Engine, Feed
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import CursorExpired, InvalidInput, NotFound
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.records.read import (
    ENDED,
    LOOKS_EVERY,
    RunProgress,
    checked_after,
    event_to_wire,
    look,
)

BEAT = 15.0
"""Seconds of quiet after which a comment tells that the line still stands."""

WAITING_MOST = 1_000
"""Events that wait for a slow reader; past that it is told that it missed some."""

RESET = "feed.reset"
STILL_HERE = b": still here\n\n"
"""A comment, which says nothing."""


async def follow_events(call: Call) -> LiveAnswer:
    """Send each event of the workspace, from a position or from now on."""
    query, house, workspace = call.query, call.house, call.visitor.workspace
    asked: str = query.get("types", "")
    types = frozenset(each for each in asked.split(",") if each)
    after: str | None = call.headers.get(b"last-event-id", b"").decode("latin-1") or None
    after = after or query.get("after")
    engine = house.hf.engine.scoped(Scope(workspace=workspace))
    with house.room_for_live():
        following = await house.lanes.slow(lambda: _Following(engine, after, types))

    async def run(piece: Piece) -> None:
        passing = _Passing(workspace, types)
        with closing(following), house.room_for_live(), house.hearing(passing.hear):
            await piece(following.greeting)
            async with asyncio.TaskGroup() as both:
                both.create_task(_sent(piece, partial(house.lanes.live, following.next)))
                both.create_task(_sent(piece, passing.next))

    return LiveAnswer(run=run)


async def _sent(piece: Piece, next: Callable[[], Awaitable[bytes]]) -> None:
    while True:
        await piece(await next())


class _Passing:
    """Events that are told once and written nowhere: of this process, from now on."""

    def __init__(self, workspace: str, types: frozenset[str]) -> None:
        self._loop, self._types = asyncio.get_running_loop(), types
        self._workspaces = {workspace, EVERYBODY.workspace}
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    def hear(self, event: Event) -> None:
        """Keep *event* if it is wanted; on whichever thread it happened."""
        wanted = not self._types or event.type in self._types
        if wanted and not event.cursor and event.workspace in self._workspaces:
            self._loop.call_soon_threadsafe(self._keep, _frame(event))

    def _keep(self, frame: bytes) -> None:
        if self._queue.qsize() < WAITING_MOST:
            self._queue.put_nowait(frame)
        elif self._queue.qsize() == WAITING_MOST:
            self._queue.put_nowait(lines("", RESET, b"{}"))

    async def next(self) -> bytes:
        """Return the next one."""
        return await self._queue.get()


class _Following:
    """A feed, as the bytes of a stream. One that was left behind says so and goes on from now."""

    def __init__(self, engine: Engine, after: str | None, types: frozenset[str]) -> None:
        self._engine, self._types = engine, types
        self.greeting = STILL_HERE
        try:
            self._feed: Feed = engine.feed(after)
        except CursorExpired:
            self._feed = engine.feed()
            self.greeting = self._reset()

    def next(self) -> bytes:
        """Return what came, after at most 15 s."""
        try:
            events = self._feed.poll(BEAT)
        except CursorExpired:
            self._feed.close()
            self._feed = self._engine.feed()
            return self._reset()
        return self._framed(events) or STILL_HERE

    def close(self) -> None:
        """Stop following; a `next` that waits returns."""
        self._feed.close()

    def _framed(self, events: Sequence[Event]) -> bytes:
        wanted = [each for each in events if not self._types or each.type in self._types]
        return b"".join(map(_frame, wanted))

    def _reset(self) -> bytes:
        return lines(self._feed.cursor, RESET, b"{}")


def _frame(event: Event) -> bytes:
    told = {
        "type": event.type,
        "at": to_rfc3339(event.at),
        "workspace": event.workspace,
        "owner": event.owner,
        "actor": event.actor and event.actor.to_wire(),
        "ids": event.ids,
        "data": event.data,
        "seq": event.seq,
        "cursor": event.cursor,
    }
    return lines(event.cursor, event.type, msgspec.json.encode(told))


def lines(position: str, type: str, data: bytes) -> bytes:
    """Return one message of a stream: of *type*, at *position* if it has one."""
    told = b"event: %b\ndata: %b\n\n" % (type.encode(), data)
    return b"id: %b\n%b" % (position.encode(), told) if position else told


ROUTES = (
    HttpRoute(
        method="GET",
        path="/api/events",
        needs="read",
        answer=follow_events,
        query=(text("types"), text("after")),
        summary="Follow what happens, as server-sent events.",
    ),
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
