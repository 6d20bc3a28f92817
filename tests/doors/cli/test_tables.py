import io

import pytest
from rich.console import Console

from holdfast.doors.cli.answer import brief, cell
from holdfast.doors.cli.tables import print_fields, print_table


def drawn(width: int = 80) -> tuple[Console, io.StringIO]:
    out = io.StringIO()
    return Console(file=out, width=width, force_terminal=False), out


def test_markup_in_a_cell_is_text() -> None:
    console, out = drawn()

    print_table(["name"], [["[bold]not bold[/bold] [link=http://x]"]], console=console)

    assert "[bold]not bold[/bold] [link=http://x]" in out.getvalue()


def test_a_cell_that_is_too_wide_is_folded_and_not_cut() -> None:
    console, out = drawn(width=20)

    print_table(["id"], [["x" * 50]], console=console)

    assert out.getvalue().count("x") == 50


@pytest.mark.parametrize("width", [1, 2, 7, 500])
def test_any_width_will_do(width: int) -> None:
    console, out = drawn(width=width)

    print_table(["id", "name"], [["1", "one"], ["2", "two"]], console=console)
    print_fields({"id": "1", "name": "one"}, console=console)

    assert "1" in out.getvalue()


def test_an_empty_table_says_so() -> None:
    console, out = drawn()

    print_table(["id"], [], console=console)

    assert out.getvalue().strip() == "Nothing there."


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, ""),
        ("a\nb", "a b"),
        (True, "yes"),
        (7, "7"),
        ({}, ""),
        ({"k\x1b[1m": "v\x1b[31m", "l": "w"}, "k=v, l=w"),
        ({"type": "user_actor", "user_id": "user_ada"}, "user_id=user_ada"),
        (["a", {"b": None}], "a; b="),
    ],
)
def test_a_value_becomes_one_printable_line(value: object, shown: str) -> None:
    assert cell(value) == shown


def test_a_list_shows_instants_to_the_second() -> None:
    assert brief("2026-11-21T06:19:26.116935Z") == "2026-11-21T06:19:26Z"
    assert brief("v1.116935Z") == "v1.116935Z"
