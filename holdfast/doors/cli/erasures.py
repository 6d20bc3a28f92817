"""Commands `forget` and `erasures`: erase a person or an agent, list these."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import Wire
from holdfast.library.erasure.proof import purge_copies
from holdfast.library.erasure.receipt import check_new_file, write_receipt
from holdfast.library.erasure.records import ForgetReport, MentionChoice
from holdfast.library.operations.erasures import erasure_to_wire
from holdfast.library.upkeep.reapply import write_ledger
from holdfast.memories.durable.wire import entry_to_wire

forget_app = typer.Typer(rich_markup_mode=None)


@command(forget_app, "forget")
def forget(
    call: CommandContext,
    *,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="The user to forget.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="The agent to forget.")
    ] = None,
    names: Annotated[
        list[str] | None,
        typer.Option("--names", metavar="TEXT", help="A name to search in texts of others."),
    ] = None,
    mentions: Annotated[
        MentionChoice, typer.Option("--mentions", help="What is done about names in texts.")
    ] = "report",
    receipt: Annotated[
        Path | None,
        typer.Option("--receipt", metavar="FILE", help="Write the receipt to a new file."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", metavar="FILE", help="Write the ledger, for restores elsewhere."),
    ] = None,
    copies: Annotated[
        bool,
        typer.Option("--purge-copies", help="Delete the copies that restore and upgrades left."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Forget everything of a user's or an agent's, and the name; report what went.

    Exits 1 if something is pending. Without a user and an agent, --ledger writes the ledger alone.
    """
    for each in (receipt, ledger):
        if each is not None:
            check_new_file(each)
    if ledger is not None or copies:
        call.needs_database()
    if user is None and agent is None and receipt is None and (ledger is not None or copies):
        _after(call, ledger, copies=copies)
        return
    if (user is None) == (agent is None):
        raise typer.BadParameter(
            "one of them is needed, and not both", param_hint="--user, --agent"
        )
    whom = f"the agent {agent} remembers" if user is None else f"was remembered of {user}"
    call.make_sure(f"Forget everything that {whom}?", yes=yes)
    forget: Callable[..., ForgetReport] = (
        call.hf.forget_agent if user is None else call.hf.forget_user
    )
    report = forget(user or agent, names=names or [], mentions=mentions)
    if receipt is not None and report.receipt is not None:
        write_receipt(receipt, report.receipt)
    _after(call, ledger, copies=copies)
    call.answer.one({"type": "forget_report", **entry_to_wire(report)})
    if report.pending:
        raise typer.Exit(1)


def _after(call: CommandContext, ledger: Path | None, *, copies: bool) -> None:
    """Write the ledger and delete the copies beside the database, where requested."""
    if ledger is not None:
        write_ledger(call.database(migrate=False).engine, ledger)
    if copies:
        for each in purge_copies(call.database(migrate=False).engine):
            typer.echo(f"deleted {each.name}", err=True)


erasures_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "kind", "state", "at", "completed_at")


@command(erasures_app, "list")
def list_erasures(
    call: CommandContext,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", help="At most so many.")
    ] = None,
) -> None:
    """List the erasures of the workspace, newest first. None holds a name."""
    found = call.hf.erasures.list(limit=limit)
    rows: list[Wire] = [erasure_to_wire(each) for each in found.data]
    call.answer.many(rows, COLUMNS)
