"""Runs on a server: this process's reported to it, and all of them looked into."""

from collections.abc import Generator, Iterable, Mapping
from functools import cached_property
from threading import Event as Ring
from typing import Final, NoReturn

from msgspec.structs import asdict

from holdfast.ground.clock import Clock
from holdfast.ground.errors import NotFound, Unavailable, Unsupported
from holdfast.ground.pages import Page, checked_limit
from holdfast.library.remote_events import PAUSE, PAUSE_MOST, frames
from holdfast.library.wire_answers import field_of, paged
from holdfast.library.wire_client import WireClient
from holdfast.library.wire_request import route
from holdfast.memories.run import keys as run_keys
from holdfast.memories.run.entry import EVERYTHING, OneOrMany, filter_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.model_view import EntryPageRequest
from holdfast.memories.run.records.mirror import Attached, Attachments, Shown, attach, opening_of
from holdfast.memories.run.records.read import (
    ENDED,
    EntryOrder,
    ListedEntry,
    ReadEntry,
    RecordedRunEvent,
    Told,
    asked_for,
    checked_after,
    checked_wish,
    entries_page,
    event_from_wire,
    read_in,
    run_from_wire,
)
from holdfast.memories.run.records.record import (
    RunControl,
    RunReport,
    RunStart,
    RunState,
    WatchedRun,
    checked_state,
)
from holdfast.memories.run.records.runs import CANCELLED, demand_words

RUNS: Final = "/api/runs"
HERE: Final = ""
"""Names the one workspace that a remote handle reaches, among the runs that it holds."""

APART: Final = 0.2
"""Seconds between two reports of a run, at least."""


class OnServer:
    """The keeper of records on a server. What is asked twice is done once."""

    pause = APART

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def begin(self, opening: RunStart) -> None:
        """Show a run; again does nothing."""
        body = asdict(opening)
        self._client.write("PUT", route(RUNS, body.pop("run_id")), body, again=True)

    def take(self, run_id: str, report: RunReport) -> None:
        """Bring a run's record up to date; again does nothing."""
        told = asdict(report)
        for name in ("events", "entries"):
            told[name] = [asdict(each) for each in told[name]]
        self._client.write("POST", route(RUNS, run_id, "events"), told, again=True)


class RemoteRuns:
    """The runs of a workspace of a server."""

    def __init__(self, client: WireClient, clock: Clock) -> None:
        self._client, self._clock = client, clock
        self.attachments = Attachments(strict=True)

    def attach(
        self,
        memory: RunMemory,
        *,
        name: str,
        agent: str | None = None,
        metadata: Mapping[str, str] | None = None,
        control: RunControl | None = None,
    ) -> Attached:
        """Show the run of *memory* to others; what this returns, called, says that it is over.

        Nothing waits for it: what happens is reported on another thread, at most once in 200 ms.
        """
        opening = opening_of(memory, name=name, agent=agent, metadata=metadata, clock=self._clock)
        shown = Shown(workspace=HERE, keeper=OnServer(self._client))
        return attach(self.attachments, memory, opening, shown, control)

    def retrieve(self, id: str) -> WatchedRun:
        """Return the run *id* as it is now; NotFound without it."""
        self.attachments.flush()
        return run_from_wire(self._client.read(route(RUNS, id)))

    def entries(
        self,
        id: str,
        *,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
        order: EntryOrder | None = None,
        limit: int | None = 200,
        page: str | None = None,
    ) -> Page[ListedEntry]:
        """Return what the memory of the run *id* held last, without values, the newest first."""
        among = filter_of(kind, keys, key_prefix, sources)
        asked = asked_for(among, order=order, limit=limit, page=page)
        self.attachments.flush()
        return entries_page(lambda asked: self._entries(id, asked), asked)

    def _entries(self, id: str, asked: EntryPageRequest) -> Told:
        """Return what the server tells; what nothing meets is not asked for, but for the run."""
        told = (asked.among or EVERYTHING).told()
        if [] in told.values():
            self.retrieve(id)
            return {"entries": [], "next_page": None}
        query = {
            "kind": told.get("kind"),
            "key": told.get("keys"),
            "key_prefix": told.get("key_prefix"),
            "source": told.get("sources"),
            "order": asked.order,
            "limit": asked.limit,
            "page": asked.page,
        }
        return self._client.read(route(RUNS, id, "entries"), query)

    def entry(self, id: str, key: str, *, path: str | None = None, offset: int = 0) -> ReadEntry:
        """Return the entry under *key* of the run *id*, or what *path* leads to in its value."""
        wanted = checked_wish(path, offset)
        query = {"path": wanted.path, "offset": wanted.offset or None}
        self.attachments.flush()
        checked = run_keys.checked(key)
        return read_in(self._client.read(route(RUNS, id, "entries", checked), query))

    def follow(self, id: str, *, after: int = 0) -> Generator[RecordedRunEvent]:
        """Give what happened in the run *id* past the event *after*, and what happens, to its end.

        When the connection breaks it goes on after the last event that was given.
        """
        number = checked_after(after)
        self.retrieve(id)
        return self._followed(id, number)

    def _followed(self, id: str, after: int) -> Generator[RecordedRunEvent]:
        rest, pause = Ring(), PAUSE
        while True:
            try:
                for event in self._stream(id, after):
                    if event is None:
                        return
                    after, pause = event.seq, PAUSE
                    yield event
            except Unavailable as error:
                if error.reason == "closed":
                    raise
            rest.wait(pause)
            pause = min(2 * pause, PAUSE_MOST)

    def _stream(self, id: str, after: int) -> Generator[RecordedRunEvent | None]:
        """Give what one connection tells; None when it tells that the run is over."""
        with self._client.follow(route(RUNS, id, "events"), {"after": after}, {}) as stream:
            for frame in frames(stream.lines()):
                if frame.event == ENDED:
                    yield None
                    return
                if frame.id:
                    yield event_from_wire(int(frame.id), frame.event, frame.data)

    def cancel(self, id: str, reason: str = CANCELLED) -> None:
        """Cancel the run *id* of this process or of the server's."""
        demand_words("reason", reason)
        held = self.attachments.controls.of(HERE, id)
        if held is not None:
            held.cancel(reason)
            return
        self._client.write("POST", route(RUNS, id, "cancel"), {"reason": reason})

    def steer(self, id: str, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of every running one; return which."""
        demand_words("text", text)
        held = self.attachments.controls.of(HERE, id)
        if held is not None:
            return held.steer(text, step=step)
        body = {"text": text, "step": step}
        return field_of(
            list[str], self._client.write("POST", route(RUNS, id, "steer"), body), "steps"
        )

    def delete(self, id: str) -> None:
        """Delete the record of a run that is over; Conflict for a live one."""
        self.attachments.flush()
        try:
            self._client.write("DELETE", route(RUNS, id))
        except Unavailable as unknown:
            if unknown.written is not None or unknown.reason != "lost":
                raise
            self._delete_again(id, unknown)

    def _delete_again(self, id: str, unknown: Unavailable) -> None:
        """Find out what became of a delete whose answer was lost: gone is deleted."""
        try:
            self._client.write("DELETE", route(RUNS, id))
        except NotFound:
            return
        except Unavailable:
            raise unknown from None

    @cached_property
    def checkpoints(self) -> NoReturn:
        """Unsupported: checkpoints are kept where the database is."""
        raise Unsupported(
            "EngineCheckpoints over HTTP", next="Use FileCheckpoints, or a database's handle."
        )

    def list(
        self, *, state: RunState | None = None, limit: int | None = 20, page: str | None = None
    ) -> Page[WatchedRun]:
        """Return the runs of *state*, or all, those that began last first."""
        self.attachments.flush()
        query = {"state": checked_state(state), "limit": checked_limit(limit), "page": page}
        return paged(self._client, RUNS, query, run_from_wire)
