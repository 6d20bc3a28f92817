"""The fence: a run acts only while its token is its lane's."""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import StaleRun
from holdfast.memories.durable.caller import AgentContext
from holdfast.memories.durable.records import DAY

LAPSES_AFTER: Final = DAY
"""Microseconds from a run's last write or heartbeat."""


class RunState(Struct, frozen=True, kw_only=True):
    """How a run stands: its lane, who holds that, when it was seen last, and how it ended."""

    lane: str
    live_token: int
    seen_at: int
    run_outcome: str | None


class _Token(Struct, frozen=True):
    token: int


def pass_fence(caller: AgentContext, reader: Reader) -> None:
    """Return if *caller* is in no run or in a live one; else StaleRun."""
    if caller.run is not None:
        sql = caller.engine.queries("holdfast.memories.durable")
        standing = reader.first(RunState, sql.fence, token=caller.token, run_id=caller.run_id)
        refuse_stale(caller, reader, standing, now=caller.now())


def refuse_stale(
    caller: AgentContext, reader: Reader, standing: RunState | None, *, now: int
) -> None:
    """Raise StaleRun unless a run that stands like this may act; None is a run of nobody."""
    reason = _stale(standing, caller.token, now)
    if reason is None:
        return
    sql = caller.engine.queries("holdfast.memories.durable")
    lane = None if standing is None else standing.lane
    live = reader.first(_Token, sql.live_token, lane=lane, run_id=caller.run_id)
    token = None if live is None or live.token == caller.token else live.token
    raise StaleRun(reason, token=caller.token, live_token=token)


def _stale(standing: RunState | None, token: int, now: int) -> str | None:
    if standing is None:
        # A token that was never given out, or so long ago that nobody knows.
        return "superseded"
    if standing.run_outcome == "lapsed":
        return "lapsed"
    if standing.run_outcome in ("ok", "failed"):
        return "ended"
    if standing.run_outcome is not None or standing.live_token != token:
        return "superseded"
    return "lapsed" if now - standing.seen_at > LAPSES_AFTER else None
