"""`holdfast scrub`: deleted bytes, made unreadable."""

from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import bar

scrub_app = typer.Typer(rich_markup_mode=None)


@command(scrub_app, "scrub")
def scrub(
    call: CommandContext,
    full: Annotated[bool, typer.Option("--full", help="Rewrite the files as well.")] = False,
) -> None:
    """Make deleted bytes unreadable in the database's files.

    Says where some may remain, and exits 1 then.
    """
    engine = call.database(migrate=False).engine
    with bar("Scrubbing"):
        scrubbed = engine.scrub_full() if full else engine.scrub()
    call.answer.one(msgspec.to_builtins(scrubbed))
    if not scrubbed.done:
        raise typer.Exit(1)
