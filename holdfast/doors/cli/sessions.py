"""Commands of `holdfast sessions` and `holdfast keys`."""

from typing import Annotated, Literal

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import PAGE, store_id
from holdfast.memories.stores.records import JSONObject, record_to_wire

sessions_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "status", "title", "agent", "stores", "created_at")
READ_ONLY = ":ro"

Id = Annotated[str, typer.Argument(metavar="ID", help="The session's id.")]


@command(sessions_app, "create")
def create(
    call: CommandContext,
    agent: Annotated[str, typer.Option("--agent", metavar="A", help="The agent's id.")],
    environment: Annotated[
        str, typer.Option("--environment", metavar="E", help="The environment's id.")
    ],
    stores: Annotated[
        list[str],
        typer.Option(
            "--store",
            metavar="STORE[:ro]",
            help="A store to attach, by id or name; :ro to read only; may be repeated.",
        ),
    ],
    title: Annotated[
        str | None, typer.Option("--title", metavar="T", help="What it is about.")
    ] = None,
) -> None:
    """Make a session that attaches stores."""
    session = call.hf.sessions.create(
        agent=agent,
        environment_id=environment,
        resources=[_resource(call, store) for store in stores],
        title=title,
    )
    call.answer.one(session)


@command(sessions_app, "list")
def list_all(call: CommandContext) -> None:
    """List the sessions that are not archived, the newest first."""
    sessions = call.walk("Listing sessions", call.hf.sessions.list(limit=PAGE).all())
    if call.answer.as_json:
        call.answer.many(sessions, COLUMNS)
        return
    rows: list[JSONObject] = [
        {
            **record_to_wire(each),
            "agent": each.agent.get("id"),
            "stores": ", ".join(resource.name for resource in each.resources),
        }
        for each in sessions
    ]
    call.answer.many(rows, COLUMNS)


@command(sessions_app, "show")
def show(call: CommandContext, id: Id) -> None:
    """Show a session with the stores it attaches."""
    call.answer.one(call.hf.sessions.retrieve(id))


@command(sessions_app, "token")
def token(
    call: CommandContext,
    id: Id,
    expires_in: Annotated[
        float | None,
        typer.Option("--expires-in", metavar="S", min=0, help="Seconds that it is good for."),
    ] = None,
) -> None:
    """Make a token to write as the session. It is shown this once."""
    call.answer.one(call.hf.sessions.create_token(id, expires_in=expires_in))


@command(sessions_app, "archive")
def archive(call: CommandContext, id: Id) -> None:
    """End a session: its tokens stop working."""
    call.answer.one(call.hf.sessions.archive(id))


@command(sessions_app, "delete")
def delete(
    call: CommandContext,
    id: Id,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a session and its tokens; what it wrote stays."""
    call.make_sure(f"Delete the session {id}?", yes=yes)
    call.answer.one(call.hf.sessions.delete(id))


def _resource(call: CommandContext, store: str) -> JSONObject:
    access = "read_only" if store.endswith(READ_ONLY) else "read_write"
    id = store_id(call.hf, store.removesuffix(READ_ONLY))
    return {"type": "memory_store", "memory_store_id": id, "access": access}


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
