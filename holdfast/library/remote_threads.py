"""Threads and network runs of a server, with the methods of the embedded ones."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeVar

import msgspec

from holdfast.ground.errors import EngineFault, InvalidInput
from holdfast.ground.pages import Page, checked_limit
from holdfast.library.remote.calls import field_of, paged
from holdfast.library.remote.client import WireClient, route
from holdfast.memories.state.result import InferenceResult
from holdfast.memories.state.run_records import RunFilters, RunRecord, RunStatus
from holdfast.memories.state.serialize import imported
from holdfast.memories.state.thread import (
    MOST_LISTED,
    PER_PAGE,
    TURNS_LISTED,
    Appended,
    Thread,
    ThreadTurn,
    TurnKind,
    checked_id,
    checked_kind,
)
from holdfast.memories.state.thread_store import GivenTurn, turns_of
from holdfast.memories.stores.records import JSONObject

T = TypeVar("T")

THREADS: Final = "/api/threads"
RUNS: Final = "/api/network_runs"


class RemoteThreads:
    """Threads of a workspace of a server."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def retrieve(self, id: str) -> Thread:
        """Return the thread; NotFound if it does not exist."""
        return _read(_thread, self._client.read(_path(id)))

    def turns(
        self,
        id: str,
        limit: int | None = TURNS_LISTED,
        page: str | None = None,
        *,
        kind: TurnKind | None = None,
    ) -> Page[ThreadTurn]:
        """Return a page of the thread's turns, oldest first, of one *kind* or all."""
        rows = checked_limit(limit, most=MOST_LISTED, default=TURNS_LISTED)
        query = {"limit": rows, "page": page, "kind": checked_kind(kind)}
        return paged(self._client, _path(id, "turns"), query, lambda wire: _read(_turn, wire))

    def results(self, id: str) -> list[InferenceResult]:
        """Return all results of the thread, oldest first."""
        found = self.turns(id, MOST_LISTED, kind="result").all()
        return [turn.result for turn in found if turn.result is not None]

    def append(self, id: str, turns: Iterable[GivenTurn]) -> Appended:
        """Append *turns*, all or none; create the thread if it does not exist.

        They are sent in one request of at most 32 MiB. A lost response is retried, since the
        request is idempotent; the response then reports new turns as duplicates.
        """
        path = _path(id, "turns")
        body = {"turns": [turn.export() for turn in turns_of(turns)]}
        return _read(_appended, self._client.write("POST", path, body, again=True))

    def runs(self, id: str) -> list[RunRecord]:
        """Return the records of the thread's runs, newest first."""
        query = {"thread_id": checked_id("thread_id", id), "limit": MOST_LISTED}
        found = list(paged(self._client, RUNS, query, lambda wire: _read(_run, wire)).all())
        if not found:
            self.retrieve(id)
        return found

    def delete(self, id: str) -> bool:
        """Delete the thread, its turns and runs; return whether anything was deleted."""
        return field_of(bool, self._client.write("DELETE", _path(id)), "deleted")

    def list(self, limit: int | None = PER_PAGE, page: str | None = None) -> Page[Thread]:
        """Return a page of the threads, newest first."""
        rows = checked_limit(limit, most=MOST_LISTED, default=PER_PAGE)
        query = {"limit": rows, "page": page}
        return paged(self._client, THREADS, query, lambda wire: _read(_thread, wire))


class RemoteNetworkRuns:
    """Records of a workspace's network runs, on a server."""

    def __init__(self, client: WireClient) -> None:
        self._client = client

    def put(self, record: RunRecord | Mapping[str, object]) -> RunRecord:
        """Write a run's current record; the call is idempotent."""
        given = record if isinstance(record, RunRecord) else RunRecord.from_dict(record)
        path = route(RUNS, given.id)
        return _read(_run, self._client.write("PUT", path, given.export(), again=True))

    def retrieve(self, run_id: str) -> RunRecord:
        """Return the record of the run; NotFound if it does not exist."""
        return _read(_run, self._client.read(route(RUNS, checked_id("run_id", run_id))))

    def list(
        self,
        *,
        network: str | None = None,
        thread_id: str | None = None,
        status: RunStatus | None = None,
        limit: int | None = PER_PAGE,
        page: str | None = None,
    ) -> Page[RunRecord]:
        """Return a page of the runs that pass all filters, newest first."""
        filters = RunFilters(network=network, thread_id=thread_id, status=status)
        rows = checked_limit(limit, most=MOST_LISTED, default=PER_PAGE)
        query = {**msgspec.structs.asdict(filters), "limit": rows, "page": page}
        return paged(self._client, RUNS, query, lambda wire: _read(_run, wire))


def _path(thread_id: str, *below: str) -> str:
    return route(THREADS, checked_id("thread_id", thread_id), *below)


def _thread(wire: JSONObject) -> Thread:
    return imported(Thread, wire)


def _appended(wire: JSONObject) -> Appended:
    return imported(Appended, wire)


def _turn(wire: JSONObject) -> ThreadTurn:
    return ThreadTurn.from_dict(wire)


def _run(wire: JSONObject) -> RunRecord:
    return RunRecord.from_dict(wire)


def _read(make: Callable[[JSONObject], T], wire: JSONObject) -> T:
    """Decode *wire* with *make*; EngineFault if the response has another shape."""
    try:
        return make(wire)
    except (msgspec.ValidationError, InvalidInput) as error:
        raise EngineFault(f"The server's answer is of another shape: {error}") from error
