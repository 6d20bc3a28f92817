"""What all requests of one server process share."""

import asyncio
import logging
from collections.abc import Callable, Generator
from contextlib import contextmanager

from holdfast.doors.http.auth import Gate
from holdfast.doors.http.bell import Bell
from holdfast.doors.http.longterm_metrics import longterm_numbers
from holdfast.doors.http.metrics import METHODS, UNKNOWN, Metrics
from holdfast.doors.http.request import HandleShelf, Lanes, RouteTable
from holdfast.doors.http.request_ids import RequestIds
from holdfast.doors.http.run_metrics import run_numbers
from holdfast.doors.http.served import Served
from holdfast.engines.base import trim_changes
from holdfast.ground.clock import Clock
from holdfast.ground.errors import Unavailable
from holdfast.ground.events import Listener
from holdfast.ground.ids import Ids
from holdfast.ground.scope import EVERYBODY, LOCAL
from holdfast.library.holdfast import Holdfast
from holdfast.library.leftover import take_up
from holdfast.memories.durable.context import AgentContext as DurableCaller
from holdfast.memories.durable.retention import lag_of, sweep_all
from holdfast.memories.stores.credentials import Credentials
from holdfast.memories.stores.edits import drop_edits

_log = logging.getLogger(__name__)

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
