"""Stores shown through FUSE: a core over them, and the binding that drives it."""

import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread

import msgspec

from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.fuse.adapter import serve
from holdfast.doors.mount.fuse.libfuse import MountFailed
from holdfast.doors.mount.process.registry import Facts, Register
from holdfast.doors.mount.process.report import report
from holdfast.doors.mount.process.setup import Assembled, cleared, taken
from holdfast.ground.errors import Refused
from holdfast.memories.stores.records import JSONObject

_log = logging.getLogger(__name__)


class ThroughFuse:
    """A core on a directory, for as long as it is mounted."""

    def __init__(
        self, assembled: Assembled, facts: Facts, register: Register, *, allow_other: bool
    ) -> None:
        self._assembled, self._facts, self._register = assembled, facts, register
        self._allow_other = allow_other
        self._core = StoreFilesystem(
            assembled.sources,
            options=assembled.options,
            spool=assembled.spool,
            later=assembled.later,
            clock=assembled.clock,
            ids=assembled.ids,
            publish=assembled.publish,
        )
        self._core.described = lambda: msgspec.json.encode(self.status())
        self._ready, self._stop, self._over = Event(), Event(), Event()
        self._mounting, self._turn = False, Lock()
        self._failure: BaseException | None = None

    def start(self, ended: Callable[[], None]) -> None:
        """Return once the first `ls` works; call *ended* when it is unmounted from outside.

        Raises Refused when it cannot be mounted.
        """
        self._core.start()
        with self._alone():
            with self._turn:
                if self._stop.is_set():
                    raise Refused("Stopped before it was mounted.", next="Nothing is mounted.")
                self._mounting = True
            Thread(target=self._serve, args=(ended,), name="holdfast-mount", daemon=True).start()
            self._ready.wait()
        if self._failure is not None:
            raise self._failure
        try:
            self._register.put(self._facts)
        except OSError as error:
            _log.warning("the terms of the stores could not be recorded: %s", error.strerror)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Let no other process mount on the directory meanwhile; InvalidInput where one has."""
        directory = Path(self._facts.dir)
        try:
            held = self._register.hold(directory)
        except OSError as error:
            _log.warning("whether others mount there is not known: %s", error.strerror)
            held = True
        if not held:
            raise taken(directory, None)
        try:
            cleared(directory)
            yield
        finally:
            self._register.let_go(directory)

    def status(self) -> JSONObject:
        """Return what there is to say of the mount."""
        return report(self._facts, self._core.status())

    def save(self, seconds: float) -> int:
        """Save what is not saved, within *seconds*; return how much had to be spooled instead."""
        spooled = self._core.stop(seconds)
        if self._failure is not None:
            raise self._failure
        return spooled

    def close(self) -> None:
        """Detach the directory, and end what serves it."""
        directory = Path(self._facts.dir)
        known = self._register.get(directory)
        if known is not None and known.pid == self._facts.pid:
            with suppress(OSError):
                self._register.remove(directory)
        with self._turn:
            self._stop.set()
        if self._mounting:
            self._over.wait()
        self._assembled.close()

    def _serve(self, ended: Callable[[], None]) -> None:
        try:
            serve(
                self._core,
                Path(self._facts.dir),
                allow_other=self._allow_other,
                stop=self._stop,
                ready=self._ready.set,
            )
        except MountFailed as error:
            self._failure = Refused(f"{error}.", next="See the lines above.")
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            self._failure = error
        self._over.set()
        self._ready.set()
        ended()
