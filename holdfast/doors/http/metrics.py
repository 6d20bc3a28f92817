"""Metrics of one server: requests, writes and refusals.

No label holds data of a user. Writes are counted from events, which come after the commit;
refusals from the responses.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from importlib import import_module
from itertools import chain

from holdfast.engines.base import Engine
from holdfast.ground import errors
from holdfast.ground.errors import HoldfastError, MissingExtra
from holdfast.ground.events import Event
from holdfast.ground.metrics import REGISTRY, MetricRegistry, flat_lines
from holdfast.memories.durable.retention import lag_of
from holdfast.memories.longterm.read import gauges as longterm_gauges
from holdfast.memories.run.records.read import gauges as run_gauges

_PREFIX = "holdfast_"
_PARTS = (
    "holdfast.library.erasure.ledger",
    "holdfast.memories.durable.memory",
    "holdfast.memories.longterm.memory",
    "holdfast.memories.longterm.background.schedule",
    "holdfast.memories.longterm.consolidation.decisions",
    "holdfast.memories.run.memory",
    "holdfast.memories.run.records.answer",
    "holdfast.memories.run.history.effects",
    "holdfast.memories.run.history.versions",
    "holdfast.memories.state.threads",
    "holdfast.tools.base",
)
"""Modules that declare metrics, or import all that do: a sample exists before its first use."""
_REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 2.5, 10.0)
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


class Metrics:
    """The counters of one server process."""

    def __init__(self, routes: Iterable[tuple[str, str]]) -> None:
        known = sorted(set(routes))
        paths = [*dict.fromkeys(path for path, _ in known), UNKNOWN]
        self._registry = registry = MetricRegistry()
        self._requests = registry.counter(
            "http_requests_total", "Requests answered.", route=(), method=(), status=()
        ).begin((path, method, "200") for path, method in known)
        self._seconds = registry.histogram(
            "http_request_seconds", "From request to answer.", _REQUEST_SECONDS, route=paths
        )
        self._auth = registry.counter("http_auth_failures_total", "Answers 401.")
        self._writes = registry.counter(
            "store_writes_total", "Versions of memories made.", operation=_OPERATIONS
        )
        self._noops = registry.counter(
            "store_noops_total", "Updates that found their values in place."
        )
        self._conflicts = registry.counter(
            "store_conflicts_total",
            "Writes that conflicted with the current state.",
            kind=_CONFLICTS.values(),
        )
        self._refused = registry.counter(
            "store_refused_total", "Writes that a rule forbids.", reason=_REFUSALS.values()
        )
        self._redactions = registry.counter("store_redactions_total", "Versions redacted.")

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that was answered."""
        self._requests.add(route, method, str(status))
        self._seconds.observe(seconds, route)

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

    def on_event(self, event: Event) -> None:
        """Count the write or the redaction that *event* reports."""
        part, _, what = event.type.partition(".")
        if part == "memory" and what in _OPERATIONS:
            self._writes.add(what)
        elif event.type == "version.redacted":
            self._redactions.add()

    def text(self, gauges: Mapping[str, float]) -> str:
        """Render all metrics, and *gauges* by sample name, as text for Prometheus."""
        _declare_all()
        lines = chain(
            self._registry.lines(_PREFIX), REGISTRY.lines(_PREFIX), flat_lines(_PREFIX, gauges)
        )
        return "\n".join((*lines, ""))


_PARTS_OF_EXTRAS = (
    "holdfast.runtime.metrics",
    "holdfast.doors.mcp.http",
    "holdfast.doors.console.response",
)


def _declare_all() -> None:
    """Import the modules that declare metrics; some need an extra."""
    for part in _PARTS:
        import_module(part)
    for part in _PARTS_OF_EXTRAS:
        with suppress(MissingExtra):
            import_module(part)


def gauges(engine: Engine, now: int) -> dict[str, float]:
    """Return numbers of the database in *engine*'s scope at *now*, by sample name."""
    return {
        "durable_sweep_lag_seconds": lag_of(engine, now),
        **_within("ltm", longterm_gauges(engine)),
        **_within("run", run_gauges(engine, now)),
        **_within("engine", engine.status().metrics),
    }


def _within(part: str, numbers: Mapping[str, float]) -> dict[str, float]:
    return {f"{part}_{name}": number for name, number in numbers.items()}
