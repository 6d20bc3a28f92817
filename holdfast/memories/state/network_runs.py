"""Runs of networks, as they were recorded."""

from collections.abc import Mapping

from holdfast.ground.pages import Page
from holdfast.memories.state import run_records
from holdfast.memories.state.run_records import RunFilters, RunRecord, RunStatus
from holdfast.memories.state.thread import PER_PAGE, ThreadsContext


class NetworkRuns:
    """The records of a workspace's runs: what began, and how it ended.

    >>> import holdfast
    >>> [run.status for run in holdfast.open(":memory:").network_runs.list()]
    []
    """

    def __init__(self, caller: ThreadsContext) -> None:
        self._caller = caller

    def put(self, record: RunRecord | Mapping[str, object]) -> RunRecord:
        """Write a run's record as it is now: at its start, and at its end.

        The same twice is once; Conflict for a run that has ended otherwise.
        """
        self._caller.demand("write")
        return run_records.put_run(self._caller, record)

    def retrieve(self, run_id: str) -> RunRecord:
        """Return the record of the run; NotFound if it is not there."""
        self._caller.demand("read")
        return run_records.retrieve_run(self._caller, run_id)

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
        self._caller.demand("read")
        filters = RunFilters(network=network, thread_id=thread_id, status=status)
        return run_records.list_runs(self._caller, filters, limit, page)
