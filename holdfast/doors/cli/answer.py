"""What a command answers: the API's own JSON, or a table on a terminal."""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec

from holdfast.doors.cli.printable import one_line, printable
from holdfast.memories.stores.records import Record, record_to_wire

Wire = dict[str, Any]

_FRACTION = re.compile(r"(?<=T\d\d:\d\d:\d\d)\.(?:\d{3}){1,2}Z$")


class CommandOutput:
    """Where a command's answer goes, and in which form.

    JSON when asked for or when standard output is no terminal. A thing is a record or a JSON
    object of the wire.
    """

    def __init__(self, *, json: bool) -> None:
        self.as_json = json or not sys.stdout.isatty()

    def one(self, thing: Record | Wire) -> None:
        """Show *thing*: its JSON, or a line for each of its keys."""
        wire = _wire(thing)
        if self.as_json:
            put_json(wire)
            return
        from holdfast.doors.cli.output import print_fields

        print_fields({key: cell(value) for key, value in wire.items() if key != "type"})

    def many(
        self, things: Iterable[Record | Wire], columns: Sequence[str], *, paged: bool = True
    ) -> None:
        """Show all *things*: `{"data": […]}`, or a table of the keys *columns*.

        With *paged* the object has a `next_page` too, null, because nothing is left.
        """
        wires = [_wire(thing) for thing in things]
        if self.as_json:
            put_json({"data": wires, "next_page": None} if paged else {"data": wires})
            return
        from holdfast.doors.cli.output import print_table

        print_table(columns, [[brief(wire.get(name)) for name in columns] for wire in wires])

    def text(self, text: str, instead: Wire) -> None:
        """Show *text* on a terminal, and *instead* as JSON."""
        if self.as_json:
            put_json(instead)
        else:
            put_bytes((printable(text).rstrip("\n") + "\n").encode())


def cell(value: object) -> str:
    """Return *value*, of the wire, as one printable line."""
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
    """Return *value* as `cell` does, an instant to the second: a list has many columns."""
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
