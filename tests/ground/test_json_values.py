"""Values as a memory keeps them: what is JSON, and what is said of what is not."""

from collections import Counter, OrderedDict
from collections.abc import Callable
from datetime import UTC, datetime
from enum import Enum, IntEnum, StrEnum
from typing import NamedTuple, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ground.errors import InvalidInput
from holdfast.ground.json_values import MOST_INT, decode, encode, is_nested_over, read

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), MOST_INT),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner), st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
)


class Colour(StrEnum):
    """A text that is more than one."""

    RED = "red"


class Mixed(str, Enum):  # noqa: UP042 - what people still write
    """A text whose own words for itself are others."""

    RED = "red"


class Level(IntEnum):
    """A number that is more than one."""

    HIGH = 3


class Row(list[int]):
    """A list by another name."""


class Place(NamedTuple):
    """A tuple with names."""

    row: int


def take(value: object, *, depth: int = 200, largest_int: int = MOST_INT) -> bytes:
    return encode(value, root="$", depth=depth, field="value", largest_int=largest_int)


def refusal(value: object, *, depth: int = 200, largest_int: int = MOST_INT) -> InvalidInput:
    with pytest.raises(InvalidInput) as refused:
        take(value, depth=depth, largest_int=largest_int)
    return refused.value


def nested(depth: int, innermost: object = 1) -> object:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


def itself() -> object:
    held: dict[str, object] = {}
    held["a"] = [held]
    return held


@given(VALUES)
def test_what_is_taken_in_is_given_out(value: object) -> None:
    taken = decode(take(value))

    assert taken == value
    assert repr(taken) == repr(value)


@pytest.mark.parametrize(
    ("value", "text"),
    [("abc", b'"abc"'), (None, b"null"), ({"b": 1, "a": "ü"}, '{"b":1,"a":"ü"}'.encode())],
)
def test_a_value_is_kept_compact_and_in_its_order(value: object, text: bytes) -> None:
    assert take(value) == text


@pytest.mark.parametrize(
    ("value", "base"),
    [
        ((1, (2,)), [1, [2]]),
        (Colour.RED, "red"),
        (Mixed.RED, "red"),
        ({Mixed.RED: [Level.HIGH]}, {"red": [3]}),
        (OrderedDict[str, int](a=1), {"a": 1}),
        (Counter("a"), {"a": 1}),
        (Place(1), [1]),
    ],
)
def test_a_kind_of_a_json_type_is_kept_as_that_type(value: object, base: object) -> None:
    taken = decode(take(value))

    assert repr(taken) == repr(base)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"rows": [1, 2, 3, {"at": datetime.now(UTC)}]}, "$.rows[3].at: datetime is not JSON"),
        ({1, 2}, "$: set is not JSON"),
        ({"a b": b"x"}, '$["a b"]: bytes is not JSON'),
        ([float("nan")], "$[0]: float nan is not JSON"),
        ([float("-inf")], "$[0]: float -inf is not JSON"),
        ({"a": {1: 2}}, "$.a: int key 1 is not JSON"),
        ({"a": 2**64}, "$.a: int outside -2^63 to 2^64 - 1"),
        (-(2**63) - 1, "$: int outside"),
        (["\ud800"], "$[0]: str with a lone surrogate"),
        ({"\ud800": 1}, "$: str with a lone surrogate"),
        (itself(), "$.a[0]: dict that holds itself"),
        (object(), "$: object is not JSON"),
        (nested(3, {4}), "$[0][0][0]: set"),
    ],
)
def test_what_is_no_json_is_refused_by_its_place_and_its_type(value: object, told: str) -> None:
    error = refusal(value)

    assert told in error.reason
    assert error.field == "value"


def test_a_value_may_be_nested_as_deep_as_allowed_and_no_deeper() -> None:
    assert decode(take(nested(200))) == nested(200)
    assert "nested over 200 deep" in refusal(nested(201)).reason


@pytest.mark.parametrize("shape", [tuple, Row])
def test_depth_is_counted_alike_in_every_kind_of_list(shape: Callable[[list[int]], object]) -> None:
    assert take([shape([1])], depth=2)
    assert "nested over 1 deep" in refusal([shape([1])], depth=1).reason


def test_the_largest_number_can_be_another() -> None:
    assert take(2**63 - 1, largest_int=2**63 - 1)
    assert "2^63 - 1" in refusal(2**63, largest_int=2**63 - 1).reason


def test_a_long_place_loses_its_middle_and_a_long_name_its_end() -> None:
    deep = refusal(nested(150, {"x" * 5_000: {1}}))

    assert len(deep.reason) < 300
    assert "…" in deep.reason


def test_a_value_that_holds_one_list_twice_is_no_cycle() -> None:
    twice = [1]

    assert take({"a": twice, "b": twice, "c": Place(1)}) == b'{"a":[1],"b":[1],"c":[1]}'


def depth_of(value: object) -> int:
    """Return how deep *value* is nested."""
    if isinstance(value, dict):
        return 1 + max(map(depth_of, cast("dict[str, object]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, cast("list[object]", value)), default=0)
    return 0


BRACKETED = st.recursive(
    st.text('[]{}"\\a', max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text('[{"\\'), inner, max_size=2)
    ),
)
"""Values with the characters of JSON in their texts and names."""


@given(BRACKETED, st.integers(0, 5))
def test_the_depth_of_a_text_is_known_before_it_is_decoded(value: object, depth: int) -> None:
    assert is_nested_over(msgspec.json.encode(value), depth) is (depth_of(value) > depth)


@pytest.mark.parametrize("opening", ["[", '{"a":'])
@pytest.mark.parametrize("levels", [217, 100_000])
def test_text_nested_too_deeply_is_refused_without_decoding_it(opening: str, levels: int) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(opening * levels, "body")

    assert (caught.value.field, caught.value.limit) == ("body", 200)


@pytest.mark.parametrize("text", ["", "[", "{]", b"\xff", "nul"])
def test_text_that_is_no_json_is_refused_as_such(text: str | bytes) -> None:
    with pytest.raises(InvalidInput, match="is not JSON"):
        read(text, "body")
