"""Stores shown as plain files that are kept as the stores are: no kernel, so a file tells of it."""

import logging
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from time import monotonic

import msgspec

from holdfast.doors.mount.process.registry import Facts, Register
from holdfast.doors.mount.process.report import report
from holdfast.doors.mount.process.setup import Assembled, taken
from holdfast.doors.mount.sync.synced import Synced
from holdfast.ground.errors import Unavailable
from holdfast.memories.stores.records import JSONObject

TELL_SECONDS, ANYWAY_SECONDS = 0.25, 5.0
"""Between one look at the status and the next, and between one telling and the next."""

LAG = "feed_lag_seconds"

_log = logging.getLogger(__name__)


class ThroughSync:
    """A synced directory, for as long as its process lives."""

    def __init__(
        self,
        assembled: Assembled,
        facts: Facts,
        register: Register,
        *,
        synced: Synced | None = None,
    ) -> None:
        self._assembled, self._facts, self._register = assembled, facts, register
        self._directory = Path(facts.dir)
        self._synced = synced or Synced(assembled, self._directory)
        self._held = False
        self._stop = Event()
        self._thread = Thread(target=self._keep_telling, name="holdfast-telling", daemon=True)

    def start(self, ended: Callable[[], None]) -> None:
        """Return once every head is written; it ends by a signal alone, never by itself.

        Raises InvalidInput when another process syncs the directory, or it holds other files.
        """
        del ended
        self._held = self._register.hold(self._directory)
        if not self._held:
            other = self._register.get(self._directory)
            raise taken(self._directory, other.pid if other else None)
        self._synced.start()
        self._register.put(self._facts)
        self._tell()
        self._thread.start()

    def status(self) -> JSONObject:
        """Return what there is to say of the directory."""
        return report(self._facts, self._synced.status())

    def save(self, seconds: float) -> int:
        """Save what is not saved, within *seconds*; Unavailable if files are left unsaved."""
        unsaved = self._synced.stop(seconds)
        if unsaved:
            raise Unavailable(
                f"{unsaved} could not be saved, and stay as files in {self._directory}.",
                reason="io",
                next="The next mount of the stores there saves them.",
            )
        return 0

    def close(self) -> None:
        """Let the directory go; its files stay."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)
        if self._held:
            with suppress(OSError):
                self._register.remove(self._directory)
        self._assembled.close()

    def _keep_telling(self) -> None:
        """Let others know of each change of the status, and now and then of none."""
        before, told_at = self._known(), monotonic()
        while not self._stop.wait(TELL_SECONDS):
            now = self._known()
            if now != before or monotonic() - told_at >= ANYWAY_SECONDS:
                self._tell()
                before, told_at = now, monotonic()

    def _known(self) -> JSONObject:
        return {name: value for name, value in self.status().items() if name != LAG}

    def _tell(self) -> None:
        try:
            self._register.put_status(self._directory, msgspec.json.encode(self.status()))
        except OSError as error:
            _log.warning(
                "the status of %s could not be written: %s", self._directory, error.strerror
            )
