"""Runs and threads on a server: report the runs of this process, and read all."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from threading import Event as Wait
from typing import Any, Final, NoReturn, cast

from msgspec.structs import asdict, replace

from holdfast.ground.clock import SystemClock
from holdfast.ground.errors import NotFound, Unavailable, Unsupported
from holdfast.ground.pages import Page
from holdfast.library.operations.runs import RECORDS, RUN, RUNS
from holdfast.library.operations.threads import NETWORK_RUNS, THREADS
from holdfast.library.remote.calls import (
    MemoryRequests,
    RemoteMemory,
    arguments_of,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.library.remote.client import WireClient, route
from holdfast.library.remote.streams import PAUSE, PAUSE_MOST, frames
from holdfast.memories.run.entry import EVERYTHING, filter_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.model_view import PAGE_MOST, EntryPageRequest
from holdfast.memories.run.records.mirror import Attached, Attachments, Shown, attach, opening_of
from holdfast.memories.run.records.read import (
    ENDED,
    EntryOrder,
    ListedEntry,
    RecordedRunEvent,
    Told,
    asked_for,
    checked_after,
    entries_page,
    event_from_wire,
)
from holdfast.memories.run.records.record import RunControl, RunReport, RunStart
from holdfast.memories.run.records.runs import CANCELLED, Runs, demand_words
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.sources import OfThread, in_order
from holdfast.memories.state.thread import (
    MOST_LISTED,
    TURNS_LISTED,
    ThreadTurn,
    checked_id,
    within,
)
from holdfast.memories.state.threads import Threads

HERE: Final = ""
"""Key of the one workspace of a remote handle, among the runs of this process."""

APART: Final = 0.2
"""Least seconds between two reports of a run."""

_ON_WIRE: Final = {"keys": "key", "sources": "source"}


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


class _AttachedRuns(RemoteMemory):
    """Runs on a server; the changes of attached runs are reported before a request."""

    def __init__(self, requests: MemoryRequests) -> None:
        super().__init__(replace(requests, errors=self._reported))
        self.attachments = Attachments(strict=True)

    @contextmanager
    def _reported(self) -> Generator[None]:
        self.attachments.flush()
        yield

    @cached_property
    def checkpoints(self) -> NoReturn:
        """Raises Unsupported: checkpoints are stored with the database."""
        raise Unsupported(
            "EngineCheckpoints over HTTP", next="Use FileCheckpoints, or a database's handle."
        )


def _attach(
    self: Runs,
    memory: RunMemory,
    *,
    name: str,
    agent: str | None = None,
    metadata: Mapping[str, str] | None = None,
    control: RunControl | None = None,
) -> Attached:
    # It never blocks the run: another thread reports, with `APART` seconds between two reports.
    clock = SystemClock()
    opening = opening_of(memory, name=name, agent=agent, metadata=metadata, clock=clock)
    shown = Shown(workspace=HERE, recorder=OnServer(requests_of(self).client))
    return attach(_attachments(self), memory, opening, shown, control)


def _attachments(runs: object) -> Attachments:
    return cast("_AttachedRuns", runs).attachments


def _entries(
    self: Runs,
    id: str,
    *,
    order: EntryOrder | None = None,
    limit: int | None = PAGE_MOST,
    page: str | None = None,
    **filters: Any,
) -> Page[ListedEntry]:
    first = asked_for(filter_of(**filters), order=order, limit=limit, page=page)
    requests = replace(requests_of(self), segments={"run": id})

    def listed(request: EntryPageRequest) -> Told:
        """Request a page; filters that match nothing send no request, if the run exists."""
        conditions = (request.among or EVERYTHING).told()
        if [] in conditions.values():
            self.retrieve(id)
            return {"entries": [], "next_page": None}
        query: dict[str, object] = {
            _ON_WIRE.get(name, name): each for name, each in conditions.items()
        }
        query |= {"order": request.order, "limit": request.limit, "page": request.page}
        return requests.read(f"{RUN}/entries", query)

    return entries_page(listed, first)


def _follow(self: Runs, id: str, *, after: int = 0) -> Generator[RecordedRunEvent]:
    number = checked_after(after)
    self.retrieve(id)
    return _followed(requests_of(self).client, id, number)


def _followed(client: WireClient, id: str, after: int) -> Generator[RecordedRunEvent]:
    """Yield events; after a broken connection, continue after the last one."""
    timer, pause = Wait(), PAUSE
    while True:
        try:
            for event in _stream(client, id, after):
                if event is None:
                    return
                after, pause = event.seq, PAUSE
                yield event
        except Unavailable as error:
            if error.reason == "closed":
                raise
        timer.wait(pause)
        pause = min(2 * pause, PAUSE_MOST)


def _stream(client: WireClient, id: str, after: int) -> Generator[RecordedRunEvent | None]:
    """Yield the events of one connection; None once the run is over."""
    with client.follow(route(RUNS, id, "events"), {"after": after}, {}) as stream:
        for frame in frames(stream.lines()):
            if frame.event == ENDED:
                yield None
                return
            if frame.id:
                yield event_from_wire(int(frame.id), frame.event, frame.data)


def _cancel(self: Runs, id: str, reason: str = CANCELLED) -> None:
    demand_words("reason", reason)
    control = _attachments(self).controls.of(HERE, id)
    if control is not None:
        control.cancel(reason)
    else:
        perform(self, "cancel", {"id": id, "reason": reason})


def _steer(self: Runs, id: str, text: str, *, step: str | None = None) -> list[str]:
    demand_words("text", text)
    control = _attachments(self).controls.of(HERE, id)
    if control is not None:
        return control.steer(text, step=step)
    return perform(self, "steer", {"id": id, "text": text, "step": step})


def _deleted(runs: Runs, arguments: Mapping[str, Any]) -> None:
    """Delete the record again; one that is not found was deleted before."""
    with suppress(NotFound):
        perform(runs, "delete", arguments)


RemoteRuns: Final = remote_memory(
    RECORDS,
    _AttachedRuns,
    settle={"delete": _deleted},
    attach=_attach,
    entries=_entries,
    follow=_follow,
    cancel=_cancel,
    steer=_steer,
)
RemoteNetworkRuns: Final = remote_memory(NETWORK_RUNS)


def _results(self: Threads, id: str) -> list[InferenceResult]:
    found = self.turns(id, MOST_LISTED, kind="result").all()
    return in_order(turn.result for turn in found if turn.result is not None)[0]


def _turns(
    self: Threads, id: str, limit: int | None = TURNS_LISTED, page: str | None = None, **only: Any
) -> Page[ThreadTurn]:
    found = perform(self, "turns", arguments_of(self, "turns", id, limit, page, **only))
    thread = OfThread(lambda: self.results(id))
    return Page(
        [within(turn, thread) for turn in found],
        found.next_page,
        prev_page=found.prev_page,
        more=lambda page: self.turns(id, limit, page, **only),
    )


def _runs(self: Threads, id: str) -> list[RunRecord]:
    runs = RemoteNetworkRuns(requests_of(self))
    found = list(runs.list(thread_id=checked_id("thread_id", id), limit=MOST_LISTED).all())
    if not found:
        self.retrieve(id)
    return found


RemoteThreads: Final = remote_memory(THREADS, turns=_turns, results=_results, runs=_runs)
