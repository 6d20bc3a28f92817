"""What of a list of turns is new."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.memories.longterm.turns import seen

PRINTS = st.lists(st.sampled_from([b"a", b"b", b"c"]), max_size=12)


def prints(text: str) -> list[bytes]:
    return [char.encode() for char in text]


@pytest.mark.parametrize(
    ("recorded", "given", "count"),
    [
        ("", "", 0),
        ("", "abc", 0),
        ("abc", "", 0),
        pytest.param("abc", "abcde", 3, id="the whole list each time"),
        pytest.param("abc", "de", 0, id="only what is new"),
        pytest.param("abc", "bcd", 2, id="the last few and what is new"),
        pytest.param("abc", "abc", 3, id="the same again"),
        pytest.param("abcde", "bcd", 3, id="an old part again"),
        pytest.param("abc", "axcd", 0, id="a list that was edited"),
        pytest.param("abc", "abxc", 0, id="a list that was edited late"),
        pytest.param("a", "aa", 1, id="the same sentence a second time"),
        pytest.param("aa", "aaa", 2, id="the same sentence a third time"),
        pytest.param("aab", "aabaab", 3, id="a part that returns"),
        pytest.param("abab", "ababab", 4, id="the longest end counts"),
    ],
)
def test_what_was_recorded_is_seen(recorded: str, given: str, count: int) -> None:
    assert seen(prints(recorded), prints(given)) == count


def slowly(recorded: list[bytes], given: list[bytes]) -> int:
    runs = [recorded[start : start + len(given)] for start in range(len(recorded) + 1)]
    if given in runs:
        return len(given)
    return max(n for n in range(len(given) + 1) if n == 0 or recorded[-n:] == given[:n])


@given(PRINTS, PRINTS)
def test_it_is_what_the_rule_says(recorded: list[bytes], given: list[bytes]) -> None:
    assert seen(recorded, given) == slowly(recorded, given)


@given(PRINTS, PRINTS)
def test_a_list_that_grows_is_recorded_once(first: list[bytes], more: list[bytes]) -> None:
    whole = first + more

    assert seen(first, whole) >= len(first)
