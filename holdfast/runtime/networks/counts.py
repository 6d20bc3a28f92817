"""What runs of networks did in this process, as `/metrics` counts it."""

from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Final, get_args

from holdfast.memories.state.message import ErrorKind
from holdfast.runtime.inference.agent_loop import AgentCall
from holdfast.runtime.metrics import SECONDS, RuntimeHistogram, Sample
from holdfast.runtime.networks.running import NetworkExecution

RUNS: Final = "runs_total"
AGENT_CALLS: Final = "agent_calls_total"
ROUTER_CALLS: Final = "router_calls_total"
TOOL_ERRORS: Final = "tool_errors_total"
EVENT_ERRORS: Final = "event_errors_total"
OMITTED: Final = "omitted_messages_total"
RUN_SECONDS: Final = "run_seconds"

TOLD: Final[dict[str, tuple[str, str]]] = {
    RUNS: ("counter", "Runs of networks that ended, by how and why."),
    AGENT_CALLS: ("counter", "Calls of agents in networks."),
    ROUTER_CALLS: ("counter", "Calls of a router."),
    TOOL_ERRORS: ("counter", "Calls of tools that ended in an error."),
    EVENT_ERRORS: ("counter", "Times an on_event raised."),
    OMITTED: ("counter", "Messages that a budget left out of what an agent saw."),
    RUN_SECONDS: ("histogram", "Seconds a run took."),
}
"""What each number is, and what it says."""

_Key = tuple[str, tuple[tuple[str, str], ...]]
_BARE: Final = (ROUTER_CALLS, EVENT_ERRORS, OMITTED)


class NetworkCounters:
    """The numbers of this process. Threads may count at once."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: Counter[_Key] = Counter({(name, ()): 0 for name in _BARE})
        for kind in get_args(ErrorKind):
            self._counts[TOOL_ERRORS, (("kind", kind),)] = 0
        self._seconds = RuntimeHistogram(SECONDS)

    def asked(self) -> None:
        """Count that a router was asked."""
        self._add(ROUTER_CALLS)

    def called(self, call: AgentCall) -> None:
        """Count *call*, which is over, and the errors of its tools."""
        self._add(AGENT_CALLS, agent=call.agent.name)
        for each in call.result.tool_calls if call.result else ():
            error = each.content.get("error")
            if isinstance(error, dict):
                self._add(TOOL_ERRORS, kind=str(error["kind"]))

    def ended(self, run: NetworkExecution) -> None:
        """Count *run*, which is over."""
        if run.ending is None or run.ended_at is None:
            return
        self._add(
            RUNS,
            network=run.network.name,
            status=run.ending.status,
            stop_reason=run.ending.reason,
        )
        self._add(EVENT_ERRORS, by=run.telling.errors)
        self._add(OMITTED, by=sum(len(each.omitted) for each in run.omitted))
        with self._lock:
            self._seconds.add((run.ended_at - run.started_at).total_seconds())

    def taken(self) -> Iterator[Sample]:
        """Give every number there is."""
        with self._lock:
            found = dict(self._counts)
            seconds = list(self._seconds.samples(RUN_SECONDS))
        order = list(TOLD)
        for (name, labels), count in sorted(
            found.items(), key=lambda each: (order.index(each[0][0]), each[0][1])
        ):
            yield name, labels, count
        yield from seconds

    def _add(self, name: str, *, by: int = 1, **labels: str) -> None:
        with self._lock:
            self._counts[name, tuple(labels.items())] += by


counts = NetworkCounters()
"""What this process did."""
