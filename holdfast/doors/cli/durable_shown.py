"""Entries and changes of durable memory, as a command shows them."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from msgspec import Struct

from holdfast.doors.cli.command import CommandContext
from holdfast.doors.cli.output import brief, one_line, put_json
from holdfast.memories.durable.hydration import Hydration
from holdfast.memories.durable.records import DurableEntry, EntryChange
from holdfast.memories.durable.wire import entry_to_wire, value_to_wire

T = TypeVar("T", bound=Struct)

PREVIEW = 80
"""Characters of a content that a table shows."""
NAMED = 20
"""Keys that are named of those left out."""

Row = dict[str, Any]


def put_page(
    call: CommandContext,
    things: Sequence[T],
    rows: Callable[[Iterable[T]], list[Row]],
    next_page: str | None,
) -> None:
    """Show *things*: as the server would tell them, or a table of *rows* and where it goes on."""
    if call.answer.as_json:
        put_json({"data": [entry_to_wire(each) for each in things], "next_page": next_page})
        return
    shown = rows(things)
    call.answer.many(shown, tuple(shown[0]) if shown else ())
    if next_page is not None:
        call.answer.text(f"There are more: --page {next_page}", {})


def rows_of_entries(entries: Iterable[DurableEntry]) -> list[Row]:
    """Return a row for each of *entries*."""
    return [
        {
            "KEY": entry.key,
            "CATEGORY": entry.category,
            "UPDATED": _second(entry.updated_at),
            "SIZE": entry.size_bytes,
            "PREVIEW": preview(entry.content),
        }
        for entry in entries
    ]


def rows_of_changes(changes: Iterable[EntryChange]) -> list[Row]:
    """Return a row for each of *changes*."""
    return [
        {
            "SEQ": change.seq,
            "AT": _second(change.at),
            "OP": change.op,
            "KEY": change.key,
            "CATEGORY": change.category,
            "SIZE": change.size_bytes,
            "BY": str(change.actor),
        }
        for change in changes
    ]


def preview(content: str) -> str:
    """Return the beginning of *content* on one line, without what could drive a terminal."""
    return " ".join(one_line(content).split())[:PREVIEW]


def omitted_line(hydration: Hydration) -> str:
    """Return what *hydration* left out, in a line."""
    if not hydration.omitted:
        return "Nothing was left out."
    keys = [one_line(each.key) for each in hydration.omitted]
    more = f", and {len(keys) - NAMED} more" if len(keys) > NAMED else ""
    return (
        f"Left out: {len(keys)} entries, {hydration.omitted_bytes:,} bytes:"
        f" {', '.join(keys[:NAMED])}{more}"
    )


def _second(instant: object) -> str:
    return brief(value_to_wire(instant))
