"""Tables on a terminal, drawn by Rich from cells it takes literally."""

import re
from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 40
"""Columns to draw for, whatever a terminal says: with fewer, cells would vanish."""

LEAST = 8
"""Columns that a cell keeps when it is folded to make room for ids."""

LONGEST = 64
"""Characters of a word that is kept whole because there is an id in it."""

_ID = re.compile(r"[a-z]_[0-9A-Za-z]{24}(?![0-9A-Za-z])")
_ID_COLUMN = re.compile(r"(?:.*_)?id", re.IGNORECASE)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, console: Console | None = None
) -> None:
    """Print *rows* under *columns*, without the columns that are empty in every row.

    A cell that is too wide goes on in the next line, unless it is an id: other cells are folded
    first, and where that is not enough each row is printed as `print_fields` does.
    """
    console = console or Console()
    if not rows:
        console.print(Text("No results.", style="dim"))
        return
    used = [n for n in range(len(columns)) if any(row[n] for row in rows)] or [0]
    columns, rows = [columns[n] for n in used], [[row[n] for n in used] for row in rows]
    # Rich puts a space at both ends and three between columns.
    room = max(console.width, NARROWEST) - (3 * len(columns) - 1)
    cells = [[_shown(name), *(row[n] for row in rows)] for n, name in enumerate(columns)]
    widths = fitted(
        [max(map(cell_len, each)) for each in cells],
        [_unbroken(name, each) for name, each in zip(columns, cells, strict=True)],
        room,
    )
    if widths is None:
        for number, row in enumerate(rows):
            if number:
                console.print()
            print_fields(_filled(columns, row), console=console)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name, width in zip(columns, widths, strict=True):
        table.add_column(_shown(name), overflow="fold", width=width)
    for row in rows:
        table.add_row(*map(Text, row))
    _print(table, console, NARROWEST)


def print_fields(fields: Mapping[str, str], *, console: Console | None = None) -> None:
    """Print *fields*, a line for each; an id stays whole, however narrow the terminal is."""
    label = max(map(cell_len, fields), default=0)
    value = max((_unbroken(name, [text]) for name, text in fields.items()), default=0)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in fields.items():
        table.add_row(Text(_shown(name)), Text(text))
    _print(table, console or Console(), max(NARROWEST, label + 2 + value))


def fitted(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int] | None:
    """Return a width for each column, from *least* to *wanted*, whose sum is within *room*.

    The widest columns give way first. None where even the least widths are too many.
    """
    floors = [max(low, min(wide, LEAST)) for wide, low in zip(wanted, least, strict=True)]
    if sum(floors) > room:
        return None
    widths = [max(low, min(wide, room)) for wide, low in zip(wanted, floors, strict=True)]
    while sum(widths) > room:
        wider = [n for n, low in enumerate(floors) if widths[n] > low]
        widths[max(wider, key=widths.__getitem__)] -= 1
    return widths


def _unbroken(name: str, cells: Sequence[str]) -> int:
    """Return the width that the ids among *cells* of the column *name* need, or 0."""
    if _ID_COLUMN.fullmatch(name):
        return max(map(cell_len, cells), default=0)
    words = (word for cell in cells for word in cell.split())
    return max(
        (len(word) for word in words if len(word) <= LONGEST and _ID.search(word)), default=0
    )


def _filled(columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """Return the cells of *row* that hold something, by column."""
    return {name: text for name, text in zip(columns, row, strict=True) if text}


def _shown(name: str) -> str:
    return name.replace("_", " ")


def _print(table: Table, console: Console, narrowest: int) -> None:
    console.width = max(console.width, narrowest)
    console.print(table)
