"""`holdfast forget`: everything of a user's or an agent's, gone."""

from typing import Annotated

import typer
from msgspec import Struct

from holdfast.doors.cli.command import CommandContext, command
from holdfast.memories.durable.wire import entry_to_wire

forget_app = typer.Typer(rich_markup_mode=None)


@command(forget_app, "forget")
def forget(
    call: CommandContext,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="The user whose memory is to go.")
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="The agent whose memory is to go.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Forget everything of a user's or an agent's, and the name; report what went."""
    if (user is None) == (agent is None):
        raise typer.BadParameter(
            "one of them is needed, and not both", param_hint="--user, --agent"
        )
    whom = f"the agent {agent} remembers" if user is None else f"was remembered of {user}"
    call.make_sure(f"Forget everything that {whom}?", yes=yes)
    report: Struct = (
        call.hf.forget_agent(agent or "") if user is None else call.hf.forget_user(user)
    )
    call.answer.one({"type": "forget_report", **entry_to_wire(report)})
