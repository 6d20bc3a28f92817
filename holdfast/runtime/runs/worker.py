"""Workers: claim queued runs, execute them, give them back.

A worker takes the runs of the definitions that it knows. What it knows of a run is stored, so that
another worker goes on where one was stopped.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from contextvars import copy_context
from importlib import import_module
from typing import Any, Final, Literal, Protocol

from msgspec import Struct

from holdfast import library
from holdfast.ground.errors import Conflict, InvalidInput, RunTaken, StaleRun, Unsupported
from holdfast.ground.events import Event
from holdfast.ground.scope import EVERYBODY
from holdfast.ground.validation import check_whole, listed
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.answer import settle_seen, sweep_questions, tend_items
from holdfast.memories.run.records.lease import (
    PRIORITY,
    ClaimedRun,
    ClaimTerms,
    claim,
    claimable,
    free_lost,
)
from holdfast.memories.run.records.run import Run
from holdfast.memories.run.records.writer import QueueLimits, RunOpening
from holdfast.runtime.concurrency import GATE, RequestGate, contained
from holdfast.runtime.context import Context
from holdfast.runtime.plans.item_runs import ItemRuns
from holdfast.runtime.runs.definitions import Definitions, RunStart, definitions_of, execute
from holdfast.runtime.runs.run_events import unforeseen
from holdfast.runtime.runs.run_record import CLAIM, RunClaim

CONCURRENCY: Final = 4
"""Runs that a worker has at once."""

GRACE: Final = 30.0
"""Seconds that requests in flight have to end, once a worker stops."""

LEAVE_MOST: Final = 10.0
"""Seconds that runs have to store that they are given back."""

LOOKS_EVERY: Final = 1.0
"""Seconds between two looks for what other processes queued or lost."""

log = logging.getLogger(__name__)

EngineName = Literal["own", "dbos"]
"""An engine that comes with the package."""

Turn = Callable[[], Awaitable[object]]
"""Does what is due for a worker now."""


class RunEngine(Protocol):
    """What makes sure that a queued run is taken up; it stores nothing of a run."""

    def submit(self, run: Run) -> None:
        """Have *run*, which is stored as queued, taken up by a worker."""
        ...

    def wake(self, run_id: str) -> None:
        """Have the run *run_id* looked at now: it was answered, or is to be cancelled."""
        ...

    def configure_queue(self, name: str, limits: QueueLimits) -> None:
        """Limit the runs of the queue *name*."""
        ...

    async def drive(self, turn: Turn) -> None:
        """Await *turn* whenever something may be due, until `close`."""
        ...

    async def tend(self, worker: "Worker") -> None:
        """Do what is due for the engine itself, before each look of *worker*."""
        ...

    async def take_up(self, worker: "Worker", handle: "library.Holdfast") -> int:
        """Have *worker* begin what is queued in *handle*'s workspace.

        Return how many runs are new.
        """
        ...

    async def join(self) -> None:
        """Wait until what was taken up has ended or waits."""
        ...

    def close(self) -> None:
        """End `drive`; from any thread."""
        ...

    async def leave(self) -> None:
        """Let go of what the engine holds, once its worker has no run any more."""
        ...


class OwnEngine:
    """The engine of `hf` alone.

    It looks each second, and at once when a run of this process is queued.
    """

    def __init__(self, hf: "library.Holdfast", *, every: float = LOOKS_EVERY) -> None:
        self._hf, self._every = hf, every
        self._rung, self._closed = asyncio.Event(), False
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, run: Run) -> None:
        """Have *run* taken up: its row says so to every worker, and this wakes one."""
        self.wake(run.id)

    def wake(self, run_id: str) -> None:
        """Look now."""
        del run_id
        self._ring()

    def configure_queue(self, name: str, limits: QueueLimits) -> None:
        """Limit the runs of the queue *name* that one worker has at once.

        Raise Unsupported for a limit over all machines.
        """
        if limits.over_machines:
            raise Unsupported(
                f"a limit of the queue {name} over all machines", next='Use engine="dbos".'
            )

    async def drive(self, turn: Turn) -> None:
        """Await *turn* each second, and when a run of this process is queued."""
        self._loop = asyncio.get_running_loop()
        off = self._hf.events.subscribe(self._heard, types=["run.queued"])
        try:
            while not self._closed:
                self._rung.clear()
                try:
                    await turn()
                except Exception:
                    # The database may be away for a while; a bug ends no other run.
                    log.exception("queued runs could not be looked for")
                if not self._closed:
                    await self._rest()
        finally:
            off()

    async def tend(self, worker: "Worker") -> None:
        """Return: nothing is due."""

    async def take_up(self, worker: "Worker", handle: "library.Holdfast") -> int:
        """Claim queued runs while *worker* has room, by priority, then age."""
        began = 0
        while await worker.begin(handle) is not None:
            began += 1
        return began

    async def join(self) -> None:
        """Return: the tasks of the worker are all that there is."""

    def close(self) -> None:
        """End `drive`; from any thread."""
        self._closed = True
        self._ring()

    async def leave(self) -> None:
        """Return: nothing is held."""

    async def _rest(self) -> None:
        try:
            await asyncio.wait_for(self._rung.wait(), self._every)
        except TimeoutError:
            return

    def _heard(self, event: Event) -> None:
        del event
        self._ring()

    def _ring(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)


class _Work(Struct, frozen=True):
    """A run at work: its claim, its queue, its task."""

    claim: RunClaim
    queue: str
    task: "asyncio.Task[None]"


class Worker:
    """Takes queued runs of *definitions*, at most *concurrency* at once.

    Without *queues* it takes those of every queue; with *everywhere* those of all workspaces. A run
    whose lease ran out is queued again, for this worker or another. With the *engine* "dbos", which
    needs the extra `durable-runs`, DBOS's queues say when a run is taken up, on all machines.

    >>> import asyncio, holdfast
    >>> from holdfast.testing.scripted import ScriptedModel
    >>> ada = Agent("ada", instructions="Be brief.", model=ScriptedModel(["Hello."]))
    >>> hf = holdfast.open(":memory:")
    >>> hf.runs.start("ada", "Hi?", run_id="run_1").status
    'queued'
    >>> asyncio.run(resume(hf, "run_1", [ada])).status
    'completed'
    """

    def __init__(
        self,
        hf: "library.Holdfast",
        definitions: Definitions,
        *,
        concurrency: int = CONCURRENCY,
        queues: Iterable[str] | None = None,
        everywhere: bool = False,
        engine: RunEngine | EngineName = "own",
    ) -> None:
        if not isinstance(hf, library.Holdfast):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
            raise Unsupported("a worker over HTTP", next="Open the database itself.")
        check_whole("concurrency", concurrency, "must be a whole number from 1", least=1)
        self.hf, self.definitions = hf, definitions_of(definitions)
        self.engine: RunEngine = _engine(engine, hf) if isinstance(engine, str) else engine
        self.concurrency, self.everywhere = concurrency, everywhere
        self._queues = () if queues is None else listed(queues)
        self._known = tuple(each.known for each in self.definitions.values())
        self._working: dict[tuple[str, str], _Work] = {}
        self._gate, self._grace, self.stopping = RequestGate(), 0.0, False

    @property
    def working(self) -> int:
        """The number of runs that it has."""
        return len(self._working)

    async def work(self) -> None:
        """Take runs until `stop`, then give back those at work.

        Raise Unsupported if a queue has a limit that its engine cannot hold.
        """
        self._configure()
        try:
            await self.engine.drive(self.turn)
        finally:
            await self._leave()
            await self.engine.leave()

    def stop(self, grace: float = GRACE) -> None:
        """Take nothing more, and give the runs at work back as queued; from any thread.

        Requests in flight, and the tools that they call, have *grace* seconds to end; what they say
        is kept. A second call without *grace* ends these at once.
        """
        self._grace, self.stopping = grace, True
        self._gate.close()
        if not grace:
            self._gate.hurry()
        self.engine.close()

    async def turn(self) -> int:
        """Have queued runs taken up; return how many were.

        Before that, settle questions that are due, and queue lost runs again.
        """
        if self.stopping:
            return 0
        self._configure()
        await self.engine.tend(self)
        began = 0
        await asyncio.to_thread(self._settle)
        for workspace in await asyncio.to_thread(self._due):
            handle = self.handle(workspace)
            context = handle.runs.context
            await asyncio.to_thread(free_lost, context, self.terms())
            began += await self.engine.take_up(self, handle)
        return began

    async def join(self) -> None:
        """Wait until the runs that were taken up have ended or wait."""
        await asyncio.gather(*(each.task for each in self._working.values()))
        await self.engine.join()

    async def begin(
        self, handle: "library.Holdfast", run_id: str = ""
    ) -> "asyncio.Task[None] | None":
        """Claim the first queued run of *handle*'s workspace, or *run_id*, and begin it.

        Return its task; None without a run to claim, and without room for one.
        """
        if self.stopping or self.working >= self.concurrency:
            return None
        found = await asyncio.to_thread(claim, handle.runs.context, self.terms(run_id))
        return None if found is None else self._begin(handle, found).task

    def _configure(self) -> None:
        for name, limits in self.hf.run_attachments.queues.items():
            self.engine.configure_queue(name, limits)

    def _settle(self) -> None:
        context = self.hf.runs.context
        if self.everywhere:
            sweep_questions(self.hf.engine, context.clock)
        else:
            settle_seen(context)
        tend_items(self.hf.engine, context.clock, None if self.everywhere else context.workspace)

    def _due(self) -> list[str]:
        scoped = self.hf.runs.context
        engine = self.hf.engine.scoped(EVERYBODY) if self.everywhere else scoped.engine
        return claimable(engine, self.terms(), scoped.now())

    def handle(self, workspace: str) -> "library.Holdfast":
        """Return a handle on *workspace*."""
        return self.hf if workspace == self.hf.workspace else self.hf.acting(workspace=workspace)

    def terms(self, run: str = "") -> ClaimTerms:
        """Return which runs it may claim now, or the terms for *run* alone."""
        counts = Counter(each.queue for each in self._working.values())
        limits = self.hf.run_attachments.queues.items()
        full = tuple(name for name, each in limits if each.full(counts[name]))
        return ClaimTerms(known=self._known, queues=self._queues, full=full, run=run)

    def _begin(self, handle: "library.Holdfast", found: ClaimedRun) -> _Work:
        """Execute the run *found* in a task of its own."""
        held = RunClaim(found.id, found.holder, found.definition)
        within = copy_context()
        within.run(CLAIM.set, held)
        within.run(GATE.set, self._gate)
        task = asyncio.get_running_loop().create_task(
            self._executed(handle, found, held), context=within
        )
        key, work = (handle.workspace, found.id), _Work(held, found.queue, task)
        self._working[key] = work

        def ended(_: object) -> None:
            if self._working.get(key) is work:
                del self._working[key]
            self.engine.wake(found.id)

        task.add_done_callback(ended)
        return work

    async def _executed(
        self, handle: "library.Holdfast", found: ClaimedRun, held: RunClaim
    ) -> None:
        """Execute the run *found*; raise nothing: it stores its end by itself."""
        made = self.definitions[found.definition]
        error = await _raised(execute(made, _start_of(handle, found)))
        if not held.begun:
            await asyncio.to_thread(_failed, handle, found, error or _not_run(found))
        elif error is not None:
            log.debug("the run %s ended: %s", found.id, type(error).__name__)

    async def _leave(self) -> None:
        """Give all runs back, and wait until that is stored."""
        self._gate.close()
        await self._gate.emptied(self._grace)
        left = list(self._working.values())
        for each in left:
            each.claim.give_back()
        if left:
            await asyncio.wait([each.task for each in left], timeout=LEAVE_MOST)
        for each in left:
            each.task.cancel()
        await asyncio.gather(*(each.task for each in left), return_exceptions=True)

    async def take(self, run_id: str) -> Run:
        """Execute the run *run_id* here and now, and return it; see `resume`."""
        context = self.hf.runs.context
        run = await asyncio.to_thread(self.hf.runs.retrieve, run_id)
        if run.status == "lost":
            await asyncio.to_thread(free_lost, context, self.terms(run_id))
        if run.status in {"queued", "lost"}:
            found = await asyncio.to_thread(claim, context, self.terms(run_id))
            if found is not None:
                await self._begin(self.hf, found).task
            elif await asyncio.to_thread(self.hf.runs.retrieve, run_id) == run:
                raise _unknown(run)
        elif run.status == "running":
            raise RunTaken(run_id, place=run.place or "")
        return await asyncio.to_thread(self.hf.runs.retrieve, run_id)


def _engine(name: EngineName, hf: "library.Holdfast") -> RunEngine:
    """Return the engine *name*; raise MissingExtra if what it needs is not installed."""
    if name == "own":
        return OwnEngine(hf)
    if name != "dbos":
        raise InvalidInput("engine", "must be own or dbos, or an engine", given=name)
    # It imports DBOS, which is an extra.
    made: RunEngine = import_module("holdfast.runtime.plans.dbos").DbosEngine(hf)
    return made


async def _raised(work: Awaitable[object]) -> Exception | None:
    """Await *work*; return the error that it raises, if any."""
    try:
        with contained():
            await work
    except Exception as error:  # noqa: BLE001 - whatever a definition raises ends its own run
        return error
    return None


def _not_run(found: ClaimedRun) -> Conflict:
    return Conflict(
        f"The definition {found.definition} did not run {found.id}.",
        reason="not_run",
        next="Build what runs with the context of its start.",
    )


def _unknown(run: Run) -> Conflict:
    return Conflict(
        f"No definition that was given takes the run {run.id} of {run.definition}.",
        reason="definition",
        next="Give one of its name that accepts its version.",
    )


def _start_of(handle: "library.Holdfast", found: ClaimedRun) -> RunStart:
    context = Context(run_id=found.id, hf=handle)
    context.ownership.holder = found.holder
    context.items = ItemRuns(
        hf=handle,
        run_id=found.id,
        definition=found.definition,
        queue=found.queue,
        priority=PRIORITY if found.priority is None else found.priority,
        metadata=found.metadata,
        item=found.item,
        parent=found.parent_id or "",
    )
    return RunStart(
        run_id=found.id,
        input=found.input,
        context=context,
        metadata=found.metadata,
        thread_id=found.thread_id,
    )


def _failed(handle: "library.Holdfast", found: ClaimedRun, error: Exception) -> None:
    """End the run *found* as failed by *error*, before it began."""
    if isinstance(error, StaleRun | RunTaken):
        log.debug("the run %s has another owner", found.id)
        return
    log.error("the run %s could not begin", found.id, exc_info=error)
    opening = RunOpening(
        kind=found.kind,
        name=found.name,
        definition=found.definition,
        holder=found.holder,
        claimed=True,
    )
    facts: dict[str, Any] = {"name": type(error).__name__, "message": unforeseen(error)}
    try:
        writer = handle.runs.open_run(RunMemory(run_id=found.id), opening)
    except StaleRun:
        log.debug("the run %s has another owner", found.id)
        return
    writer.end("failed", reason="internal", detail=unforeseen(error), error=facts)


async def resume(hf: "library.Holdfast", run_id: str, definitions: Definitions) -> Run:
    """Execute the run *run_id* here and now, by one of *definitions*, and return it.

    It is one that is queued, or was lost; one that waits or is over is returned as it is. Raise
    NotFound for none, RunTaken while another owner has it, Conflict if no definition takes it.
    """
    return await Worker(hf, definitions).take(run_id)
