"""Items, turns and what was recalled, as a command shows them."""

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.doors.cli.command import CommandContext
from holdfast.doors.cli.durable import preview
from holdfast.doors.cli.output import brief, one_line, put_json
from holdfast.ground.clock import to_rfc3339
from holdfast.memories.longterm.records import Item, Recalled, Turn, to_wire

Row = dict[str, Any]


def put_page(call: CommandContext, things: Sequence[Item | Turn], next_page: str | None) -> None:
    """Show *things*: as the server would tell them, or a table and where it goes on."""
    if call.answer.as_json:
        put_json({"data": [to_wire(each) for each in things], "next_page": next_page})
        return
    rows = [_row(each) for each in things]
    call.answer.many(rows, tuple(rows[0]) if rows else ())
    if next_page is not None:
        call.answer.text(f"There are more: --page {next_page}", {})


def put_recalled(call: CommandContext, found: Iterable[Recalled], mode: str) -> None:
    """Show what was recalled: as the server would tell it, or a table, best first."""
    if call.answer.as_json:
        put_json({"results": [to_wire(each) for each in found], "mode": mode})
        return
    rows = [
        {
            "SCORE": f"{each.score:.2f}",
            "RELEVANCE": f"{each.relevance:.2f}",
            "TEXT": preview(each.text),
            "WHY": one_line(str(each.why["text"])),
            "ID": each.id,
        }
        for each in found
    ]
    call.answer.many(rows, ("SCORE", "RELEVANCE", "TEXT", "WHY", "ID"))


def _row(thing: Item | Turn) -> Row:
    if isinstance(thing, Item):
        return {
            "ID": thing.id,
            "KIND": thing.kind,
            "UPDATED": brief(to_rfc3339(thing.updated_at)),
            "IMPORTANCE": thing.importance,
            "TEXT": preview(thing.text),
        }
    at = thing.at or thing.created_at
    return {
        "ID": thing.id,
        "SPEAKER": one_line(thing.speaker or thing.role),
        "AT": brief(to_rfc3339(at)) if at else "",
        "TEXT": preview(thing.text),
    }
