"""Server-sent events: the event feed, and runs followed live."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.doors.http.call import Call
from holdfast.doors.http.params import flag, integer, number, text
from holdfast.doors.http.request import HttpRoute
from holdfast.doors.http.response import LiveAnswer, Piece
from holdfast.doors.http.state import ActiveRun, followed
from holdfast.engines.base import Engine, Feed
from holdfast.ground.errors import CursorExpired, InvalidInput, NotFound
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY, Scope
from holdfast.library.holdfast import Holdfast
from holdfast.library.operations.runs import FORM, RUN
from holdfast.library.operations.workspace import event_to_wire
from holdfast.memories.run.records.read import (
    ENDED,
    LOOKS_EVERY,
    FollowOptions,
    RunProgress,
    checked_follow,
    look,
)

BEAT = 15.0
"""Seconds without an event after which a comment keeps the connection alive."""

WAITING_MOST = 1_000
"""Events that are queued for a slow reader; beyond that it gets `feed.reset`."""

RESET = "feed.reset"
STILL_HERE = b": still here\n\n"
"""A comment, which clients ignore."""


async def follow_events(call: Call) -> LiveAnswer:
    """Send each event of the workspace, from a position or from now on."""
    query, state, workspace = call.query, call.state, call.visitor.workspace
    requested: str = query.get("types", "")
    types = frozenset(each for each in requested.split(",") if each)
    after: str | None = call.headers.get(b"last-event-id", b"").decode("latin-1") or None
    after = after or query.get("after")
    engine = state.hf.engine.scoped(Scope(workspace=workspace))
    with state.count_live():
        following = await state.executor.slow(lambda: _FeedStream(engine, after, types))

    async def run(piece: Piece) -> None:
        transient = _TransientEvents(workspace, types)
        with closing(following), state.count_live(), state.subscribed(transient.receive):
            await piece(following.greeting)
            async with asyncio.TaskGroup() as both:
                both.create_task(_sent(piece, partial(state.executor.live, following.next)))
                both.create_task(_sent(piece, transient.next))

    return LiveAnswer(run=run)


async def _sent(piece: Piece, next: Callable[[], Awaitable[bytes]]) -> None:
    while True:
        await piece(await next())


class _TransientEvents:
    """Events of this process that are published but not stored, from now on."""

    def __init__(self, workspace: str, types: frozenset[str]) -> None:
        self._loop, self._types = asyncio.get_running_loop(), types
        self._workspaces = {workspace, EVERYBODY.workspace}
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    def receive(self, event: Event) -> None:
        """Queue *event* if its type and workspace match; callable on any thread."""
        matching = not self._types or event.type in self._types
        if matching and not event.cursor and event.workspace in self._workspaces:
            self._loop.call_soon_threadsafe(self._enqueue, _frame(event))

    def _enqueue(self, frame: bytes) -> None:
        if self._queue.qsize() < WAITING_MOST:
            self._queue.put_nowait(frame)
        elif self._queue.qsize() == WAITING_MOST:
            self._queue.put_nowait(lines("", RESET, b"{}"))

    async def next(self) -> bytes:
        """Wait for the next event, and return it."""
        return await self._queue.get()


class _FeedStream:
    """The event feed as the bytes of a stream.

    If its cursor has expired, it sends `feed.reset` and continues from now.
    """

    def __init__(self, engine: Engine, after: str | None, types: frozenset[str]) -> None:
        self._engine, self._types = engine, types
        self.greeting = STILL_HERE
        try:
            self._feed: Feed = engine.feed(after)
        except CursorExpired:
            self._feed = engine.feed()
            self.greeting = self._reset()

    def next(self) -> bytes:
        """Wait `BEAT` seconds at most; return the events that match, else a comment."""
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
        matching = [each for each in events if not self._types or each.type in self._types]
        return b"".join(map(_frame, matching))

    def _reset(self) -> bytes:
        return lines(self._feed.cursor, RESET, b"{}")


def _frame(event: Event) -> bytes:
    return lines(event.cursor, event.type, msgspec.json.encode(event_to_wire(event)))


def lines(position: str, type: str, data: bytes) -> bytes:
    """Return one message of a stream: of *type*, at *position* if it has one."""
    message = b"event: %b\ndata: %b\n\n" % (type.encode(), data)
    return b"id: %b\n%b" % (position.encode(), message) if position else message


_DIGITS = 18


async def follow_run(call: Call) -> LiveAnswer:
    """Stream the events of a run after a number, past and future."""
    run_id, query = call["run"], call.query
    requested: str = query.get("types", "")
    types = [each for each in requested.split(",") if each] or None
    rest: bool = query.get("rest", False)
    options = checked_follow(last_received(call, 0), query.get("wait", 0), types, rest=rest)
    active = call.state.registry.active(call.visitor.workspace, run_id)
    if active is not None and not options.types:
        return live(call, active, options)
    return await stored_events(call, run_id, options)


async def stored_events(
    call: Call,
    run_id: str,
    options: FollowOptions = FollowOptions(),  # noqa: B008 - frozen
) -> LiveAnswer:
    """Stream the stored events of a run as *options* say."""
    with call.state.count_live():
        first = await _awaited(call, run_id, options)

    async def run(piece: Piece) -> None:
        with call.state.count_live():
            await _send_stored(call, run_id, options, first, piece)

    return LiveAnswer(run=run)


async def _send_stored(
    call: Call, run_id: str, options: FollowOptions, seen: RunProgress, piece: Piece
) -> None:
    """Send *seen* and the stored events after it, until the run is over."""
    sent_at = monotonic()
    await piece(STILL_HERE)
    while True:
        message = _messages(run_id, seen)
        if not message and monotonic() - sent_at >= BEAT:
            message = STILL_HERE
        if message:
            await piece(message)
            sent_at = monotonic()
        if seen.over:
            return
        await asyncio.sleep(LOOKS_EVERY)
        further = replace(options, after=seen.after)
        try:
            seen = await call.slow(partial(_look, run_id, further))
        except NotFound:
            return


def checked_wait(given: object) -> float:
    """Return *given* if it is seconds to wait for a run; else InvalidInput."""
    return checked_follow(0, given).wait


async def rested(call: Call, run_id: str, seconds: float) -> dict[str, Any]:
    """Return the record of the run once it has ended or waits, or after *seconds*."""
    deadline = monotonic() + seconds
    while True:
        run = await call.quick(lambda hf: hf.runs.retrieve(run_id))
        if run.ended or run.status == "waiting" or monotonic() >= deadline:
            return FORM.encode(run)
        await asyncio.sleep(LOOKS_EVERY)


async def _awaited(call: Call, run_id: str, options: FollowOptions) -> RunProgress:
    """Return the progress of the run once it is there, or NotFound."""
    deadline = monotonic() + options.wait
    while True:
        try:
            return await call.slow(partial(_first, run_id, options))
        except NotFound:
            if monotonic() >= deadline:
                raise
        await asyncio.sleep(LOOKS_EVERY)


def _look(run_id: str, options: FollowOptions, hf: Holdfast) -> RunProgress:
    return look(hf.runs.context, run_id, options)


def _first(run_id: str, options: FollowOptions, hf: Holdfast) -> RunProgress:
    """Return the current progress, with the pending events of this process."""
    hf.run_attachments.flush()
    return look(hf.runs.context, run_id, options)


def live(
    call: Call,
    active: ActiveRun,
    options: FollowOptions = FollowOptions(rest=True),  # noqa: B008 - frozen
) -> LiveAnswer:
    """Stream the events of a run of this server as *options* say, deltas too.

    After its stay here a run that is not over is followed as it is stored.
    """

    async def send(piece: Piece) -> None:
        at = options.after
        with call.state.count_live():
            async for event in followed(active, at, BEAT):
                if event is not None:
                    at = event[0]
                await piece(STILL_HERE if event is None else lines(str(event[0]), *event[1:]))
            if active.run is None:
                return
            run_id, status = active.run.id, active.run.status
            if options.rest or status != "waiting":
                await piece(_end(run_id, status))
                return
            further = replace(options, after=at)
            seen = await call.slow(partial(_first, run_id, further))
            await _send_stored(call, run_id, further, seen, piece)

    return LiveAnswer(run=send)


def _end(run_id: str, status: str) -> bytes:
    return lines("", ENDED, msgspec.json.encode({"run_id": run_id, "status": status}))


def last_received(call: Call, none: int) -> int:
    """Return the number of the last event received, by header or query, or *none*."""
    header = call.headers.get(b"last-event-id", b"").strip().decode("latin-1")
    if not header:
        return call.query.get("after", none)
    if not (header.isascii() and header.isdigit() and len(header) <= _DIGITS):
        raise InvalidInput("last-event-id", "must be the number of an event", given=header)
    return int(header)


def _messages(run_id: str, seen: RunProgress) -> bytes:
    """Return *seen* as messages of a stream, with the end if the run is over."""
    message = [
        lines(str(each.seq), each.type, msgspec.json.encode(each.to_dict())) for each in seen.events
    ]
    if seen.over:
        message.append(_end(run_id, seen.status))
    return b"".join(message)


ROUTES = (
    HttpRoute(
        "GET",
        "/api/events",
        "read",
        follow_events,
        "Follow what happens, as server-sent events.",
        query=(text("types"), text("after")),
    ),
    HttpRoute(
        "GET",
        f"{RUN}/events",
        "read",
        follow_run,
        "Follow what happens in a run, as server-sent events.",
        query=(integer("after"), number("wait"), text("types"), flag("rest")),
    ),
)
