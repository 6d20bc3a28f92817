import io

import pytest
from rich.console import Console

from holdfast.doors.cli.output import brief, cell, print_fields, print_table


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


ID = "memstore_" + "0aB" * 8
NAMES = ["id", "name", "description", "updated_at", "archived_at"]
WIDE = [ID, "User preferences of Ada", "word " * 40, "2026-11-21T06:19:26Z", ""]


@pytest.mark.parametrize("width", [200, 120, 80, 60, 40, 10])
def test_an_id_is_never_broken_whatever_the_width(width: int) -> None:
    console, out = drawn(width=width)

    print_table(NAMES, [WIDE, WIDE], console=console)

    assert out.getvalue().count(ID) == 2
    assert out.getvalue().count("word") == 80


@pytest.mark.parametrize("width", [200, 120, 80])
def test_a_table_is_no_wider_than_the_terminal(width: int) -> None:
    console, out = drawn(width=width)

    print_table(NAMES, [WIDE], console=console)

    assert max(map(len, out.getvalue().splitlines())) <= width
    assert out.getvalue().split()[:4] == ["id", "name", "description", "updated"]


def test_an_id_within_a_cell_is_not_broken() -> None:
    console, out = drawn()

    print_table(
        ["id", "path", "created_by"],
        [["memver_" + "1" * 24, "/a" * 40, f"session_id={ID}"]],
        console=console,
    )

    assert f"session_id={ID}" in out.getvalue()


@pytest.mark.parametrize("name", ["id", "ID", "thread_id"])
def test_a_column_of_ids_is_not_broken_whatever_they_look_like(name: str) -> None:
    console, out = drawn(width=50)
    chosen = "a run of 21 November, 06:19"

    print_table([name, "says"], [[chosen, "word " * 20]], console=console)

    assert chosen in out.getvalue()


def test_too_narrow_a_terminal_gets_a_line_for_each_field() -> None:
    console, out = drawn(width=40)

    print_table(["id", "agent", "title"], [[ID, ID[::-1], "one"], [ID, ID, ""]], console=console)

    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines == [
        ["id", ID],
        ["agent", ID[::-1]],
        ["title", "one"],
        [],
        ["id", ID],
        ["agent", ID],
    ]


def test_a_field_that_is_an_id_is_not_broken() -> None:
    console, out = drawn(width=40)

    print_fields({"memory_version_id": ID, "description": "word " * 20}, console=console)

    assert ID in out.getvalue()


def test_a_column_that_is_empty_is_left_out() -> None:
    console, out = drawn()

    print_table(NAMES, [WIDE, [ID, "n", "", "", ""]], console=console)

    assert "archived" not in out.getvalue()
    assert "updated" in out.getvalue()


def test_a_table_of_empty_cells_keeps_its_first_column() -> None:
    console, out = drawn()

    print_table(["store", "last_link"], [["", ""]], console=console)

    assert out.getvalue().split() == ["store", "─" * 5]


def test_an_empty_table_says_so() -> None:
    console, out = drawn()

    print_table(["id"], [], console=console)

    assert out.getvalue().strip() == "No results."


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
