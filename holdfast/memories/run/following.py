"""What happened in a run, told in order to whoever comes late, with how much was missed."""

from collections.abc import Generator
from threading import Event as Ring

from msgspec import Struct

from holdfast.engines.base import Reader
from holdfast.ground.errors import InvalidInput
from holdfast.memories.run.reading import EventRow, RecordedRunEvent
from holdfast.memories.run.records.record import RunRow, RunsContext, RunState
from holdfast.memories.run.records.write import missing, statements

GAP = "gap"
"""Tells how many events are not told: more happened than are kept."""

ENDED = "ended"
"""What a live route tells last, with the run's state."""

AT_ONCE = 1_000
"""Events of one look."""

LOOKS_EVERY = 0.25
"""Seconds between two looks, for what another process reports."""


class RunProgress(Struct, frozen=True, kw_only=True):
    """What one look saw: events, the number to go on from, and how the run is.

    `over` says that nothing follows: the run is not running, and all of it was told.
    """

    events: list[RecordedRunEvent]
    after: int
    state: RunState
    over: bool


def look(caller: RunsContext, run_id: str, after: int) -> RunProgress:
    """Return what happened past the number *after*; NotFound without the run.

    What happened and is not kept stands as a `gap` where it was, with the number `missed`.
    """
    now = caller.now()

    def work(reader: Reader) -> RunProgress:
        sql = statements(caller)
        run = reader.first(RunRow, sql.get_run, run=run_id)
        if run is None:
            raise missing(run_id)
        rows = reader.all(EventRow, sql.events_after, run=run_id, after=after, rows=AT_ONCE)
        events = [row.event() for row in rows]
        # A full look may have more behind it; a run begun anew may have fewer than were seen.
        last = run.seq if len(rows) < AT_ONCE else events[-1].seq
        state = run.state_at(now)
        return RunProgress(
            events=list(_with_gaps(events, after, last, run.seen_at // 1_000)),
            after=max(after, last),
            state=state,
            over=state != "running" and last >= run.seq,
        )

    return caller.engine.read(work)


def follow(caller: RunsContext, run_id: str, after: int) -> Generator[RecordedRunEvent]:
    """Give each event past the number *after* as it happens, until the run is over."""
    rest = Ring()
    while True:
        seen = look(caller, run_id, after)
        yield from seen.events
        after = seen.after
        if seen.over:
            return
        rest.wait(LOOKS_EVERY)


def checked_after(given: object) -> int:
    """Return *given* if it can be the number of an event; else InvalidInput."""
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 2**62:
        raise InvalidInput("after", "must be the number of an event, from 0", given=given)
    return given


def _with_gaps(
    events: list[RecordedRunEvent], after: int, last: int, now: int
) -> Generator[RecordedRunEvent]:
    for event in events:
        if event.seq > after + 1:
            yield _gap(after, event.seq - 1, event.at)
        yield event
        after = event.seq
    if last > after:
        yield _gap(after, last, now)


def _gap(after: int, last: int, at: int) -> RecordedRunEvent:
    return RecordedRunEvent(seq=last, type=GAP, at=at, data={"missed": last - after})
