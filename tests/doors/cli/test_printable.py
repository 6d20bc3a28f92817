import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.ground.text import one_line, printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x9b2Jcleared", "cleared"),
        ("\x1b]0;a title\x07named", "named"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\drawn", "drawn"),
        ("\x1bcreset", "reset"),
        ("\x1b\x1b[31m[31m", "[31m"),
        ("a\rb\x08c\x00d\x7fe\x85f", "abcdef"),
        ("\u202egnp.exe", "gnp.exe"),
        ("lone \ud800", "lone \ufffd"),
        ("日本 é 🙂", "日本 é 🙂"),
    ],
)
def test_what_would_drive_a_terminal_is_taken_out(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_a_sequence_without_an_end_hides_nothing() -> None:
    assert printable("\x1b]0;not ended") == "]0;not ended"


def test_lines_stay_lines_unless_one_is_wanted() -> None:
    assert printable("a\r\nb\tc") == "a\nb\tc"
    assert one_line("a\r\nb\tc\n") == "a b c"


@given(st.text(alphabet=st.characters() | st.sampled_from("\x1b\x9b\x9d[];m\x07\\")))
def test_no_text_keeps_a_control_character(text: str) -> None:
    shown = one_line(text)

    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    assert shown == shown.encode().decode()
