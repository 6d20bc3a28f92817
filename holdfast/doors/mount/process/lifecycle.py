"""Run a mount in this process until it is stopped: signals and main loop.

The main thread only waits, so that it handles a signal even while the storage hangs. Slow work
runs on daemon threads, which may be abandoned.
"""

import logging
import os
import select
import signal
from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from types import FrameType
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from holdfast.doors.mount.filesystem.filesystem import StoreFilesystem
from holdfast.doors.mount.fuse.adapter import serve
from holdfast.doors.mount.fuse.libfuse import MountFailed, binding
from holdfast.doors.mount.names import MountOptions
from holdfast.doors.mount.process.registry import Facts, Mode, Register, report
from holdfast.doors.mount.process.setup import (
    MountDependencies,
    MountRequest,
    assemble,
    claim,
    cleared,
    taken,
)
from holdfast.doors.mount.process.system import HERE, Machine, lacking_for_fuse, mounts, require
from holdfast.doors.mount.sync.sync import SyncedDirectory
from holdfast.ground.clock import to_rfc3339
from holdfast.ground.errors import InvalidInput, Refused, Unavailable
from holdfast.memories.stores.records import JSONObject

# A signal that arrives just before a thread blocks on a lock is handled only when that thread wakes
# for another reason. So the main thread waits for bytes of a pipe, into which the interpreter
# itself writes at a signal.

T = TypeVar("T")

_MANY = 4096


class EventQueue(Generic[T]):
    """Event queue of the main thread, with signals. Any thread may add to it."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def put(self, happened: T) -> None:
        """Add *happened*, and wake the main thread."""
        self._waiting.append(happened)
        # A full pipe wakes it as well.
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def get(self, *, within: float | None = None) -> T:
        """Return the next event; TimeoutError if none comes *within* so many seconds."""
        until = None if within is None else monotonic() + within
        while not self._waiting:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            if select.select([self._reader], [], [], left)[0]:
                os.read(self._reader, _MANY)
        return self._waiting.popleft()

    @contextmanager
    def signalled(
        self, numbers: Iterable[signal.Signals], event: Callable[[], T], *, ending: bool = False
    ) -> Generator[None]:
        """Add *event*() to the queue at each of the signals, within this context.

        Signals that the process ignores stay ignored. With *ending* the process is about to end,
        and ignores the signals after the context.
        """

        def handle(number: int, frame: FrameType | None) -> None:
            del number, frame
            self.put(event())

        handled = [each for each in numbers if signal.getsignal(each) != signal.SIG_IGN]
        woken = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        before = {each: signal.signal(each, handle) for each in handled}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, signal.SIG_IGN if ending else handler)
            signal.set_wakeup_fd(woken)


SAVING_SECONDS = 10.0
"""Time limit in seconds for saving everything after a signal to end."""

MARGIN_SECONDS = 2.0
"""Seconds that saving may be late, and that unmounting may take."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_log = logging.getLogger(__name__)


class RunningMount(Protocol):
    """Stores shown as files, through FUSE or as a synced directory."""

    def start(self, ended: Callable[[], None]) -> None:
        """Return once the first `ls` works; call *ended* when it ends from outside."""
        ...

    def status(self) -> JSONObject:
        """Return the status as JSON."""
        ...

    def save(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; return how many were spooled instead."""
        ...

    def close(self) -> None:
        """Release the directory; nothing stays mounted, even after a partial start."""
        ...


class _Happened(NamedTuple):
    """An event that the main thread waits for: its name and outcome."""

    what: str
    error: BaseException | None = None
    spooled: int = 0


class End(NamedTuple):
    """How a mount ended: the number of files spooled, and whether it was hurried."""

    spooled: int
    hurried: bool


class MountProcess:
    """Main loop of one mount; *on_ready* is called with its status once it is ready."""

    def __init__(self, running: RunningMount, *, on_ready: Callable[[JSONObject], None]) -> None:
        self._running, self._on_ready = running, on_ready
        self._happened: EventQueue[_Happened] = EventQueue()
        self._signals = 0

    def run(self) -> End:
        """Run until unmounted or signalled, and return how it ended.

        Raise the error that prevented the start. A second signal spools unsaved files at once.
        After the end, signals do not interrupt the rest of the process.
        """
        with self._happened.signalled(SIGNALS, self._signalled, ending=True):
            try:
                self._begin()
                self._until("signal", "ended")
                return self._save()
            finally:
                self._let_go()

    def _signalled(self) -> _Happened:
        self._signals += 1
        return _Happened("signal")

    def _begin(self) -> None:
        ended = _Happened("ended")
        self._start("started", lambda: self._running.start(lambda: self._happened.put(ended)))
        first = self._until("started", "signal")
        if first.what == "signal":
            raise Refused("Stopped before it was ready.", next="Nothing is mounted.")
        if first.error is not None:
            raise first.error
        self._on_ready(self._running.status())

    def _save(self) -> End:
        seconds = SAVING_SECONDS if self._signals < 2 else 0.0  # noqa: PLR2004 - the second
        self._start("saved", lambda: self._running.save(seconds))
        try:
            happened = self._until("saved", "signal", within=seconds + MARGIN_SECONDS)
            if happened.what == "signal":
                _log.warning("second signal to end: unsaved data is kept in the spool")
                self._start("saved", lambda: self._running.save(0.0))
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
        self._start("closed", self._running.close)
        try:
            happened = self._until("closed", within=MARGIN_SECONDS)
        except TimeoutError:
            _log.warning("the directory was not unmounted in time")
            return
        if happened.error is not None:
            _log.error("the directory could not be unmounted", exc_info=happened.error)

    def _start(self, what: str, work: Callable[[], int | None]) -> None:
        """Run *work* on a daemon thread and add the event *what* when it is done."""

        def run() -> None:
            try:
                spooled = work() or 0
            except BaseException as error:  # noqa: BLE001 - the main thread raises it
                self._happened.put(_Happened(what, error=error))
            else:
                self._happened.put(_Happened(what, spooled=spooled))

        Thread(target=run, name=f"holdfast-{what}", daemon=True).start()

    def _until(self, *awaited: str, within: float | None = None) -> _Happened:
        """Return the first event named in *awaited*; TimeoutError if none *within*."""
        while True:
            happened = self._happened.get(within=within)
            if happened.what in awaited:
                return happened


class ThroughFuse:
    """A filesystem core mounted on a directory through FUSE."""

    def __init__(
        self, assembled: MountDependencies, facts: Facts, register: Register, *, allow_other: bool
    ) -> None:
        self._assembled, self._facts, self._register = assembled, facts, register
        self._allow_other = allow_other
        self._core = StoreFilesystem(assembled.sources, assembled.context)
        self._core.described = lambda: msgspec.json.encode(self.status())
        self._ready, self._stop, self._over = Event(), Event(), Event()
        self._mounting, self._turn = False, Lock()
        self._failure: BaseException | None = None

    def start(self, ended: Callable[[], None]) -> None:
        """Return once the first `ls` works; call *ended* when unmounted from outside.

        Raise Refused if it cannot be mounted.
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
        """Hold the directory's lock against other processes.

        Raise InvalidInput if it is already mounted.
        """
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
        """Return the status of the mount as JSON."""
        return report(self._facts, self._core.status())

    def save(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; return how many were spooled instead."""
        spooled = self._core.stop(seconds)
        if self._failure is not None:
            raise self._failure
        return spooled

    def close(self) -> None:
        """Unmount the directory and end the threads that serve it."""
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
"""Seconds between checks of the status, and between writes of an unchanged status."""

LAG = "feed_lag_seconds"


class ThroughSync:
    """A synced directory, maintained while its process lives."""

    def __init__(
        self,
        assembled: MountDependencies,
        facts: Facts,
        register: Register,
        *,
        synced: SyncedDirectory | None = None,
    ) -> None:
        self._assembled, self._facts, self._register = assembled, facts, register
        self._directory = Path(facts.dir)
        self._synced = synced or SyncedDirectory(assembled, self._directory)
        self._held = False
        self._stop = Event()
        self._thread = Thread(target=self._publish_status, name="holdfast-status", daemon=True)

    def start(self, ended: Callable[[], None]) -> None:
        """Return once every head is written; *ended* is never called.

        Raise InvalidInput if another process syncs the directory, or it has other files.
        """
        del ended
        self._held = self._register.hold(self._directory)
        if not self._held:
            other = self._register.get(self._directory)
            raise taken(self._directory, other.pid if other else None)
        self._synced.start()
        self._register.put(self._facts)
        self._write_status()
        self._thread.start()

    def status(self) -> JSONObject:
        """Return the status of the directory as JSON."""
        return report(self._facts, self._synced.status())

    def save(self, seconds: float) -> int:
        """Save unsaved files within *seconds*; Unavailable if some stay unsaved."""
        unsaved = self._synced.stop(seconds)
        if unsaved:
            raise Unavailable(
                f"{unsaved} could not be saved, and stay as files in {self._directory}.",
                reason="io",
                next="The next mount of the stores there saves them.",
            )
        return 0

    def close(self) -> None:
        """Release the directory; its files stay."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(1.0)
        if self._held:
            with suppress(OSError):
                self._register.remove(self._directory)
        self._assembled.close()

    def _publish_status(self) -> None:
        """Write the status to the registry at each change, and at regular intervals."""
        before, written_at = self._known(), monotonic()
        while not self._stop.wait(TELL_SECONDS):
            now = self._known()
            if now != before or monotonic() - written_at >= ANYWAY_SECONDS:
                self._write_status()
                before, written_at = now, monotonic()

    def _known(self) -> JSONObject:
        return {name: value for name, value in self.status().items() if name != LAG}

    def _write_status(self) -> None:
        try:
            self._register.put_status(self._directory, msgspec.json.encode(self.status()))
        except OSError as error:
            _log.warning(
                "the status of %s could not be written: %s", self._directory, error.strerror
            )


class MountPlan(Struct, frozen=True, kw_only=True):
    """Where and how `holdfast mount` shows stores; every path is absolute."""

    directory: Path
    mode: Literal["auto", "fuse", "sync"] = "auto"
    options: MountOptions
    allow_other: bool = False


def live(
    request: MountRequest,
    plan: MountPlan,
    *,
    on_ready: Callable[[JSONObject], None],
    warn: Callable[[str], None],
    machine: Machine = HERE,
) -> End:
    """Mount the stores of *request* by *plan* until unmounted or signalled.

    *on_ready* is called with the status once the first `ls` works, *warn* with each warning before
    that. An error that prevents the mount is raised, and nothing is mounted.
    """
    options = replace(plan.options, session_id=request.session_id)
    _keep_apart(plan.directory, options.spool)
    mode, reason = _chosen(plan, machine)
    register = Register()
    cleared = claim(plan.directory, register, may_hold_files=mode == "sync")
    for warning in (*([cleared] if cleared else []), *request.warnings):
        warn(warning)
    facts = Facts(
        dir=str(plan.directory),
        mode=mode,
        binding=binding() if mode == "fuse" else f"watchfiles {version('watchfiles')}",
        pid=os.getpid(),
        session_id=request.session_id,
        since=to_rfc3339(datetime.now(UTC)),
        spool=str(options.spool),
        resources=tuple(part.resource for part in request.stores),
        reason=reason,
    )
    if reason is not None and plan.mode == "auto":
        warn(f"{reason}: a synced directory takes the place of a mount.")
    assembled = assemble(request, options)
    running: RunningMount = (
        ThroughFuse(assembled, facts, register, allow_other=plan.allow_other)
        if mode == "fuse"
        else ThroughSync(assembled, facts, register)
    )
    return MountProcess(running, on_ready=on_ready).run()


def _chosen(plan: MountPlan, machine: Machine) -> tuple[Mode, str | None]:
    """Return the mode, and for a synced directory the reason."""
    if plan.mode == "sync":
        require(machine, fuse=False)
        return "sync", "requested by --mode sync"
    lacking = lacking_for_fuse(machine) if plan.mode == "auto" else None
    require(machine, fuse=lacking is None, allow_other=plan.allow_other)
    return ("fuse", None) if lacking is None else ("sync", lacking.says.rstrip("."))


def _keep_apart(directory: Path, spool: Path) -> None:
    """Raise InvalidInput if the spool is inside a mount: it must work when that fails."""
    ours = [each.directory for each in mounts() if each.ours]
    for mount in (directory, *ours):
        if spool == mount or mount in spool.parents:
            reason = f"must not be inside the mount {mount}"
            raise InvalidInput("--spool", reason, given=str(spool), next="Choose another folder.")
