"""What executors tell, and how it reads as JSON."""

import json
from dataclasses import MISSING, fields
from typing import Any, get_args

import pytest
from stepping import Stepping

from holdfast.ground.errors import InvalidInput, UnknownFormat
from holdfast.runtime import events
from holdfast.runtime.events import KINDS, ExecutionEvent, Spending, StepError, StepResult
from holdfast.testing import call

FILLED: dict[str, Any] = {
    "result": {"ships": [1, None, "ä"]},
    "error": StepError("timeout", "it took more than 3 s"),
    "usage": Spending(requests=1, input_tokens=2, output_tokens=3, total_tokens=5),
    "args": {"a": [1]},
    "blocked_by": ("one", "two"),
    "tasks": ("one",),
    "reason": "enough",
    "is_task_result": True,
    "item_index": 3,
}
NEEDED: dict[str, Any] = {
    "run_update": {"event": "completed", "executor": "step"},
    "planning_update": {"phase": "generation", "status": "running"},
    "task_update": {"event": "step_started"},
    "step_result": {"step_id": "count"},
    "tool_call_update": {"tool_call_id": "one", "name": "look"},
    "tool_result_update": {"tool_call_id": "one", "name": "look", "ok": True, "characters": 3},
    "chunk": {},
    "memory_update": {"key": "shared:a", "kind": "shared", "version": 1, "value_bytes": 4},
    "team_update": {"event": "task_claimed"},
    "log_update": {"severity": "warning", "content": "Mind the gap."},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_reads_back_as_it_was(kind: str) -> None:
    made = KINDS[kind]
    known = {each.name for each in fields(made)}
    filled = {name: value for name, value in FILLED.items() if name in known}
    event = made(run_id="run_1", seq=4, at=1_700_000_000_000, **NEEDED[kind], **filled)

    assert events.from_json(event.to_json()) == event
    assert json.loads(event.to_json())["type"] == kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_event_is_made_of_what_it_needs(kind: str) -> None:
    made = KINDS[kind]
    needed = {
        each.name
        for each in fields(made)
        if each.default is MISSING and each.default_factory is MISSING
    }

    assert needed == set(NEEDED[kind])
    assert events.from_json(made(**NEEDED[kind]).to_json()) == made(**NEEDED[kind])


def test_a_result_that_is_too_long_is_told_in_part_with_its_size() -> None:
    event = StepResult(step_id="count", result="x" * 100_000)

    told = json.loads(event.to_json())["result"]

    assert told == {"part": '"' + "x" * 65_535, "value_bytes": 100_002}
    assert event.result == "x" * 100_000


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", InvalidInput),
        ('{"type": "weather"}', UnknownFormat),
        ('{"type": "task_update", "event": "sunk"}', InvalidInput),
        ('{"type": "chunk", "content": 3}', InvalidInput),
    ],
)
def test_what_is_no_event_is_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        events.from_json(text)


def test_the_moments_of_tasks_and_teams_are_those_that_are_documented() -> None:
    assert len(get_args(events.TaskMoment)) == 15
    assert len(get_args(events.TeamMoment)) == 15


@pytest.mark.anyio
async def test_events_of_a_run_are_numbered_as_they_come() -> None:
    stepping = Stepping([["Let me see. " * 20, call("memory_list")], "Three."])

    told: list[ExecutionEvent] = await stepping.events()

    assert [each.seq for each in told] == list(range(1, len(told) + 1))
    assert {each.run_id for each in told} == {"run_1"}
    assert (told[0].type, told[-1].type) == ("run_update", "run_update")


@pytest.mark.anyio
async def test_what_a_model_says_is_told_piece_by_piece() -> None:
    stepping = Stepping(["Three ships. " * 10])

    chunks = await stepping.told(events.Chunk)

    assert "".join(each.content for each in chunks).strip() == stepping.executor.result
    assert [each.done for each in chunks] == [False] * (len(chunks) - 1) + [True]
    assert len(chunks) > 3


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (events.Chunk(content="a\ud800b"), {"content": "a?b"}),
        (events.ToolCallUpdate(tool_call_id="1", name="x", args={"\ud800": ["\udfff"]}), {}),
        (StepResult(step_id="a", result={"a": "\ud800"}), {"result": {"a": "?"}}),
    ],
)
def test_half_a_character_does_not_keep_an_event_from_being_told(
    event: ExecutionEvent, told: dict[str, Any]
) -> None:
    said = json.loads(event.to_json())

    assert said | told == said
    assert "?" in event.to_json()


@pytest.mark.anyio
async def test_all_events_of_a_run_are_json() -> None:
    turns = [[call("look", x=2**70), call("gone")], call("finish_step", result={"a": [1.5, None]})]
    stepping = Stepping(turns, step={"output_schema": {"type": "object"}})

    told = await stepping.events()

    assert len(told) > 10
    for event in told:
        assert events.from_json(event.to_json()).to_json() == event.to_json()
