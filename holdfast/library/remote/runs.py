"""Runs on a server: report the runs of this process, and read all."""

from collections.abc import Generator, Iterable, Mapping
from functools import cached_property
from threading import Event as Wait
from typing import Final, NoReturn

from msgspec.structs import asdict

from holdfast.ground.clock import Clock
from holdfast.ground.errors import NotFound, Unavailable, Unsupported
from holdfast.ground.pages import Page
from holdfast.ground.validation import check_limit
from holdfast.library.remote.calls import field_of, paged
from holdfast.library.remote.client import WireClient, route
from holdfast.library.remote.streams import PAUSE, PAUSE_MOST, frames
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
"""Key of the one workspace of a remote handle, among the runs of this process."""

APART: Final = 0.2
"""Least seconds between two reports of a run."""


class OnServer:
    """Recorder of runs on a server. Its requests are idempotent."""

    pause = APART

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def begin(self, opening: RunStart) -> None:
        """Start the record of a run; repeating it changes nothing."""
        body = asdict(opening)
        self._client.write("PUT", route(RUNS, body.pop("run_id")), body, again=True)

    def take(self, run_id: str, report: RunReport) -> None:
        """Add *report* to a run's record; repeating it changes nothing."""
        body = asdict(report)
        for name in ("events", "entries"):
            body[name] = [asdict(each) for each in body[name]]
        self._client.write("POST", route(RUNS, run_id, "events"), body, again=True)


class RemoteRuns:
    """Runs of a workspace of a server."""

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
        """Make the run of *memory* visible to other clients.

        Call the result when the run is over.

        It never blocks the run: another thread reports, at most once in 200 ms.
        """
        opening = opening_of(memory, name=name, agent=agent, metadata=metadata, clock=self._clock)
        shown = Shown(workspace=HERE, recorder=OnServer(self._client))
        return attach(self.attachments, memory, opening, shown, control)

    def retrieve(self, id: str) -> WatchedRun:
        """Return the current state of the run *id*; NotFound if it does not exist."""
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
        """Return the last entries of the run *id*, without values, newest first."""
        among = filter_of(kind, keys, key_prefix, sources)
        first = asked_for(among, order=order, limit=limit, page=page)
        self.attachments.flush()
        return entries_page(lambda request: self._entries(id, request), first)

    def _entries(self, id: str, request: EntryPageRequest) -> Told:
        """Return the server's page of entries; filters that match nothing send no request.

        The run must still exist.
        """
        filters = (request.among or EVERYTHING).told()
        if [] in filters.values():
            self.retrieve(id)
            return {"entries": [], "next_page": None}
        query = {
            "kind": filters.get("kind"),
            "key": filters.get("keys"),
            "key_prefix": filters.get("key_prefix"),
            "source": filters.get("sources"),
            "order": request.order,
            "limit": request.limit,
            "page": request.page,
        }
        return self._client.read(route(RUNS, id, "entries"), query)

    def entry(self, id: str, key: str, *, path: str | None = None, offset: int = 0) -> ReadEntry:
        """Return the entry *key* of the run *id*, or the part of its value at *path*."""
        part = checked_wish(path, offset)
        query = {"path": part.path, "offset": part.offset or None}
        self.attachments.flush()
        checked = run_keys.checked(key)
        return read_in(self._client.read(route(RUNS, id, "entries", checked), query))

    def follow(self, id: str, *, after: int = 0) -> Generator[RecordedRunEvent]:
        """Yield events of the run *id* after the number *after*, live until it ends.

        After a broken connection it continues after the last yielded event.
        """
        number = checked_after(after)
        self.retrieve(id)
        return self._followed(id, number)

    def _followed(self, id: str, after: int) -> Generator[RecordedRunEvent]:
        timer, pause = Wait(), PAUSE
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
            timer.wait(pause)
            pause = min(2 * pause, PAUSE_MOST)

    def _stream(self, id: str, after: int) -> Generator[RecordedRunEvent | None]:
        """Yield the events of one connection; None once the run is over."""
        with self._client.follow(route(RUNS, id, "events"), {"after": after}, {}) as stream:
            for frame in frames(stream.lines()):
                if frame.event == ENDED:
                    yield None
                    return
                if frame.id:
                    yield event_from_wire(int(frame.id), frame.event, frame.data)

    def cancel(self, id: str, reason: str = CANCELLED) -> None:
        """Cancel the run *id*, of this process or the server."""
        demand_words("reason", reason)
        control = self.attachments.controls.of(HERE, id)
        if control is not None:
            control.cancel(reason)
            return
        self._client.write("POST", route(RUNS, id, "cancel"), {"reason": reason})

    def steer(self, id: str, text: str, *, step: str | None = None) -> list[str]:
        """Insert *text* before the next request of *step*, or of every running step.

        Return the steps.
        """
        demand_words("text", text)
        control = self.attachments.controls.of(HERE, id)
        if control is not None:
            return control.steer(text, step=step)
        body = {"text": text, "step": step}
        return field_of(
            list[str], self._client.write("POST", route(RUNS, id, "steer"), body), "steps"
        )

    def delete(self, id: str) -> None:
        """Delete the record of a finished run; Conflict for a live one."""
        self.attachments.flush()
        try:
            self._client.write("DELETE", route(RUNS, id))
        except Unavailable as unknown:
            if unknown.written is not None or unknown.reason != "lost":
                raise
            self._delete_again(id, unknown)

    def _delete_again(self, id: str, unknown: Unavailable) -> None:
        """Resolve a delete with a lost response: NotFound counts as deleted."""
        try:
            self._client.write("DELETE", route(RUNS, id))
        except NotFound:
            return
        except Unavailable:
            raise unknown from None

    @cached_property
    def checkpoints(self) -> NoReturn:
        """Raises Unsupported: checkpoints are stored with the database."""
        raise Unsupported(
            "EngineCheckpoints over HTTP", next="Use FileCheckpoints, or a database's handle."
        )

    def list(
        self, *, state: RunState | None = None, limit: int | None = 20, page: str | None = None
    ) -> Page[WatchedRun]:
        """Return the runs of *state*, or all, newest first."""
        self.attachments.flush()
        query = {"state": checked_state(state), "limit": check_limit(limit), "page": page}
        return paged(self._client, RUNS, query, run_from_wire)
