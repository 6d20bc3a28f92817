"""Messages and results: frozen, strict, and known by checksums."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta, timezone
from pickle import dumps, loads
from typing import Any

import msgspec
import pytest
from hypothesis import given

from holdfast import InferenceResult, Usage, messages
from holdfast.errors import ChecksumMismatch, InvalidInput
from holdfast.memories.state.references import Seen
from holdfast.memories.state.result import result_id
from holdfast.messages import Message, TextMessage, ToolCall, ToolCallMessage, ToolResultMessage
from holdfast.testing import strategies as some
from holdfast.testing.strategies import results

ERROR = {"name": "KeyError", "message": "no city", "kind": "raised"}
MADE: dict[str, Any] = {
    "system": messages.system("Be brief."),
    "user": messages.user("Where?"),
    "assistant": messages.assistant("Oslo."),
    "call": messages.call("c1", "search", {"q": "Oslo"}),
    "data": messages.result("c1", "search", {"q": "Oslo"}, data=[1, {"a": None}]),
    "error": messages.result("c1", "search", "not { json", error=ERROR),
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_a_dict_of_a_message_is_read_as_that_message(made: Message) -> None:
    assert messages.from_dict(made.export()) == made
    assert messages.from_dict(json.loads(json.dumps(made.export()))) == made


@given(some.messages())
def test_every_message_comes_back_from_its_dict(made: Message) -> None:
    told = made.export()

    assert messages.from_dict(told) == made
    assert messages.from_dict(told).export() == told


def test_the_makers_make_what_they_are_named_for() -> None:
    assert MADE["system"] == TextMessage(role="system", content="Be brief.")
    assert MADE["call"] == ToolCallMessage(
        tools=[ToolCall(id="c1", name="search", input={"q": "Oslo"})]
    )
    assert isinstance(MADE["data"], ToolResultMessage)
    assert MADE["data"].content == {"data": [1, {"a": None}]}
    assert isinstance(MADE["error"], ToolResultMessage)
    assert MADE["error"].content == {"error": ERROR}


def test_text_is_the_parts_of_a_text_and_nothing_of_a_call() -> None:
    parts = TextMessage(
        role="user", content=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    )

    assert messages.text(parts) == "ab"
    assert messages.text({"type": "text", "role": "user", "content": "c"}) == "c"
    assert messages.text(MADE["call"]) == ""


CHANGES: list[Callable[[], object]] = [
    lambda: setattr(MADE["user"], "content", "x"),
    lambda: MADE["user"].extras.update(a=1),
    lambda: MADE["call"].tools.append(MADE["call"].tools[0]),
    lambda: MADE["call"].tools[0].input.pop("q"),
    MADE["data"].content["data"][1].clear,
    MADE["data"].content["data"].sort,
]


@pytest.mark.parametrize("change", CHANGES)
def test_nothing_within_a_message_can_be_changed(change: Callable[[], object]) -> None:
    with pytest.raises((AttributeError, TypeError)):
        change()


def test_what_a_message_was_made_of_may_change_later() -> None:
    given = {"q": ["Oslo"]}
    made = messages.call("c1", "search", given)

    given["q"].append("Bergen")

    assert made.tools[0].input == {"q": ["Oslo"]}


def test_what_a_message_is_exported_to_is_the_callers_own() -> None:
    told: Any = MADE["data"].export()
    told["content"]["data"].append(2)

    assert MADE["data"].export()["content"] == {"data": [1, {"a": None}]}


def test_a_message_can_be_copied_and_pickled() -> None:
    assert deepcopy(MADE["data"]) == MADE["data"] == loads(dumps(MADE["data"]))


def test_what_is_read_only_is_still_json() -> None:
    content = MADE["data"].content

    assert json.dumps(content) == '{"data": [1, {"a": null}]}'
    assert msgspec.json.encode(content) == b'{"data":[1,{"a":null}]}'


TEXT: dict[Any, Any] = {"type": "text", "role": "user", "content": "hi"}
CALLED: dict[str, Any] = {"id": "1", "name": "t", "input": {}}
CALL: dict[str, Any] = {
    "type": "tool_call",
    "role": "assistant",
    "tools": [{"id": "1", "name": "t", "input": {}}],
}
RESULT: dict[str, Any] = {
    "type": "tool_result",
    "role": "tool_result",
    "tool": CALLED,
    "content": {"data": 1},
}
BROKEN: list[tuple[object, str]] = [
    ("hi", "message"),
    ({}, "type"),
    ({**TEXT, "type": "image"}, "type"),
    ({**TEXT, "type": []}, "type"),
    ({**TEXT, "role": "tool_result"}, "role"),
    ({"type": "text", "role": "user"}, "content"),
    ({**TEXT, "content": 3}, "content"),
    ({**TEXT, "content": "\ud800"}, "content"),
    ({**TEXT, "content": [{"type": "image", "text": ""}]}, "content[0].type"),
    ({**TEXT, "content": [{"type": "text"}]}, "content[0].text"),
    ({**TEXT, "stop_reason": "done"}, "stop_reason"),
    ({**TEXT, "agent": 3}, "agent"),
    ({**TEXT, "step": -1}, "step"),
    ({**TEXT, "step": True}, "step"),
    ({**TEXT, "mood": {1}}, "extras"),
    ({**TEXT, 1: 1}, "extras"),
    ({"type": "tool_call", "tools": []}, "role"),
    ({**CALL, "role": "user"}, "role"),
    ({**CALL, "tools": {}}, "tools"),
    ({**CALL, "tools": [3]}, "tools[0]"),
    ({**CALL, "tools": [{"id": "1", "name": "t"}]}, "tools[0].input"),
    ({**CALL, "tools": [{"id": "", "name": "t", "input": 1}]}, "tools[0].id"),
    ({**CALL, "tools": [{"id": "1", "name": "t", "input": {1}}]}, "tools[0].input"),
    ({**CALL, "stop_reason": "stop"}, "stop_reason"),
    ({**RESULT, "tool": {"id": 3, "name": "t", "input": 1}}, "tool.id"),
    ({**RESULT, "content": {}}, "content"),
    ({**RESULT, "content": {"data": 1, "error": {}}}, "content"),
    ({**RESULT, "content": {"error": "no"}}, "content.error"),
    ({**RESULT, "content": {"error": {"name": "E", "kind": "raised"}}}, "content.error.message"),
    ({**RESULT, "content": {"error": {**ERROR, "kind": "odd"}}}, "content.error.kind"),
    ({**RESULT, "duration_ms": -1}, "duration_ms"),
]


@pytest.mark.parametrize(("broken", "field"), BROKEN)
def test_what_is_wrong_is_refused_by_its_place(broken: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        messages.from_dict(broken)

    assert caught.value.field == field


def test_a_result_is_either_data_or_an_error() -> None:
    with pytest.raises(InvalidInput):
        messages.result("c1", "search", {})
    with pytest.raises(InvalidInput):
        messages.result("c1", "search", {}, data=1, error=ERROR)
    assert messages.result("c1", "search", {}, data=None).content == {"data": None}


def test_unknown_members_are_kept_and_stand_where_they_stood() -> None:
    told = {**TEXT, "mood": {"b": 1, "a": 2}}

    read = messages.from_dict(told)

    assert read.extras == {"mood": {"b": 1, "a": 2}}
    assert read.export()["mood"] == {"b": 1, "a": 2}
    assert "extras" not in read.export()


def test_a_field_is_no_extra() -> None:
    with pytest.raises(InvalidInput):
        TextMessage(role="user", content="hi", extras={"role": "system"})


AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
RESULT_FIELDS = InferenceResult(
    agent="writer",
    input="Where?",
    seen=Seen.copied([messages.system("Be brief."), messages.user("Where?")]),
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
    assert RESULT_FIELDS.text == "Oslo.\n\nNorway."
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
    told = RESULT_FIELDS.export()
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
    changed = RESULT_FIELDS.replace(**change)

    assert changed.checksum != RESULT_FIELDS.checksum
    assert RESULT_FIELDS.replace() == RESULT_FIELDS


def test_the_order_of_keys_and_the_time_zone_make_no_difference() -> None:
    zone = timezone(timedelta(hours=5, minutes=30))
    told = dict(reversed(RESULT_FIELDS.export().items()))

    assert RESULT_FIELDS.replace(created_at=AT.astimezone(zone)).checksum == RESULT_FIELDS.checksum
    assert InferenceResult.from_dict(told).checksum == RESULT_FIELDS.checksum


def test_another_process_in_another_time_zone_computes_the_same_checksum() -> None:
    code = (
        "import sys, json; from holdfast import InferenceResult; "
        "print(InferenceResult.from_dict(json.load(sys.stdin)).checksum)"
    )
    told = RESULT_FIELDS.export()
    del told["checksum"]

    ran = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(told),
        env={**os.environ, "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == RESULT_FIELDS.checksum


def test_a_result_that_was_changed_is_refused_unless_it_need_not_be_verified() -> None:
    told = {**RESULT_FIELDS.export(), "input": "Who?"}

    with pytest.raises(ChecksumMismatch) as caught:
        InferenceResult.from_dict(told)

    assert (caught.value.id, caught.value.stored) == ("res_1", RESULT_FIELDS.checksum)
    assert caught.value.computed == RESULT_FIELDS.replace(input="Who?").checksum
    assert InferenceResult.from_dict(told, verify=False).input == "Who?"


def test_a_naive_time_is_refused_and_less_than_a_millisecond_is_cut_off() -> None:
    with pytest.raises(InvalidInput) as caught:
        InferenceResult(agent="a", created_at=AT.replace(tzinfo=None))
    assert caught.value.field == "created_at"
    assert InferenceResult(agent="a", created_at=AT.replace(microsecond=678_999)).created_at == AT


TOLD: Any = RESULT_FIELDS.export()
BROKEN_RESULTS: list[tuple[Any, str]] = [
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


@pytest.mark.parametrize(("broken", "field"), BROKEN_RESULTS)
def test_what_is_wrong_in_a_result_is_refused_by_its_place(broken: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        InferenceResult.from_dict(broken)

    assert caught.value.field == field


def test_nothing_within_a_result_can_be_changed() -> None:
    for change in (
        lambda: setattr(RESULT_FIELDS, "input", "x"),
        lambda: RESULT_FIELDS.output.append(messages.assistant("x")),
        RESULT_FIELDS.tool_calls.clear,
        lambda: RESULT_FIELDS.usage.details.update(a=1),
        lambda: RESULT_FIELDS.extras.update(a=1),
    ):
        with pytest.raises((AttributeError, TypeError)):
            change()


def test_unknown_members_are_kept_covered_by_the_checksum_and_written_back() -> None:
    told = {**RESULT_FIELDS.export(), "mood": "good"}

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
