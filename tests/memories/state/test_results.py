"""What results are: whole, frozen, and known by a checksum that every process computes alike."""

import hashlib
import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given

from holdfast import InferenceResult, Usage, messages
from holdfast.errors import ChecksumMismatch, InvalidInput
from holdfast.memories.state.result import result_id
from holdfast.testing.strategies import results

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
RESULT = InferenceResult(
    agent="writer",
    input="Where?",
    prompt=[messages.system("Be brief."), messages.user("Where?")],
    output=[messages.assistant("Oslo."), messages.assistant(""), messages.assistant("Norway.")],
    tool_calls=[messages.result("c1", "search", {"q": 1.5}, data=["Oslo"])],
    id="res_1",
    created_at=AT,
    usage=Usage(requests=2, input_tokens=10, details={"cached": 3}),
    run_id="run_1",
    index=0,
)


@given(results())
def test_a_result_comes_back_from_its_dict_with_its_checksum(result: InferenceResult) -> None:
    told = json.loads(json.dumps(result.export()))

    back = InferenceResult.from_dict(told)

    assert back == result
    assert back.checksum == result.checksum == told["checksum"]
    assert back.export() == result.export()


def test_text_is_all_that_the_assistant_said() -> None:
    assert RESULT.text == "Oslo.\n\nNorway."
    assert InferenceResult(agent="a").text == ""


def test_what_is_left_out_has_its_default() -> None:
    bare = InferenceResult(agent="a")

    assert (bare.input, bare.raw, bare.stop_reason, bare.usage) == ("", "", "done", Usage())
    assert bare.prompt == bare.history == bare.output == bare.tool_calls == []
    assert bare.id.startswith("res_")
    assert bare.key == bare.id
    assert bare.created_at.tzinfo is UTC
    assert bare.created_at.microsecond % 1000 == 0
    assert InferenceResult(agent="a").id != bare.id


def test_the_checksum_is_of_the_canonical_json_of_all_else() -> None:
    told = RESULT.export()
    checksum = told.pop("checksum")

    canonical = json.dumps(told, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    assert told["created_at"] == "2026-01-02T03:04:05.678Z"
    assert checksum == "sha256:" + hashlib.sha256(canonical.encode()).hexdigest()


CHANGED: list[dict[str, Any]] = [
    {"agent": "planner"},
    {"id": "res_2"},
    {"created_at": AT + timedelta(milliseconds=1)},
    {"output": [messages.assistant("Bergen.")]},
    {"tool_calls": []},
    {"usage": Usage(requests=3)},
    {"index": 1},
    {"extras": {"mood": "good"}},
]


@pytest.mark.parametrize("change", CHANGED, ids=lambda change: next(iter(change)))
def test_another_content_has_another_checksum(change: dict[str, Any]) -> None:
    changed = RESULT.replace(**change)

    assert changed.checksum != RESULT.checksum
    assert RESULT.replace() == RESULT


def test_the_order_of_keys_and_the_time_zone_make_no_difference() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    told = dict(reversed(RESULT.export().items()))

    assert RESULT.replace(created_at=AT.astimezone(zone)).checksum == RESULT.checksum
    assert InferenceResult.from_dict(told).checksum == RESULT.checksum


def test_another_process_in_another_time_zone_computes_the_same_checksum() -> None:
    code = (
        "import sys, json; from holdfast import InferenceResult; "
        "print(InferenceResult.from_dict(json.load(sys.stdin)).checksum)"
    )
    told = RESULT.export()
    del told["checksum"]

    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(told),
        env={**os.environ, "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == RESULT.checksum


def test_a_result_that_was_changed_is_refused_unless_it_need_not_be_verified() -> None:
    told = {**RESULT.export(), "input": "Who?"}

    with pytest.raises(ChecksumMismatch) as caught:
        InferenceResult.from_dict(told)

    assert (caught.value.id, caught.value.stored) == ("res_1", RESULT.checksum)
    assert caught.value.computed == RESULT.replace(input="Who?").checksum
    assert InferenceResult.from_dict(told, verify=False).input == "Who?"


def test_a_naive_time_is_refused_and_less_than_a_millisecond_is_cut_off() -> None:
    with pytest.raises(InvalidInput) as caught:
        InferenceResult(agent="a", created_at=AT.replace(tzinfo=None))
    assert caught.value.field == "created_at"
    assert InferenceResult(agent="a", created_at=AT.replace(microsecond=678_999)).created_at == AT


TOLD: Any = RESULT.export()
BROKEN: list[tuple[Any, str]] = [
    (3, "result"),
    ({}, "agent"),
    ({**TOLD, "agent": ""}, "agent"),
    ({**TOLD, "id": ""}, "id"),
    ({**TOLD, "input": None}, "input"),
    ({**TOLD, "raw": {}}, "raw"),
    ({**TOLD, "prompt": {}}, "prompt"),
    ({**TOLD, "output": [TOLD["output"][0], {"type": "odd"}]}, "output[1].type"),
    ({**TOLD, "tool_calls": [TOLD["output"][0]]}, "tool_calls[0].type"),
    ({**TOLD, "tool_calls": [{**TOLD["tool_calls"][0], "tool": {}}]}, "tool_calls[0].tool.id"),
    ({**TOLD, "created_at": "yesterday"}, "created_at"),
    ({**TOLD, "created_at": 3}, "created_at"),
    ({**TOLD, "created_at": "2026-01-02T03:04:05"}, "created_at"),
    ({**TOLD, "usage": {"requests": -1}}, "usage.requests"),
    ({**TOLD, "usage": {"details": {"a": "b"}}}, "usage.details.a"),
    ({**TOLD, "usage": 3}, "usage"),
    ({**TOLD, "run_id": 3}, "run_id"),
    ({**TOLD, "index": "0"}, "index"),
    ({**TOLD, "error": "no"}, "error"),
    ({**TOLD, "error": {"name": "E"}}, "error.message"),
    ({**TOLD, "checksum": 3}, "checksum"),
]


@pytest.mark.parametrize(("broken", "field"), BROKEN)
def test_what_is_wrong_is_refused_by_its_place(broken: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        InferenceResult.from_dict(broken)

    assert caught.value.field == field


def test_nothing_within_a_result_can_be_changed() -> None:
    for change in (
        lambda: setattr(RESULT, "input", "x"),
        lambda: RESULT.output.append(messages.assistant("x")),
        RESULT.tool_calls.clear,
        lambda: RESULT.usage.details.update(a=1),
        lambda: RESULT.extras.update(a=1),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()


def test_unknown_members_are_kept_covered_by_the_checksum_and_written_back() -> None:
    told = {**RESULT.export(), "mood": "good"}

    with pytest.raises(ChecksumMismatch):
        InferenceResult.from_dict(told)
    read = InferenceResult.from_dict(told, verify=False)

    assert read.extras == {"mood": "good"}
    assert read.export()["mood"] == "good"
    assert InferenceResult.from_dict(read.export()) == read


def test_a_result_of_a_run_has_an_id_that_only_run_and_index_decide() -> None:
    assert result_id("run_1", 0) == result_id("run_1", 0)
    assert len({result_id("run_1", 0), result_id("run_1", 1), result_id("run_2", 0)}) == 3
    assert result_id("run_1", 0).startswith("res_")


def test_usages_add_up() -> None:
    total = Usage(requests=1, details={"a": 1}) + Usage(
        requests=2, output_tokens=5, details={"a": 2}
    )

    assert total == Usage(requests=3, output_tokens=5, details={"a": 3})
    assert Usage.from_dict(total.export()) == total
