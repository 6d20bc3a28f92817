"""`holdfast restore`: a backup, brought into a database."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import bar

restore_app = typer.Typer(rich_markup_mode=None)


@command(restore_app, "restore")
def restore(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace the content of the database.")
    ] = False,
) -> None:
    """Bring a backup into an empty database, or with --replace into a used one."""
    call.needs_database()
    if call.db is None:
        raise typer.BadParameter("say which database to restore into", param_hint="--db")
    from holdfast.library.upkeep.restore import restore as bring

    with bar("Restoring") as told:
        report = bring(file, call.db, replace=replace, told=told)
    call.answer.one(msgspec.to_builtins(report))
