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
"""Why a run was cancelled, when nobody said."""


def cancel(
    caller: RunsContext, attachments: Attachments, run_id: str, reason: str = CANCELLED
) -> None:
    """Cancel the run *run_id*; NotFound without it, Conflict when it is over or elsewhere."""
    demand_words("reason", reason)
    _control_of(caller, attachments, run_id).cancel(reason)


def steer(
    caller: RunsContext, attachments: Attachments, run_id: str, text: str, step: str | None = None
) -> list[str]:
    """Tell the run's *step*, or every running one, *text* before its next request; say which."""
    demand_words("text", text)
    if step is not None:
        demand_words("step", step)
    return _control_of(caller, attachments, run_id).steer(text, step=step)


def _control_of(caller: RunsContext, attachments: Attachments, run_id: str) -> RunControl:
    held = attachments.controls.of(caller.workspace, run_id)
    if held is not None:
        return held
    attachments.flush()
    run = run_row(caller, run_id)
    state = run.state_at(caller.now())
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
    """Raise InvalidInput for what says nothing."""
    if not encoded(field, given).strip():
        raise InvalidInput(field, "must not be blank", next="Say it in words.")


class Runs:
    """The runs of a workspace, those of this process and what others report of theirs."""

    def __init__(self, caller: RunsContext, attachments: Attachments) -> None:
        self.caller, self._attachments = caller, attachments

    def attach(
        self,
        memory: RunMemory,
        *,
        name: str,
        agent: str | None = None,
        metadata: Mapping[str, str] | None = None,
        control: RunControl | None = None,
    ) -> Attached:
        """Show the run of *memory* to others; what this returns, called, says that it is over.

        Nothing waits for it: what happens is reported on another thread. With *control* the run
        can be cancelled and steered through this process. Raises InvalidInput.
        """
        caller = self.caller
        caller.demand("write")
        opening = opening_of(memory, name=name, agent=agent, metadata=metadata, clock=caller.clock)
        shown = Shown(workspace=caller.workspace, keeper=InEngine(caller), bus=caller.engine.events)
        return attach(self._attachments, memory, opening, shown, control)

    def retrieve(self, id: str) -> WatchedRun:
        """Return the run *id* as it is now; NotFound without it."""
        row = run_row(self._looking(), id)
        return row.record(self.caller.now())

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
        """Return what the memory of the run *id* held last, without values, the newest first.

        The filters are those of a run memory's own list. Raises NotFound without the run.
        """
        among = filter_of(kind, keys, key_prefix, sources)
        asked = asked_for(among, order=order, limit=limit, page=page)
        return entries_page(lambda asked: entries_told(self._looking(), id, asked), asked)

    def entry(self, id: str, key: str, *, path: str | None = None, offset: int = 0) -> ReadEntry:
        """Return the entry under *key* of the run *id*, or what *path* leads to in its value.

        Of a value over 64 KiB the first part is kept. Raises NotFound without run or entry.
        """
        wanted = checked_wish(path, offset)
        return read_in(entry_told(self._looking(), id, key, wanted))

    def follow(self, id: str, *, after: int = 0) -> Generator[RecordedRunEvent]:
        """Give what happened in the run *id* past the event *after*, and what happens, to its end.

        The last 1,000 events are kept; where others were, a `gap` tells how many. Raises NotFound.
        """
        number = checked_after(after)
        caller = self._looking()
        run_row(caller, id)
        return follow(caller, id, number)

    def cancel(self, id: str, reason: str = CANCELLED) -> None:
        """Cancel the run *id* of this process; Conflict when it is over, or runs elsewhere."""
        self.caller.demand("write")
        cancel(self.caller, self._attachments, id, reason)

    def steer(self, id: str, text: str, *, step: str | None = None) -> list[str]:
        """Put *text* before the next request of *step*, or of every running one; return which.

        Raises NotFound for a step that is finished or unknown, Conflict as `cancel` does.
        """
        self.caller.demand("write")
        return steer(self.caller, self._attachments, id, text, step)

    def delete(self, id: str) -> None:
        """Delete the record of a run that is over, with its checkpoint; Conflict for a live one.

        When this returns the bytes are in no file of the database, unless a reader holds the log.
        """
        self._attachments.flush()
        self.caller.demand("write")
        write.delete(self.caller, id)

    @cached_property
    def checkpoints(self) -> CheckpointRows:
        """What a run can be resumed from, as its runtime wrote it."""
        self.caller.demand("write")
        return CheckpointRows(self.caller)

    def _looking(self) -> RunsContext:
        """Return who looks, once all that happened here is in the records."""
        self.caller.demand("read")
        self._attachments.flush()
        return self.caller

    def list(
        self, *, state: RunState | None = None, limit: int | None = 20, page: str | None = None
    ) -> Page[WatchedRun]:
        """Return the runs of *state*, or all, those that began last first."""
        return list_runs(self._looking(), state=state, limit=limit, page=page)
