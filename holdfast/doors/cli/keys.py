"""`holdfast keys`: who may come in over HTTP."""

from typing import Annotated, Literal

import typer

from holdfast.doors.cli.command import CommandContext, command

keys_app = typer.Typer(rich_markup_mode=None)

KEY_COLUMNS = (
    "id",
    "name",
    "scope",
    "workspace",
    "agent",
    "user",
    "created_at",
    "last_used_at",
    "revoked_at",
)


@command(keys_app, "create", creates=True)
def create_key(
    call: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")],
    scope: Annotated[
        Literal["read", "write", "admin"], typer.Option("--scope", help="How far it reaches.")
    ] = "write",
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="A", help="Only this agent's durable memory."),
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", metavar="U", help="Only this user's long-term memory.")
    ] = None,
) -> None:
    """Make a key. Its secret is shown this once; only a hash of it is kept."""
    key = call.hf.keys.create(name, scope=scope, workspace=call.workspace, agent=agent, user=user)
    call.answer.one(key)


@command(keys_app, "list")
def list_keys(call: CommandContext) -> None:
    """List the keys, without their secrets."""
    call.answer.many(call.hf.keys.list(), KEY_COLUMNS, paged=False)


@command(keys_app, "revoke")
def revoke(
    call: CommandContext, id: Annotated[str, typer.Argument(metavar="ID", help="The key's id.")]
) -> None:
    """Revoke a key, at once and for good."""
    call.answer.one(call.hf.keys.revoke(id))
