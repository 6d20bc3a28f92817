"""How a command is written: a function of a Call, its arguments and its options.

The options that every command takes are added here, so that none can lack one.
"""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from holdfast.doors.cli.call import CommandContext
from holdfast.ground.errors import NotFound

P = ParamSpec("P")


def _common(
    *,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="TARGET",
            envvar="HOLDFAST_DB",
            show_envvar=True,
            help="A file, sqlite:FILE, postgresql://… or a server's URL. Yours, unless given.",
        ),
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option("--workspace", metavar="W", help="The workspace: default, unless given."),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(
            "--api-key",
            metavar="K",
            envvar="HOLDFAST_API_KEY",
            show_envvar=True,
            help="The key for a server. Others can read a command line: use the variable.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the API's own JSON, as when output is piped.")
    ] = False,
) -> CommandContext:
    return CommandContext(db=db, workspace=workspace, api_key=api_key, json=json)


_COMMON = inspect.signature(_common).parameters


def command(
    app: typer.Typer, name: str, *, creates: bool = False
) -> Callable[
    [Callable[Concatenate[CommandContext, P], None]], Callable[Concatenate[CommandContext, P], None]
]:
    """Make a function of a Call, arguments and options the command *name* of *app*.

    Where its database does not exist it is an error, and with *creates* the database is made.
    """

    def add(
        act: Callable[Concatenate[CommandContext, P], None],
    ) -> Callable[Concatenate[CommandContext, P], None]:
        own = list(inspect.signature(act).parameters.values())[1:]
        options = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]

        def run(**given: Any) -> None:
            common = {key: given.pop(key) for key in _COMMON}
            with _common(**common) as call:
                call.creates = creates
                try:
                    act(call, **given)  # pyright: ignore[reportCallIssue] (Typer read act's signature)
                except NotFound as error:
                    raise call.located(error) from error

        run.__dict__["__signature__"] = inspect.Signature([*options, *_COMMON.values()])
        app.command(name, help=act.__doc__)(run)
        return act

    return add
