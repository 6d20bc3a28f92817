"""What messages are: frozen, made from dicts alike, and strict about what they hold."""

import json
from collections.abc import Callable
from copy import deepcopy
from pickle import dumps, loads
from typing import Any

import msgspec
import pytest
from hypothesis import given

from holdfast import messages
from holdfast.errors import InvalidInput
from holdfast.messages import Message, TextMessage, ToolCall, ToolCallMessage, ToolResultMessage
from holdfast.testing import strategies as some

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
