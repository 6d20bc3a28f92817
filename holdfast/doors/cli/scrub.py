"""`holdfast scrub`: deleted bytes, made unreadable."""

from typing import Annotated, Protocol, runtime_checkable

import msgspec
import typer

from holdfast.doors.cli.call import Call
from holdfast.doors.cli.command import command
from holdfast.doors.cli.progress import bar
from holdfast.engines.base import Scrubbed
from holdfast.ground.errors import Unsupported

app = typer.Typer(rich_markup_mode=None)


@runtime_checkable
class FullScrub(Protocol):
    """What an engine can do besides: rewrite its files, so that nothing deleted is in them."""

    def scrub_full(self) -> Scrubbed:
        """Scrub, and rewrite the files; this takes long, and room for another copy."""
        ...


@command(app, "scrub")
def scrub(
    call: Call,
    full: Annotated[bool, typer.Option("--full", help="Rewrite the files as well.")] = False,
) -> None:
    """Make deleted bytes unreadable in the database's files.

    Says where some may remain, and exits 1 then.
    """
    engine = call.database(migrate=False).engine
    if not full:
        act = engine.scrub
    elif isinstance(engine, FullScrub):
        act = engine.scrub_full
    else:
        raise Unsupported("Rewriting the files", next="Run holdfast scrub without --full.")
    with bar("Scrubbing"):
        scrubbed = act()
    call.answer.one(msgspec.to_builtins(scrubbed))
    if not scrubbed.done:
        raise typer.Exit(1)
