"""Runs of this process that can be cancelled and steered, by whoever asks for them by id.

Several handles may lead to one database, a server's own and the one that runs are begun with: a run
of another handle is found by its holder, which no other run has.
"""

import os
import socket
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Final, Protocol
from weakref import WeakSet


class RunControl(Protocol):
    """What holds a run in its hands. Other threads than the run's own call it."""

    def cancel(self, reason: str = ...) -> None:
        """Stop the run; *reason* is told to whoever watches it."""
        ...

    def steer(self, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of every running step; tell which.

        Raises NotFound for a step that is finished or unknown.
        """
        ...


class Controls:
    """The runs that one handle shows, by workspace and id, and by their holders."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], RunControl] = {}
        self._by_holder: dict[str, RunControl] = {}
        self._lock = Lock()
        with _lock:
            _every.add(self)

    def hold(
        self, workspace: str, run: str, control: RunControl, *, holder: str
    ) -> Callable[[], None]:
        """Let *control* of the run, as *holder*, be found from now on; return what ends that."""
        key = (workspace, run)
        with self._lock:
            self._held[key] = self._by_holder[holder] = control

        def let_go() -> None:
            with self._lock:
                self._by_holder.pop(holder, None)
                # The run may have been begun anew meanwhile.
                if self._held.get(key) is control:
                    del self._held[key]

        return let_go

    def of(self, workspace: str, run: str) -> RunControl | None:
        """Return what holds the run *run*, or None."""
        return self._held.get((workspace, run))

    def by_holder(self, holder: str) -> RunControl | None:
        """Return what holds a run as *holder*, or None."""
        return self._by_holder.get(holder)


_every: Final[WeakSet[Controls]] = WeakSet()
_lock: Final = Lock()


def held_by(holder: str) -> RunControl | None:
    """Return what in this process, through whichever handle, holds a run as *holder*; or None."""
    with _lock:
        every = list(_every)
    found = (each.by_holder(holder) for each in every)
    return next((each for each in found if each is not None), None)


@cache
def _host() -> str:
    return socket.gethostname()


def this_process() -> str:
    """Return how this process is told from others: its machine and its number there."""
    return f"{_host()}:{os.getpid()}"
