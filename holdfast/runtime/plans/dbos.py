"""DBOS as the engine of workers (extra `durable-runs`).

Its queues say when a run is taken up and where: in order of priority, within limits over all
machines. It stores ids, queues and numbers; what a run is and knows is in `runs` alone, and where
the two disagree `runs` holds.

A run is one workflow. It executes one stay of the run under our lease, and ends when the run ends
or waits. Each second a worker looks which runs are due, and has DBOS queue their workflows: a new
one, one that ended (it is rewound), or one that a lost process left (it is resumed).

What differs from the first design:

- There is no step `drive` and no `send` and `recv`: a workflow that waits would be held by a
  process. An answer, a timer and a retry queue the run, and the next look queues its workflow.
- The workflow's id is the run's id in the workspace `default`, and `workspace/run` in others, where
  a run's id is unique in its workspace alone.
- A workflow is queued without a version of the application, so the newest release takes it. Ours
  is `holdfast-1`.
- The number of runs that a process has at once is stored with a queue, for all processes.
- The workflow of a run that was deleted goes with the next look of a worker, within 15 s.
"""

import asyncio
import logging
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextvars import Context, copy_context
from hashlib import sha256
from os import getpid
from pathlib import Path
from typing import Any, Final, TypeAlias

from msgspec import Struct

from holdfast import library
from holdfast.ground.errors import Conflict, MissingExtra, NotFound, Unsupported
from holdfast.library.upkeep.doctor import DBOS_FILE
from holdfast.library.upkeep.tables import Check
from holdfast.memories.run.records.lease import DueRun, due_runs, statuses
from holdfast.memories.run.records.writer import QueueLimits
from holdfast.runtime.runs.worker import LOOKS_EVERY, OwnEngine, Worker

try:
    from dbos import (
        DBOS,
        DBOSClient,
        DBOSConfig,
        EnqueueOptions,
        WorkflowSerializationFormat,
        WorkflowStatus,
    )
    from dbos import error as dbos_error
except ImportError as error:
    raise MissingExtra("durable-runs") from error

APPLICATION: Final = "holdfast"
VERSION: Final = "holdfast-1"
"""The version of the application: that of what a workflow is given."""

SCHEMA: Final = "dbos"
"""The schema of DBOS's tables on PostgreSQL."""

WORKFLOW: Final = "holdfast.run"
POLLS_EVERY: Final = 0.1
"""Seconds between two looks of DBOS for a workflow that is queued."""

PATIENCE: Final = 1.0
"""Seconds that a process has to claim a run after DBOS gave it its workflow."""

TIDY_EVERY: Final = 15.0
"""Seconds between two looks for workflows whose runs are gone."""

AT_ONCE: Final = 500
CLOSE_MOST: Final = 10.0
"""Seconds that workflows have to store that they ended, once a worker stops."""

DIFFERS_AFTER: Final = 60.0
"""Seconds after which a workflow that differs from its run is a finding."""

ACTIVE: Final = ("ENQUEUED", "PENDING", "DELAYED")
NO_LIMITS: Final = QueueLimits()

log = logging.getLogger(__name__)


def workflow_id(workspace: str, run_id: str) -> str:
    """Return the id of the workflow of the run *run_id*."""
    return run_id if workspace == "default" else f"{workspace}/{run_id}"


def run_of(workflow: str) -> tuple[str, str]:
    """Return the workspace and the id of the run of *workflow*."""
    workspace, slash, run_id = workflow.rpartition("/")
    return (workspace if slash else "default"), run_id


def place_of(hf: "library.Holdfast") -> str:
    """Return the URL of DBOS's tables for *hf*.

    Raise Unsupported for a database in memory.
    """
    target = hf.opened.target if hf.opened else ":memory:"
    if target.startswith(("postgresql://", "postgres://")):
        return target
    if target in ("", ":memory:"):
        raise Unsupported(
            "DBOS on a database in memory", next="Open a file, or launch a DBOS of your own."
        )
    return f"sqlite:///{Path(target)}{DBOS_FILE}"


class _Process:
    """The one DBOS of this process, and the engines that it gives workflows to."""

    def __init__(self) -> None:
        self.engines: list[DbosEngine] = []
        self.staying: set[str] = set()
        self.queues: dict[str, tuple[QueueLimits | None, int]] = {}
        self._lock, self._place = threading.Lock(), ""

    def add(self, engine: "DbosEngine") -> None:
        """Give workflows to *engine*; launch DBOS, unless the application has done so."""
        with self._lock:
            if engine not in self.engines:
                self._open(engine.hf)
                self.engines.append(engine)

    def remove(self, engine: "DbosEngine") -> None:
        """Give *engine* nothing more.

        Close DBOS after the last one, if it was launched here.
        """
        with self._lock:
            if engine in self.engines:
                self.engines.remove(engine)
            if not self.engines and self._place:
                self._close()

    def _open(self, hf: "library.Holdfast") -> None:
        if _launched():
            if self._place and self._place != place_of(hf):
                raise Conflict(
                    "DBOS runs in this process on another database.",
                    reason="dbos",
                    next="Work on one database in a process, or launch a DBOS of your own.",
                )
            return
        place = place_of(hf)
        executor = f"{socket.gethostname()}-{getpid()}-{secrets.token_hex(4)}"
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": place,
            "dbos_system_schema": SCHEMA,
            "application_version": VERSION,
            # One of its own, so that DBOS starts nothing of another process: our lease does.
            "executor_id": executor,
            "log_level": "ERROR",
            "enable_otlp": False,
            "use_listen_notify": False,
        }
        DBOS(config=config)
        if DBOS.executor_id != executor:
            raise Conflict(
                "The application's DBOS is not launched.",
                reason="dbos",
                next="Call DBOS.launch() before a worker works.",
            )
        self.queues.clear()
        DBOS.launch()
        self._place = place

    def _close(self) -> None:
        """End DBOS, once its workflows here have stored their ends."""
        until = time.monotonic() + CLOSE_MOST
        while time.monotonic() < until and _listed(status="PENDING", executor_id=DBOS.executor_id):
            time.sleep(POLLS_EVERY / 4)
        DBOS.destroy()
        self._place = ""

    def queue(self, name: str, limits: QueueLimits | None, working: int) -> str:
        """Return DBOS's name of the queue *name*, which is registered with *limits*."""
        with self._lock:
            if self.queues.get(name) != (limits, working):
                _register(_queue_name(name), limits, working)
                self.queues[name] = limits, working
        return _queue_name(name)

    async def execute(self, workspace: str, run_id: str) -> dict[str, Any]:
        """Execute a stay of a run by one of the engines; return how the run is then."""
        workflow = workflow_id(workspace, run_id)
        self.staying.add(workflow)
        try:
            for engine in sorted(self.engines, key=lambda each: each.working):
                stayed = engine.stay(workspace, run_id)
                if stayed is not None and (found := await asyncio.wrap_future(stayed)):
                    return found
        finally:
            self.staying.discard(workflow)
        return {"status": "queued"}


_PROCESS: Final = _Process()


@DBOS.workflow(
    name=WORKFLOW,
    max_recovery_attempts=None,
    serialization_type=WorkflowSerializationFormat.PORTABLE,
)
async def run_workflow(workspace: str, run_id: str) -> dict[str, Any]:
    """Execute a stay of the run *run_id*, until it ends or waits."""
    return await _PROCESS.execute(workspace, run_id)


class _Stuck(Struct, frozen=True):
    """A workflow that was seen to be executed for a run that is queued: since when."""

    dequeued_at: int | None
    seen_at: float


class DbosEngine(OwnEngine):
    """The engine of DBOS's queues; `Worker(hf, definitions, engine="dbos")` makes it."""

    def __init__(self, hf: "library.Holdfast", *, every: float = LOOKS_EVERY) -> None:
        super().__init__(hf, every=every)
        self.hf = hf
        self._worker: Worker | None = None
        self._at: asyncio.AbstractEventLoop | None = None
        self._within: Context = copy_context()
        self._room = asyncio.Semaphore(1)
        self._open: set[str] = set()
        self._stuck: dict[str, _Stuck] = {}
        self._tidied_at = -TIDY_EVERY

    @property
    def working(self) -> int:
        """The number of runs that its worker has."""
        return 0 if self._worker is None else self._worker.working

    def configure_queue(self, name: str, limits: QueueLimits) -> None:
        """Do nothing: limits are stored with the first run that the queue gets."""

    async def tend(self, worker: Worker) -> None:
        """Launch DBOS if there is none, and tidy up now and then."""
        loop = asyncio.get_running_loop()
        if self._at is not loop:
            self._worker, self._at, self._within = worker, loop, copy_context()
            self._room = asyncio.Semaphore(worker.concurrency)
        await asyncio.to_thread(_PROCESS.add, self)
        if time.monotonic() - self._tidied_at >= TIDY_EVERY:
            self._tidied_at = time.monotonic()
            await asyncio.to_thread(tidy, self.hf, everywhere=worker.everywhere)

    async def take_up(self, worker: Worker, handle: "library.Holdfast") -> int:
        """Have DBOS queue what is due in *handle*'s workspace; return how many workflows."""
        due = await asyncio.to_thread(due_runs, handle.runs.context, worker.terms())
        return await asyncio.to_thread(self._submit, worker, handle.workspace, due)

    def _submit(self, worker: Worker, workspace: str, due: Sequence[DueRun]) -> int:
        """Have DBOS queue the runs *due*; return how many it had not queued."""
        count = 0
        runs = {workflow_id(workspace, each.id): each for each in due}
        found = {each.workflow_id: each for each in _listed(workflow_ids=list(runs))}
        self._stuck = {id: each for id, each in self._stuck.items() if id in runs}
        for id, run in runs.items():
            limits = self.hf.run_attachments.queues.get(run.queue)
            queue = _PROCESS.queue(run.queue, limits, worker.concurrency)
            key = None if limits is None or limits.partition is None else limits.partition
            part = None if key is None else _partition(run.partition(key))
            try:
                new = self._queued(id, run, found.get(id), queue, part)
            except dbos_error.DBOSException as error:
                # Another worker was first, and the next look sees what it did.
                log.debug("the workflow %s was not queued: %s", id, type(error).__name__)
                continue
            if new:
                self._open.add(id)
                count += 1
        return count

    def _queued(
        self, id: str, run: DueRun, found: WorkflowStatus | None, queue: str, part: str | None
    ) -> bool:
        """Have DBOS queue the workflow *id*, which is *found* so.

        Return whether it was not queued.
        """
        if found is None:
            _enqueue(id, run, queue, part)
        elif found.status not in ACTIVE:
            DBOS.rewind_workflow(
                id,
                queue_name=queue,
                queue_partition_key=part,
                application_version=DBOS.application_version,
            )
        elif found.status == "PENDING" and self._left(id, found):
            DBOS.resume_workflow(id, queue_name=queue)
        else:
            return False
        return True

    def _left(self, id: str, found: WorkflowStatus) -> bool:
        """Whether the process that executed the workflow *id* of a queued run is gone."""
        if id in _PROCESS.staying:
            return False
        seen = self._stuck.get(id)
        if seen is None or seen.dequeued_at != found.dequeued_at:
            self._stuck[id] = _Stuck(found.dequeued_at, time.monotonic())
            return False
        return time.monotonic() - seen.seen_at >= PATIENCE

    def stay(self, workspace: str, run_id: str) -> "Future[dict[str, Any] | None] | None":
        """Begin the run *run_id* on the worker's loop; None where that is closed.

        The future gives how the run is after its stay, or None if the worker did not claim it.
        """
        loop = self._at
        if loop is None or not loop.is_running():
            return None
        given: Future[dict[str, Any] | None] = Future()

        def begin() -> None:
            task = loop.create_task(self._stayed(workspace, run_id))
            task.add_done_callback(lambda done: _pass_on(done, given))

        try:
            # Nothing of DBOS's context: what the run calls is no part of the workflow.
            loop.call_soon_threadsafe(begin, context=self._within.copy())
        except RuntimeError:
            return None
        return given

    async def _stayed(self, workspace: str, run_id: str) -> dict[str, Any] | None:
        worker = self._worker
        if worker is None or not (worker.everywhere or workspace == self.hf.workspace):
            return None
        handle = worker.handle(workspace)
        async with self._room:
            task = await worker.begin(handle, run_id)
            if task is None:
                return None
            await asyncio.wait([task])
        try:
            run = await asyncio.to_thread(handle.runs.retrieve, run_id)
        except NotFound:
            return {"status": "deleted"}
        return {"status": run.status, "version": run.versions}

    async def join(self) -> None:
        """Wait until the workflows that it had queued have ended."""
        while self._open:
            found = await asyncio.to_thread(_listed, workflow_ids=list(self._open))
            self._open = {each.workflow_id for each in found if each.status in ACTIVE}
            if self._open:
                await asyncio.sleep(POLLS_EVERY / 4)

    async def leave(self) -> None:
        """Take no workflow any more; end DBOS if it was launched for this worker."""
        await asyncio.to_thread(_PROCESS.remove, self)


def _pass_on(
    done: "asyncio.Task[dict[str, Any] | None]", given: "Future[dict[str, Any] | None]"
) -> None:
    """Give the result of *done* to *given*; None for what was cancelled or failed."""
    if done.cancelled():
        given.set_result(None)
    elif (error := done.exception()) is not None:
        log.error("a run could not be taken up", exc_info=error)
        given.set_result(None)
    else:
        given.set_result(done.result())


def _launched() -> bool:
    """Whether this process has a DBOS that is launched."""
    try:
        DBOS.retrieve_queue(_queue_name("default"))
    except dbos_error.DBOSException:
        return False
    return True


def _queue_name(name: str) -> str:
    return f"{APPLICATION}.{name}"


def _register(name: str, limits: QueueLimits | None, working: int) -> None:
    """Store the queue *name* with *limits*.

    Without them, those that it has stay as they are.
    """
    found = None if limits else DBOS.retrieve_queue(name)
    if found is not None:
        most = found.global_concurrency
        found.set_worker_concurrency(working if most is None else min(working, most))
        return
    given = limits or NO_LIMITS
    rate: Any = given.rate and {"limit": given.rate[0], "period": given.rate[1]}
    whole, most = given.partition is None, min(working, given.per_worker or working)
    DBOS.register_queue(
        name,
        worker_concurrency=min(most, given.concurrency or most) if whole else most,
        global_concurrency=given.concurrency if whole else None,
        limiter=rate if whole else None,
        partition_concurrency=None if whole else given.concurrency,
        partition_limiter=None if whole else rate,
        polling_interval_sec=POLLS_EVERY,
        on_conflict="always_update",
    )


def _partition(value: str) -> str:
    """Return the partition of *value*: its digest, as it may name a person."""
    return sha256(value.encode()).hexdigest()[:32]


def _enqueue(id: str, run: DueRun, queue: str, part: str | None) -> None:
    workspace, run_id = run_of(id)
    options: EnqueueOptions = {
        "workflow_name": WORKFLOW,
        "queue_name": queue,
        "workflow_id": id,
        "priority": run.priority + 1,
        "serialization_type": WorkflowSerializationFormat.PORTABLE,
    }
    if part is not None:
        options["queue_partition_key"] = part
    DBOS.enqueue_workflow_with_options(options, workspace, run_id)


def _listed(source: "type[DBOS] | DBOSClient" = DBOS, **conditions: Any) -> list[WorkflowStatus]:
    """Return the workflows of runs with *conditions*, without what they were given."""
    return source.list_workflows(name=WORKFLOW, load_input=False, load_output=False, **conditions)


Compared: TypeAlias = tuple[WorkflowStatus, str | None]
"""A workflow, and the status of its run: None for one that is gone."""


def _compared(
    hf: "library.Holdfast", source: "type[DBOS] | DBOSClient", *, everywhere: bool
) -> Iterator[Compared]:
    """Yield the workflows of *hf*'s workspace, or with *everywhere* of all."""
    offset = 0
    while found := _listed(source, limit=AT_ONCE, offset=offset):
        offset += len(found)
        by_workspace: dict[str, dict[str, WorkflowStatus]] = {}
        for each in found:
            workspace, run_id = run_of(each.workflow_id)
            if everywhere or workspace == hf.workspace:
                by_workspace.setdefault(workspace, {})[run_id] = each
        for workspace, runs in by_workspace.items():
            handle = hf if workspace == hf.workspace else hf.acting(workspace=workspace)
            known = statuses(handle.runs.context, list(runs))
            yield from ((each, known.get(run_id)) for run_id, each in runs.items())


def tidy(hf: "library.Holdfast", *, everywhere: bool = False) -> None:
    """Delete workflows whose runs are gone.

    Those that a lost process left of runs that wait or are over are ended. They are those of
    *hf*'s workspace, or with *everywhere* of all.
    """
    gone = list[str]()
    for each, status in _compared(hf, DBOS, everywhere=everywhere):
        if each.workflow_id in _PROCESS.staying:
            continue
        if status is None:
            gone.append(each.workflow_id)
        elif each.status == "PENDING" and status not in ("queued", "running"):
            # Its stay ends at once, so that it counts for no limit any more.
            DBOS.resume_workflow(each.workflow_id, queue_name=each.queue_name)
    if gone:
        DBOS.delete_workflows(gone)


def check_dbos(hf: "library.Holdfast") -> Check:
    """Compare the workflows in DBOS's tables for *hf* with the runs of all workspaces."""
    client = DBOSClient(
        system_database_url=place_of(hf), dbos_system_schema=SCHEMA, retry_connection_errors=False
    )
    found: Counter[str] = Counter()
    before = (time.time() - DIFFERS_AFTER) * 1000
    try:
        for each, status in _compared(hf, client, everywhere=True):
            found[_differs(each, status) if (each.updated_at or 0) < before else ""] += 1
    finally:
        client.destroy()
    agree = f"{found.pop('', 0):,} workflows agree with their runs"
    says = "; ".join(f"{count:,} {what}" for what, count in sorted(found.items()))
    remedy = "; start a worker with --engine dbos" if says else ""
    return Check("runs on DBOS", not says, f"{says}{remedy}" if says else agree)


def _differs(workflow: WorkflowStatus, status: str | None) -> str:
    """Return what is wrong with *workflow* of a run of *status*, or ''."""
    if status is None:
        return "of runs that are gone"
    if workflow.status in ACTIVE and status not in ("queued", "running", "lost"):
        return f"active, of runs that are {status}"
    return ""
