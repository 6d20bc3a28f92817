"""Messages that a part of a run has kept, as messages of a state."""

import msgspec
import pytest
from pydantic_ai.messages import (
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from holdfast.ground.errors import InvalidInput
from holdfast.memories.run.history.turns import messages_in
from holdfast.memories.state.message import TextMessage, ToolCallMessage, ToolResultMessage


def kept(message: ModelMessage) -> bytes:
    return ModelMessagesTypeAdapter.dump_json([message])[1:-1]


def answer(call_id: str, value: object, *, failed: bool = False) -> bytes:
    message = kept(ModelRequest([ToolReturnPart("tool", value, call_id)]))
    stored = {"call_id": call_id, "message": msgspec.Raw(message), "failed": failed}
    return msgspec.json.encode({"answer": stored | {"facts": {}, "pages": {}}})


ASKED = ModelRequest([SystemPromptPart("Be short."), UserPromptPart("Which berth?")])
CALLED = ModelResponse(
    [
        ThinkingPart("A list may help."),
        TextPart("I look."),
        ToolCallPart("berths", {"free": True}, "c1"),
        ToolCallPart("depth", "not json", "c2"),
    ]
)


def test_texts_calls_and_results_come_in_their_order() -> None:
    sent = ModelRequest(
        [
            ToolReturnPart("berths", [7, 9], "c1"),
            ToolReturnPart("depth", "no such berth", "c2", outcome="retried"),
        ]
    )
    told = messages_in([("ada", kept(ASKED)), ("ada", kept(CALLED)), ("ada", kept(sent))])

    assert [type(each) for each in told] == [
        *[TextMessage] * 4,
        ToolCallMessage,
        *[ToolResultMessage] * 2,
    ]
    assert [(each.role, each.content) for each in told if isinstance(each, TextMessage)] == [
        ("system", "Be short."),
        ("user", "Which berth?"),
        ("assistant", "A list may help."),
        ("assistant", "I look."),
    ]
    calls = next(each for each in told if isinstance(each, ToolCallMessage)).tools
    assert [(each.id, each.name, each.input) for each in calls] == [
        ("c1", "berths", {"free": True}),
        ("c2", "depth", "not json"),
    ]
    results = [each.content for each in told if isinstance(each, ToolResultMessage)]
    assert results[0] == {"data": [7, 9]}
    assert results[1]["error"] == {
        "name": "bad_arguments",
        "message": "no such berth",
        "kind": "bad_arguments",
    }
    assert {each.agent for each in told} == {"ada"}


def test_an_answer_that_was_kept_alone_comes_once() -> None:
    sent = ModelRequest([ToolReturnPart("berths", [7], "c1"), UserPromptPart("Go on.")])
    bodies = [kept(ASKED), kept(CALLED), answer("c1", [7]), answer("c2", "it sank", failed=True)]

    alone = messages_in((None, each) for each in bodies)
    both = messages_in((None, each) for each in [*bodies, kept(sent)])

    results = [each.content for each in alone if isinstance(each, ToolResultMessage)]
    assert results[0] == {"data": [7]}
    assert results[1]["error"] == {"name": "raised", "message": "it sank", "kind": "raised"}
    assert both[:-1] == alone


def test_a_part_that_began_anew_has_what_came_since() -> None:
    bodies = [kept(ASKED), b'{"begin":1}', kept(CALLED), b'{"called":"c1"}', b'{"unheard":true}']

    told = messages_in((None, each) for each in bodies)

    assert [each.role for each in told] == ["assistant"] * 3


def test_instructions_are_told_once_and_what_is_no_text_is_named() -> None:
    first = ModelRequest([UserPromptPart(["See", ImageUrl("http://x/y.png")])], instructions="Be.")
    again = ModelRequest([UserPromptPart("And?")], instructions="Be.")

    told = messages_in([(None, kept(first)), (None, kept(again))])

    assert [each.content for each in told if isinstance(each, TextMessage)] == [
        "Be.",
        "See",
        "And?",
    ]
    assert told[1].extras == {"omitted": ["image-url"]}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"parts": 7}', b"\xff"])
def test_what_is_no_kept_message_is_refused_with_its_place(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[1\]"):
        messages_in([(None, kept(ASKED)), (None, body)])
