"""`holdfast doctor`: what a person should look after."""

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire, bar

doctor_app = typer.Typer(rich_markup_mode=None)

DOCTOR_COLUMNS = ("name", "ok", "says")


@command(doctor_app, "doctor")
def doctor(call: CommandContext) -> None:
    """Check the database and its environment; exit 1 if something needs an operator.

    What a mount lacks is shown, and does not change the exit code.
    """
    hf = call.database(migrate=False)
    from holdfast.doors.mount.process.look import look
    from holdfast.library.upkeep.doctor import doctor as examine

    with bar("Examining"):
        checks, seen = examine(hf), look()
    rows: list[Wire] = [
        {"name": each.name, "ok": each.ok, "says": each.says} for each in (*checks, *seen)
    ]
    call.answer.many(rows, DOCTOR_COLUMNS, paged=False)
    if not all(each.ok for each in (*checks, *(each for each in seen if not each.optional))):
        raise typer.Exit(1)
