"""Several processes that do the same work, kept in number and stopped together."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

_log = logging.getLogger(__name__)

PAUSE = 1.0
"""Seconds before a process that ended by itself is replaced: a fault at start is not a storm."""


class Workers:
    """Runs *work*(first) in each of *count* processes, until told to stop."""

    def __init__(self, count: int, work: Callable[[bool], int]) -> None:
        self._count, self._work = count, work
        self._alive: set[int] = set()
        self._stopping, self._first = False, True

    def run(self) -> int:
        """Return 0 once all were told to stop and did; a second telling ends all with 1.

        A process that ends by itself is replaced, unless none ever lived past its start.
        """
        before = {each: signal.signal(each, self._told) for each in (signal.SIGTERM, signal.SIGINT)}
        try:
            while len(self._alive) < self._count:
                self._begin()
            while self._alive:
                self._mind(*os.wait())
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
        return 0

    def _begin(self) -> None:
        sys.stderr.flush()
        first, self._first = self._first, False
        process = os.fork()
        if process == 0:
            self._live(first=first)
        self._alive.add(process)
        if self._stopping:
            self._tell(process, signal.SIGTERM)

    def _live(self, *, first: bool) -> None:
        """Do the work, in the child, and end with it."""
        code = 1
        try:
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, signal.SIG_DFL)
            code = self._work(first)
        except BaseException:  # noqa: BLE001 - nothing of the parent's stack may run in the child
            _log.exception("a worker failed")
        finally:
            sys.stderr.flush()
            os._exit(code)

    def _mind(self, process: int, status: int) -> None:
        self._alive.discard(process)
        if self._stopping:
            return
        _log.error("a worker ended by itself (%d)", os.waitstatus_to_exitcode(status))
        time.sleep(PAUSE)
        if not self._stopping:
            self._begin()

    def _told(self, sig: int, frame: FrameType | None) -> None:
        del sig, frame
        if self._stopping:
            for process in self._alive:
                self._tell(process, signal.SIGKILL)
            os._exit(1)
        self._stopping = True
        for process in self._alive:
            self._tell(process, signal.SIGTERM)

    def _tell(self, process: int, sig: signal.Signals) -> None:
        try:
            os.kill(process, sig)
        except ProcessLookupError:
            _log.debug("worker %d has already exited", process)
