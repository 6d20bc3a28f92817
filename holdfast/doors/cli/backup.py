"""`holdfast backup`: everything, at one moment, in one file."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import bar

backup_app = typer.Typer(rich_markup_mode=None)


@command(backup_app, "backup")
def backup(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Where the backup goes.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Copy everything, at one moment, into a file. Writers go on meanwhile."""
    hf = call.database(migrate=False)
    from holdfast.library.upkeep.backup import backup as copy

    with bar("Backing up") as told:
        report = copy(hf.engine, file, force=force, told=told)
    call.answer.one(msgspec.to_builtins(report))
