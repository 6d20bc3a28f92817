"""The difference of two texts: rows that give back both, words that changed, bounded work."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.doors.console.diffs import WORDS_MOST, DiffRow, diff_rows, split_rows

LINES = st.lists(st.sampled_from(["", "a", "b", "a b", "a b c", "x\r", "\u202e", " "]), max_size=12)
TEXTS = st.one_of(LINES.map("\n".join), st.text(max_size=60))


def sides(rows: Sequence[DiffRow]) -> tuple[str, str]:
    old = [row.text for row in rows if row.kind in {"same", "cut"}]
    new = [row.text for row in rows if row.kind in {"same", "add"}]
    return "\n".join(old), "\n".join(new)


def shown(rows: Sequence[DiffRow]) -> list[str]:
    signs = {"same": " ", "add": "+", "cut": "-", "gap": "@"}
    return [signs[row.kind] + row.text for row in rows]


def marked(row: DiffRow) -> str:
    return "".join(f"[{text}]" if changed else text for changed, text in row.parts)


@given(TEXTS, TEXTS)
def test_rows_give_back_both_texts(old: str, new: str) -> None:
    assert sides(diff_rows(old, new, None)) == (old, new)


@given(TEXTS, TEXTS)
def test_each_row_has_the_numbers_of_its_line(old: str, new: str) -> None:
    rows = diff_rows(old, new, None)

    lines = len(old.split("\n")) if old else 0
    assert [row.old for row in rows if row.old] == list(range(1, lines + 1))
    lines = len(new.split("\n")) if new else 0
    assert [row.new for row in rows if row.new] == list(range(1, lines + 1))


@given(TEXTS)
def test_equal_texts_have_no_change(text: str) -> None:
    assert {row.kind for row in diff_rows(text, text, None)} <= {"same"}


@given(LINES, LINES, st.integers(0, 4))
def test_gaps_leave_out_equal_lines_alone(old: list[str], new: list[str], context: int) -> None:
    whole = diff_rows("\n".join(old), "\n".join(new), None)
    rows = diff_rows("\n".join(old), "\n".join(new), context)

    left_out = [row for row in whole if row not in rows]
    assert {row.kind for row in left_out} <= {"same"}
    said = sum(int(row.text.split()[0]) for row in rows if row.kind == "gap")
    assert len(left_out) == said
    assert [row for row in rows if row.kind != "gap"] == [row for row in whole if row in rows]


@given(TEXTS, TEXTS)
def test_side_by_side_are_the_same_rows(old: str, new: str) -> None:
    rows = diff_rows(old, new)

    pairs = split_rows(rows)

    assert [left for left, _ in pairs if left] == [row for row in rows if row.kind != "add"]
    assert [right for _, right in pairs if right] == [row for row in rows if row.kind != "cut"]
    assert all(left or right for left, right in pairs)


def test_a_changed_word_is_marked_within_its_line() -> None:
    rows = diff_rows(
        "Plan\n\nDeploy on **Monday**.\n- first",
        "Plan\n\nDeploy on **Friday**, after the backup.\n- first",
    )

    assert [marked(row) for row in rows if row.kind in {"cut", "add"}] == [
        "Deploy on **[Monday]**.",
        "Deploy on **[Friday]**[, after the backup].",
    ]


def test_lines_without_likeness_are_marked_as_a_whole() -> None:
    rows = diff_rows("oolong tea", "Lisbon, in the rain")

    assert [marked(row) for row in rows] == ["[oolong tea]", "[Lisbon, in the rain]"]


def test_equal_lines_far_from_a_change_are_a_gap() -> None:
    old = [str(n) for n in range(20)]
    new = [*old[:10], "new", *old[10:]]

    rows = diff_rows("\n".join(old), "\n".join(new))

    assert shown(rows) == [
        *("@7 equal lines", " 7", " 8", " 9", "+new"),
        *(" 10", " 11", " 12", "@7 equal lines"),
    ]
    assert (rows[0].old, rows[0].new, rows[-1].old, rows[-1].new) == (1, 1, 14, 15)


def test_a_single_equal_line_is_shown_rather_than_a_gap() -> None:
    assert shown(diff_rows("0\n1\n2\n3", "0\n1\n2\n3\n4")) == [" 0", " 1", " 2", " 3", "+4"]


def test_a_moved_line_is_cut_once_and_added_once() -> None:
    assert shown(diff_rows("a\nb\nc\nd", "b\nc\nd\na", None)) == ["-a", " b", " c", " d", "+a"]


def test_beyond_5000_lines_whole_lines_are_marked() -> None:
    old = "\n".join(["same"] * WORDS_MOST + ["an old word"])

    rows = diff_rows(old, old.replace("old", "new"))

    assert [marked(row) for row in rows[-2:]] == ["[an old word]", "[an new word]"]


def test_many_changes_among_equal_lines_leave_the_equal_ones() -> None:
    old = "same\nold word\n" * 400

    rows = diff_rows(old, old.replace("old", "new"), None)

    assert {marked(row) for row in rows if row.kind == "add"} == {"[new] word"}
    assert sum(row.kind == "same" for row in rows) == 401


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a\nb\n" * 25_000, "b\na\na\n" * 17_000),
        ("a b " * 25_000, "b a a " * 17_000),
        ("\n" * 50_000 + "x", "x" + "\n" * 50_000),
        ("".join(f"{n % 7}{n % 11}\n" for n in range(30_000)), "5\n36\n" * 9_000),
    ],
    ids=["two lines", "one line", "empty lines", "a pattern"],
)
def test_repetitive_texts_of_100_kib_still_give_back_both(old: str, new: str) -> None:
    assert sides(diff_rows(old, new, None)) == (old, new)


def test_an_empty_text_has_no_line() -> None:
    assert diff_rows("", "") == ()
    assert shown(diff_rows("", "a\n")) == ["+a", "+"]
