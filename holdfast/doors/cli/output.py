"""Tables, JSON and progress of commands; look-up of stores and memories."""

import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from threading import Timer
from typing import Any, cast

import msgspec
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.text import one_line, printable
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import location
from holdfast.memories.stores.records import Memory, Record, View, record_to_wire
from holdfast.memories.stores.rows import id_of_name, is_id

NARROWEST = 40
"""Least width of the output, in columns: on a narrower terminal cells would vanish."""

LEAST = 8
"""Least width of a cell that is folded so that ids fit, in columns."""

LONGEST = 64
"""Most characters of a word that is not folded because it contains an id."""

_ID = re.compile(r"[a-z]_[0-9A-Za-z]{24}(?![0-9A-Za-z])")
_ID_COLUMN = re.compile(r"(?:.*_)?id", re.IGNORECASE)


def print_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], *, console: Console | None = None
) -> None:
    """Print *rows* under *columns*, without the columns that are empty in every row.

    A cell that is too wide is folded, unless it is an id. If folding the other cells is not
    enough, each row is printed as `print_fields` does.
    """
    console = console or Console()
    if not rows:
        console.print(Text("No results.", style="dim"))
        return
    used = [n for n in range(len(columns)) if any(row[n] for row in rows)] or [0]
    columns, rows = [columns[n] for n in used], [[row[n] for n in used] for row in rows]
    # Rich puts a space at both ends and three between columns.
    total = max(console.width, NARROWEST) - (3 * len(columns) - 1)
    cells = [[_shown(name), *(row[n] for row in rows)] for n, name in enumerate(columns)]
    widths = fitted(
        [max(map(cell_len, each)) for each in cells],
        [_unbroken(name, each) for name, each in zip(columns, cells, strict=True)],
        total,
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
    """Print one line for each of *fields*; an id is never folded."""
    label = max(map(cell_len, fields), default=0)
    value = max((_unbroken(name, [text]) for name, text in fields.items()), default=0)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in fields.items():
        table.add_row(Text(_shown(name)), Text(text))
    _print(table, console or Console(), max(NARROWEST, label + 2 + value))


def fitted(preferred: Sequence[int], least: Sequence[int], total: int) -> list[int] | None:
    """Return a width for each column, from *least* to *preferred*.

    Their sum is at most *total*: the widest columns shrink first, but not below `LEAST`. None if
    even the least widths exceed *total*.
    """
    floors = [max(low, min(wide, LEAST)) for wide, low in zip(preferred, least, strict=True)]
    if sum(floors) > total:
        return None
    widths = [max(low, min(wide, total)) for wide, low in zip(preferred, floors, strict=True)]
    while sum(widths) > total:
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
    """Return the non-empty cells of *row*, by column."""
    return {name: text for name, text in zip(columns, row, strict=True) if text}


def _shown(name: str) -> str:
    return name.replace("_", " ")


def _print(table: Table, console: Console, narrowest: int) -> None:
    console.width = max(console.width, narrowest)
    console.print(table)


Wire = dict[str, Any]

_FRACTION = re.compile(r"(?<=T\d\d:\d\d:\d\d)\.(?:\d{3}){1,2}Z$")


class CommandOutput:
    """Output of a command: JSON, or text and tables on a terminal.

    JSON if it is requested, or if standard output is not a terminal. A thing is a record or a JSON
    object of the wire.
    """

    def __init__(self, *, json: bool) -> None:
        self.as_json = json or not sys.stdout.isatty()

    def one(self, thing: Record | Wire) -> None:
        """Print *thing* as JSON, or as one line for each of its keys."""
        wire = _wire(thing)
        if self.as_json:
            put_json(wire)
            return

        print_fields({key: cell(value) for key, value in wire.items() if key != "type"})

    def many(
        self,
        things: Iterable[Record | Wire],
        columns: Sequence[str],
        *,
        paged: bool = True,
        erased: int = 0,
    ) -> None:
        """Print all *things* as `{"data": […]}`, or as a table of the keys *columns*.

        With *paged* the object also has `next_page`: null, because this is everything. *erased*
        counts what was there at an earlier moment and was erased since.
        """
        wires = [_wire(thing) for thing in things]
        if self.as_json:
            more = {"erased": erased} if erased else {}
            put_json({"data": wires, **({"next_page": None} if paged else {}), **more})
            return

        print_table(columns, [[brief(wire.get(name)) for name in columns] for wire in wires])
        if erased:
            self.text(f"Erased since: {erased:,}.", {})

    def text(self, text: str, instead: Wire) -> None:
        """Print *text* on a terminal, else *instead* as JSON."""
        if self.as_json:
            put_json(instead)
        else:
            put_bytes((printable(text).rstrip("\n") + "\n").encode())


def cell(value: object) -> str:
    """Return a *value* of the wire as one printable line."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case dict():
            pairs = cast("Wire", value).items()
            return ", ".join(f"{one_line(k)}={cell(v)}" for k, v in pairs if k != "type")
        case list() | tuple():
            return "; ".join(map(cell, cast("list[object]", value)))
        case _:
            return one_line(str(value))


def brief(value: object) -> str:
    """Return *value* as `cell` does, but an instant in seconds, for narrow columns."""
    return _FRACTION.sub("Z", cell(value))


def put_json(value: object) -> None:
    """Write *value* as one line of JSON."""
    put_bytes(msgspec.json.encode(value) + b"\n")


def put_bytes(content: bytes) -> None:
    """Write *content* to standard output, byte for byte."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()


def _wire(thing: Record | Wire) -> Wire:
    return record_to_wire(thing) if isinstance(thing, Record) else thing


AFTER = 1.0
"""Seconds before a progress bar is shown."""

ProgressUpdate = Callable[[int], None]
"""Takes the number of things that are done so far."""


@contextmanager
def bar(what: str, *, after: float = AFTER) -> Generator[ProgressUpdate]:
    """Show a progress bar for *what* on standard error after *after* seconds.

    Yield a function that takes the number of things that are done so far. Nothing is shown if
    standard error is not a terminal.
    """
    if not sys.stderr.isatty():
        yield _ignore
        return
    with ExitStack() as drawn:
        progress = _ProgressBar(what, drawn)
        timer = Timer(after, progress.draw)
        timer.daemon = True
        timer.start()
        try:
            yield progress.update
        finally:
            timer.cancel()
            timer.join()


class _ProgressBar:
    def __init__(self, what: str, drawn: ExitStack) -> None:
        self._what, self._drawn = what, drawn
        self._show: Callable[[str], None] | None = None
        self._done = 0

    def draw(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
        progress = self._drawn.enter_context(
            Progress(
                *columns,
                console=Console(stderr=True),
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
        )
        task = progress.add_task(self._what, total=None)
        self._show = lambda text: progress.update(task, description=text)
        self.update(self._done)

    def update(self, done: int) -> None:
        self._done = done
        if self._show and done:
            self._show(f"{self._what}: {done:,}")


def _ignore(_: int) -> None:
    """Show no progress."""


PAGE = 100
"""Most things that a page may hold, and so the number requested at a time."""


def store_id(hf: Holdfast, store: str) -> str:
    """Return the id of *store*, an id or a name.

    Raise NotFound, with the database and the nearest name, if no store has the name; InvalidInput,
    with their ids, if several have it.
    """
    if is_id("memstore", store):
        return store
    every = hf.memory_stores.list(limit=PAGE, include_archived=True).all()
    names = [(each.name, each.id) for each in every]
    return id_of_name(store, names, field="STORE", place=location(hf.opened, hf.workspace))


def memory(
    hf: Holdfast, store: str, place: str, *, view: View = "full", at: str | None = None
) -> Memory:
    """Return the memory at *place*, a path or an id, of the store with the id *store*.

    With *at* it is the one that was at the path then.
    """
    if not place.startswith("/"):
        if at is not None:
            raise InvalidInput("at", "goes with a path", next="Name the memory by its path then.")
        return hf.memory_stores.memories.retrieve(place, memory_store_id=store, view=view)
    found = hf.memory_stores.memories.at(store, place, at=at)
    if found is None:
        raise NotFound("memory", place, next="Check the path; holdfast memories list shows them.")
    return found


def memory_id_ever(hf: Holdfast, store: str, place: str) -> str:
    """Return the id of the memory at *place*, or of the last one that was there."""
    if not place.startswith("/"):
        return place
    live = hf.memory_stores.memories.at(store, place)
    if live is not None:
        return live.id
    for version in hf.memory_stores.memory_versions.list(store, limit=PAGE).all():
        if version.path == place:
            return version.memory_id
    raise NotFound("memory", place, next="No version has this path.")
