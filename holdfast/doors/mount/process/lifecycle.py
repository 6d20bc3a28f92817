"""The life of a mount's process: begun, told, ended by a signal or from outside.

The main thread does nothing but wait, so that a signal is heard whatever storage does. What takes
time runs on threads that nobody has to wait for.
"""

import logging
import signal
from collections.abc import Callable
from threading import Thread
from typing import NamedTuple, Protocol

from holdfast.doors.mount.process.happenings import Happenings
from holdfast.ground.errors import Refused, Unavailable
from holdfast.memories.stores.records import JSONObject

SAVING_SECONDS = 10.0
"""What saving everything may take, once the process was told to end."""

MARGIN_SECONDS = 2.0
"""What saving may be late, and letting go of the directory may take."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


class RunningMount(Protocol):
    """Stores shown as files, through FUSE or as a synced directory."""

    def start(self, ended: Callable[[], None]) -> None:
        """Return once the first `ls` works; call *ended* when it ends from outside."""
        ...

    def status(self) -> JSONObject:
        """Return what there is to say of it."""
        ...

    def save(self, seconds: float) -> int:
        """Save what is not saved, within *seconds*; return how much had to be spooled instead."""
        ...

    def close(self) -> None:
        """Let the directory go; whatever was begun, nothing is left mounted."""
        ...


class _Happened(NamedTuple):
    """Something that the main thread waits for: what, and what it came to."""

    what: str
    error: BaseException | None = None
    spooled: int = 0


class End(NamedTuple):
    """How a mount ended: how much had to be spooled, and whether it was hurried."""

    spooled: int
    hurried: bool


class Life:
    """One mount, from beginning to end; *tell* gets its status when it is ready."""

    def __init__(self, running: RunningMount, *, tell: Callable[[JSONObject], None]) -> None:
        self._running, self._tell = running, tell
        self._happened: Happenings[_Happened] = Happenings()
        self._signals = 0

    def run(self) -> End:
        """Live until unmounted or signalled, and return how it ended.

        Raises what kept it from starting. A second signal spools what is left at once; once it
        has ended, signals do not kill what the process still has to finish.
        """
        with self._happened.signalled(SIGNALS, self._heard, ending=True):
            try:
                self._begin()
                self._until("signal", "ended")
                return self._save()
            finally:
                self._let_go()

    def _heard(self) -> _Happened:
        self._signals += 1
        return _Happened("signal")

    def _begin(self) -> None:
        ended = _Happened("ended")
        self._aside("started", lambda: self._running.start(lambda: self._happened.put(ended)))
        first = self._until("started", "signal")
        if first.what == "signal":
            raise Refused("Stopped before it was ready.", next="Nothing is mounted.")
        if first.error is not None:
            raise first.error
        self._tell(self._running.status())

    def _save(self) -> End:
        seconds = SAVING_SECONDS if self._signals < 2 else 0.0  # noqa: PLR2004 - the second
        self._aside("saved", lambda: self._running.save(seconds))
        try:
            happened = self._until("saved", "signal", within=seconds + MARGIN_SECONDS)
            if happened.what == "signal":
                _log.warning("second signal to end: unsaved data is kept in the spool")
                self._aside("saved", lambda: self._running.save(0.0))
                happened = self._until("saved", within=MARGIN_SECONDS)
        except TimeoutError as late:
            raise Unavailable(
                "What was not saved could not be spooled in time.",
                reason="timeout",
                next="What had been spooled before is saved by the next mount.",
            ) from late
        if happened.error is not None:
            raise happened.error
        return End(happened.spooled, hurried=self._signals > 1)

    def _let_go(self) -> None:
        self._aside("closed", self._running.close)
        try:
            happened = self._until("closed", within=MARGIN_SECONDS)
        except TimeoutError:
            _log.warning("the directory was not unmounted in time")
            return
        if happened.error is not None:
            _log.error("the directory could not be unmounted", exc_info=happened.error)

    def _aside(self, what: str, work: Callable[[], int | None]) -> None:
        """Run *work* on a thread of its own; that *what* happened is told when it is done."""

        def run() -> None:
            try:
                spooled = work() or 0
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                self._happened.put(_Happened(what, error=error))
            else:
                self._happened.put(_Happened(what, spooled=spooled))

        Thread(target=run, name=f"holdfast-{what}", daemon=True).start()

    def _until(self, *awaited: str, within: float | None = None) -> _Happened:
        """Return the first of what is *awaited*; TimeoutError when it is not there *within*."""
        while True:
            happened = self._happened.get(within=within)
            if happened.what in awaited:
                return happened
