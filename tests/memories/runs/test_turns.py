"""Messages that a part of a run has kept: how they are stored, and as messages of a state."""

from hashlib import sha256
from typing import Any

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

from holdfast.engines.base import scalar
from holdfast.ground.errors import InvalidInput
from holdfast.library.holdfast import Holdfast
from holdfast.memories.run.history.turns import (
    KeptTurn,
    messages_in,
    open_turns,
    with_texts,
    without_texts,
)
from holdfast.memories.run.history.versions import StateRow, VersionSave, save_version
from holdfast.memories.run.records.record import RunAcquisition
from holdfast.memories.run.records.write import begin, statements
from holdfast.memories.state.message import TextMessage, ToolCallMessage, ToolResultMessage


def body_of(message: ModelMessage) -> bytes:
    return ModelMessagesTypeAdapter.dump_json([message])[1:-1]


def answer(call_id: str, value: object, *, failed: bool = False) -> bytes:
    message = body_of(ModelRequest([ToolReturnPart("tool", value, call_id)]))
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
    told = messages_in([("ada", body_of(ASKED)), ("ada", body_of(CALLED)), ("ada", body_of(sent))])

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
    bodies = [
        body_of(ASKED),
        body_of(CALLED),
        answer("c1", [7]),
        answer("c2", "it sank", failed=True),
    ]

    alone = messages_in((None, each) for each in bodies)
    both = messages_in((None, each) for each in [*bodies, body_of(sent)])

    results = [each.content for each in alone if isinstance(each, ToolResultMessage)]
    assert results[0] == {"data": [7]}
    assert results[1]["error"] == {"name": "raised", "message": "it sank", "kind": "raised"}
    assert both[:-1] == alone


def test_a_part_that_began_anew_has_what_came_since() -> None:
    bodies = [
        body_of(ASKED),
        b'{"begin":1}',
        body_of(CALLED),
        b'{"called":"c1"}',
        b'{"unheard":true}',
    ]

    told = messages_in((None, each) for each in bodies)

    assert [each.role for each in told] == ["assistant"] * 3


def test_instructions_are_told_once_and_what_is_no_text_is_named() -> None:
    first = ModelRequest([UserPromptPart(["See", ImageUrl("http://x/y.png")])], instructions="Be.")
    again = ModelRequest([UserPromptPart("And?")], instructions="Be.")

    told = messages_in([(None, body_of(first)), (None, body_of(again))])

    assert [each.content for each in told if isinstance(each, TextMessage)] == [
        "Be.",
        "See",
        "And?",
    ]
    assert told[1].extras == {"omitted": ["image-url"]}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"parts": 7}', b"\xff"])
def test_what_is_no_kept_message_is_refused_with_its_place(body: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"messages\[1\]"):
        messages_in([(None, body_of(ASKED)), (None, body)])


SYSTEM = "You are the pilot of a harbour. " * 20
AGAIN = ModelRequest([UserPromptPart("And?")], instructions=SYSTEM)


OTHER = f'{SYSTEM} The berth is by "ada".'


def stored(hf: Holdfast, run_id: str = "run_1") -> tuple[list[str], list[bytes]]:
    """Return which texts a run has, and its messages as the table holds them."""
    engine, sql = hf.runs.context.engine, statements(hf.runs.context)
    names = {each: sha256(each.encode()).hexdigest() for each in (SYSTEM, OTHER)}
    texts = [
        each
        for each, name in names.items()
        if engine.first(scalar, sql.get_text, run=run_id, sha256=name) is not None
    ]
    return texts, [bytes(body) for _, _, body in engine.rows(sql.turn_bodies, run=run_id)]


def said(hf: Holdfast, part: str) -> list[object]:
    return [each.export()["content"] for each in hf.runs.messages("run_1", part)]


def save(hf: Holdfast, *turns: KeptTurn, **more: Any) -> None:
    facts: dict[str, Any] = {"run_id": "run_1", "cause": "step", "at": 7, **more}
    save_version(hf.runs.context, VersionSave(fence=1, turns=turns, **facts))


def begun(hf: Holdfast) -> None:
    start = RunAcquisition(
        run_id="run_1", holder="a", name="n", kind="plan", place="rock:7", started_at=1
    )
    begin(hf.runs.context, start)
    turns = [KeptTurn(part, n, body_of(AGAIN), "ada") for part in ("read", "sum") for n in range(3)]
    save(hf, *turns)


def read(hf: Holdfast, run_id: str = "run_1") -> set[bytes]:
    context = hf.runs.context
    found = open_turns(context.engine, statements(context), run_id, ())
    return {with_texts(each.body, {}) for each in found}


SAID = ModelRequest([SystemPromptPart(SYSTEM), UserPromptPart("Go.")], instructions=f"{SYSTEM}!")


@pytest.mark.parametrize("message", [ASKED, CALLED, AGAIN, SAID])
def test_a_message_is_the_same_with_its_texts_as_before(message: ModelMessage) -> None:
    body, texts = without_texts(body_of(message))

    assert msgspec.json.decode(with_texts(body, texts)) == msgspec.json.decode(body_of(message))
    assert SYSTEM.encode() not in body
    assert len(texts) == {id(AGAIN): 1, id(SAID): 2}.get(id(message), 0)


@pytest.mark.parametrize("body", [b"no json", b'{"instructions":"x', b'[{"instructions":"x"}]'])
def test_what_is_no_message_is_stored_as_it_is(body: bytes) -> None:
    assert without_texts(body) == (body, {})
    assert with_texts(body, {}) == body


def test_a_system_text_is_stored_once_a_run(kept: Holdfast) -> None:
    begun(kept)

    texts, turns = stored(kept)

    assert texts == [SYSTEM]
    assert sum(map(len, turns)) < 6 * len(SYSTEM)
    assert said(kept, "read") == [SYSTEM, *["And?"] * 3]


def test_a_fork_has_the_texts_and_a_deleted_run_has_none(kept: Holdfast) -> None:
    begun(kept)
    fork = kept.runs.fork("run_1")
    save(kept, cause="question", status="queued")

    kept.runs.delete("run_1")

    assert stored(kept) == ([], [])
    assert read(kept, fork.id) == {with_texts(*without_texts(body_of(AGAIN)))}
    assert stored(kept, fork.id)[0] == [SYSTEM]


def test_texts_go_with_the_last_message_that_names_them(kept: Holdfast) -> None:
    kept.configure_runs(versions=20, bytes=700)
    begun(kept)
    other = ModelRequest([UserPromptPart("And?")], instructions=OTHER)
    save(kept, KeptTurn("cut", 1, body_of(other)))
    over = b'{"state":"completed"}'
    save(kept, rows=(StateRow("part", "read", over), StateRow("part", "sum", over)))

    texts, turns = stored(kept)

    assert (texts, len(turns)) == ([OTHER], 1)


def test_a_text_that_names_a_forgotten_agent_is_left_out(kept: Holdfast) -> None:
    begun(kept)
    body = body_of(ModelRequest([UserPromptPart("Which?")], instructions=OTHER))
    save(kept, KeptTurn("moor", 1, body, "bob"))

    kept.forget_agent("ada")

    assert stored(kept)[0] == [SYSTEM]
    assert said(kept, "moor") == ["Which?"]
