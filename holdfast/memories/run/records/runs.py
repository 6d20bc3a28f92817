"""`hf.runs`: list, follow, cancel and steer runs, and own them."""

import builtins
from collections.abc import Callable, Generator, Iterable, Mapping
from datetime import datetime
from functools import cached_property

from holdfast.ground.errors import Conflict, InvalidInput, StaleRun
from holdfast.ground.ids import Ids
from holdfast.ground.json_values import JSON
from holdfast.ground.pages import Page
from holdfast.ground.scope import checked_name
from holdfast.ground.text import encoded
from holdfast.ground.validation import check_text, listed
from holdfast.memories.run.entry import OneOrMany, filter_of
from holdfast.memories.run.history.compare import Comparison, compare
from holdfast.memories.run.history.fork import (
    ForkOptions,
    Rerun,
    checked_fork,
    checked_rerun,
    fork,
)
from holdfast.memories.run.history.retention import KEY_MOST, redact
from holdfast.memories.run.history.versions import (
    VersionRows,
    list_versions,
    messages_of,
    run_at,
)
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records import write
from holdfast.memories.run.records.answer import answer, list_questions, question_of, settle_seen
from holdfast.memories.run.records.event import RunEvent
from holdfast.memories.run.records.lease import (
    PRIORITY,
    RunSubmission,
    over,
    submit,
    want_cancel,
)
from holdfast.memories.run.records.parts import RunPart
from holdfast.memories.run.records.question import (
    Answerer,
    Question,
    QuestionFilter,
    QuestionStatuses,
    answerer_of,
)
from holdfast.memories.run.records.read import (
    EntryOrder,
    ListedEntry,
    ReadEntry,
    asked_for,
    await_run,
    checked_follow,
    checked_wish,
    entries_page,
    entries_told,
    entry_told,
    follow,
    list_runs,
    parts_of,
    read_in,
    retrieve_run,
    run_row,
)
from holdfast.memories.run.records.record import (
    RunControl,
    RunRow,
    RunsContext,
    held_by,
    this_process,
)
from holdfast.memories.run.records.run import (
    NO_METADATA,
    PART_MOST,
    Run,
    RunFilter,
    RunKind,
    RunState,
    RunVersion,
    Statuses,
    VersionChoice,
    When,
)
from holdfast.memories.run.records.writer import (
    Attached,
    Attachments,
    InEngine,
    QueueLimits,
    RunOpening,
    RunWriter,
    Shown,
    attach,
    checked_limits,
    open_run,
)
from holdfast.memories.state.message import Message

_ids = Ids()

CANCELLED = "cancelled"
"""Default reason of a cancellation."""


def cancel(
    context: RunsContext, attachments: Attachments, run_id: str, reason: str = CANCELLED
) -> None:
    """Cancel the run *run_id*: here, through its owner, or at once where it has none.

    Raise `NotFound` if there is none, `Conflict` if it is over.
    """
    demand_words("reason", reason)
    control, run = _control_of(context, attachments, run_id)
    if control is not None:
        control.cancel(reason)
    elif run is not None and run.live_at(context.now()) and run.place == this_process():
        raise Conflict(
            f"The run {run_id} of this process has no control attached.",
            reason="not_held",
            next="Attach it with its control.",
        )
    else:
        want_cancel(context, run_id, reason)


def steer(
    context: RunsContext, attachments: Attachments, run_id: str, text: str, step: str | None = None
) -> list[str]:
    """Put *text* before the next request of *step*, or of every running step.

    Return the ids of these steps. Raise `Conflict` if it is over, or in another process.
    """
    demand_words("text", text)
    if step is not None:
        demand_words("step", step)
    control, run = _control_of(context, attachments, run_id)
    if control is not None:
        return control.steer(text, step=step)
    if run is None or not run.live_at(context.now()):
        raise over(run_id, "over" if run is None else run.status_at(context.now()))
    here = run.place == this_process()
    raise Conflict(
        f"The run {run_id} of this process has no control attached."
        if here
        else f"The run {run_id} is run elsewhere, in {run.place}.",
        reason="not_held" if here else "elsewhere",
        next="Attach it with its control." if here else "Steer it in that process.",
    )


def _control_of(
    context: RunsContext, attachments: Attachments, run_id: str
) -> tuple[RunControl | None, RunRow | None]:
    """Return the control of the run in this process, else its row; raise `NotFound`."""
    held = attachments.controls.of(context.workspace, run_id)
    if held is not None:
        return held, None
    attachments.flush()
    run = run_row(context, run_id)
    holder = run.holder if run.live_at(context.now()) else None
    return None if holder is None else held_by(holder), run


def demand_words(field: str, given: object) -> None:
    """Raise `InvalidInput` for blank text."""
    if not encoded(field, given).strip():
        raise InvalidInput(field, "must not be blank", next="Say it in words.")


class Runs:
    """The runs of a workspace, in this process and in others."""

    def __init__(self, context: RunsContext, attachments: Attachments) -> None:
        self.context, self._attachments = context, attachments

    def attach(
        self,
        memory: RunMemory,
        *,
        name: str,
        agent: str | None = None,
        user: str | None = None,
        metadata: Mapping[str, str] | None = None,
        control: RunControl | None = None,
    ) -> Attached:
        """Record the run of *memory*; call the result to end the run.

        No call waits for it: another thread sends the reports. The run is linked to *user*, with
        whom it is erased. With *control* it can be cancelled and steered through this process.
        Raise `InvalidInput` for a wrong argument.
        """
        opening = RunOpening(
            kind="memory",
            name=name,
            agent=agent,
            user=user,
            metadata=metadata or {},
            take_over="always",
        )
        return attach(self._attachments, memory, opening, self.shown, control)

    def open_run(
        self,
        memory: RunMemory,
        opening: RunOpening,
        *,
        control: RunControl | None = None,
        on_stale: Callable[[StaleRun], object] | None = None,
    ) -> RunWriter:
        """Acquire the run of *memory* for an executor.

        The result writes its events and its end, until which the lease is renewed every 15 s.
        *on_stale* is called, on another thread, once another owner has the run. Raise `RunTaken` if
        another owner has it now.
        """
        return open_run(
            self._attachments, memory, opening, self.shown, control=control, on_stale=on_stale
        )

    @property
    def shown(self) -> Shown:
        """Where the owner of a run writes."""
        context = self.context
        context.demand("write")
        return Shown(
            workspace=context.workspace,
            recorder=InEngine(context),
            clock=context.clock,
            bus=context.engine.events,
        )

    def start(
        self,
        name: str,
        input: JSON = None,
        *,
        run_id: str | None = None,
        queue: str | None = None,
        priority: int = PRIORITY,
        not_before: datetime | None = None,
        metadata: Mapping[str, str] = NO_METADATA,
    ) -> Run:
        """Queue a run of the definition *name* with *input*, a value of JSON.

        A worker that knows the definition takes it, not before *not_before*; of several runs the
        one of the lowest *priority*, 0 to 1,000, then the oldest. Without a *queue* it is in that
        of its definition. With the *run_id* and the input of a run that is there it is that run.
        Raise `Conflict` for another definition or input.
        """
        self.context.demand("write")
        given = RunSubmission(
            run_id=_ids.new("run", self.context.now()) if run_id is None else run_id,
            definition=name,
            input=input,
            queue=queue,
            priority=priority,
            not_before=not_before,
            metadata=metadata,
        )
        submit(self.context, given)
        return retrieve_run(self.context, given.run_id)

    def configure_queue(
        self,
        name: str,
        *,
        per_worker: int | None = None,
        concurrency: int | None = None,
        rate: tuple[int, float] | None = None,
        partition: str | None = None,
    ) -> None:
        """Limit the runs of the queue *name*; None is no limit.

        A worker of this process has *per_worker* of its runs at once. On all machines there are
        *concurrency* at once, and *rate*, a number and a time in seconds, begin in that time. With
        *partition*, a key of metadata such as `user`, the latter two are for the runs of each value
        of it. A worker needs the engine `dbos` for these three.
        """
        self.context.demand("write")
        limits = QueueLimits(
            per_worker=per_worker, concurrency=concurrency, rate=rate, partition=partition
        )
        self._attachments.queues[checked_name("queue", name)] = checked_limits(limits)

    def put(self, record: Run | Mapping[str, object]) -> Run:
        """Write a run's record as it is now, without a lease.

        Writing the same record again does nothing. Raise `Conflict` for a run that ended with
        another record.
        """
        self.context.demand("write")
        given = record if isinstance(record, Run) else Run.from_dict(record)
        return write.put(self.context, given)

    def retrieve(self, id: str) -> Run:
        """Return the run *id*; raise `NotFound` if there is none."""
        return retrieve_run(self._looking(), id)

    def parts(self, id: str) -> builtins.list[RunPart]:
        """Return the parts of the run *id* as they are now, in the order they were met.

        They are its tasks, steps, items, nodes, agents and board tasks. Raise `NotFound` without
        the run.
        """
        return parts_of(self._looking(), id)

    def entries(
        self,
        id: str,
        *,
        kind: OneOrMany = None,
        keys: Iterable[str] | None = None,
        key_prefix: str | None = None,
        sources: OneOrMany = None,
        order: EntryOrder | None = None,
        limit: int | None = 200,
        page: str | None = None,
    ) -> Page[ListedEntry]:
        """Return the last entries of the run *id*, without values, the newest first.

        The filters are those of a run memory's own list. Raises NotFound without the run.
        """
        among = filter_of(kind, keys, key_prefix, sources)
        request = asked_for(among, order=order, limit=limit, page=page)
        return entries_page(lambda request: entries_told(self._looking(), id, request), request)

    def entry(self, id: str, key: str, *, path: str | None = None, offset: int = 0) -> ReadEntry:
        """Return the entry *key* of the run *id*, or the part of its value at *path*.

        Of a value over 64 KiB the first part is stored. Raise `NotFound` without run or entry.
        """
        wanted = checked_wish(path, offset)
        return read_in(entry_told(self._looking(), id, key, wanted))

    def follow(
        self,
        id: str,
        *,
        after: int = 0,
        wait: float = 0,
        types: str | Iterable[str] | None = None,
        rest: bool = False,
    ) -> Generator[RunEvent]:
        """Yield the events of the run *id* after the event *after*, until the run ends.

        *wait* is how many seconds to wait for a run that is not there yet, 300 at most. With *rest*
        the end is also that it waits for an answer or is lost. The last 10,000 events are stored;
        in place of dropped ones, a `gap` has their number. Raise `NotFound` if there is no such
        run.
        """
        options = checked_follow(after, wait, types, rest=rest)
        context = self._looking()
        await_run(context, id, options.wait)
        return follow(context, id, options)

    def fork(
        self,
        id: str,
        *,
        version: int | None = None,
        before: str | None = None,
        set: Mapping[str, JSON] | None = None,
        delete: Iterable[str] = (),
        rerun: Rerun = "affected",
        run_id: str | None = None,
        name: str | None = None,
        start: bool = False,
    ) -> Run:
        """Make a new run with the history of the run *id* up to a version, and return it.

        The version is *version*, or the one before the part *before* began, else the newest. *set*
        and *delete* name keys: `shared:x`, `step:y`, `task:z`, `input:w`; others are values of a
        network. Pending again are, by *rerun*, the parts that depend on a changed key (affected),
        none, or those of a list. Whoever executes under its id goes on from there, or with *start*
        a worker that knows its definition. The original is not changed. Raise `NotFound` without
        the run, the version, a part or a deleted key, `Conflict` if *run_id* is taken.
        """
        self.context.demand("write")
        self._attachments.flush()
        options = ForkOptions(
            version=version,
            before=before,
            set=set or {},
            delete=tuple(listed(delete)),
            rerun=checked_rerun(rerun),
            run_id=run_id,
            name=name,
            start=start,
        )
        return fork(self.context, id, checked_fork(options))

    def compare(
        self, a: str, b: str, *, version_a: int | None = None, version_b: int | None = None
    ) -> Comparison:
        """Return how the runs *a* and *b* differ, key by key, at a version of each.

        Without a version it is what they know now. Raise `NotFound` without a run or a version.
        """
        return compare(self._looking(), a, b, version_a, version_b)

    def cancel(self, id: str, reason: str = CANCELLED) -> None:
        """Cancel the run *id*; the process that has it obeys within 5 s.

        One without an owner is cancelled at once. Raise `Conflict` if it is over.
        """
        self.context.demand("write")
        cancel(self.context, self._attachments, id, reason)

    def steer(self, id: str, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of every running step.

        Return the ids of these steps. Raise `NotFound` for a step that is finished or unknown,
        `Conflict` as `cancel` does.
        """
        self.context.demand("write")
        return steer(self.context, self._attachments, id, text, step)

    def questions(
        self,
        status: QuestionStatuses = "open",
        *,
        run: str | None = None,
        who: str | None = None,
        limit: int | None = 20,
        page: str | None = None,
    ) -> Page[Question]:
        """Return the questions that pass all filters, newest first.

        *status* is one or several, None for all; *who* is a name by which they name who may
        answer, such as `user:anna`.
        """
        among = QuestionFilter(status=status, run=run, who=who)
        return list_questions(self._looking(), among, limit, page)

    def question(self, id: str) -> Question:
        """Return the question *id* with its answer; raise `NotFound` if there is none."""
        context = self._looking()
        settle_seen(context)
        return question_of(context, id)

    def answer(
        self,
        run_id: str,
        value: object,
        *,
        question: str | None = None,
        note: str | None = None,
        by: str | Answerer | None = None,
    ) -> Question:
        """Answer the *question* of the run, which may be left out where one is open.

        *by* is the person for whom the caller answers, such as `user:anna`, with further names
        as an `Answerer`; by default it is the actor of the handle. The first answer wins; after
        the last one the run is queued. Raise `InvalidInput` for a value that does not fit,
        `NotPermitted` if the question is for others, `AlreadyAnswered` for another answer,
        `Conflict` if it has expired or was withdrawn.
        """
        self.context.demand("write")
        self._attachments.flush()
        answerer = answerer_of(self.context.actor, by)
        return answer(self.context, run_id, value, answerer, question=question, note=note)

    def delete(self, id: str) -> None:
        """Delete the record of a run that is over, with its checkpoint.

        When this returns the bytes are in no file of the database, unless a reader holds the log.
        Raise `Conflict` for a live run.
        """
        self._attachments.flush()
        self.context.demand("write")
        write.delete(self.context, id)

    def versions(
        self, id: str, *, limit: int | None = 100, page: str | None = None
    ) -> Page[RunVersion]:
        """Return the versions of the run *id*, the newest first.

        A version is stored after each completed part, at each question and at the end.
        """
        return list_versions(self._looking(), id, limit, page)

    def at(
        self, id: str, version: int | None = None, *, part: str | None = None, when: When = "after"
    ) -> RunState:
        """Return what the run *id* knew at *version*, the newest one by default.

        With *part* it is the last version of that part, or with *when* "before" the one before it
        began. Raise `NotFound` for a version that is not there, or was folded.
        """
        choice = VersionChoice(version=version, part=part, when=when)
        return run_at(self._looking(), id, choice)

    def messages(self, id: str, part: str) -> list[Message]:
        """Return what *part* of the run *id* sent to its model and was answered."""
        return messages_of(self._looking(), id, check_text("part", part, most=PART_MOST))

    def redact(self, id: str, key: str) -> int:
        """Remove *key* from the entries and all versions of the run *id*.

        What tools were given and answered that read or wrote it is removed from messages and
        events too. Return how many versions had it. When this returns the bytes are in no file of
        the database, unless a reader holds the log. Only an administrator may.
        """
        self._attachments.flush()
        self.context.demand("admin")
        return redact(self.context, id, check_text("key", key, least=1, most=KEY_MOST))

    @cached_property
    def checkpoints(self) -> VersionRows:
        """The newest versions of runs, from which they can be resumed."""
        self.context.demand("write")
        return VersionRows(self.context)

    def _looking(self) -> RunsContext:
        """Check the right to read, flush pending reports, and return the context."""
        self.context.demand("read")
        self._attachments.flush()
        return self.context

    def list(
        self,
        status: Statuses = None,
        *,
        kind: RunKind | None = None,
        definition: str | None = None,
        thread: str | None = None,
        parent: str | None = None,
        queue: str | None = None,
        since: datetime | None = None,
        limit: int | None = 20,
        page: str | None = None,
    ) -> Page[Run]:
        """Return the runs that pass all filters, the latest start first.

        *status* is one or several; *since* is the earliest start.
        """
        among = RunFilter(
            status=status,
            kind=kind,
            definition=definition,
            thread=thread,
            parent=parent,
            queue=queue,
            since=since,
        )
        return list_runs(self._looking(), among, limit, page)
