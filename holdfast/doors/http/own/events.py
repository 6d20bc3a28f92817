"""What happens in a workspace, as it happens: server-sent events."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.doors.http.answers import LiveAnswer
from holdfast.doors.http.call import Call
from holdfast.doors.http.house import LIVE_MOST
from holdfast.doors.http.query import text
from holdfast.doors.http.routes import Route
from holdfast.engines.base import Engine, Feed
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import CursorExpired, Unavailable
from holdfast.ground.events import Event
from holdfast.ground.scope import Scope

BEAT = 15.0
"""Seconds of quiet after which a comment tells that the line still stands."""

RESET = "feed.reset"
_BEAT = b": still here\n\n"


async def follow(call: Call) -> LiveAnswer:
    """Send each event of the workspace, from a position or from now on."""
    query, house = call.query, call.house
    asked: str = query.get("types", "")
    types = frozenset(each for each in asked.split(",") if each)
    after: str | None = call.headers.get(b"last-event-id", b"").decode("latin-1") or None
    after = after or query.get("after")
    engine = house.hf.engine.scoped(Scope(workspace=call.visitor.workspace))
    if house.live >= LIVE_MOST:
        raise Unavailable(
            f"The server holds {LIVE_MOST} live answers, its most.",
            reason="overloaded",
            retry_after=5,
        )
    following = await house.lanes.slow(lambda: _Following(engine, after, types))
    house.live += 1

    async def run(piece: Callable[[bytes], Awaitable[None]]) -> None:
        try:
            await piece(following.greeting)
            while True:
                await piece(await house.lanes.live(following.next))
        finally:
            house.live -= 1
            following.close()

    return LiveAnswer(run=run)


class _Following:
    """A feed, as the bytes of a stream. One that was left behind says so and goes on from now."""

    def __init__(self, engine: Engine, after: str | None, types: frozenset[str]) -> None:
        self._engine, self._types = engine, types
        self.greeting = _BEAT
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
        return self._framed(events) or _BEAT

    def close(self) -> None:
        """Stop following; a `next` that waits returns."""
        self._feed.close()

    def _framed(self, events: Sequence[Event]) -> bytes:
        wanted = [each for each in events if not self._types or each.type in self._types]
        return b"".join(map(_frame, wanted))

    def _reset(self) -> bytes:
        return _lines(self._feed.cursor, RESET, b"{}")


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
    return _lines(event.cursor, event.type, msgspec.json.encode(told))


def _lines(position: str, type: str, data: bytes) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (position.encode(), type.encode(), data)


ROUTES = (
    Route(
        method="GET",
        path="/api/events",
        needs="read",
        answer=follow,
        query=(text("types"), text("after")),
        summary="Follow what happens, as server-sent events.",
    ),
)
