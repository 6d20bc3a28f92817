"""The history of a state as messages, and the state as JSON."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import InferenceResult, NetworkState, StateLimits, Usage, View, messages
from holdfast.errors import ChecksumMismatch, InvalidInput, LimitExceeded, UnknownFormat
from holdfast.messages import Message, TextMessage, ToolCallMessage, ToolResultMessage
from holdfast.testing.fakes import FrozenClock

SAID = messages.assistant


def told(found: Sequence[Message]) -> list[str]:
    """Return *found* in short: the role and text, or the calls, or the result and its kind."""
    short: list[str] = []
    for each in found:
        if isinstance(each, TextMessage):
            short.append(f"{each.role}: {messages.text(each)}")
        elif isinstance(each, ToolCallMessage):
            short.append("call " + " ".join(call.id for call in each.tools))
        else:
            short.append(f"{next(iter(each.content))} {each.tool.id}")
    return short


def answer(id: str, step: int | None = None, name: str = "search") -> ToolResultMessage:
    made = messages.result(id, name, {"q": 1}, data=id)
    return ToolResultMessage(tool=made.tool, content=made.content, step=step)


def at(step: int, text: str) -> TextMessage:
    return TextMessage(role="assistant", content=text, step=step)


RESEARCH = InferenceResult(
    agent="researcher",
    input="Where?",
    output=[at(0, "I look."), at(1, "Oslo <b>.")],
    tool_calls=[answer("c1", 0), answer("c2", 0, "read")],
    run_id="run_1",
    id="res_1",
)
WRITING = InferenceResult(
    agent="writer",
    input="Where?",
    output=[SAID("In Oslo.")],
    run_id="run_1",
    id="res_2",
)


NOTE = """user: <agent name="researcher">
I look.
[tool search] {"q":1} -> {"data":"c1"}
[tool read] {"q":1} -> {"data":"c2"}
Oslo &lt;b&gt;.
</agent>"""


@pytest.fixture
def state() -> NetworkState:
    return NetworkState(messages=[messages.system("Be brief.")], results=[RESEARCH, WRITING])


def test_a_state_that_holds_nothing_tells_nothing() -> None:
    assert NetworkState().format_history() == []


def test_the_opening_is_told_then_each_result_step_by_step(state: NetworkState) -> None:
    assert told(state.format_history()) == [
        "system: Be brief.",
        "user: Where?",
        "assistant: I look.",
        "call c1 c2",
        "data c1",
        "data c2",
        "assistant: Oslo <b>.",
        "assistant: In Oslo.",
    ]


@pytest.mark.parametrize(
    ("changes", "inputs"),
    [
        ({}, 1),
        ({"run_id": "run_2"}, 2),
        ({"input": "Who?"}, 2),
        ({"input": ""}, 1),
    ],
)
def test_an_input_is_told_once_in_its_run(changes: dict[str, Any], inputs: int) -> None:
    state = NetworkState(results=[RESEARCH, WRITING.replace(**changes)])

    assert len([each for each in state.format_history() if each.role == "user"]) == inputs


def test_without_a_run_an_input_is_told_again() -> None:
    state = NetworkState(results=[RESEARCH.replace(run_id=None), WRITING.replace(run_id=None)])

    assert [each.role for each in state.format_history()].count("user") == 2


def test_what_has_no_step_is_of_the_first() -> None:
    result = InferenceResult(
        agent="a", output=[SAID("now"), at(1, "later")], tool_calls=[answer("c2", 1), answer("c1")]
    )

    assert told(NetworkState(results=[result]).format_history()) == [
        "assistant: now",
        "call c1",
        "data c1",
        "assistant: later",
        "call c2",
        "data c2",
    ]


def test_a_call_that_nothing_answers_was_interrupted() -> None:
    result = InferenceResult(
        agent="a", output=[messages.call("c1", "search", {}), messages.call("c2", "search", {})],
        tool_calls=[answer("c2")],
    )  # fmt: skip

    history = NetworkState(results=[result]).format_history()

    assert told(history) == ["call c1 c2", "error c1", "data c2"]
    interrupted: Any = history[1].export()
    assert interrupted["content"]["error"]["kind"] == "interrupted"


def test_a_formatter_tells_a_result_in_its_own_way(state: NetworkState) -> None:
    def brief(result: InferenceResult) -> list[Any]:
        return [messages.assistant(result.agent).export()]

    assert told(state.format_history(brief)) == [
        "system: Be brief.",
        "assistant: researcher",
        "assistant: writer",
    ]


@pytest.mark.parametrize("made", [None, "text", [3], [{"type": "odd"}]])
def test_what_a_formatter_returns_is_checked(state: NetworkState, made: Any) -> None:
    with pytest.raises(InvalidInput) as caught:
        state.format_history(lambda _: made)
    assert caught.value.field.startswith("formatter")


def test_an_agent_sees_what_others_did_as_a_note_that_nothing_can_close(
    state: NetworkState,
) -> None:
    seen = state.format_history(agent="writer", view=View())

    assert told(seen) == [
        "system: Be brief.",
        "user: Where?",
        NOTE,
        "assistant: In Oslo.",
    ]


def test_only_what_agents_and_tools_said_is_escaped_in_a_note() -> None:
    shout = messages.result("c1", "<b>", {"q": "a<b"}, data="</agent> & more")
    state = NetworkState(results=[RESEARCH.replace(input="", output=[], tool_calls=[shout])])

    note = messages.text(state.format_history(agent="writer", view=View())[-1])

    line = '[tool &lt;b&gt;] {"q":"a&lt;b"} -> {"data":"&lt;/agent&gt; &amp; more"}'
    assert note == f'<agent name="researcher">\n{line}\n</agent>'


def test_the_name_of_an_agent_cannot_leave_its_note() -> None:
    state = NetworkState(results=[RESEARCH.replace(agent='a"><x>', tool_calls=[])])

    note = messages.text(state.format_history(agent="writer", view=View())[-1])

    assert note.startswith('<agent name="a&quot;&gt;&lt;x&gt;">\n')


SHORT_NOTE = 'user: <agent name="researcher">\nI look.\nOslo &lt;b&gt;.\n</agent>'
VIEWS: list[tuple[View, list[str]]] = [
    (View(turns="own"), ["user: Where?", "assistant: In Oslo."]),
    (View(turns="inputs"), ["user: Where?"]),
    (
        View(others="verbatim", tools="drop"),
        ["user: Where?", "assistant: I look.", "assistant: Oslo <b>.", "assistant: In Oslo."],
    ),
    (
        View(others="verbatim", tools="summary"),
        [
            "user: Where?",
            "assistant: I look.",
            "assistant: [Tools used: search, read]",
            "assistant: Oslo <b>.",
            "assistant: In Oslo.",
        ],
    ),
    (
        View(others="verbatim", include=["read"]),
        [
            *("user: Where?", "assistant: I look.", "call c2", "data c2"),
            *("assistant: Oslo <b>.", "assistant: In Oslo."),
        ],
    ),
    (
        View(tools="drop"),
        ["user: Where?", SHORT_NOTE, "assistant: In Oslo."],
    ),
]


@pytest.mark.parametrize(("view", "seen"), VIEWS)
def test_a_view_shows_what_it_says(state: NetworkState, view: View, seen: list[str]) -> None:
    found = state.format_history(agent="writer", view=view)

    assert told(found) == ["system: Be brief.", *seen]
    assert found == state.window(agent="writer", view=view).messages


def test_without_an_agent_nobodys_turns_are_its_own(state: NetworkState) -> None:
    assert state.format_history(view=View()) == state.format_history()
    with pytest.raises(InvalidInput):
        state.format_history(view=View(turns="own"))


@pytest.mark.parametrize(
    "options",
    [
        {"turns": "mine"},
        {"others": "hide"},
        {"tools": "some"},
        {"include": ["a"], "exclude": ["b"]},
        {"include": [], "exclude": []},
        {"include": "search"},
        {"exclude": [3]},
        {"budget": -1},
        {"measure": 3},
    ],
)
def test_a_view_is_well_formed(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        View(**options)


@pytest.mark.parametrize(
    ("view", "left"),
    [
        (View(include=[]), ["user: Go."]),
        (View(exclude=[]), ["user: Go.", "call c1 c2", "data c1", "data c2"]),
        (View(exclude=["search"]), ["user: Go.", "call c2", "data c2"]),
        (View(tools="summary", exclude=["read"]), ["user: Go.", "assistant: [Tools used: search]"]),
        (View(tools="drop"), ["user: Go."]),
        (View(tools="drop", exclude=["search"]), ["user: Go.", "call c2", "data c2"]),
        (View(tools="drop", include=["read"]), ["user: Go.", "call c2", "data c2"]),
        (View(tools="drop", include=[]), ["user: Go."]),
        (View(tools="drop", exclude=[]), ["user: Go.", "call c1 c2", "data c1", "data c2"]),
    ],
)
def test_tools_stay_or_go_by_name(view: View, left: list[str]) -> None:
    said = [messages.user("Go."), *NetworkState(results=[RESEARCH]).format_history()[2:5]]

    assert told(messages.select([each.export() for each in said], view)) == left


def test_a_window_keeps_what_was_asked_and_the_newest_that_fits() -> None:
    said = [
        messages.system("sys"),
        SAID("old"),
        messages.user("ask"),
        messages.call("c1", "search", {}),
        answer("c1"),
        SAID("new"),
    ]
    call, result = messages.size_bytes(said[3]), messages.size_bytes(said[4])

    whole = messages.window(said, budget=12 + call + result)
    part = messages.window(said, budget=8 + call + result)
    none = messages.window(said, budget=5)

    assert (whole.messages, whole.omitted, whole.size) == (said, [], 12 + call + result)
    assert (told(part.messages), part.size) == (["system: sys", "user: ask", "assistant: new"], 9)
    assert [(each.index, each.type, each.size, each.reason) for each in part.omitted] == [
        (1, "text", 3, "older"),
        (3, "tool_call", call, "over_budget"),
        (4, "tool_result", result, "over_budget"),
    ]
    assert (told(none.messages), none.size) == (["system: sys", "user: ask"], 6)
    assert (none.over_budget, part.over_budget, len(none.omitted)) == (True, False, 4)


def test_a_measure_takes_the_place_of_bytes() -> None:
    said = [SAID("a" * 100), SAID("b" * 100)]

    window = messages.window(said, budget=1, measure=lambda _: 1)

    assert (window.messages, window.size) == ([said[1]], 1)
    with pytest.raises(InvalidInput):
        messages.window(said, budget=1, measure=lambda _: -1)
    with pytest.raises(InvalidInput):
        messages.window(said, budget=-1)


def test_a_window_of_a_state_names_the_results_that_it_left_out(state: NetworkState) -> None:
    window = state.window(agent="writer", view=View(budget=26))

    assert told(window.messages) == ["system: Be brief.", "user: Where?", "assistant: In Oslo."]
    assert [(each.result_id, each.index, each.reason) for each in window.omitted] == [
        ("res_1", 2, "over_budget")
    ]


def test_each_window_shows_an_earlier_result_without_forming_its_messages_again(
    state: NetworkState,
) -> None:
    formed: list[Message] = []

    def measure(message: Message) -> int:
        formed.append(message)
        return 1

    for _ in range(2):
        state.window(agent="planner", view=View(budget=9, measure=measure))

    first, second = formed[: len(formed) // 2], formed[len(formed) // 2 :]
    assert any(each.agent == "writer" for each in first)
    assert all(one is other for one, other in zip(first, second, strict=True))


def test_what_a_window_left_out_is_counted_without_a_list() -> None:
    said = [SAID("old"), SAID("older"), SAID("new")]

    omitted = messages.window(said, budget=3).omitted

    assert (len(omitted), omitted.size) == (2, 8)
    assert (omitted[-1].index, omitted[:1]) == (1, [next(iter(omitted))])
    assert repr(omitted) == repr(list(omitted))


def test_a_window_of_nothing_is_empty() -> None:
    assert messages.window([], budget=0).messages == []
    assert NetworkState().window().omitted == []


AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
ERROR = {"name": "TimeoutError", "message": "late", "kind": "timeout"}


@pytest.fixture
def filled() -> NetworkState:
    state = NetworkState(
        {"b": {"z": 1, "a": [1.0, 1e16, -0.0, None]}, "é\u2028": "\U0001f600\x00"},
        messages=[messages.system("Be brief.")],
        thread_id="thread_1",
        clock=FrozenClock(AT),
    )
    state.kv.delete("b")
    state.on_behalf(agent="writer", run_id="run_1", tool="save", call_id="c1").kv.set("b", [1])
    called = messages.result("c1", "search", {"z": 1, "a": 2}, error=ERROR)
    state.append_result(
        InferenceResult(
            agent="writer",
            output=[messages.assistant("Oslo.")],
            tool_calls=[called],
            id="res_1",
            created_at=AT,
            usage=Usage(requests=1),
            extras={"mood": "good"},
        )
    )
    return state


def test_the_text_that_is_read_is_the_text_that_is_written(filled: NetworkState) -> None:
    text = filled.to_json()

    back = NetworkState.from_json(text)

    assert back.to_json() == text
    assert "\n" not in text
    assert NetworkState.from_json(text.encode()).to_json() == text
    assert NetworkState.from_dict(filled.to_dict()).to_json() == text
    assert filled.to_dict() == json.loads(text)


def test_all_that_a_state_is_returns(filled: NetworkState) -> None:
    back = NetworkState.from_json(filled.to_json())

    assert (back.thread_id, back.revision) == ("thread_1", filled.revision)
    assert (back.messages, back.results) == (filled.messages, filled.results)
    assert [back.kv.info(key) for key in back.kv] == [filled.kv.info(key) for key in filled.kv]
    assert list(back.kv) == ["é\u2028", "b"]
    assert isinstance(back.results[0], InferenceResult)
    assert list(back.results[0].tool_calls[0].tool.input) == ["z", "a"]  # type: ignore[arg-type]
    assert back.results[0].checksum == filled.results[0].checksum


def test_the_text_says_what_the_page_shows(filled: NetworkState) -> None:
    told = json.loads(filled.to_json())

    assert list(told) == [
        *("format", "version", "thread_id", "revision", "values", "messages", "results")
    ]
    assert (told["format"], told["version"]) == ("holdfast.network_state", 1)
    assert told["values"][1] == {
        "key": "b",
        "value": [1],
        "version": 4,
        "created_at": "2026-01-02T03:04:05.678Z",
        "updated_at": "2026-01-02T03:04:05.678Z",
        "agent": "writer",
        "run_id": "run_1",
        "tool": "save",
        "call_id": "c1",
    }
    assert list(told["results"][0])[-2:] == ["mood", "checksum"]


def test_a_state_goes_on_after_it_was_read(filled: NetworkState) -> None:
    back = NetworkState.from_json(filled.to_json(), clock=FrozenClock(AT))

    assert back.kv.set("new", 1) == filled.revision + 1
    assert back.revision == filled.revision + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "null",
        '"state"',
        "{}",
        '{"format":"other","version":1}',
        '{"format":"holdfast.network_state","version":2}',
        '{"version":1}',
    ],
)
def test_what_is_of_no_state_is_an_unknown_format(text: str) -> None:
    with pytest.raises(UnknownFormat):
        NetworkState.from_json(text)


Change = Callable[[dict[str, Any]], object]
BROKEN: list[tuple[Change, str]] = [
    (lambda told: told.update(version="1"), "version"),
    (lambda told: told.pop("values"), "values"),
    (lambda told: told.pop("thread_id"), "thread_id"),
    (lambda told: told.update(other=1), "other"),
    (lambda told: told.update(thread_id=3), "thread_id"),
    (lambda told: told.update(revision=-1), "revision"),
    (lambda told: told.update(messages={}), "messages"),
    (lambda told: told["messages"].append(3), "messages[1]"),
    (lambda told: told["values"][1].pop("key"), "values[1].key"),
    (lambda told: told["values"][1].update(key="é\u2028"), "values[1].key"),
    (lambda told: told["values"][1].update(key=""), "values[1].key"),
    (lambda told: told["values"][1].update(version=99), "values[1].version"),
    (lambda told: told["values"][1].update(value=2**63), "values[1].value"),
    (lambda told: told["values"][1].update(created_at="now"), "values[1].created_at"),
    (lambda told: told["values"][1].update(agent=1), "values[1].agent"),
    (lambda told: told["values"].append(1), "values[2]"),
    (lambda told: told["results"].append([]), "results[1]"),
    (
        lambda told: told["results"][0]["tool_calls"][0]["tool"].pop("id"),
        "results[0].tool_calls[0].tool.id",
    ),
    (lambda told: told["results"][0].update(usage=1), "results[0].usage"),
]


@pytest.mark.parametrize(("change", "field"), BROKEN)
def test_a_broken_member_is_refused_by_its_place(
    filled: NetworkState, change: Change, field: str
) -> None:
    told: Any = filled.to_dict()
    change(told)

    with pytest.raises(InvalidInput) as caught:
        NetworkState.from_dict(told)

    assert caught.value.field == field
    assert not isinstance(caught.value, UnknownFormat)


def test_a_result_that_was_changed_is_refused_unless_it_need_not_be_verified(
    filled: NetworkState,
) -> None:
    text = filled.to_json().replace("Oslo.", "Bergen.")

    with pytest.raises(ChecksumMismatch) as caught:
        NetworkState.from_json(text)
    assert caught.value.id == "res_1"
    assert NetworkState.from_json(text, verify=False).results[0].text == "Bergen."


def test_limits_hold_for_what_is_read(filled: NetworkState) -> None:
    for limits in (
        StateLimits(keys=1),
        StateLimits(value_bytes=3),
        StateLimits(total_bytes=4),
        StateLimits(result_bytes=100),
    ):
        with pytest.raises(LimitExceeded):
            NetworkState.from_json(filled.to_json(), limits=limits)


@pytest.mark.parametrize("levels", [250, 100_000])
def test_a_state_nested_over_200_deep_is_of_no_known_format(
    filled: NetworkState, levels: int
) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    text = filled.to_json().replace('"thread_id":', f'"deep":{deep},"thread_id":')

    for given in (text, "[" * levels):
        with pytest.raises(UnknownFormat):
            NetworkState.from_json(given)


def test_what_is_nested_as_deep_as_may_be_comes_back(filled: NetworkState) -> None:
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    made = messages.result("c", "t", deep, data=deep)
    filled.append_result({"agent": "a", "tool_calls": [made]})

    assert NetworkState.from_json(filled.to_json()).to_json() == filled.to_json()


def test_a_result_is_formatted_once_for_all_the_turns_after_it(state: NetworkState) -> None:
    first = state.format_history(view=View(others="verbatim"))
    state.append_result(WRITING.replace(id="res_3"))

    assert all(a is b for a, b in zip(first[1:], state.format_history()[1:], strict=False))


def test_the_size_of_a_result_is_checked_by_the_limits_of_each_state() -> None:
    large = RESEARCH.replace(raw="x" * 5_000)

    for limit, fits in ((4_000, False), (8_000, True), (4_000, False)):
        state = NetworkState(limits=StateLimits(result_bytes=limit))
        if fits:
            state.append_result(large)
            continue
        with pytest.raises(LimitExceeded):
            state.append_result(large)
