"""Which agents are to run next in one run, and which never will."""

from threading import Lock

from holdfast.ground.errors import Conflict
from holdfast.runtime.networks.agents import AgentOrName


class AgentQueue:
    """Agents in the order they are to run. Tools on other threads may add to it."""

    def __init__(self) -> None:
        self._waiting: list[AgentOrName] = []
        self._dropped: list[str] = []
        self._closed = False
        self._lock = Lock()

    @property
    def pending(self) -> tuple[str, ...]:
        """The names of those that wait."""
        with self._lock:
            return tuple(map(_name, self._waiting))

    @property
    def dropped(self) -> list[str]:
        """The names of those that waited and did not run."""
        with self._lock:
            return list(self._dropped)

    def add(self, agents: tuple[AgentOrName, ...]) -> None:
        """Let *agents* run after what waits; Conflict once the run has ended."""
        with self._lock:
            if self._closed:
                raise Conflict("The run has ended.", reason="ended", next="Start another run.")
            self._waiting.extend(agents)

    def replace(self, agents: tuple[AgentOrName, ...]) -> None:
        """Let *agents* run in place of what waits."""
        self._drop()
        self.add(agents)

    def next(self) -> AgentOrName | None:
        """Return the first that waits, which waits no more; None if there is none."""
        with self._lock:
            return self._waiting.pop(0) if self._waiting else None

    def close(self) -> None:
        """Drop what waits, and take no more."""
        with self._lock:
            self._closed = True
        self._drop()

    def _drop(self) -> None:
        with self._lock:
            self._dropped.extend(map(_name, self._waiting))
            self._waiting.clear()


def _name(given: AgentOrName) -> str:
    return given if isinstance(given, str) else given.name
