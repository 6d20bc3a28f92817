"""Runs and threads on a server: report the runs of this process, and read all."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import cached_property, partial
from threading import Event as Wait
from time import monotonic
from typing import Any, Final, NoReturn, cast

import msgspec
from msgspec.structs import asdict, replace

from holdfast.ground.clock import SystemClock, to_microseconds, to_rfc3339
from holdfast.ground.errors import (
    Conflict,
    InvalidInput,
    NotFound,
    StaleRun,
    Unavailable,
    Unsupported,
)
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import Page
from holdfast.ground.scope import checked_name
from holdfast.library.operations.runs import RECORDS, RUN, RUNS, save_to_wire, state_in
from holdfast.library.operations.threads import THREADS
from holdfast.library.remote.calls import (
    MemoryRequests,
    RemoteMemory,
    arguments_of,
    decoded,
    perform,
    remote_memory,
    requests_of,
)
from holdfast.library.remote.client import PASSING, WireClient, route
from holdfast.library.remote.streams import PAUSE, PAUSE_MOST, frames
from holdfast.memories.run.entry import EVERYTHING, filter_of
from holdfast.memories.run.history.versions import (
    KeptState,
    KeptTurn,
    SavedVersion,
    StateRow,
    VersionRows,
    VersionSave,
)
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.model_view import PAGE_MOST, EntryPageRequest
from holdfast.memories.run.records.answer import meant, no_question
from holdfast.memories.run.records.event import Ending, RunEvent
from holdfast.memories.run.records.lease import PRIORITY
from holdfast.memories.run.records.question import Answerer, Question
from holdfast.memories.run.records.read import (
    ENDED,
    EntryOrder,
    FollowOptions,
    ListedEntry,
    Told,
    asked_for,
    checked_follow,
    entries_page,
    event_from_wire,
    run_from_wire,
)
from holdfast.memories.run.records.record import (
    HeldRun,
    LeaseGrant,
    ReportReceipt,
    RunAcquisition,
    RunControl,
    RunReport,
)
from holdfast.memories.run.records.run import NO_METADATA, Run
from holdfast.memories.run.records.runs import CANCELLED, Runs, demand_words
from holdfast.memories.run.records.writer import (
    Attached,
    Attachments,
    RunOpening,
    RunWriter,
    Shown,
    attach,
    open_run,
)
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.sources import OfThread, in_order
from holdfast.memories.state.thread import (
    MOST_LISTED,
    TURNS_LISTED,
    ThreadTurn,
    within,
)
from holdfast.memories.state.threads import Threads

HERE: Final = ""
"""Key of the one workspace of a remote handle, among the runs of this process."""

AWAY_MOST: Final = 60.0
"""Seconds for which a follower of a run tries to reach its server again, at most."""

WAIT_AT_ONCE: Final = 20.0
"""Seconds that one request waits for a run: less than the time in which it must be answered."""

_PASSING: Final = PASSING | {"timeout"}
"""Reasons after which a follower connects again."""

APART: Final = 0.2
"""Least seconds between two reports of a run."""

_ids, _clock = Ids(), SystemClock()
_ON_WIRE: Final = {"keys": "key", "sources": "source"}


PIECE: Final = 8_388_608
"""Bytes of facts and messages in one request; quoted as text they may take twice as many."""

_OPENING: Final = frozenset(("run.started", "run.taken_over", "run.resumed"))

TRIES: Final = 5
"""Saves of a version before it is given up, when others write versions of the run too."""


class VersionsOnServer(VersionRows):
    """The newest versions of runs on a server. Its requests are idempotent."""

    def __init__(self, client: WireClient) -> None:
        self._client = client
        self._newest: dict[str, int] = {}

    def load(self, run_id: str) -> KeptState | None:
        """Return what the run *run_id* knew last; None if nothing is kept."""
        checked_name("run_id", run_id)
        try:
            answer = self._client.read(route(RUNS, run_id, "checkpoint"))
        except NotFound:
            return None
        return decoded(state_in, answer)

    def append(self, save: VersionSave) -> SavedVersion:
        """Store *save* as the next version; raise StaleRun for a former owner."""
        if save.after is not None:
            return self._put(save, save.after)
        for _ in range(TRIES):
            after = self._newest.pop(save.run_id, None)
            if after is None:
                after = run_from_wire(self._client.read(route(RUNS, save.run_id))).versions
            found = self._put(save, after)
            if found.stored:
                self._newest[save.run_id] = found.number or after
                return found
        raise Conflict(
            f"Others store versions of the run {save.run_id}.",
            reason="versions",
            next="Let one process own it.",
        )

    def _put(self, save: VersionSave, after: int) -> SavedVersion:
        """Store *save* after the version *after*, a large one in several requests."""
        found = SavedVersion()
        for piece in pieces(save):
            path = route(RUNS, save.run_id, "versions", str(after + 1))
            answer = self._client.write("PUT", path, save_to_wire(piece), again=True)
            found = decoded(_saved, answer)
            if not found.stored:
                break
        return found

    def replace(self, save: VersionSave) -> SavedVersion:
        """Store *save*, so that its rows and turns are all that the run has."""
        checked_name("run_id", save.run_id)
        path = route(RUNS, save.run_id, "checkpoint")
        return decoded(_saved, self._client.write("PUT", path, save_to_wire(save), again=True))

    def delete(self, run_id: str) -> bool:
        """Delete versions and messages of the run; return whether there were any."""
        checked_name("run_id", run_id)
        self._newest.pop(run_id, None)
        answer = self._client.write("DELETE", route(RUNS, run_id, "checkpoint"), again=True)
        return bool(answer.get("deleted"))


def pieces(save: VersionSave, most: int = PIECE) -> Iterator[VersionSave]:
    """Yield *save* in parts of about *most* bytes; the last one is the version.

    The facts of others belong to it: they are stored before it, in their order.
    """
    rows: list[StateRow] = []
    turns: list[KeptTurn] = []
    size = 0
    for each in (*save.turns, *save.rows):
        if size and size + len(each.body or b"") > most:
            yield replace(
                save,
                cause=None,
                status=None,
                questions=(),
                rows=tuple(rows),
                turns=tuple(turns),
            )
            rows, turns, size = [], [], 0
        size += len(each.body or b"")
        if isinstance(each, KeptTurn):
            turns.append(each)
        else:
            rows.append(each)
    yield replace(save, rows=tuple(rows), turns=tuple(turns))


def _saved(wire: Any) -> SavedVersion:
    return msgspec.convert(wire, SavedVersion)


class OnServer:
    """Recorder of runs on a server. Its requests are idempotent."""

    pause = APART
    scope = HERE
    keeps = True

    def __init__(self, client: WireClient) -> None:
        self._client, self._versions = client, VersionsOnServer(client)

    def _lease(
        self, run_id: str, action: str, body: Mapping[str, Any], *, again: bool = True
    ) -> Any:
        path = route(RUNS, run_id, "lease")
        return self._client.write("POST", path, {"action": action, **body}, again=again)

    def begin(self, opening: RunAcquisition) -> LeaseGrant:
        """Acquire a run and start its record; repeating it changes nothing."""
        if opening.claimed:
            raise Unsupported("workers of runs over HTTP", next="Open the database itself.")
        body = asdict(opening)
        del body["claimed"]
        run_id, granted = body.pop("run_id"), partial(_granted, strict=False)
        try:
            return decoded(granted, self._lease(run_id, "acquire", body, again=False))
        except Unavailable as error:
            if error.written is not None or error.reason not in PASSING:
                raise
        grant = decoded(granted, self._lease(run_id, "acquire", body))
        return grant if grant.opened else replace(grant, opened=self._opened(run_id, grant.seq))

    def _opened(self, run_id: str, seq: int) -> tuple[RunEvent, ...]:
        """Return the events of an acquisition, whose last one is *seq*."""
        found: list[RunEvent] = []
        options = FollowOptions(after=max(0, seq - 2))
        with closing(_followed(self._client, run_id, options)) as events:
            for event in events:
                if event.seq > seq:
                    break
                if event.type in _OPENING:
                    found.append(event)
                if event.seq == seq:
                    break
        return tuple(found)

    def take(self, run_id: str, report: RunReport) -> ReportReceipt:
        """Add *report* to a run's record; repeating it changes nothing."""
        body = asdict(report)
        for name in ("events", "entries"):
            body[name] = [asdict(each) for each in body[name]]
        answer = self._client.write("POST", route(RUNS, run_id, "events"), body, again=True)
        return decoded(partial(msgspec.convert, type=ReportReceipt), answer)

    def keep(self, save: VersionSave) -> SavedVersion:
        """Store a version of a run; raise StaleRun for a former owner."""
        return self._versions.append(save)

    def renew(self, held: Sequence[HeldRun], *, extend: bool = True) -> Mapping[str, str | None]:
        """Extend the lease of each of *held*, one request each; see `RunRecorder.renew`."""
        signs: dict[str, str | None] = {}
        for each in held:
            body = {"holder": each.holder, "fence": each.fence, "extend": extend}
            with suppress(Conflict, NotFound):
                signs[each.holder] = self._lease(each.run_id, "renew", body)["cancel"]
        return signs

    def release(self, held: HeldRun, ending: Ending | None) -> RunEvent | None:
        """End a run as *ending*, or queue it again and return that event."""
        body = {"holder": held.holder, "fence": held.fence, "status": ending}
        event = self._lease(held.run_id, "release", body)["event"]
        return None if event is None else decoded(_event, event)

    def replace(self, save: VersionSave) -> SavedVersion:
        """Store a version that is all that the run knows; a repeat does nothing."""
        return self._versions.replace(save)


def _event(wire: Any) -> RunEvent:
    return msgspec.convert(wire, RunEvent)


def _granted(wire: Any, *, strict: bool) -> LeaseGrant:
    return msgspec.convert(
        {"fence": wire["fence"], "seq": wire["seq"], "opened": wire["opened"]},
        LeaseGrant,
        strict=strict,
    )


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
    def checkpoints(self) -> VersionRows:
        """The newest versions of runs, from which they can be resumed."""
        return VersionsOnServer(self.requests.client)

    @property
    def shown(self) -> Shown:
        """Where the owner of a run writes."""
        return Shown(workspace=HERE, recorder=OnServer(self.requests.client), clock=SystemClock())


def _attach(
    self: Runs,
    memory: RunMemory,
    *,
    name: str,
    agent: str | None = None,
    user: str | None = None,
    metadata: Mapping[str, str] | None = None,
    control: RunControl | None = None,
) -> Attached:
    # It never blocks the run: another thread reports, with `APART` seconds between two reports.
    opening = RunOpening(
        kind="memory",
        name=name,
        agent=agent,
        user=user,
        metadata=metadata or {},
        take_over="always",
    )
    return attach(_attachments(self), memory, opening, self.shown, control)


def _open_run(
    self: Runs,
    memory: RunMemory,
    opening: RunOpening,
    *,
    control: RunControl | None = None,
    on_stale: Callable[[StaleRun], object] | None = None,
) -> RunWriter:
    attachments, shown = _attachments(self), self.shown
    return open_run(attachments, memory, opening, shown, control=control, on_stale=on_stale)


def _put(self: Runs, record: Run | Mapping[str, object]) -> Run:
    given = record if isinstance(record, Run) else Run.from_dict(record)
    requests = replace(requests_of(self), segments={"run": given.id})
    return run_from_wire(requests.write("PUT", RUN, given.export(), retry="safe"))


def _start(
    self: Runs,
    name: str,
    input: JSON = None,
    *,
    run_id: str | None = None,
    queue: str | None = None,
    priority: int = PRIORITY,
    not_before: datetime | None = None,
    metadata: Mapping[str, str] = NO_METADATA,
) -> Run:
    body = {
        "definition": name,
        "input": input,
        # A repeat of the request is the same run.
        "run_id": _ids.new("run", to_microseconds(_clock.now())) if run_id is None else run_id,
        "queue": queue,
        "priority": priority,
        "not_before": None if not_before is None else _instant(not_before),
        "metadata": dict(metadata),
    }
    return run_from_wire(requests_of(self).write("POST", RUNS, body, retry="safe"))


def _instant(given: datetime) -> str:
    if given.tzinfo is None:
        raise InvalidInput("not_before", "must have a time zone", given=given.isoformat())
    return to_rfc3339(given)


def _configure_queue(
    self: Runs,
    name: str,
    *,
    per_worker: int | None = None,
    concurrency: int | None = None,
    rate: tuple[int, float] | None = None,
    partition: str | None = None,
) -> NoReturn:
    del self, name, per_worker, concurrency, rate, partition
    raise Unsupported("limits of queues over HTTP", next="Set them in the worker's process.")


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


def _follow(
    self: Runs,
    id: str,
    *,
    after: int = 0,
    wait: float = 0,
    types: str | Iterable[str] | None = None,
    rest: bool = False,
) -> Generator[RunEvent]:
    options = checked_follow(after, wait, types, rest=rest)
    client = requests_of(self).client
    if not options.wait:
        self.retrieve(id)
    return _followed(client, id, options)


def _followed(client: WireClient, id: str, options: FollowOptions) -> Generator[RunEvent]:
    """Yield events; after a broken connection, continue after the last one.

    Raise `NotFound` once the time to wait for the run is over, and `Unavailable` once the server
    was away for `AWAY_MOST` seconds.
    """
    timer, pause, lost_at = Wait(), PAUSE, None
    deadline = monotonic() + options.wait
    while True:
        left = max(0.0, deadline - monotonic())
        query = _query(replace(options, wait=min(left, WAIT_AT_ONCE)))
        try:
            with client.follow(route(RUNS, id, "events"), query, {}) as stream:
                lost_at = None
                for frame in frames(stream.lines()):
                    if frame.event == ENDED:
                        return
                    if frame.id:
                        event = event_from_wire(frame.data)
                        options, deadline, pause = replace(options, after=event.seq), 0.0, PAUSE
                        yield event
        except NotFound:
            if monotonic() >= deadline:
                raise
            lost_at, pause = None, PAUSE
        except Unavailable as error:
            lost_at = lost_at or monotonic()
            if error.reason not in _PASSING or monotonic() >= lost_at + AWAY_MOST:
                raise
            pause = max(pause, error.retry_after or 0.0)
        timer.wait(pause)
        pause = min(2 * pause, PAUSE_MOST)


def _query(options: FollowOptions) -> dict[str, object]:
    """Return *options* as the query of a request."""
    query: dict[str, object] = {"after": options.after}
    if options.rest:
        query["rest"] = "true"
    if options.wait:
        query["wait"] = options.wait
    if options.types:
        query["types"] = ",".join(sorted(options.types))
    return query


def _cancel(self: Runs, id: str, reason: str = CANCELLED) -> None:
    demand_words("reason", reason)
    control = _attachments(self).controls.of(HERE, id)
    if control is not None:
        control.cancel(reason)
    else:
        perform(self, "cancel", {"id": id, "reason": reason})


def _answer(
    self: Runs,
    run_id: str,
    value: object,
    *,
    question: str | None = None,
    note: str | None = None,
    by: str | Answerer | None = None,
) -> Question:
    if by is not None:
        raise Unsupported("Answering for another", next="Open the server with that person's key.")
    if question is None:
        question = meant(run_id, list(self.questions(None, run=run_id, limit=None).all())).id
    elif self.question(question).run_id != run_id:
        raise no_question(question)
    given = {"value": value, "question": question, "note": note}
    return perform(self, "answer", given)


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
    open_run=_open_run,
    put=_put,
    start=_start,
    configure_queue=_configure_queue,
    cancel=_cancel,
    answer=_answer,
    steer=_steer,
)


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


RemoteThreads: Final = remote_memory(THREADS, turns=_turns, results=_results)
