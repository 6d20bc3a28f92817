"""Record a run in `hf.runs` while it is executed: its lease, its events, its end.

Executors, networks and agents open the record before anything runs, and end it as their last act.
"""

import asyncio
from typing import Final, Literal, TypeAlias, cast

from holdfast import library
from holdfast.ground.errors import StaleRun
from holdfast.memories.run.memory import RunMemory
from holdfast.memories.run.records.event import RunEvent, facts_alone
from holdfast.memories.run.records.record import NAME_MOST, RunControl
from holdfast.memories.run.records.run import KINDS, RunKind
from holdfast.memories.run.records.writer import RunOpening, RunWriter
from holdfast.runtime.run_events import RunEvents, RunFinish

Recorded: TypeAlias = Literal["content", "facts"]
"""What is stored of a run's events: all of it, or no texts, inputs and contents."""

_KINDS: Final[dict[str, RunKind]] = {
    "planner": "plan",
    "loop": "step",
    "multi-agent": "team",
}
"""The kinds of runs of executors that are not named like them."""


class OpenRecord:
    """The open record of a run: its *writer* stores what *events* emits, until `end`.

    `opened` are the events that opening it has stored, such as `run.started`, until they are told.
    """

    def __init__(self, writer: RunWriter, events: RunEvents, recorded: Recorded) -> None:
        self._writer = writer
        self.opened = writer.opened
        events.begin_at(writer.seq + 1)

        def store(event: RunEvent) -> None:
            writer.emit(facts_alone(event) if recorded == "facts" else event)

        self._untap = events.tap(store)

    @property
    def stale(self) -> StaleRun | None:
        """The error once another owner has the run."""
        return self._writer.stale

    async def end(self, finish: RunFinish) -> RunEvent:
        """Store the end with its event, give the lease back, and return the event."""
        self._untap()
        return await asyncio.to_thread(
            self._writer.end,
            finish.status,
            reason=finish.reason,
            detail=finish.detail,
            error=finish.error,
            usage=finish.usage,
            data=finish.data,
        )


async def open_record(
    hf: "library.Holdfast",
    memory: RunMemory,
    events: RunEvents,
    opening: RunOpening,
    *,
    control: RunControl,
    recorded: Recorded = "content",
) -> OpenRecord:
    """Acquire the run of *memory* and store what *events* emits from now on.

    *control* cancels it for others, and once another owner has the run. Raise RunTaken, before
    anything runs, if another owner has it.
    """

    def acquire() -> RunWriter:
        return hf.runs.open_run(
            memory, opening, control=control, on_stale=lambda error: control.cancel(str(error))
        )

    acquiring = asyncio.ensure_future(asyncio.to_thread(acquire))
    try:
        writer = await asyncio.shield(acquiring)
    except asyncio.CancelledError:
        # What the thread acquires is given back.
        acquiring.add_done_callback(_given_back)
        raise
    return OpenRecord(writer, events, recorded)


def _given_back(acquiring: "asyncio.Future[RunWriter]") -> None:
    if acquiring.cancelled() or acquiring.exception() is not None:
        return
    writer = acquiring.result()
    loop = asyncio.get_running_loop()
    ends = loop.run_in_executor(None, lambda: writer.end("cancelled", reason="cancelled"))
    ends.add_done_callback(lambda end: end.cancelled() or end.exception())


def kind_of(name: str) -> RunKind:
    """Return the kind of the run of an executor called *name*."""
    return cast("RunKind", name) if name in KINDS else _KINDS.get(name, "step")


def record_name(text: str, otherwise: str) -> str:
    """Return *text* made fit for a record's name; *otherwise* if nothing is left.

    A title thus never stops a run.
    """
    plain = text.encode(errors="replace").decode().replace("\0", " ").strip()
    if len(plain) > NAME_MOST:
        plain = f"{plain[: NAME_MOST - 1]}…"
    return plain or otherwise
