"""What holds of every state, whatever was written to it in whatever order."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast import InferenceResult, NetworkState, View, messages
from holdfast.messages import Message, ToolCallMessage, ToolResultMessage
from holdfast.testing import strategies as some

KEYS = st.sampled_from(some.KEYS)


class Undone(Exception):
    """What a batch is left with, so that it is undone."""


class StateMachine(RuleBasedStateMachine):
    """Plays a state against a dict and two lists, through both views, in batches and without."""

    def __init__(self) -> None:
        super().__init__()
        self.state = NetworkState()
        self.values: dict[str, Any] = {}
        self.results: list[InferenceResult] = []
        self.writes = 0

    @rule(key=KEYS, value=some.json_values(), by_method=st.booleans())
    def set(self, key: str, value: Any, by_method: bool) -> None:
        if by_method:
            assert self.state.kv.set(key, value) == self.writes + 1
        else:
            self.state.data[key] = value
        self.values[key] = value
        self.writes += 1

    @rule(key=KEYS)
    def delete(self, key: str) -> None:
        there = key in self.values
        assert self.state.kv.delete(key) is there
        self.values.pop(key, None)
        self.writes += there

    @rule(key=KEYS, value=some.json_values())
    def update(self, key: str, value: Any) -> None:
        old = self.values.get(key, 0)
        assert self.state.kv.update(key, lambda held: [held, value], 0) == [old, value]
        self.values[key] = [old, value]
        self.writes += 1

    @rule(result=some.results())
    def append(self, result: InferenceResult) -> None:
        self.state.append_result(result)
        self.results.append(result)
        self.writes += 1

    @rule(keys=st.lists(KEYS), value=some.json_values(), result=some.results())
    def undo(self, keys: list[str], value: Any, result: InferenceResult) -> None:
        def batch() -> None:
            with self.state.kv.batch():
                for key in keys:
                    self.state.kv.delete(key)
                    self.state.data[key] = value
                self.state.append_result(result)
                raise Undone

        before = self.state.to_json()
        with pytest.raises(Undone):
            batch()
        assert self.state.to_json() == before

    @rule(key=KEYS, value=some.json_values())
    def clone(self, key: str, value: Any) -> None:
        before, clone = self.state.to_json(), self.state.clone()
        assert clone.to_json() == before
        clone.kv.set(key, value)
        clone.set_results([])
        assert self.state.to_json() == before
        copy = self.state.clone()
        self.state.kv.set(key, value)
        self.values[key] = value
        self.writes += 1
        assert copy.to_json() == before

    @rule()
    def read_again(self) -> None:
        text = self.state.to_json()
        self.state = NetworkState.from_json(text)
        assert self.state.to_json() == text

    @invariant()
    def views_agree(self) -> None:
        assert self.state.kv.all() == self.state.data == self.values
        assert list(self.state.kv) == list(self.state.data) == list(self.values)
        assert self.state.results == self.results
        assert self.state.revision == self.writes


TestStateMachine = StateMachine.TestCase


@given(
    st.dictionaries(KEYS, some.json_values()),
    st.lists(some.messages(), max_size=3),
    st.lists(some.results(), max_size=3),
)
def test_a_state_comes_back_byte_for_byte(
    data: dict[str, Any], opening: list[Message], results: list[InferenceResult]
) -> None:
    text = NetworkState(data, messages=opening, results=results).to_json()

    back = NetworkState.from_json(text)

    assert back.to_json() == text
    assert [each.checksum for each in back.results] == [each.checksum for each in results]


def is_whole(said: list[Message]) -> bool:
    """Tell whether each call is followed by its result, and each result follows its call."""
    open_calls: list[str] = []
    for each in said:
        if isinstance(each, ToolCallMessage):
            open_calls.extend(call.id for call in each.tools)
        elif isinstance(each, ToolResultMessage):
            if each.tool.id not in open_calls:
                return False
            open_calls.remove(each.tool.id)
    return not open_calls


@given(st.lists(some.results(), max_size=4))
def test_a_history_has_no_call_without_its_result(results: list[InferenceResult]) -> None:
    assert is_whole(NetworkState(results=results).format_history())


TOOLS = st.sampled_from(("keep", "drop", "summary"))
NAMES = st.none() | st.lists(st.sampled_from(some.NAMES), max_size=2)
VIEWS = st.builds(View, tools=TOOLS, include=NAMES) | st.builds(View, tools=TOOLS, exclude=NAMES)


@given(some.conversations(), st.integers(0, 60))
def test_a_window_keeps_or_names_each_message_within_its_budget(
    said: list[Message], budget: int
) -> None:
    window = messages.window(said, budget=budget)

    left = {each.index for each in window.omitted}
    kept = [each for index, each in enumerate(said) if index not in left]
    assert window.messages == kept
    assert len(kept) + len(window.omitted) == len(said)
    assert window.size == sum(map(messages.size_bytes, kept))
    assert window.over_budget == (window.size > budget)
    assert all(each.size == messages.size_bytes(said[each.index]) for each in window.omitted)
    assert is_whole(window.messages)
    assert all(each in kept for each in said if each.role == "system")


@given(some.conversations(), st.integers(0, 60))
def test_a_window_is_a_tail_and_what_is_pinned(said: list[Message], budget: int) -> None:
    window = messages.window(said, budget=budget)

    left = [each.index for each in window.omitted]
    asked = [index for index, each in enumerate(said) if each.role == "user"]
    own = [index for index in asked if said[index].agent is None]
    pinned = {*(own or asked)[-1:], *(i for i, each in enumerate(said) if each.role == "system")}
    assert all(index in left or index in pinned for index in range(max(left, default=0)))
    assert messages.window(window.messages, budget=budget).messages == window.messages


@given(some.conversations(), VIEWS)
def test_a_selection_is_made_once_and_commutes_with_a_window_that_holds_all(
    said: list[Message], view: View
) -> None:
    selected = messages.select(said, view)
    most = sum(map(messages.size_bytes, said)) + 1000

    assert messages.select(selected, view) == selected
    assert is_whole(selected)
    assert messages.window(selected, budget=most).messages == messages.select(
        messages.window(said, budget=most).messages, view
    )


@given(st.lists(some.messages(), max_size=8), st.integers(0, 60))
def test_a_window_of_any_messages_parts_no_call_from_its_result(
    said: list[Message], budget: int
) -> None:
    window = messages.window(said, budget=budget)

    assert len(window.messages) + len(window.omitted) == len(said)
    assert window.over_budget == (window.size > budget)
    assert messages.window(window.messages, budget=budget).messages == window.messages


@given(st.lists(some.results(), max_size=4), VIEWS, st.integers(0, 200))
def test_a_state_shows_the_same_whole_or_through_a_window(
    results: list[InferenceResult], view: View, budget: int
) -> None:
    state = NetworkState(results=results)
    shown = View(tools=view.tools, include=view.include, exclude=view.exclude, budget=budget)

    history = state.format_history(agent="writer", view=shown)
    window = state.window(agent="writer", view=shown)

    assert window == messages.window(history, budget=budget) or any(
        each.result_id for each in window.omitted
    )
    assert window.messages == messages.window(history, budget=budget).messages
    assert is_whole(window.messages)
