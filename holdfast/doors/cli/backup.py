"""`holdfast backup`: everything, at one moment, in one file."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.call import Call
from holdfast.doors.cli.command import command
from holdfast.doors.cli.progress import bar

app = typer.Typer(rich_markup_mode=None)


@command(app, "backup")
def backup(
    call: Call,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Copy everything, at one moment, into a file. Writers go on meanwhile."""
    call.needs_database()
    from holdfast.library.upkeep.backup import backup as copy

    with bar("Backing up"):
        report = copy(call.hf, file, force=force)
    call.answer.one(msgspec.to_builtins(report))
