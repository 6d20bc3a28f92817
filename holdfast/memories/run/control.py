"""Runs of this process that can be cancelled and steered, by whoever asks for them by id."""

import os
import socket
from collections.abc import Callable
from functools import cache
from threading import Lock
from typing import Protocol


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
    """The runs of this process, by workspace and id."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], RunControl] = {}
        self._lock = Lock()

    def hold(self, workspace: str, run: str, control: RunControl) -> Callable[[], None]:
        """Let *control* be found from now on; return what ends that."""
        key = (workspace, run)
        with self._lock:
            self._held[key] = control

        def let_go() -> None:
            with self._lock:
                # The run may have been begun anew meanwhile.
                if self._held.get(key) is control:
                    del self._held[key]

        return let_go

    def of(self, workspace: str, run: str) -> RunControl | None:
        """Return what holds the run *run*, or None."""
        return self._held.get((workspace, run))


@cache
def _host() -> str:
    return socket.gethostname()


def this_process() -> str:
    """Return how this process is told from others: its machine and its number there."""
    return f"{_host()}:{os.getpid()}"
