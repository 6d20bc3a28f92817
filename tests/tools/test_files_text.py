"""Files shown, replaced in and inserted into, without any store."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ground.errors import ToolRefused
from holdfast.tools.files import fitting, inserted, replaced, shown

P = "/memories/a.md"
texts = st.text(alphabet="ab\n\ré😀", max_size=12)


def test_a_file_of_too_many_lines_is_not_shown() -> None:
    assert shown(P, "\n" * 999_998, None).endswith("\n999999\t")

    with pytest.raises(ToolRefused) as refusal:
        shown(P, "\n" * 999_999, [1, 2])

    assert str(refusal.value) == f"File {P} exceeds maximum line limit of 999,999 lines."


@given(content=texts, old=texts.filter(bool), new=texts)
def test_replacing_changes_the_one_occurrence_and_no_other_byte(
    content: str, old: str, new: str
) -> None:
    places = [i for i in range(len(content)) if content.startswith(old, i)]

    if len(places) == 1:
        edited = replaced(P, content, old, new).content
        assert edited == content[: places[0]] + new + content[places[0] + len(old) :]
    else:
        with pytest.raises(ToolRefused, match=r"^No replacement was performed"):
            replaced(P, content, old, new)


@given(content=texts, line=st.integers(0, 12), text=texts)
def test_what_is_inserted_stands_after_the_line_it_was_told_to(
    content: str, line: int, text: str
) -> None:
    lines = content.removesuffix("\n").split("\n") if content else []

    if line <= len(lines):
        edited = inserted(P, content, line, text).content
        before, after = lines[:line], lines[line:]
        assert edited.endswith("\n")
        assert edited.rstrip("\n") == "\n".join([*before, text.rstrip("\n"), *after]).rstrip("\n")
    else:
        with pytest.raises(ToolRefused, match=r"^Invalid `insert_line` parameter"):
            inserted(P, content, line, text)


def test_the_limit_is_in_bytes_of_utf_8() -> None:
    assert fitting(P, "é" * 51_200)

    with pytest.raises(ToolRefused, match="would be 102402 bytes"):
        fitting(P, "é" * 51_201)
