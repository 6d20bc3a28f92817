"""Directories out of paths and sizes, without any store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.files import listing, readable


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0B"),
        (1, "1B"),
        (1023, "1023B"),
        (1024, "1K"),
        (1536, "1.5K"),
        (102_400, "100K"),
        (1_048_575, "1024.0K"),
        (1024**2, "1M"),
        (1024**3 * 5 // 2, "2.5G"),
        (1024**4, "1024G"),
    ],
)
def test_sizes_are_in_units_of_1024_with_a_decimal_only_where_it_says_something(
    size: int, shown: str
) -> None:
    assert readable(size) == shown


def test_entries_stand_by_name_with_a_directory_before_its_own_entries() -> None:
    paths = ["a-b.md", "a.md", "a/x", "a/z/deep", "b", "é"]

    shown = listing("/memories", ((path, 1) for path in paths))

    assert shown is not None
    assert [line.partition("\t")[2] for line in shown.split("\n")[2:]] == [
        "/memories/a/",
        "/memories/a/x",
        "/memories/a/z/",
        "/memories/a-b.md",
        "/memories/a.md",
        "/memories/b",
        "/memories/é",
    ]


def test_what_is_hidden_counts_and_is_not_shown() -> None:
    shown = listing("/memories/d", [(".h/a", 1), ("a/.h/b", 2), ("a/b/.h", 4), (".x", 8)])

    assert shown is not None
    assert shown.split("\n")[1:] == [
        "15B\t/memories/d",
        "6B\t/memories/d/a/",
        "4B\t/memories/d/a/b/",
    ]


def test_nothing_below_is_no_directory() -> None:
    assert listing("/memories/d", []) is None


segments = st.lists(st.sampled_from(["a", "b", ".c", "d-e"]), min_size=1, max_size=4)


@given(st.dictionaries(segments.map("/".join), st.integers(0, 99), min_size=1))
def test_the_order_in_which_paths_come_does_not_matter(sizes: dict[str, int]) -> None:
    forwards = listing("/memories", sizes.items())

    # A name is a file or a directory, never both: so is every prefix of a path here.
    alone = [p for p in sizes if not any(q.startswith(f"{p}/") for q in sizes)]
    kept = {path: sizes[path] for path in alone}
    assert listing("/memories", kept.items()) == listing("/memories", reversed(kept.items()))
    assert forwards is not None
    assert f"\n{sum(sizes.values())}B\t/memories" in forwards or sum(sizes.values()) > 1023
