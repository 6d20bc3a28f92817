"""The state of a network: results, batches, clones, threads, and its properties."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier, Event, Thread
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from holdfast import InferenceResult, NetworkState, StateChange, StateLimits, View, messages
from holdfast.errors import InvalidInput, LimitExceeded, UnknownFormat
from holdfast.memories.state.references import restored, seen_of
from holdfast.memories.state.thread import ThreadTurnRow, TurnKind
from holdfast.messages import Message, ToolCallMessage, ToolResultMessage
from holdfast.testing import strategies as some
from holdfast.testing.fakes import FrozenClock

FIRST = InferenceResult(agent="planner", input="Go.", output=[messages.assistant("One.")])
SECOND = InferenceResult(agent="writer", output=[messages.assistant("Two.")])
WAIT = 20
"""Seconds that a test waits before it fails."""


class Undone(Exception):
    """What a batch is left with, so that it is undone."""


def undone(state: NetworkState, key: str) -> None:
    """Set 2 under *key* in a batch that fails."""
    with state.kv.batch():
        state.kv.set(key, 2)
        raise Undone


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock(datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC))


@pytest.fixture
def state(clock: FrozenClock) -> NetworkState:
    return NetworkState(clock=clock)


def test_results_are_kept_in_their_order(state: NetworkState) -> None:
    state.append_result(FIRST)
    state.append_result(SECOND.export())

    assert state.results == [FIRST, SECOND]
    assert state.results_from(1) == state.results_from(-1) == [SECOND]
    assert state.results_from(2) == state.results_from(9) == []
    state.set_results([SECOND])
    assert (state.results, state.revision) == ([SECOND], 3)


def test_lists_that_are_handed_out_are_the_callers_own(state: NetworkState) -> None:
    state.append_message(messages.user("Hello."))
    state.append_result(FIRST)

    state.results.clear()
    state.messages.clear()

    assert (state.results, len(state.messages)) == ([FIRST], 1)
    with pytest.raises(TypeError):
        state.results[0].output.clear()


def test_the_opening_ends_with_the_first_result(state: NetworkState) -> None:
    state.append_message({"type": "text", "role": "system", "content": "Be brief."})
    state.append_result(FIRST)

    with pytest.raises(InvalidInput):
        state.append_message(messages.user("More."))
    state.set_results([])
    state.append_message(messages.user("More."))
    assert [messages.text(each) for each in state.messages] == ["Be brief.", "More."]


def test_a_state_can_begin_with_all_it_holds() -> None:
    given: Any = {"a": [1]}
    state = NetworkState(
        given, messages=[messages.user("Hi.").export()], results=[FIRST], thread_id="thread_1"
    )
    given["a"].append(2)

    assert (state.data, state.thread_id) == ({"a": [1]}, "thread_1")
    assert (state.messages, state.results) == ([messages.user("Hi.")], [FIRST])
    assert NetworkState().revision == 0


BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"messages": [messages.user("a"), {"type": "odd"}]}, "messages[1].type"),
    ({"messages": [3]}, "messages[0]"),
    ({"results": [FIRST, {"agent": ""}]}, "results[1].agent"),
    ({"thread_id": "a b"}, "thread_id"),
    ({"data": {"a": {1}}}, "value"),
]


@pytest.mark.parametrize(("given", "field"), BROKEN)
def test_what_is_wrong_at_the_start_is_told_by_its_place(given: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        NetworkState(**given)

    assert caught.value.field == field


def test_a_thread_is_joined_once(state: NetworkState) -> None:
    state.thread_id = "thread_1"
    state.thread_id = "thread_1"

    with pytest.raises(InvalidInput):
        state.thread_id = "thread_2"
    assert (state.thread_id, state.revision) == ("thread_1", 1)


def test_a_result_may_be_too_large() -> None:
    state = NetworkState(limits=StateLimits(result_bytes=600))
    state.append_result(FIRST)

    with pytest.raises(LimitExceeded) as caught:
        state.append_result(FIRST.replace(raw="x" * 600))
    assert caught.value.limit == "result_bytes"
    assert state.results == [FIRST]


def test_what_is_known_of_a_value_is_told_with_it(state: NetworkState, clock: FrozenClock) -> None:
    handle = state.on_behalf(agent="writer", run_id="run_1", tool="save", call_id="c1")
    version = handle.kv.set("a", {"n": 1})
    clock.tick(0.001)
    state.kv.set("b", 1)
    clock.tick(1)
    handle.data["a"] = {"n": 22}

    info = state.kv.info("a")
    outside = state.get("b")

    assert info is not None
    assert outside is not None
    assert (info.key, info.value, info.kind, info.source) == ("a", {"n": 22}, "value", "writer")
    assert (info.agent, info.run_id, info.tool, info.call_id) == ("writer", "run_1", "save", "c1")
    assert (info.version, version, info.size_bytes) == (3, 1, len('{"n":22}'))
    assert info.created_at == datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
    assert info.updated_at == datetime(2026, 1, 2, 3, 4, 6, 679_000, tzinfo=UTC)
    assert (outside.source, outside.agent, outside.run_id) == (None, None, None)
    assert state.kv.info("c") is state.get("c") is None


def test_a_version_is_never_used_again(state: NetworkState) -> None:
    first = state.kv.set("a", 1)
    state.kv.delete("a")

    assert state.kv.set("a", 1) > first + 1


def test_a_batch_is_undone_whole(state: NetworkState) -> None:
    state.data.update(a=1, b=2)
    before = state.to_json()

    def batch() -> None:
        with state.kv.batch():
            state.kv.delete("a")
            state.kv.set("a", 3)
            state.append_message(messages.user("Hi."))
            state.append_result(FIRST)
            state.thread_id = "thread_1"
            with state.kv.batch():
                state.data["c"] = 4
            assert (state.kv.get("a"), state.data["c"], state.results) == (3, 4, [FIRST])
            raise Undone

    with pytest.raises(Undone):
        batch()
    assert state.to_json() == before


def test_a_batch_within_another_joins_it(state: NetworkState) -> None:
    with state.kv.batch():
        state.kv.set("a", 1)
        with pytest.raises(Undone):
            undone(state, "b")

    assert state.data == {"a": 1, "b": 2}


def test_other_threads_see_a_batch_when_it_is_over(state: NetworkState) -> None:
    begun, seen = Event(), list[Any]()

    def read() -> None:
        begun.set()
        seen.append((state.kv.get("a"), state.kv.get("b")))

    reader = Thread(target=read)
    with state.kv.batch():
        state.kv.set("a", 1)
        reader.start()
        assert begun.wait(WAIT)
        state.kv.set("b", 2)
    reader.join(WAIT)

    assert seen == [(1, 2)]


def test_readers_do_not_wait_for_the_function_of_an_update(state: NetworkState) -> None:
    state.kv.set("a", 1)

    with ThreadPoolExecutor(1) as pool:
        new = state.kv.update("a", lambda old: old + pool.submit(state.kv.get, "a").result(WAIT))

    assert new == 2


def test_two_threads_that_count_lose_nothing(state: NetworkState) -> None:
    gate = Barrier(2)

    def count() -> None:
        gate.wait(WAIT)
        for _ in range(500):
            state.kv.update("n", lambda old: old + 1, 0)

    threads = [Thread(target=count) for _ in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT)

    assert (state.kv.get("n"), state.revision) == (1000, 1000)


def test_threads_that_append_lose_no_result(state: NetworkState) -> None:
    def append(number: int) -> None:
        state.append_result(FIRST.replace(id=f"res_{number}"))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(200)))

    assert {each.id for each in state.results} == {f"res_{n}" for n in range(200)}
    assert state.revision == 200


def test_a_clone_shares_nothing_that_changes(state: NetworkState) -> None:
    heard = list[StateChange]()
    state.subscribe(heard.append)
    state.on_behalf(agent="writer").kv.set("a", {"n": [1]})
    state.append_result(FIRST)
    heard.clear()

    clone = state.clone()
    assert clone.to_json() == state.to_json()
    clone.kv.update("a", lambda old: old["n"].append(2) or old)
    clone.append_result(SECOND)
    state.thread_id = "thread_1"

    assert (state.data, state.results) == ({"a": {"n": [1]}}, [FIRST])
    assert (clone.data, clone.results) == ({"a": {"n": [1, 2]}}, [FIRST, SECOND])
    assert clone.thread_id is None
    assert [each.what for each in heard] == ["thread_id"]


def test_who_subscribes_hears_each_write_once_it_is_committed(state: NetworkState) -> None:
    heard = list[tuple[str, str | None, int, str | None]]()
    off = state.subscribe(
        lambda each: heard.append((each.what, each.key, each.revision, each.origin.agent))
    )

    state.append_message(messages.user("Hi."))
    state.on_behalf(agent="writer").kv.set("a", 1)
    state.kv.update("a", lambda old: old + 1)
    state.kv.delete("a")
    state.kv.delete("a")
    state.append_result(FIRST)
    state.set_results([])
    off()
    off()
    state.kv.set("a", 1)

    assert heard == [
        ("message", None, 1, None),
        ("value", "a", 2, "writer"),
        ("value", "a", 3, None),
        ("deleted", "a", 4, None),
        ("result", FIRST.id, 5, None),
        ("results", None, 6, None),
    ]


def test_a_batch_is_told_of_when_it_is_over_and_not_at_all_when_undone(state: NetworkState) -> None:
    heard = list[int]()
    state.subscribe(lambda each: heard.append(each.revision))

    with state.kv.batch():
        state.kv.set("a", 1)
        state.kv.set("b", 1)
        assert heard == []
    with pytest.raises(Undone):
        undone(state, "a")

    assert heard == [1, 2]


def test_a_subscriber_that_raises_is_counted_and_breaks_nothing(state: NetworkState) -> None:
    heard = list[StateChange]()
    state.subscribe(lambda _: 1 / 0)
    state.subscribe(heard.append)

    state.kv.set("a", 1)

    assert (state.subscriber_errors, state.kv.get("a"), len(heard)) == (1, 1, 1)


def test_a_chain_of_writes_of_subscribers_ends_at_a_hundred(state: NetworkState) -> None:
    refused = list[LimitExceeded]()

    def again(_: StateChange) -> None:
        try:
            state.kv.update("a", lambda old: old + 1)
        except LimitExceeded as error:
            refused.append(error)
            raise

    state.subscribe(again)
    state.kv.set("a", 1)

    assert (state.kv.get("a"), state.subscriber_errors) == (100, 1)
    assert [(each.limit, each.allowed, each.actual) for each in refused] == [
        ("chain of writes", 100, 101)
    ]
    state.kv.set("b", 1)
    assert (state.kv.get("a"), state.subscriber_errors) == (199, 2)


def test_a_chain_over_two_states_ends_too(state: NetworkState) -> None:
    other = NetworkState()
    state.subscribe(lambda change: other.kv.set("b", change.revision))
    other.subscribe(lambda change: state.kv.set("a", change.revision))

    state.kv.set("a", 0)

    assert (state.revision, other.revision) == (100, 100)
    assert (state.subscriber_errors, other.subscriber_errors) == (0, 1)


def test_what_a_subscriber_writes_is_told_after_what_made_it_write(state: NetworkState) -> None:
    heard = list[str | None]()

    def echo(change: StateChange) -> None:
        if change.key == "a":
            state.kv.set("b", 1)

    state.subscribe(echo)
    state.subscribe(lambda change: heard.append(change.key))
    state.kv.set("a", 1)

    assert heard == ["a", "b"]


def test_a_subscriber_may_write_and_ask_other_threads(state: NetworkState) -> None:
    def echo(change: StateChange) -> None:
        if change.key == "a":
            with ThreadPoolExecutor(1) as pool:
                pool.submit(state.kv.set, "b", change.revision).result(WAIT)

    state.subscribe(echo)
    with state.kv.batch():
        state.kv.set("a", 1)

    assert (state.kv.all(), state.subscriber_errors) == ({"a": 1, "b": 1}, 0)


KEYS = st.sampled_from(some.KEYS)


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


@given(
    st.lists(some.messages(), max_size=5),
    st.lists(st.integers(0, 6), max_size=8),
    st.lists(some.messages(), min_size=2, max_size=2),
)
def test_what_was_sent_is_restored_whatever_was_left_out_added_or_moved(
    base: list[Message], places: list[int], others: list[Message]
) -> None:
    there = [*base, *others]
    sent = [there[place % len(there)] for place in places]

    seen = seen_of(base, sent, prompt=0)

    assert restored(seen, base, lambda name: seen.texts[name]) == sent


@pytest.mark.parametrize("kind", get_args(TurnKind))
def test_a_stored_turn_that_is_nested_too_deeply_is_of_an_unknown_format(kind: TurnKind) -> None:
    body = '{"value": ' + "[" * 300 + "]" * 300 + "}"

    with pytest.raises(UnknownFormat):
        ThreadTurnRow(seq=1, kind=kind, id="turn_1", run_id=None, body=body).record()
