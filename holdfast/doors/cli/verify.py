"""`holdfast verify`: is everything stored whole?"""

from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire, bar

verify_app = typer.Typer(rich_markup_mode=None)

FINDING_COLUMNS = ("check", "table", "id", "expected", "found")


@command(verify_app, "verify")
def verify(
    call: CommandContext,
    quick: Annotated[bool, typer.Option("--quick", help="Check the storage less deeply.")] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="Rebuild what is derived from the rest.")
    ] = False,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="LINK", help="A link noted earlier; some chain has it."),
    ] = None,
) -> None:
    """Check that everything stored is whole; exit 1 with what is not."""
    hf = call.database(migrate=repair)
    from holdfast.library.upkeep.verify import verify as check

    with bar("Verifying"):
        report = check(hf.engine, quick=quick, repair=repair, head=head)
    wire: Wire = msgspec.to_builtins(report)
    if call.answer.as_json:
        call.answer.one(wire)
    else:
        _draw(call, wire)
    if not report.ok:
        raise typer.Exit(1)


def _draw(call: CommandContext, wire: Wire) -> None:
    findings, links = wire.pop("findings"), wire.pop("links")
    call.answer.one(wire)
    call.answer.many(
        [{"store": store, "last_link": link} for store, link in links.items()],
        ("store", "last_link"),
    )
    if findings:
        call.answer.many(findings, FINDING_COLUMNS)
