"""Signals and main loop of a mount process.

The main thread does nothing but wait, so that a signal is heard whatever storage does. What takes
time runs on threads that nobody has to wait for.
"""

import logging
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from types import FrameType
from typing import Generic, NamedTuple, Protocol, TypeVar

import msgspec

from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.fuse.adapter import serve
from holdfast.doors.mount.fuse.libfuse import MountFailed
from holdfast.doors.mount.process.registry import Facts, Register, report
from holdfast.doors.mount.process.setup import Assembled, cleared, taken
from holdfast.doors.mount.sync.synced import Synced
from holdfast.ground.errors import Refused, Unavailable
from holdfast.memories.stores.records import JSONObject

# A signal that comes just before a thread blocks on a lock is heard only when that wakes for
# another reason. So the wait is for bytes of a pipe, into which the interpreter itself writes at
# a signal.

T = TypeVar("T")

_MANY = 4096


class Happenings(Generic[T]):
    """A queue that one thread, the main one, takes from. Any thread may add to it."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._heard, self._bell = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, happened: T) -> None:
        """Add *happened*, and wake who waits."""
        self._waiting.append(happened)
        # A pipe that is full wakes as well.
        with suppress(BlockingIOError):
            os.write(self._bell, b"\0")

    def get(self, *, within: float | None = None) -> T:
        """Return what happened next; TimeoutError when that is not *within* so many seconds."""
        until = None if within is None else monotonic() + within
        while not self._waiting:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            if select.select([self._heard], [], [], left)[0]:
                os.read(self._heard, _MANY)
        return self._waiting.popleft()

    @contextmanager
    def signalled(
        self, numbers: Iterable[signal.Signals], hear: Callable[[], T], *, ending: bool = False
    ) -> Generator[None]:
        """Add what *hear* returns at each of the signals, within this; the ignored stay so.

        With *ending* the process ends after this, and ignores them until it has.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.put(hear())

        wanted = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
        woken = signal.set_wakeup_fd(self._bell, warn_on_full_buffer=False)
        before = {each: signal.signal(each, handle) for each in wanted}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, signal.SIG_IGN if ending else handler)
            signal.set_wakeup_fd(woken)


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


TELL_SECONDS, ANYWAY_SECONDS = 0.25, 5.0
"""Between one look at the status and the next, and between one telling and the next."""

LAG = "feed_lag_seconds"


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
