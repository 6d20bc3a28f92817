"""Metrics of one server: requests, writes and refusals.

No label holds data of a user. Writes are counted from events, which come after the commit;
refusals from the responses.
"""

from collections.abc import Iterable, Iterator

from holdfast.doors.http.counters import Counter, Timings, flat_lines
from holdfast.doors.http.longterm_metrics import longterm_lines
from holdfast.doors.http.network_metrics import network_lines
from holdfast.doors.http.run_metrics import run_lines
from holdfast.doors.http.runtime_metrics import network_run_lines, runtime_lines
from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError
from holdfast.ground.events import Event
from holdfast.memories.durable.context import COUNTERS, counts
from holdfast.tools.base import calls

Numbers = dict[str, float]

UNKNOWN = "unknown"
"""The label of an unknown route, and of a method that HTTP does not define."""

METHODS = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"})
_OPERATIONS = ("created", "modified", "deleted")
_CONFLICTS: dict[type[HoldfastError], str] = {
    errors.PathTaken: "path_taken",
    errors.PreconditionFailed: "precondition_failed",
    errors.ContentGone: "content_gone",
}
_REFUSALS: dict[type[HoldfastError], str] = {
    errors.StoreArchived: "store_archived",
    errors.StoreFull: "store_full",
    errors.HeadVersion: "head_version",
    errors.TooLarge: "too_large",
}
_COMMANDS = ("view", "create", "str_replace", "insert", "delete", "rename")
_OUTCOMES = ("ok", "refused", "error")


class Metrics:
    """The counters of one server process."""

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        known = sorted(set(routes))
        paths = [*dict.fromkeys(path for path, _ in known), UNKNOWN]
        self._requests = Counter(
            "holdfast_http_requests_total", "Requests answered.", "route", "method", "status"
        ).begin((path, method, "200") for path, method in known)
        self._seconds = Timings(
            "holdfast_http_request_seconds", "From request to answer.", "route", paths
        )
        self._auth = Counter("holdfast_http_auth_failures_total", "Answers 401.").begin([()])
        self._writes = Counter(
            "holdfast_store_writes_total", "Versions of memories made.", "operation"
        ).begin((each,) for each in _OPERATIONS)
        self._noops = Counter(
            "holdfast_store_noops_total", "Updates that found their values in place."
        ).begin([()])
        self._conflicts = Counter(
            "holdfast_store_conflicts_total",
            "Writes that conflicted with the current state.",
            "kind",
        ).begin((each,) for each in _CONFLICTS.values())
        self._refused = Counter(
            "holdfast_store_refused_total", "Writes that a rule forbids.", "reason"
        ).begin((each,) for each in _REFUSALS.values())
        self._redactions = Counter("holdfast_store_redactions_total", "Versions redacted.").begin(
            [()]
        )
        self._tools = Counter(
            "holdfast_tool_calls_total", "Calls of tools.", "tool", "command", "outcome"
        ).begin(("memory", command, outcome) for command in _COMMANDS for outcome in _OUTCOMES)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.add(route, method, str(status))
        self._seconds.observe(route, seconds)

    def failed(self, error: Exception) -> None:
        """Count *error* if its class has a counter."""
        kind = type(error)
        if kind is errors.NotAuthenticated:
            self._auth.add()
        elif name := _CONFLICTS.get(kind):  # pyright: ignore[reportArgumentType] - any class may be looked up
            self._conflicts.add(name)
        elif name := _REFUSALS.get(kind):  # pyright: ignore[reportArgumentType] - as above
            self._refused.add(name)

    def unchanged(self) -> None:
        """Count an update that changed nothing."""
        self._noops.add()

    def heard(self, event: Event) -> None:
        """Count the write or the redaction that *event* reports."""
        part, _, what = event.type.partition(".")
        if part == "memory" and what in _OPERATIONS:
            self._writes.add(what)
        elif event.type == "version.redacted":
            self._redactions.add()

    def text(self, engine: Numbers, durable: Numbers, longterm: Numbers, runs: Numbers) -> str:
        """Render all metrics as text, with the numbers of engine and memories."""
        return "\n".join((*self._lines(engine, durable, longterm, runs), ""))

    def _lines(
        self, engine: Numbers, durable: Numbers, longterm: Numbers, runs: Numbers
    ) -> Iterator[str]:
        for each in (self._requests, self._seconds, self._auth):
            yield from each.lines()
        for each in (self._writes, self._noops, self._conflicts, self._refused, self._redactions):
            yield from each.lines()
        self._tools.take(calls.counts())
        yield from self._tools.lines()
        yield from durable_lines()
        yield from flat_lines("holdfast_durable_", durable)
        yield from longterm_lines(longterm)
        yield from run_lines(runs)
        yield from network_lines()
        yield from network_run_lines()
        yield from runtime_lines()
        yield from flat_lines("holdfast_engine_", engine)


def durable_lines() -> Iterator[str]:
    """Yield the lines of the counters of durable memory in this process."""
    taken: dict[str, dict[tuple[str, ...], int]] = {}
    for name, value, count in counts.taken():
        taken.setdefault(name, {})[(value,) if value else ()] = count
    for name, (says, label, _) in COUNTERS.items():
        counter = Counter(f"holdfast_durable_{name}", says, *((label,) if label else ()))
        counter.take(taken[name])
        yield from counter.lines()
