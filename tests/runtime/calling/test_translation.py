"""Messages there and back: nothing that was said, asked or answered changes on the way."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from holdfast.memories.state import history
from holdfast.memories.state.message import ErrorKind, Message
from holdfast.runtime.inference.messages import (
    content_of,
    failure,
    said,
    texts,
    to_model,
    tool_call,
    tool_results,
)
from holdfast.runtime.inference.validation import NotJSON, json_form

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ARGUMENTS = st.dictionaries(TEXT, JSON, max_size=3)


@given(text=TEXT.filter(bool), arguments=ARGUMENTS, data=JSON)
def test_a_step_comes_back_as_it_went(text: str, arguments: dict[str, Any], data: Any) -> None:
    asked = history.call("call_1", "look", arguments)
    step: list[Message] = [
        history.assistant(text),
        asked,
        history.result("call_1", "look", arguments, data=data),
    ]

    there = to_model(step)

    assert [history.text(each) for each in texts(there, "ada")] == [text]
    back = tool_results(there, "ada", {})
    assert [each.tool for each in back] == asked.tools
    assert [each.content for each in back] == [{"data": data}]


@given(arguments=JSON)
def test_arguments_of_any_shape_come_back(arguments: Any) -> None:
    there = to_model([history.call("call_1", "look", arguments)])

    part = there[0].parts[0]

    assert isinstance(part, ToolCallPart)
    # What is a JSON text in a text cannot be told from its value.
    if not isinstance(arguments, str):
        assert tool_call(part).input == arguments


@pytest.mark.parametrize(
    ("args", "kept"),
    [
        ('{"a": 1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("not json", "not json"),
        ("", ""),
        (None, None),
        ("[1, 2]", [1, 2]),
        ('{"a": 1e999}', '{"a": 1e999}'),
        ('{"a": 99999999999999999999}', '{"a": 99999999999999999999}'),
        ({"a": math.inf}, '{"a":Infinity}'),
        ("lone \ud800", "lone \ufffd"),
    ],
)
def test_what_the_model_sent_is_kept_as_text_where_it_is_no_json(args: Any, kept: Any) -> None:
    assert tool_call(ToolCallPart("look", args, "call_1")).input == kept


@pytest.mark.parametrize("kind", ["raised", "timeout", "remote", "not_json", "denied"])
def test_an_error_is_told_by_its_name_and_message(kind: ErrorKind) -> None:
    content = failure("OSError", "no disk", kind)
    error = content["error"]
    assert isinstance(error, dict)

    there = to_model([history.result("call_1", "look", {}, error=error)])

    part = there[0].parts[0]
    assert isinstance(part, ToolReturnPart)
    assert (part.outcome, part.content) == ("failed", "OSError: no disk")
    assert content_of(part) == failure("OSError", "no disk", "raised")


def test_an_interrupted_call_stays_one() -> None:
    content = failure("Interrupted", "it ended", "interrupted")["error"]
    assert isinstance(content, dict)

    part = to_model([history.result("call_1", "look", {}, error=content)])[0].parts[0]

    assert isinstance(part, ToolReturnPart)
    assert part.outcome == "interrupted"


def test_half_a_character_is_replaced() -> None:
    assert said(ModelResponse([TextPart("a\ud800b")])) == "a\ufffdb"


@given(value=JSON)
def test_json_is_its_own_json_form(value: Any) -> None:
    assert json_form(value) == value


@pytest.mark.parametrize("value", [lambda: 1, object, {"a": {1, 2}}, [b"x"], float("inf")])
def test_what_has_none_is_said_with_its_place(value: Any) -> None:
    with pytest.raises(NotJSON, match="is not JSON"):
        json_form(value)
