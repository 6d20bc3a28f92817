import io
import sys
from threading import Event

import pytest

from holdfast.doors.cli.output import bar


class Terminal(io.StringIO):
    """A terminal that says when something was drawn on it."""

    def __init__(self) -> None:
        super().__init__()
        self.drawn = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str, /) -> int:
        if "Working" in text:
            self.drawn.set()
        return super().write(text)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Put a terminal in the place of standard error; pytest would undo that after a fixture."""
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    return terminal


def test_work_that_takes_long_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    with bar("Working", after=0) as told:
        told(1234)
        assert terminal.drawn.wait(timeout=30)

    assert "Working" in terminal.getvalue()


def test_work_that_is_soon_over_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = on_terminal(monkeypatch)

    with bar("Working", after=3600) as told:
        told(1)

    assert terminal.getvalue() == ""


def test_nothing_is_shown_where_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = io.StringIO()
    monkeypatch.setattr(sys, "stderr", nobody)

    with bar("Working", after=0) as told:
        told(1)

    assert nobody.getvalue() == ""
