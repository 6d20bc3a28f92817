"""`holdfast forget`: everything of an agent's, gone."""

from typing import Annotated

import typer

from holdfast.doors.cli.call import Call
from holdfast.doors.cli.command import command
from holdfast.memories.durable.wire import to_wire

app = typer.Typer(rich_markup_mode=None)


@command(app, "forget")
def forget(
    call: Call,
    agent: Annotated[
        str, typer.Option("--agent", metavar="A", help="The agent whose memory is to go.")
    ],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Forget everything of an agent's, and its name; report what went."""
    call.make_sure(f"Forget everything that the agent {agent} remembers?", yes=yes)
    call.answer.one({"type": "forget_report", **to_wire(call.hf.forget_agent(agent))})
