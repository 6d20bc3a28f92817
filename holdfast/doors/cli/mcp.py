"""Command `holdfast mcp`."""

from pathlib import Path
from typing import Annotated, get_args

import typer

from holdfast.doors.cli.command import CommandContext, command, is_server, login
from holdfast.doors.mcp import stdio
from holdfast.doors.mcp.owners import GRAPH, NOTES, HostMemories, Owners, Profile
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.ground.scope import checked_name

mcp_app = typer.Typer(rich_markup_mode=None)


@command(mcp_app, "mcp", creates=True)
def mcp(
    call: CommandContext,
    *,
    user: Annotated[
        str | None,
        typer.Option("--user", metavar="U", help="Whose long-term memory: yours, unless given."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="A", help="An agent, for its durable memory.")
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="The store for notes: its id or name."),
    ] = None,
    profile: Annotated[
        str,
        typer.Option("--profile", metavar="P", help="Which tools: standard, full, files or graph."),
    ] = "standard",
    read_only: Annotated[bool, typer.Option("--read-only", help="Only tools that read.")] = False,
    import_: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Import a knowledge graph of the reference server, and exit.",
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export", metavar="FILE", help="Export the knowledge graph to a new file, and exit."
        ),
    ] = None,
) -> None:
    """Serve memory to one host of the Model Context Protocol, over stdio.

    Without options: your long-term memory, and notes in the store `Notes`. With --import or
    --export a knowledge graph is moved, and nothing is served.
    """
    chosen = _profile(profile)
    _check_name("--user", user)
    _check_name("--agent", agent)
    graph = chosen == "graph"
    moved = import_ is not None or export is not None
    if moved and not graph:
        raise typer.BadParameter("a graph needs --profile graph", param_hint="--import, --export")
    if import_ is not None and export is not None:
        raise typer.BadParameter("give one of --import and --export", param_hint="--import")
    if import_ is not None and read_only:
        raise typer.BadParameter("an import writes; leave --read-only out", param_hint="--import")
    memories = HostMemories(
        call.hf,
        Owners(
            user=None if graph else user or login(),
            agent=None if graph else agent,
            store=store or (GRAPH if graph else NOTES),
            profile=chosen,
            read_only=read_only,
        ),
    )
    if read_only and store is not None and memories.store and memories.store.id() is None:
        raise NotFound("memory store", store, next="Leave --read-only out to create it.")
    if import_ is not None:
        print(stdio.import_file(memories, import_))  # noqa: T201
    elif export is not None:
        print(stdio.export_file(memories, export))  # noqa: T201
    else:
        code = stdio.serve(memories, remote=is_server(call.db))
        raise typer.Exit(code)


def _check_name(option: str, given: str | None) -> None:
    try:
        if given is not None:
            checked_name(option, given)
    except InvalidInput as error:
        raise typer.BadParameter(str(error), param_hint=option) from error


def _profile(given: str) -> Profile:
    for each in get_args(Profile):
        if given == each:
            return each
    known = ", ".join(get_args(Profile))
    raise typer.BadParameter(f"must be one of {known}", param_hint="--profile")
