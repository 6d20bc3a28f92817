"""What the values of a state do: two views of one store, copies in and out, limits and types."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NotRequired, TypedDict

import msgspec
import pytest

from holdfast import NetworkState, StateLimits
from holdfast.errors import InvalidInput, LimitExceeded, PreconditionFailed


def cyclic() -> list[Any]:
    held: list[Any] = []
    held.append(held)
    return held


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.fixture
def state() -> NetworkState:
    return NetworkState()


def test_what_one_view_sets_the_other_has(state: NetworkState) -> None:
    state.kv.set("a", 1)
    state.data["b"] = [2]

    assert state.data["a"] == 1
    assert state.kv.get("b") == [2]
    del state.data["a"]
    assert not state.kv.has("a")


def test_a_stored_none_is_there(state: NetworkState) -> None:
    state.kv.set("a", None)

    assert state.kv.get("a", "default") is None
    assert state.kv.has("a")
    assert "a" in state.kv
    assert "a" in state.data
    assert state.kv.get("b", "default") == "default"


def test_keys_keep_their_place_until_they_are_deleted(state: NetworkState) -> None:
    for key in "abc":
        state.kv.set(key, 0)
    state.kv.set("a", 1)
    state.kv.delete("b")
    state.kv.set("b", 2)

    assert list(state.kv) == list(state.data) == list(state.kv.all()) == ["a", "c", "b"]
    assert len(state.kv) == len(state.data) == 3


def test_every_write_raises_the_revision_which_is_its_version(state: NetworkState) -> None:
    assert state.revision == 0
    assert [state.kv.set("a", 1), state.kv.set("b", 1), state.kv.set("a", 2)] == [1, 2, 3]
    assert state.kv.delete("a")
    assert not state.kv.delete("a")
    assert state.revision == 4
    assert state.kv.set("a", 3) == 5


def test_a_write_with_a_version_writes_only_what_was_read(state: NetworkState) -> None:
    first = state.kv.set("a", 1, expected_version=0)
    second = state.kv.set("a", 2, expected_version=first)

    for stale in (0, first):
        with pytest.raises(PreconditionFailed) as caught:
            state.kv.set("a", 3, expected_version=stale)
        assert caught.value.current == state.kv.info("a")
    with pytest.raises(PreconditionFailed) as caught:
        state.kv.delete("b", expected_version=7)
    assert caught.value.current is None
    with pytest.raises(PreconditionFailed):
        state.kv.delete("a", expected_version=first)
    assert (state.kv.get("a"), state.revision) == (2, second)
    assert state.kv.delete("a", expected_version=second)


@pytest.mark.parametrize("version", [-1, True, "1", 1.0])
def test_a_version_is_a_whole_number(state: NetworkState, version: Any) -> None:
    with pytest.raises(InvalidInput):
        state.kv.set("a", 1, expected_version=version)
    assert state.revision == 0


def test_nothing_of_the_callers_is_kept(state: NetworkState) -> None:
    given = {"rows": [{"n": 1}]}
    state.kv.set("a", given)

    given["rows"][0]["n"] = 2
    state.kv.get("a")["rows"].append(3)  # type: ignore[index,call-overload,union-attr]
    state.kv.all()["a"].clear()  # type: ignore[union-attr]

    assert state.kv.get("a") == {"rows": [{"n": 1}]}
    assert given == {"rows": [{"n": 2}]}


def test_what_update_hands_out_is_a_copy_and_so_is_its_default(state: NetworkState) -> None:
    default: list[int] = []
    new = state.kv.update("a", lambda old: [*old, 1], default)
    new.append(2)  # type: ignore[union-attr]
    state.kv.update("a", lambda old: old.append(3) or old)

    assert state.kv.get("a") == [1, 3]
    assert default == []


def test_an_update_that_fails_changes_nothing(state: NetworkState) -> None:
    state.kv.set("a", 1)

    with pytest.raises(ZeroDivisionError):
        state.kv.update("a", lambda old: old / 0)
    with pytest.raises(InvalidInput):
        state.kv.update("a", lambda _: {1})
    assert (state.kv.get("a"), state.revision) == (1, 1)


CHANGES: list[Callable[[Any], object]] = [
    lambda value: value.update(a=1),
    lambda value: value.pop("rows"),
    lambda value: value.clear(),
    lambda value: value.setdefault("x", 1),
    lambda value: value.__setitem__("x", 1),
    lambda value: value.__delitem__("rows"),
    lambda value: value.__ior__({"x": 1}),
    lambda value: value["rows"].append(1),
    lambda value: value["rows"].__iadd__([1]),
    lambda value: value["rows"].__imul__(2),
    lambda value: value["rows"].sort(),
    lambda value: value["rows"].reverse(),
    lambda value: value["rows"].__setitem__(0, 1),
    lambda value: value["rows"].insert(0, 1),
    lambda value: value["rows"].extend([1]),
    lambda value: value["rows"].remove(value["rows"][0]),
    lambda value: value["rows"].pop(),
    lambda value: value["rows"].clear(),
    lambda value: value["rows"][0].popitem(),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_value_of_the_mapping_refuses_every_change_at_any_depth(
    state: NetworkState, change: Callable[[Any], object]
) -> None:
    state.data["report"] = {"rows": [{"n": 1}]}

    with pytest.raises(TypeError, match=r'data\["report"\].*kv\.update'):
        change(state.data["report"])
    assert state.data["report"] == {"rows": [{"n": 1}]}


def test_a_value_of_the_mapping_is_json_and_equals_plain_values(state: NetworkState) -> None:
    state.data["a"] = {"rows": [1, {"n": None}]}

    assert state.data["a"] == {"rows": [1, {"n": None}]}
    assert json.dumps(state.data["a"]) == '{"rows": [1, {"n": null}]}'
    assert msgspec.json.encode(state.data["a"]) == b'{"rows":[1,{"n":null}]}'
    state.data["b"] = state.data["a"]
    assert state.data == {"a": state.data["b"], "b": {"rows": [1, {"n": None}]}}


def test_the_mapping_does_what_mappings_do(state: NetworkState) -> None:
    state.data.update({"a": 1}, b=2)
    assert state.data.setdefault("a", 3) == 1
    assert state.data.setdefault("c", 3) == 3
    assert state.data.pop("b") == 2
    assert state.data.pop("b", None) is None
    assert dict(state.data.items()) == {"a": 1, "c": 3}
    assert list(state.data.values()) == [1, 3]
    assert state.data.get("z") is None
    assert state.data.popitem() == ("a", 1)
    state.data.clear()
    assert state.data == {}


def test_what_is_not_there_is_a_key_error(state: NetworkState) -> None:
    for ask in (state.data.__getitem__, state.data.__delitem__, state.data.pop):
        with pytest.raises(KeyError):
            ask("a")


def test_an_update_of_the_mapping_is_all_or_nothing(state: NetworkState) -> None:
    with pytest.raises(InvalidInput):
        state.data.update({"a": 1, "b": {2}})  # type: ignore[dict-item]

    assert state.data == {}
    assert state.revision == 0


class Colour(StrEnum):
    RED = "red"


class Odd(dict[str, Any]):
    pass


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        (Odd(a=Odd()), {"a": {}}),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (1e300, 1e300),
        (True, True),
        (1.0, 1.0),
    ],
)
def test_what_is_json_is_kept_in_plain_types(state: NetworkState, value: Any, kept: Any) -> None:
    state.kv.set("a", value)

    found = state.kv.get("a")
    assert found == kept
    assert type(found) is type(kept)


REFUSED: list[tuple[Any, str]] = [
    ({1}, 'kv["report"]: set is not JSON; store a list'),
    (b"x", 'kv["report"]: bytes is not JSON'),
    ({"rows": [1, 2, {"when": datetime(2026, 1, 1, tzinfo=UTC)}]},
     'kv["report"].rows[2].when: datetime is not JSON; store .isoformat()'),
    ([float("nan")], 'kv["report"][0]: float nan'),
    (float("inf"), 'kv["report"]: float inf'),
    ({1: 1}, 'kv["report"]: int key 1'),
    (cyclic(), 'kv["report"][0]: list that holds itself'),
    (object(), 'kv["report"]: object is not JSON'),
    (2**63, 'kv["report"]: int outside'),
    (-(2**63) - 1, 'kv["report"]: int outside'),
    ("\ud800", 'kv["report"]: str with a lone surrogate'),
    (nested(65), "nested over 64 deep"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "told"), REFUSED)
def test_what_is_no_json_is_refused_with_key_path_and_type(
    state: NetworkState, value: Any, told: str
) -> None:
    state.kv.set("report", "old")

    for write in (state.kv.set, state.data.__setitem__):
        with pytest.raises(InvalidInput) as caught:
            write("report", value)
        assert told in str(caught.value)
    assert state.kv.get("report") == "old"


def test_a_value_may_be_nested_as_deep_as_said(state: NetworkState) -> None:
    state.kv.set("a", nested(64))

    assert state.data["a"] == nested(64)


@pytest.mark.parametrize(
    "key", ["", "k" * 257, "é" * 129, "a\n", "\x7f", "holdfast:a", "\ud800", 3, None]
)
def test_a_bad_key_is_refused(state: NetworkState, key: Any) -> None:
    for write in (state.kv.set, state.data.__setitem__):
        with pytest.raises(InvalidInput) as caught:
            write(key, 1)
        assert caught.value.field == "key"
    assert key not in state.kv
    assert state.revision == 0


@pytest.mark.parametrize("key", ["k", "k" * 256, "é" * 128, "a b:c/d", "Holdfast:a"])
def test_any_other_key_is_good(state: NetworkState, key: str) -> None:
    state.kv.set(key, 1)

    assert list(state.kv) == [key]


LIMITS = StateLimits(key_bytes=8, value_bytes=10, depth=2, keys=3, total_bytes=20, result_bytes=900)
PAST: list[tuple[Callable[[NetworkState], object], str, int, int]] = [
    (lambda state: state.kv.set("big", "x" * 9), "value_bytes", 11, 10),
    (lambda state: state.data.update(a=1, b=2, c=3, d=4), "keys", 4, 3),
    (lambda state: state.data.update(a="x" * 8, b="y" * 8, c=1), "total_bytes", 21, 20),
]


@pytest.mark.parametrize(("write", "limit", "actual", "allowed"), PAST)
def test_past_a_size_nothing_is_written_and_the_limit_is_named(
    write: Callable[[NetworkState], object], limit: str, actual: int, allowed: int
) -> None:
    state = NetworkState(limits=LIMITS)

    with pytest.raises(LimitExceeded) as caught:
        write(state)

    assert (caught.value.limit, caught.value.actual, caught.value.allowed) == (
        limit,
        actual,
        allowed,
    )
    assert f"StateLimits({limit}=" in caught.value.next
    assert (state.data, state.revision) == ({}, 0)


def test_what_is_deleted_or_replaced_makes_room() -> None:
    state = NetworkState(limits=LIMITS)
    state.data.update(a="x" * 8, b="y" * 8)

    state.kv.set("a", "xxx")
    state.kv.set("c", "zzz")
    state.kv.delete("b")
    state.kv.set("d", "x" * 8)

    assert list(state.kv) == ["a", "c", "d"]


def test_what_is_known_of_a_value_shows_it_as_json_cut_at_200_characters(
    state: NetworkState,
) -> None:
    state.kv.set("small", {"name": "Zoë", "n": [1, None]})
    state.kv.set("large", "é" * 1_000)

    small, large = repr(state.get("small")), repr(state.get("large"))

    assert "key='small', value={" in small
    assert """value={"name":"Zoë","n":[1,null]}, kind='value'""" in small
    assert f"""value="{"é" * 198}…, kind=""" in large


@pytest.mark.parametrize(
    "limits", [{"keys": 0}, {"keys": True}, {"value_bytes": "1"}, {"depth": 201}]
)
def test_a_limit_is_a_whole_number_from_one(limits: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        StateLimits(**limits)


class Typed(TypedDict):
    n: int
    names: NotRequired[list[str]]


@dataclass
class Data:
    n: int
    names: list[str]


class Fields(msgspec.Struct):
    n: int
    names: list[str]


@pytest.mark.parametrize("schema", [Typed, Data, Fields])
def test_a_typed_key_keeps_its_type_through_either_view(schema: object) -> None:
    state = NetworkState({"n": 1}, schema=schema)

    for write in (state.kv.set, state.data.__setitem__):
        with pytest.raises(InvalidInput, match=r'kv\["n"\] must be int'):
            write("n", "two")
        with pytest.raises(InvalidInput, match=r'kv\["names"\] must be list\[str\]'):
            write("names", ["a", 3])
    state.data["names"] = ["a"]
    state.data["other"] = object.__name__
    assert state.data == {"n": 1, "names": ["a"], "other": "object"}


def test_a_schema_holds_at_the_start_for_clones_and_for_what_is_read() -> None:
    state = NetworkState({"n": 1}, schema=Typed)
    text = state.to_json()
    with pytest.raises(InvalidInput):
        NetworkState({"n": "one"}, schema=Typed)
    with pytest.raises(InvalidInput):
        state.clone().kv.set("n", "one")
    with pytest.raises(InvalidInput):
        NetworkState.from_json(text.replace('"value":1', '"value":"one"'), schema=Typed)
    with pytest.raises(InvalidInput):
        NetworkState.from_json(text, schema=Typed).kv.set("n", "one")
    NetworkState.from_json(text).kv.set("n", "one")


@pytest.mark.parametrize("schema", [int, 3, {"n": int}])
def test_a_schema_is_a_class_with_typed_fields(schema: object) -> None:
    with pytest.raises(InvalidInput):
        NetworkState(schema=schema)
