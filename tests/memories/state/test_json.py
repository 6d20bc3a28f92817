"""A state goes to JSON and back without loss; what is broken is told by its place."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from holdfast import InferenceResult, NetworkState, StateLimits, Usage, messages
from holdfast.errors import ChecksumMismatch, InvalidInput, LimitExceeded, UnknownFormat
from holdfast.testing.fakes import FrozenClock

AT = datetime(2026, 1, 2, 3, 4, 5, 678_000, tzinfo=UTC)
ERROR = {"name": "TimeoutError", "message": "late", "kind": "timeout"}


@pytest.fixture
def state() -> NetworkState:
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


def test_the_text_that_is_read_is_the_text_that_is_written(state: NetworkState) -> None:
    text = state.to_json()

    back = NetworkState.from_json(text)

    assert back.to_json() == text
    assert "\n" not in text
    assert NetworkState.from_json(text.encode()).to_json() == text
    assert NetworkState.from_dict(state.to_dict()).to_json() == text
    assert state.to_dict() == json.loads(text)


def test_all_that_a_state_is_returns(state: NetworkState) -> None:
    back = NetworkState.from_json(state.to_json())

    assert (back.thread_id, back.revision) == ("thread_1", state.revision)
    assert (back.messages, back.results) == (state.messages, state.results)
    assert [back.kv.info(key) for key in back.kv] == [state.kv.info(key) for key in state.kv]
    assert list(back.kv) == ["é\u2028", "b"]
    assert isinstance(back.results[0], InferenceResult)
    assert list(back.results[0].tool_calls[0].tool.input) == ["z", "a"]  # type: ignore[arg-type]
    assert back.results[0].checksum == state.results[0].checksum


def test_the_text_says_what_the_page_shows(state: NetworkState) -> None:
    told = json.loads(state.to_json())

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


def test_a_state_goes_on_after_it_was_read(state: NetworkState) -> None:
    back = NetworkState.from_json(state.to_json(), clock=FrozenClock(AT))

    assert back.kv.set("new", 1) == state.revision + 1
    assert back.revision == state.revision + 1


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
    state: NetworkState, change: Change, field: str
) -> None:
    told: Any = state.to_dict()
    change(told)

    with pytest.raises(InvalidInput) as caught:
        NetworkState.from_dict(told)

    assert caught.value.field == field
    assert not isinstance(caught.value, UnknownFormat)


def test_a_result_that_was_changed_is_refused_unless_it_need_not_be_verified(
    state: NetworkState,
) -> None:
    text = state.to_json().replace("Oslo.", "Bergen.")

    with pytest.raises(ChecksumMismatch) as caught:
        NetworkState.from_json(text)
    assert caught.value.id == "res_1"
    assert NetworkState.from_json(text, verify=False).results[0].text == "Bergen."


def test_limits_hold_for_what_is_read(state: NetworkState) -> None:
    for limits in (
        StateLimits(keys=1),
        StateLimits(value_bytes=3),
        StateLimits(total_bytes=4),
        StateLimits(result_bytes=100),
    ):
        with pytest.raises(LimitExceeded):
            NetworkState.from_json(state.to_json(), limits=limits)
