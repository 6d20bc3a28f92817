"""A run of this process cancelled or steered from outside; what runs elsewhere is not reached."""

from holdfast.ground.errors import Conflict, InvalidInput
from holdfast.ground.text import encoded
from holdfast.memories.run.records.mirror import Attachments
from holdfast.memories.run.records.read import run_row
from holdfast.memories.run.records.record import RunControl, RunsContext, held_by, this_process

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
