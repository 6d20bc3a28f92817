"""Tables on a terminal, drawn by Rich from cells it takes literally."""

from collections.abc import Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

NARROWEST = 40
"""Columns to draw for, whatever a terminal says: with fewer, cells would vanish."""


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, console: Console | None = None
) -> None:
    """Print *rows* under *columns*; a cell that is too wide goes on in the next line."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        table.add_column(name.replace("_", " "), overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    _print(table if rows else Text("Nothing there.", style="dim"), console or Console())


def print_fields(fields: Mapping[str, str], *, console: Console | None = None) -> None:
    """Print *fields*, a line for each."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in fields.items():
        table.add_row(Text(name.replace("_", " ")), Text(value))
    _print(table, console or Console())


def _print(drawn: Table | Text, console: Console) -> None:
    console.width = max(console.width, NARROWEST)
    console.print(drawn)
