"""State of a server: change notifier, served networks, request ids."""

import asyncio
import logging
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast.doors.http.auth import Gate
from holdfast.doors.http.longterm_metrics import longterm_numbers
from holdfast.doors.http.metrics import METHODS, UNKNOWN, Metrics
from holdfast.doors.http.request import HandleShelf, Lanes, RouteTable
from holdfast.doors.http.run_metrics import run_numbers
from holdfast.engines.base import Engine, trim_changes
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Conflict, HoldfastError, InvalidInput, NotFound, Unavailable
from holdfast.ground.events import Event, Listener
from holdfast.ground.ids import ALPHABET, COUNT, RANDOM, TIME, Ids, base62
from holdfast.ground.scope import EVERYBODY, LOCAL
from holdfast.library.backlog import take_up
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.context import AgentContext as DurableCaller
from holdfast.memories.durable.retention import lag_of, sweep_all
from holdfast.memories.stores.credentials import Credentials
from holdfast.memories.stores.edits import drop_edits

if TYPE_CHECKING:
    from holdfast.runtime import Network, NetworkRun, RunEvent, UserMessage


# They rise as other ids do. What tells two processes apart is drawn once; within a process the
# count does.

_TICK = 1_000
"""Microseconds for which the time is spelled once."""

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_MOST = len(_PAIRS) ** (COUNT // 2)


class RequestIds:
    """Makes `req_…` ids, for one thread."""

    def __init__(self) -> None:
        self._tail = base62(secrets.randbits(65), RANDOM)
        self._tick, self._count, self._head = -1, 0, ""

    def new(self, at: int) -> str:
        """Return a new id, made at *at* microseconds since 1970."""
        tick = at // _TICK
        self._count += 1
        if tick > self._tick or self._count == _MOST:
            self._tick, self._count = max(tick, self._tick + 1), 0
            self._head = base62(self._tick * _TICK, TIME)
        high, low = divmod(self._count, len(_PAIRS))
        return f"req_{self._head}{_PAIRS[high]}{_PAIRS[low]}{self._tail}"


# A ring only says that it is time to look; who waits looks now and then without one.

_log = logging.getLogger(__name__)

WAITING_MOST = 500
"""Requests that wait at once; one more is told to come back."""

LINGER = 15.0
"""Seconds that the feed is followed on without anybody who waits: the next is soon there."""

PATIENCE = 1.0
"""Seconds to wait for the feed to begin, and before it is tried again when it failed."""


class ChangeWaiter:
    """A request that waits for changes of one store."""

    def __init__(self, workspace: str, store_id: str) -> None:
        self._workspace, self._store_id = workspace, store_id
        self._rung = asyncio.Event()

    def hear(self, event: Event) -> None:
        """Take *event* for a ring if it may be about the store, or about the session."""
        if event.workspace == self._workspace:
            about = event.ids.get("memory_store_id", self._store_id)
            if about == self._store_id:
                self._rung.set()

    async def ring(self, seconds: float) -> None:
        """Return when it rang since this was last asked, after *seconds* at the latest."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._rung.wait(), seconds)
        self._rung.clear()


class Bell:
    """Follows the changes of all workspaces while anybody waits, and a little longer."""

    def __init__(self, engine: Engine, lanes: Lanes) -> None:
        self._engine, self._lanes = engine, lanes
        self._waiting: set[ChangeWaiter] = set()
        self._following = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def waiting(self, workspace: str, store_id: str) -> AsyncGenerator[ChangeWaiter]:
        """Give one who is rung for what happens from now on; Unavailable when too many wait."""
        if len(self._waiting) >= WAITING_MOST:
            raise Unavailable(
                f"{WAITING_MOST} requests wait for changes, the most that may.",
                reason="overloaded",
                retry_after=1,
            )
        one = ChangeWaiter(workspace, store_id)
        self._waiting.add(one)
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.ensure_future(self._ring())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._following.wait(), PATIENCE)
            yield one
        finally:
            self._waiting.discard(one)

    def close(self) -> None:
        """Ring no more."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _ring(self) -> None:
        while self._waiting:
            try:
                await self._follow()
            except HoldfastError as error:
                # Who waits meets the same fault when it looks, and tells its client.
                _log.debug("the change feed is not followed: %s", type(error).__name__)
                await asyncio.sleep(PATIENCE)

    async def _follow(self) -> None:
        with closing(await self._lanes.slow(self._engine.feed)) as feed:
            self._following.set()
            try:
                heard = True
                while heard or self._waiting:
                    heard = self._tell(await self._lanes.live(lambda: feed.poll(LINGER)))
            finally:
                self._following.clear()

    def _tell(self, events: Iterable[Event]) -> bool:
        """Let everybody hear *events*; tell whether there were any."""
        heard = False
        for event in events:
            heard = True
            for one in self._waiting:
                one.hear(event)
        return heard


END_MOST = 5.0
"""Seconds that runs have to end, once the server was told to stop."""

_encode = msgspec.json.Encoder().encode


class Going:
    """A run that goes on, and the events of it so far, as a stream has them."""

    def __init__(self) -> None:
        self.frames: list[tuple[str, bytes]] = []
        self.over = False
        self.run: NetworkRun | None = None
        self.watcher: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def hear(self, event: "RunEvent") -> None:
        """Keep *event* for whoever follows."""
        self.frames.append((event.type, _encode(event.to_dict())))
        self._wake()

    def end(self) -> None:
        """Take note that nothing more will come."""
        self.over = True
        self._wake()

    async def news(self, most: float) -> None:
        """Wait until something happens, *most* seconds at most."""
        try:
            await asyncio.wait_for(self._news.wait(), most)
        except TimeoutError:
            return

    async def waited(self) -> "NetworkRun":
        """Return the run once it has ended; what kept it from beginning is raised."""
        if self.run is None:
            raise NotFound("run", "")
        return await self.run.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class Served:
    """Networks by name, and their runs in this process by workspace and id."""

    def __init__(self) -> None:
        self.networks: dict[str, Network] = {}
        self._going: dict[tuple[str, str], Going] = {}

    def network(self, name: str) -> "Network":
        """Return the network of that name; NotFound if none is served."""
        found = self.networks.get(name)
        if found is None:
            raise NotFound("network", name)
        return found

    def start(
        self, network: "Network", hf: Holdfast, message: "UserMessage", options: Mapping[str, Any]
    ) -> Going:
        """Return a run of *network* that *message* begins, in the workspace of *hf*."""
        from holdfast.runtime import EngineHistory

        wanted = options.get("run_id")
        if wanted and (hf.workspace, wanted) in self._going:
            raise Conflict(
                f"The run {wanted} is already active.",
                reason="running",
                next="Follow its events, or give another run_id.",
            )
        going = Going()
        history = network.history or EngineHistory(hf)
        run = network.start(message, history=history, raises=False, on_event=going.hear, **options)
        going.run = run
        key = (hf.workspace, run.id)
        self._going[key] = going

        async def end() -> None:
            try:
                await asyncio.gather(run.wait(), return_exceptions=True)
            finally:
                self._going.pop(key, None)
                going.end()

        going.watcher = asyncio.create_task(end())
        return going

    def going(self, workspace: str, run_id: str) -> Going | None:
        """Return the run if it goes on in this process, else None."""
        return self._going.get((workspace, run_id))

    async def stop(self) -> None:
        """Cancel the runs that go on, and wait for their ends to be kept."""
        runs = [going for going in self._going.values() if going.run is not None]
        for going in runs:
            cast("NetworkRun", going.run).cancel("the server stops")
        ends = asyncio.gather(*(going.waited() for going in runs), return_exceptions=True)
        await asyncio.wait([ends], timeout=END_MOST)


async def followed(
    going: Going, after: int, beat: float
) -> AsyncGenerator[tuple[int, str, bytes] | None]:
    """Give the events of *going* past the number *after*, None where *beat* seconds were quiet."""
    at = after + 1
    while True:
        while at < len(going.frames):
            type, told = going.frames[at]
            yield at, type, told
            at += 1
        if going.over:
            return
        before = len(going.frames)
        await going.news(beat)
        if len(going.frames) == before and not going.over:
            yield None


def load(names: Iterable[str]) -> dict[str, "Network"]:
    """Return the networks that *names*, each as `package.module:attribute`, stand for, by name.

    InvalidInput for what cannot be found or is no network; MissingExtra without agents.
    """
    found: dict[str, Network] = {}
    for name in names:
        for network in _loaded(name):
            if network.name in found:
                raise InvalidInput("networks", f"two are named {network.name}", given=name)
            found[network.name] = network
    return found


def _loaded(name: str) -> "Iterable[Network]":
    from holdfast.runtime import Network

    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        raise InvalidInput("networks", "must be package.module:attribute", given=name)
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        given = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidInput("networks", f"cannot be found: {error}", given=name) from error
    every = list(cast("dict[str, object]", given).values()) if isinstance(given, dict) else [given]
    for each in every:
        if not isinstance(each, Network):
            raise InvalidInput("networks", "must be a Network or a dict of them", given=name)
    return cast("list[Network]", every)


requests_log = logging.getLogger("holdfast.access")
"""A line for each request, at level INFO; of its own name, so that it is switched by itself."""

IN_FLIGHT_MOST = 1_000
"""Requests answered at once; one more is told to come back."""

SWEEP_EVERY = 3600.0
"""Seconds between two sweeps of what is kept for a time alone."""

DURABLE_SWEEP_EVERY = 60.0
"""Seconds between two sweeps of durable memory, of every agent in every workspace."""

TAKE_UP_EVERY = 5.0
"""Seconds between two looks for mining and embedding that others left half done."""

LIVE_MOST = 100
"""Live answers at once; each has a thread that waits for changes."""


class House:
    """The handle, the routes and the counters of one server."""

    def __init__(
        self,
        hf: Holdfast,
        table: RouteTable,
        *,
        strict: bool,
        loopback: bool,
        clock: Clock,
        ids: Ids,
    ) -> None:
        self.hf, self.table, self.strict, self.clock, self.ids = hf, table, strict, clock, ids
        # The bell's own wait is one more.
        self.lanes = Lanes(direct=hf.engine.dialect == "sqlite", live=LIVE_MOST + 1)
        self.bell = Bell(hf.engine, self.lanes)
        self.shelf = HandleShelf(hf)
        self.gate = Gate(Credentials(hf.engine, clock), self.lanes, loopback=loopback)
        self.metrics = Metrics((route.path, route.method) for route in table.routes)
        self.request_ids = RequestIds()
        self.served = Served()
        self.models: frozenset[str] = frozenset()
        """Models that requests may name besides those the server is configured with."""
        self.in_flight, self.live = 0, 0
        self.stopping = asyncio.Event()
        self._everybody = DurableCaller(
            engine=hf.engine.scoped(EVERYBODY),
            workspace=EVERYBODY.workspace,
            agent="",
            actor=LOCAL,
            clock=clock,
            ids=ids,
        )
        self._unsubscribe = hf.events.subscribe(self.metrics.heard)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count and log a request that was answered, by its *route* and never by its path."""
        method = method if method in METHODS else UNKNOWN
        self.metrics.answered(route, method, status, seconds)
        requests_log.info("%s %s %d %.1f ms", method, route, status, seconds * 1_000)

    @contextmanager
    def place(self) -> Generator[None]:
        """Take the place of one request; Unavailable when all are taken."""
        self.in_flight += 1
        try:
            if self.in_flight > IN_FLIGHT_MOST:
                raise Unavailable(
                    f"The server answers {IN_FLIGHT_MOST:,} requests at once, and is at it.",
                    reason="overloaded",
                    retry_after=1,
                )
            yield
        finally:
            self.in_flight -= 1

    @contextmanager
    def room_for_live(self) -> Generator[None]:
        """Take the place of one live answer; Unavailable when all are taken."""
        if self.live >= LIVE_MOST:
            raise Unavailable(
                f"The server holds {LIVE_MOST} live answers, its most.",
                reason="overloaded",
                retry_after=5,
            )
        self.live += 1
        try:
            yield
        finally:
            self.live -= 1

    @contextmanager
    def hearing(self, listener: Listener) -> Generator[None]:
        """Hand every event to *listener* meanwhile."""
        off = self.hf.events.subscribe(listener)
        try:
            yield
        finally:
            off()

    async def keep_swept(self) -> None:
        """Sweep what is past its time and take up what was left, until the server stops."""
        await asyncio.gather(
            self._repeat(self.sweep, SWEEP_EVERY),
            self._repeat(self.sweep_durable, DURABLE_SWEEP_EVERY),
            self._repeat(self.take_up, TAKE_UP_EVERY),
            self._end_runs(),
        )

    async def _end_runs(self) -> None:
        await self.stopping.wait()
        await self.served.stop()

    async def _repeat(self, work: Callable[[], None], every: float) -> None:
        while True:
            try:
                await asyncio.wait_for(self.stopping.wait(), every)
            except TimeoutError:
                await asyncio.to_thread(work)
            else:
                return

    def sweep(self) -> None:
        """Drop changes and edits past their time; what cannot be now is tried again later."""
        try:
            trim_changes(self.hf.engine, self.clock.now())
            drop_edits(self.hf.engine, self.clock.now())
        except Unavailable as error:
            _log.warning("expired data could not be deleted: %s", error.reason)

    def sweep_durable(self) -> None:
        """Remove what is over of every agent; what cannot be now is tried again later."""
        try:
            sweep_all(self._everybody)
        except Unavailable as error:
            _log.warning("durable memory could not be swept: %s", error.reason)

    def take_up(self) -> None:
        """Have done what others left half done; what cannot be now is tried again later."""
        try:
            take_up(self.hf, self.clock.now())
        except Unavailable as error:
            _log.warning("work that was left over could not be taken up: %s", error.reason)

    def durable_numbers(self) -> dict[str, float]:
        """Return what durable memory is at now, as `/metrics` names it."""
        now = self._everybody.now()
        return {"sweep_lag_seconds": lag_of(self._everybody.engine, now)}

    def longterm_numbers(self) -> dict[str, float]:
        """Return what long-term memory holds now, as `/metrics` names it."""
        return longterm_numbers(self._everybody.engine)

    def run_numbers(self) -> dict[str, float]:
        """Return what is kept of runs now, as `/metrics` names it."""
        return run_numbers(self._everybody.engine, self._everybody.now())

    def close(self) -> None:
        """Let go of what the door itself holds; the handle is its maker's to close."""
        self._unsubscribe()
        self.bell.close()
        self.lanes.close()
