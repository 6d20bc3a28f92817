"""Command `holdfast import`: what another memory or chat program exported."""

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire, bar, print_table

import_app = typer.Typer(rich_markup_mode=None)


@command(import_app, "import", creates=True)
def import_(
    call: CommandContext,
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help="One of mem0, langmem, letta, mcp-graph, chatgpt, claude."
        ),
    ],
    files: Annotated[list[Path], typer.Argument(metavar="FILE", help="Exports, zipped or not.")],
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="U", help="The user; * keeps the users of mem0."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="Only this agent's records.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option(
            "--store", metavar="STORE", help="The store, by id or name, for other than facts."
        ),
    ] = None,
    namespace: Annotated[
        str, typer.Option("--namespace", metavar="N", help="The namespace of the collection.")
    ] = "chat",
    workspace_id: Annotated[
        str | None,
        typer.Option("--workspace-id", metavar="W", help="The workspace of the application's own."),
    ] = None,
    human: Annotated[
        list[str] | None,
        typer.Option(
            "--human", metavar="LABEL", help="A block of Letta about the user; repeatable."
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the same report, and write nothing.")
    ] = False,
    mine: Annotated[
        bool, typer.Option("--mine", help="Queue the imported messages for mining.")
    ] = False,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Most records to read.")
    ] = None,
) -> None:
    """Import the files of another program into a user's memory, or a store."""
    with bar("Importing"):
        report = call.hf.import_(
            kind,
            files,
            user=user,
            agent=agent,
            store=store,
            namespace=namespace,
            workspace_id=workspace_id,
            human=human or (),
            dry_run=dry_run,
            mine=mine,
            limit=limit,
        )
    wire: Wire = msgspec.to_builtins(report)
    if call.answer.as_json:
        call.answer.one(wire)
        return
    skipped: list[dict[str, str]] = wire.pop("skipped")
    call.answer.one(wire)
    if skipped:
        print_table(("SKIPPED", "REASON"), [(each["place"], each["reason"]) for each in skipped])
