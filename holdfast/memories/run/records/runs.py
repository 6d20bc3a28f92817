"""`hf.runs`: list, follow, cancel and steer runs.

A record is a report of a run. Run memory itself never reads it.
"""

from collections.abc import Generator, Iterable, Mapping
from functools import cached_property

from holdfast.ground.errors import Conflict, InvalidInput
from holdfast.ground.pages import Page
from holdfast.ground.text import encoded
from holdfast.memories.run.entry import OneOrMany, filter_of
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records import write
from holdfast.memories.run.records.mirror import (
    Attached,
    Attachments,
    InEngine,
    Shown,
    attach,
    opening_of,
)
from holdfast.memories.run.records.read import (
    EntryOrder,
    ListedEntry,
    ReadEntry,
    RecordedRunEvent,
    asked_for,
    checked_after,
    checked_wish,
    entries_page,
    entries_told,
    entry_told,
    follow,
    list_runs,
    read_in,
    run_row,
)
from holdfast.memories.run.records.record import (
    RunControl,
    RunsContext,
    RunState,
    WatchedRun,
    held_by,
    this_process,
)
from holdfast.memories.run.records.write import CheckpointRows

CANCELLED = "cancelled"
"""Default reason of a cancellation."""


def cancel(
    context: RunsContext, attachments: Attachments, run_id: str, reason: str = CANCELLED
) -> None:
    """Cancel the run *run_id*.

    Raise `NotFound` if there is none, `Conflict` if it is over or in another process.
    """
    demand_words("reason", reason)
    _control_of(context, attachments, run_id).cancel(reason)


def steer(
    context: RunsContext, attachments: Attachments, run_id: str, text: str, step: str | None = None
) -> list[str]:
    """Put *text* before the next request of *step*, or of every running step.

    Return the ids of these steps.
    """
    demand_words("text", text)
    if step is not None:
        demand_words("step", step)
    return _control_of(context, attachments, run_id).steer(text, step=step)


def _control_of(context: RunsContext, attachments: Attachments, run_id: str) -> RunControl:
    held = attachments.controls.of(context.workspace, run_id)
    if held is not None:
        return held
    attachments.flush()
    run = run_row(context, run_id)
    state = run.state_at(context.now())
    held = held_by(run.holder) if state == "running" else None
    if held is not None:
        return held
    if state == "running" and run.place == this_process():
        raise Conflict(
            f"The run {run_id} of this process has no control attached.",
            reason="not_held",
            next="Attach it with its control.",
        )
    if state == "running":
        raise Conflict(
            f"The run {run_id} is run elsewhere, in {run.place}.",
            reason="elsewhere",
            next="Cancel or steer it in that process.",
        )
    raise Conflict(
        f"The run {run_id} is {state}.", reason="ended", next="Only a run that is running takes it."
    )


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
        metadata: Mapping[str, str] | None = None,
        control: RunControl | None = None,
    ) -> Attached:
        """Record the run of *memory*; call the result to end the run.

        No call waits for it: another thread sends the reports. With *control* the run can be
        cancelled and steered through this process. Raise `InvalidInput` for a wrong argument.
        """
        context = self.context
        context.demand("write")
        opening = opening_of(memory, name=name, agent=agent, metadata=metadata, clock=context.clock)
        shown = Shown(
            workspace=context.workspace, recorder=InEngine(context), bus=context.engine.events
        )
        return attach(self._attachments, memory, opening, shown, control)

    def retrieve(self, id: str) -> WatchedRun:
        """Return the run *id*; raise `NotFound` if there is none."""
        row = run_row(self._looking(), id)
        return row.record(self.context.now())

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

    def follow(self, id: str, *, after: int = 0) -> Generator[RecordedRunEvent]:
        """Yield the events of the run *id* after the event *after*, until the run ends.

        The last 1,000 events are stored; in place of dropped ones, a `gap` has their number. Raise
        `NotFound` if there is no such run.
        """
        number = checked_after(after)
        context = self._looking()
        run_row(context, id)
        return follow(context, id, number)

    def cancel(self, id: str, reason: str = CANCELLED) -> None:
        """Cancel the run *id* of this process.

        Raise `Conflict` if it is over, or in another process.
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

    def delete(self, id: str) -> None:
        """Delete the record of a run that is over, with its checkpoint.

        When this returns the bytes are in no file of the database, unless a reader holds the log.
        Raise `Conflict` for a live run.
        """
        self._attachments.flush()
        self.context.demand("write")
        write.delete(self.context, id)

    @cached_property
    def checkpoints(self) -> CheckpointRows:
        """Checkpoints from which runs can be resumed."""
        self.context.demand("write")
        return CheckpointRows(self.context)

    def _looking(self) -> RunsContext:
        """Check the right to read, flush pending reports, and return the context."""
        self.context.demand("read")
        self._attachments.flush()
        return self.context

    def list(
        self, *, state: RunState | None = None, limit: int | None = 20, page: str | None = None
    ) -> Page[WatchedRun]:
        """Return the runs of *state*, or all, the latest start first."""
        return list_runs(self._looking(), state=state, limit=limit, page=page)
