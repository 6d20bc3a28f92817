"""State of a server: change notifier, served definitions, request ids."""

import asyncio
import logging
import secrets
from bisect import bisect_right
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from operator import itemgetter
from typing import Any, Protocol, TypeVar, cast

import msgspec

from holdfast.doors import http
from holdfast.doors.http.auth import Gate
from holdfast.doors.http.metrics import METHODS, UNKNOWN, Metrics, gauges
from holdfast.doors.http.params import Message, Receive
from holdfast.doors.http.request import CallExecutor, HandleShelf, RouteTable
from holdfast.doors.http.response import Send
from holdfast.engines.base import Engine, trim_changes
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Conflict, HoldfastError, NotFound, Unavailable
from holdfast.ground.events import Event, Listener
from holdfast.ground.ids import ALPHABET, COUNT, RANDOM, TIME, Ids, base62
from holdfast.ground.scope import EVERYBODY, LOCAL
from holdfast.library.activity import take_samples
from holdfast.library.holdfast import Holdfast
from holdfast.library.longterm import mining_gauges
from holdfast.library.open import drop_held, resume_erasures, sweep_questions, sweep_runs, tend_work
from holdfast.memories.durable.context import AgentContext
from holdfast.memories.durable.retention import sweep_all
from holdfast.memories.stores.credentials import Credentials, SignIns
from holdfast.memories.stores.edits import drop_edits

# Request ids ascend with time, as other ids do. A random tail, drawn once, distinguishes processes;
# a count distinguishes the ids of one process.

_TICK = 1_000
"""Microseconds for which the encoded time is reused."""

_PAIRS = [first + second for first in ALPHABET for second in ALPHABET]
_MOST = len(_PAIRS) ** (COUNT // 2)


class RequestIds:
    """Generator of `req_…` ids, for one thread."""

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


# A notification only triggers a look-up; a waiting request also looks up now and then without one.

_log = logging.getLogger(__name__)

WAITING_MOST = 500
"""Requests that wait at once; a further one gets Unavailable, to retry."""

LINGER = 15.0
"""Seconds for which the feed is followed without a waiting request: the next comes soon."""

PATIENCE = 1.0
"""Seconds to wait for the feed to begin, and before a retry after it failed."""


class ChangeWaiter:
    """A request that waits for changes of one store."""

    def __init__(self, workspace: str, store_id: str) -> None:
        self._workspace, self._store_id = workspace, store_id
        self._notified = asyncio.Event()

    def notify(self, event: Event) -> None:
        """Notify the request if *event* may concern its store.

        An event without a store, such as a session's, may concern every store.
        """
        if event.workspace == self._workspace:
            about = event.ids.get("memory_store_id", self._store_id)
            if about == self._store_id:
                self._notified.set()

    async def wait(self, seconds: float) -> None:
        """Wait for a notification since the last call, for *seconds* at most."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._notified.wait(), seconds)
        self._notified.clear()


class ChangeNotifier:
    """Notifier of the requests that wait for changes, in all workspaces.

    It follows the feed while requests wait, and `LINGER` seconds longer.
    """

    def __init__(self, engine: Engine, executor: CallExecutor) -> None:
        self._engine, self._executor = engine, executor
        self._waiting: set[ChangeWaiter] = set()
        self._following = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def waits(self) -> int:
        """Number of requests that wait."""
        return len(self._waiting)

    @asynccontextmanager
    async def waiting(self, workspace: str, store_id: str) -> AsyncGenerator[ChangeWaiter]:
        """Yield a waiter that is notified of changes from now on.

        Raise Unavailable if too many requests wait.
        """
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
                self._task = asyncio.ensure_future(self._notify())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._following.wait(), PATIENCE)
            yield one
        finally:
            self._waiting.discard(one)

    def close(self) -> None:
        """Stop following the feed."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    async def _notify(self) -> None:
        while self._waiting:
            try:
                await self._follow()
            except HoldfastError as error:
                # A waiting request meets the same error at its look-up, and reports it.
                _log.debug("the change feed is not followed: %s", type(error).__name__)
                await asyncio.sleep(PATIENCE)

    async def _follow(self) -> None:
        with closing(await self._executor.slow(self._engine.feed)) as feed:
            self._following.set()
            try:
                received = True
                while received or self._waiting:
                    received = self._deliver(await self._executor.live(lambda: feed.poll(LINGER)))
            finally:
                self._following.clear()

    def _deliver(self, events: Iterable[Event]) -> bool:
        """Pass *events* to the waiting requests; return whether there were any."""
        received = False
        for event in events:
            received = True
            for one in self._waiting:
                one.notify(event)
        return received


END_MOST = 5.0
"""Seconds that runs have to end, once the server stops."""

_encode = msgspec.json.Encoder().encode


class ActiveRun:
    """An active run, with its events so far, encoded for a stream."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, str, bytes]] = []
        self.over = False
        self.run: http.NetworkRun | None = None
        self.watcher: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    def add(self, event: "http.RunEvent") -> None:
        """Store *event* for the followers of the run."""
        self.frames.append((event.seq, event.type, _encode(event.to_dict())))
        self._wake()

    @property
    def id(self) -> str:
        """The id of the run; '' while there is none."""
        return "" if self.run is None else self.run.id

    def cancel(self, reason: str) -> bool:
        """Cancel the run; return False if it is not running."""
        if self.run is None or self.run.status != "running":
            return False
        self.run.cancel(reason)
        return True

    def end(self) -> None:
        """Mark the run as ended: no events follow."""
        self.over = True
        self._wake()

    async def news(self, most: float) -> None:
        """Wait for the next event or the end, for *most* seconds at most."""
        try:
            await asyncio.wait_for(self._news.wait(), most)
        except TimeoutError:
            return

    async def waited(self) -> "http.NetworkRun":
        """Wait for the end of the run, and return it.

        Raise the error that kept it from starting; NotFound if there is no run.
        """
        if self.run is None:
            raise NotFound("run", "")
        return await self.run.wait()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()


class RunRegistry:
    """Definitions by name, the worker that takes their runs, and runs of networks.

    Those of networks that a client waits for are here by workspace and id.
    """

    def __init__(self, hf: Holdfast) -> None:
        self._hf = hf
        self.definitions: Mapping[str, http.Definition] = {}
        self.worker: http.Worker | None = None
        self.grace = END_MOST
        self._working: asyncio.Future[None] | None = None
        self._active: dict[tuple[str, str], ActiveRun] = {}

    def serve(self, definitions: "http.Definitions") -> None:
        """Let a worker take the runs of *definitions*, in all workspaces."""
        self.definitions = http.definitions_of(definitions)
        if self.definitions:
            found = self.definitions.values()
            self.worker = http.Worker(self._hf, found, everywhere=True)

    @property
    def networks(self) -> "list[http.Network]":
        """The networks among the definitions."""
        found = (each.served for each in self.definitions.values())
        return [each for each in found if isinstance(each, http.Network)]

    async def work(self) -> None:
        """Take queued runs until `stop`."""
        if self.worker is not None:
            self._working = asyncio.ensure_future(self.worker.work())
            await self._working

    def network(self, name: str) -> "http.Network":
        """Return the network of that name; NotFound if none is served."""
        found = next((each for each in self.networks if each.name == name), None)
        if found is None:
            raise NotFound("network", name)
        return found

    def start(
        self,
        network: "http.Network",
        hf: Holdfast,
        message: "http.UserMessage",
        options: Mapping[str, Any],
    ) -> ActiveRun:
        """Start a run of *network* with *message*, in the workspace of *hf*.

        Raise Conflict if its `run_id` is active.
        """
        run_id = options.get("run_id")
        if run_id and (hf.workspace, run_id) in self._active:
            raise Conflict(
                f"The run {run_id} is already active.",
                reason="running",
                next="Follow its events, or give another run_id.",
            )
        active = ActiveRun()
        history = network.history or http.EngineHistory(hf)
        run = network.start(message, history=history, raises=False, on_event=active.add, **options)
        active.run = run
        key = (hf.workspace, run.id)
        self._active[key] = active

        async def end() -> None:
            try:
                await asyncio.gather(run.wait(), return_exceptions=True)
            finally:
                self._active.pop(key, None)
                active.end()

        active.watcher = asyncio.create_task(end())
        return active

    def active(self, workspace: str, run_id: str) -> ActiveRun | None:
        """Return the run if it is active in this process, else None."""
        return self._active.get((workspace, run_id))

    async def stop(self) -> None:
        """Give the worker's runs back, and cancel the others; wait until that is stored.

        Requests in flight have `grace` seconds to end; then it takes `END_MOST` at most.
        """
        if self.worker is not None:
            self.worker.stop(grace=self.grace)
        runs = [active for active in self._active.values() if active.run is not None]
        for active in runs:
            cast("http.NetworkRun", active.run).cancel("the server stops")
        ends = asyncio.gather(*(active.waited() for active in runs), return_exceptions=True)
        working = [] if self._working is None else [self._working]
        most = END_MOST if self._working is None else self.grace + END_MOST
        await asyncio.wait([ends, *working], timeout=most)


async def followed(
    active: ActiveRun, after: int, beat: float
) -> AsyncGenerator[tuple[int, str, bytes] | None]:
    """Yield the events of *active* after the number *after*, until its stay here ends.

    Yield None after each *beat* seconds without an event.
    """
    at = bisect_right(active.frames, after, key=itemgetter(0))
    while True:
        while at < len(active.frames):
            at += 1
            yield active.frames[at - 1]
        if active.over:
            return
        before = len(active.frames)
        await active.news(beat)
        if len(active.frames) == before and not active.over:
            yield None


requests_log = logging.getLogger("holdfast.access")
"""Logs a line for each request at level INFO; its own name allows to switch it separately."""

IN_FLIGHT_MOST = 1_000
"""Requests in flight at once; a further one gets Unavailable, to retry."""

SWEEP_EVERY = 3600.0
"""Seconds between two sweeps of changes, edits and sign-ins that are over, and two samples."""

FIRST_SWEEP = 5.0
"""Seconds from the start to the first of them, so that sizes are known on the first day."""

DURABLE_SWEEP_EVERY = 60.0
"""Seconds between two sweeps of durable memory, of every agent in every workspace."""

ERASURE_GRACE = 60_000_000
"""Microseconds for which the server leaves an erasure to the call that began it."""

LOST_EVERY = 15.0
"""Seconds between two looks for runs whose owner gives no sign of life."""

QUESTIONS_EVERY = 1.0
"""Seconds between two looks for questions of runs whose time is over."""

TAKE_UP_EVERY = 5.0
"""Seconds between two look-ups of mining and embedding that was left unfinished."""

LIVE_MOST = 100
"""Live responses at once; each has a thread that waits for changes."""


T = TypeVar("T")


class ServerState:
    """State of one server: handle, routes, metrics and requests in flight."""

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
        # One more for the notifier's own wait.
        self.executor = CallExecutor(direct=hf.engine.dialect == "sqlite", live=LIVE_MOST + 1)
        self.notifier = ChangeNotifier(hf.engine, self.executor)
        self.shelf = HandleShelf(hf)
        self.gate = Gate(Credentials(hf.engine, clock), self.executor, loopback=loopback)
        self.sign_ins = SignIns(hf.engine, clock)
        self.metrics = Metrics((route.path, route.method) for route in table.routes)
        self.request_ids = RequestIds()
        self.registry = RunRegistry(hf)
        self.models: frozenset[str] = frozenset()
        """Models that requests may name besides those the server is configured with."""
        self.dream_model: object = None
        """The model that does dreams."""
        self.in_flight, self.live = 0, 0
        self.stopping = asyncio.Event()
        self._all_agents = AgentContext(
            engine=hf.engine.scoped(EVERYBODY),
            workspace=EVERYBODY.workspace,
            agent="",
            actor=LOCAL,
            clock=clock,
            ids=ids,
        )
        self._unsubscribe = hf.events.subscribe(self.metrics.on_event)

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count and log a request that was answered, by its *route* and never by its path."""
        method = method if method in METHODS else UNKNOWN
        self.metrics.answered(route, method, status, seconds)
        requests_log.info("%s %s %d %.1f ms", method, route, status, seconds * 1_000)

    @contextmanager
    def count_in_flight(self) -> Generator[None]:
        """Count one request in flight; raise Unavailable if there are too many."""
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
    def count_live(self) -> Generator[None]:
        """Count one live response; raise Unavailable if there are too many."""
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
    def subscribed(self, listener: Listener) -> Generator[None]:
        """Subscribe *listener* to every event within the block."""
        off = self.hf.events.subscribe(listener)
        try:
            yield
        finally:
            off()

    async def keep_swept(self) -> None:
        """Delete expired data and resume unfinished jobs, until the server stops."""
        await asyncio.gather(
            self._repeat(self.sweep, SWEEP_EVERY, first=FIRST_SWEEP),
            self._repeat(self.sweep_durable, DURABLE_SWEEP_EVERY),
            self._repeat(self.tend_work, TAKE_UP_EVERY),
            self._repeat(self.sweep_runs, LOST_EVERY),
            self._repeat(self.sweep_questions, QUESTIONS_EVERY),
            self.registry.work(),
            self._end_runs(),
        )

    async def _end_runs(self) -> None:
        await self.stopping.wait()
        await self.registry.stop()

    async def _repeat(
        self, work: Callable[[], None], every: float, *, first: float | None = None
    ) -> None:
        seconds = first or every
        while True:
            try:
                await asyncio.wait_for(self.stopping.wait(), seconds)
            except TimeoutError:
                seconds = every
                await asyncio.to_thread(work)
            else:
                return

    def sweep(self) -> None:
        """Delete what has expired, and sample sizes; log Unavailable and retry next time."""
        try:
            trim_changes(self.hf.engine, self.clock.now())
            drop_edits(self.hf.engine, self.clock.now())
            self.sign_ins.drop_ended()
            drop_held(self.hf, self.clock)
            take_samples(self.hf.engine, self.clock.now())
        except Unavailable as error:
            _log.warning("the hourly sweep was not finished: %s", error.reason)

    def sweep_durable(self) -> None:
        """Sweep the memory of all agents, and finish pending erasures.

        Log Unavailable and retry next time.
        """
        try:
            sweep_all(self._all_agents)
            resume_erasures(self.hf, self.clock, grace=ERASURE_GRACE)
        except Unavailable as error:
            _log.warning("durable memory could not be swept: %s", error.reason)

    def sweep_runs(self) -> None:
        """Store which runs are lost; log Unavailable and retry next time."""
        try:
            sweep_runs(self.hf, self.clock)
        except Unavailable as error:
            _log.warning("lost runs could not be stored as such: %s", error.reason)

    def sweep_questions(self) -> None:
        """Settle questions that are due; log Unavailable and retry next time."""
        try:
            sweep_questions(self.hf, self.clock)
        except Unavailable as error:
            _log.warning("questions that are due could not be settled: %s", error.reason)

    def tend_work(self) -> None:
        """Resume unfinished jobs, start due ones; log Unavailable and retry next time."""
        try:
            tend_work(self.hf, self.clock)
        except Unavailable as error:
            _log.warning("work that was left over could not be taken up: %s", error.reason)

    def gauges(self) -> dict[str, float]:
        """Return the numbers of the database and of the caches, by sample name."""
        sizes = self.hf.longterm_shared.room.sizes()
        caches = {f'engine_cache_bytes{{cache="{name}"}}': size for name, size in sizes.items()}
        found = gauges(self._all_agents.engine, self._all_agents.now()) | caches
        mining = mining_gauges(self.hf.engine, self.hf.longterm_shared)
        found['ltm_jobs{kind="extract",state="queued"}'] -= mining[_WAITING_JOBS]
        return found | {f"ltm_{name}": number for name, number in mining.items()}

    def close(self) -> None:
        """Release the server's own resources; the handle is closed by its opener."""
        self._unsubscribe()
        self.notifier.close()
        self.executor.close()


_WAITING_JOBS = 'jobs{kind="extract",state="waiting"}'


class Site(Protocol):
    """Pages for people, below `prefix`: each call answers a request.

    `limit` is the greatest form in bytes, `notice` a sentence for the line at the start.
    """

    prefix: bytes
    limit: int
    notice: str

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> int: ...  # noqa: D102


class SiteServer:
    """What pages for people use of the server process that they are part of.

    *public_url* is the address at which other machines reach it.
    """

    def __init__(self, state: ServerState, public_url: str | None = None) -> None:
        self._state, self.public_url = state, public_url
        self.hf, self.clock, self.stopping = state.hf, state.clock, state.stopping
        self.sign_ins = state.sign_ins

    def is_open(self) -> bool:
        """Return whether requests need no credential."""
        return self._state.gate.open()

    def metrics_text(self) -> str:
        """Return all metrics as text for Prometheus."""
        return self._state.metrics.text(self._state.gauges())

    async def run(self, work: Callable[[], T]) -> T:
        """Return *work*(), run on a thread."""
        return await self._state.executor.slow(work)

    async def wait(self, work: Callable[[], T]) -> T:
        """Return *work*(), which waits for events, run on a thread for that purpose."""
        return await self._state.executor.live(work)


MakeSite = Callable[[SiteServer], Site]
