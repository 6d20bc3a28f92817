"""What the contracts of threads start from."""

from datetime import UTC, datetime, timedelta
from itertools import count

from holdfast.memories.state import history
from holdfast.memories.state.result import InferenceResult, Usage, result_id
from holdfast.memories.state.run_records import RunRecord
from holdfast.memories.state.thread import ThreadMessage

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
THREAD = "thread_7"

_said = count()


def made(
    index: int = 0, *, run_id: str = "run_1", agent: str = "writer", text: str = "Done."
) -> InferenceResult:
    """Return the result at *index* of a run, with a value in each field."""
    call = history.call("call_1", "look", {"b": [1, 2.5, None], "a": {"é": "\0\N{CRAB}"}})
    return InferenceResult(
        agent=agent,
        input="Write.",
        prompt=[history.system("You write."), history.user("Write.")],
        history=[history.user("Before."), history.assistant("Yes?")],
        output=[call, history.assistant(text)],
        tool_calls=[history.result("call_1", "look", {"b": 1}, data={"found": ["x" * 10]})],
        raw='[{"kind":"response"}]',
        id=result_id(run_id, index),
        created_at=AT + timedelta(milliseconds=index),
        stop_reason="max_steps",
        usage=Usage(requests=2, input_tokens=10, output_tokens=3, tool_calls=1, details={"c": 1}),
        run_id=run_id,
        index=index,
        model="test:model",
        error={"name": "Odd", "message": "It was."},
        extras={"more": {"z": 1, "a": 2}},
    )


def said(text: str = "Write.", id: str | None = None) -> ThreadMessage:
    """Return what a user said; with an id of its own where none is given."""
    return ThreadMessage(id=id or f"msg_{next(_said)}", content=text, at=AT)


def began(run_id: str = "run_1", *, thread_id: str | None = THREAD, **more: object) -> RunRecord:
    """Return the record of a run that has begun."""
    fields: dict[str, object] = {"network": "desk", "started_at": AT, **more}
    return RunRecord.from_dict({"id": run_id, "thread_id": thread_id, **fields})


def ended(run_id: str = "run_1", *, thread_id: str | None = THREAD, **more: object) -> RunRecord:
    """Return the record of a run that has ended."""
    fields: dict[str, object] = {
        "status": "completed",
        "stop_reason": "done",
        "usage": {"requests": 3},
        "calls": 2,
        "ended_at": AT + timedelta(seconds=9),
        "dropped": ["editor"],
    }
    return began(run_id, thread_id=thread_id, **{**fields, **more})
