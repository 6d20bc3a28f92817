"""Checks of arguments: what passes, and the error of what does not."""

from collections.abc import Callable

import msgspec
import pytest

from holdfast.ground.errors import InvalidInput
from holdfast.ground.validation import (
    check_bytes,
    check_limit,
    check_one_of,
    check_text,
    check_whole,
    is_list,
    is_number,
    is_whole,
    nested,
    place_of,
)


def refusal(call: Callable[[], object]) -> InvalidInput:
    with pytest.raises(InvalidInput) as caught:
        call()
    return caught.value


@pytest.mark.parametrize("given", [True, 1.0, "1", None, -1, 11])
def test_a_whole_number_is_an_integer_within_its_bounds(given: object) -> None:
    assert not is_whole(given, 0, 10)

    error = refusal(lambda: check_whole("n", given, "must be 0 to 10", most=10, limit=10))

    assert (error.field, error.reason, error.limit) == ("n", "must be 0 to 10", 10)


def test_bounds_belong_to_a_range() -> None:
    assert [check_whole("n", n, most=10) for n in (0, 10)] == [0, 10]
    assert check_whole("n", 2**80) == 2**80
    assert [check_limit(given, most=5, default=3) for given in (None, 1, 5)] == [3, 1, 5]
    assert refusal(lambda: check_limit(6, most=5)).limit == 5


def test_true_is_no_number_and_text_is_no_list() -> None:
    assert [is_number(given) for given in (1, 1.5, True, "1")] == [True, True, False, False]
    given: list[object] = [[1], iter([1]), "a", b"a", {"a": 1}]
    assert [is_list(each) for each in given] == [
        *(True, True),
        *(False, False, False),
    ]


def test_a_wrong_choice_names_the_right_ones() -> None:
    assert check_one_of("mode", "a", ("a", "b")) == "a"

    error = refusal(lambda: check_one_of("mode", "c", ("a", "b"), index=2, next="Choose."))

    assert (error.reason, error.given, error.index) == ("must be one of a, b", "c", 2)
    assert error.next == "Choose."
    assert refusal(lambda: check_one_of("mode", "c", "ab", "must be a or b")).reason == (
        "must be a or b"
    )


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "must be a string"),
        ("", "must have 1 to 3 characters, has 0"),
        ("äöüß", "must have 1 to 3 characters, has 4"),
        ("a\0", "must not hold the character U+0000"),
        ("\ud800", "holds a lone surrogate, which is not text"),
    ],
)
def test_text_is_counted_in_code_points(given: object, reason: str) -> None:
    assert check_text("t", "äöü", least=1, most=3) == "äöü"
    assert refusal(lambda: check_text("t", given, least=1, most=3)).reason == reason


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (3, "must be a string"),
        ("äö", "must have at most 3 bytes, has 4"),
        ("\0", "must not hold the character U+0000"),
    ],
)
def test_bytes_are_counted_in_utf_8(given: object, reason: str) -> None:
    assert check_bytes("t", "aö", most=3) == "aö"
    assert refusal(lambda: check_bytes("t", given, most=3)).reason == reason


def test_an_error_of_a_member_keeps_its_facts() -> None:
    inner = InvalidInput("role", "is wrong", limit=3, given="x", next="Send another.")

    outer = nested(inner, "turns[2]", index=2)

    assert (outer.field, outer.reason, outer.index) == ("turns[2].role", "is wrong", 2)
    assert (outer.limit, outer.given, outer.next) == (3, "x", "Send another.")
    assert nested(inner, index=1).field == "role"


def test_the_place_in_an_error_of_msgspec_is_a_path() -> None:
    with pytest.raises(msgspec.ValidationError) as nested_error:
        msgspec.convert({"a": {"b": "x"}}, dict[str, dict[str, int]])
    with pytest.raises(msgspec.ValidationError) as whole:
        msgspec.convert("x", int)

    assert place_of(nested_error.value) == ("Expected `int`, got `str`", "[...][...]")
    assert place_of(whole.value) == ("Expected `int`, got `str`", "")
