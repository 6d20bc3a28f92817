"""A run of this process, shown to others while it lasts."""

import secrets
from collections.abc import Callable

from msgspec import Struct

from holdfast.ground.clock import Clock, to_microseconds
from holdfast.ground.errors import InvalidInput
from holdfast.ground.events import EventBus
from holdfast.ground.scope import checked_name
from holdfast.memories.run.listeners import RunMemoryEvent
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.mirroring import Mirroring
from holdfast.memories.run.records.mirror import PAUSE, Mirror, RunRecorder
from holdfast.memories.run.records.record import (
    MILLISECOND,
    Controls,
    Ending,
    ReportedEvent,
    RunControl,
    RunReport,
    RunsContext,
    RunStart,
    checked_ending,
    checked_metadata,
    checked_name_of,
    this_process,
)
from holdfast.memories.run.records.write import begin, take


class Shown(Struct, frozen=True, kw_only=True):
    """Where a run is shown: in which workspace, by which keeper, on which bus if there is one."""

    workspace: str
    keeper: RunRecorder
    bus: EventBus | None = None


class Attachments:
    """The runs of this process that are shown through one handle, and those like it.

    With *strict* their keeper decides how often it is told.
    """

    def __init__(self, *, strict: bool = False) -> None:
        self.controls = Controls()
        self.mirroring = Mirroring(strict=strict)

    def flush(self) -> None:
        """Let what happened so far be in the records, if their keeper can be reached."""
        self.mirroring.flush()

    def close(self) -> None:
        """Report what there is, and stop."""
        self.mirroring.close()


class InEngine:
    """The keeper of records in *caller*'s own database."""

    pause = PAUSE

    def __init__(self, caller: RunsContext) -> None:
        self._caller = caller

    def begin(self, opening: RunStart) -> None:
        """Show a run; again does nothing."""
        begin(self._caller, opening)

    def take(self, run_id: str, report: RunReport) -> None:
        """Bring a run's record up to date; again does nothing."""
        take(self._caller, run_id, report)


class Attached:
    """A run while it is shown. Called, it is over: as `completed`, or as what is given."""

    def __init__(self, ends: Callable[[Ending], None]) -> None:
        self._ends = ends

    def __call__(self, state: Ending = "completed") -> None:
        """Mark the run ended, and keep its last snapshot; again does nothing."""
        self._ends(checked_ending(state))


def opening_of(
    memory: RunMemory, *, name: str, agent: str | None, metadata: object, clock: Clock
) -> RunStart:
    """Return how the run of *memory* is shown; InvalidInput for what cannot be told of it."""
    if not isinstance(memory, RunMemory):  # pyright: ignore[reportUnnecessaryIsInstance] - what a caller gave
        raise InvalidInput("memory", "must be a RunMemory", given=type(memory).__name__)
    return RunStart(
        run_id=checked_name("run_id", memory.run_id),
        holder=secrets.token_hex(12),
        name=checked_name_of("name", name),
        agent=None if agent is None else checked_name_of("agent", agent),
        metadata=checked_metadata(metadata or {}),
        place=this_process(),
        started_at=to_microseconds(clock.now()) // MILLISECOND,
    )


def attach(
    attachments: Attachments,
    memory: RunMemory,
    opening: RunStart,
    shown: Shown,
    control: RunControl | None,
) -> Attached:
    """Show the run of *memory* from now on; *control* has it in its hands."""
    mirror = Mirror(memory, opening, shown.keeper, ring=attachments.mirroring.ring)
    bus = shown.bus

    def hear(event: RunMemoryEvent) -> None:
        mirror.hear(ReportedEvent(type=event.type, at=event.at, data=event.data))
        if bus is not None and bus.heard:
            bus.publish(event.notice(shown.workspace))

    let_go = _nothing
    if control is not None:
        let_go = attachments.controls.hold(
            shown.workspace, opening.run_id, control, holder=opening.holder
        )
    unheard = memory.on_event(hear)
    attachments.mirroring.add(mirror)

    def ends(state: Ending) -> None:
        unheard()
        let_go()
        mirror.end(state)

    return Attached(ends)


def _nothing() -> None:
    """Let nothing go: nobody holds the run."""
