"""The fence: a run acts only while its token is its lane's."""

from typing import Final

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.clock import to_microseconds
from holdfast.ground.errors import StaleRun
from holdfast.memories.durable.caller import Caller, InRun
from holdfast.memories.durable.times import HOUR

LAPSES_AFTER: Final = 24 * HOUR
"""From a run's last write or heartbeat."""


class Fence(Struct, frozen=True, kw_only=True):
    """What the lane and the run stood at when the fence was asked."""

    live_token: int
    live_run: str | None
    began_seq: int | None
    seen_at: int | None
    ended_at: int | None
    outcome: str | None
    secret: bytes | None


def pass_fence(caller: Caller, reader: Reader, *, lock: bool) -> Fence | None:
    """Return the fence that *caller*'s run passed, None outside a run; else StaleRun.

    With *lock* the lane stays as it is until the transaction ends.
    """
    if caller.run is None:
        return None
    sql = caller.engine.queries("holdfast.memories.durable")
    fence = reader.first(
        Fence,
        sql.lock_fence if lock else sql.fence,
        lane=caller.run.lane,
        token=caller.run.token,
        run_id=caller.run.run_id,
    )
    reason = _stale(fence, caller.run, to_microseconds(caller.now()))
    if reason is not None:
        live = None if fence is None else fence.live_token
        raise StaleRun(reason, token=caller.run.token, live_token=live)
    return fence


def _stale(fence: Fence | None, run: InRun, now: int) -> str | None:
    if fence is None or fence.live_token != run.token:
        # A token that was never given out is stale as well, and superseded by none.
        return "superseded"
    # The lane tells of an end that a transaction beside this one has just written.
    if fence.seen_at is None or fence.ended_at is not None or fence.live_run is None:
        return "lapsed" if fence.outcome == "lapsed" else "ended"
    return "lapsed" if now - fence.seen_at > LAPSES_AFTER else None
