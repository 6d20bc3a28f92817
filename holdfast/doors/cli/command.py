"""Common options of commands, and the handle that they open.

The options of every command are added here, so that no command can lack one.
"""

import getpass
import inspect
import os
import sys
from collections.abc import Callable, Iterable
from functools import cached_property
from types import TracebackType
from typing import Annotated, Any, Concatenate, ParamSpec, Self, TypeVar

import typer

import holdfast
from holdfast.doors.cli.output import CommandOutput, bar
from holdfast.ground.errors import NotFound
from holdfast.ground.ids import KINDS
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import location

T = TypeVar("T")


class CommandContext:
    """Common options of a command, its output and its handle.

    `hf` is opened on first use and closed on exit, also after an error. So an invalid command line
    is refused before a database is opened. A database that does not exist is created only if
    `creates` is set.
    """

    creates = False

    def __init__(
        self, *, db: str | None, workspace: str | None, api_key: str | None, json: bool
    ) -> None:
        self.db, self.workspace, self.api_key = db, workspace, api_key
        self.answer = CommandOutput(json=json)

    @cached_property
    def hf(self) -> Holdfast:
        """The opened target; a database is opened as the user who is logged in."""
        return self._open(migrate=True)

    def database(self, *, migrate: bool) -> Holdfast:
        """Open the database as `hf`; raise BadParameter for a server's URL."""
        self.needs_database()
        self.hf = self._open(migrate=migrate)
        return self.hf

    def needs_database(self) -> None:
        """Raise BadParameter for a server's URL: the command needs the database."""
        if is_server(self.db):
            raise typer.BadParameter(
                "this command wants a database, not a server's URL; run it where the database is",
                param_hint="--db",
            )

    def _open(self, *, migrate: bool) -> Holdfast:
        return holdfast.open(
            self.db,
            workspace=self.workspace or "default",
            actor=None if is_server(self.db) else holdfast.Actor.user(f"user_{login()}"),
            api_key=self.api_key,
            migrate=migrate,
            create=self.creates,
        )

    def located(self, error: NotFound) -> NotFound:
        """Return *error*; for a memory store's id, with the database that was searched."""
        if error.kind != KINDS["memstore"] or error.next != "Check the id." or not self.is_open:
            return error
        where = location(self.hf.opened, self.hf.workspace)
        return NotFound(error.kind, error.id, next=f"No store has this id in {where}.")

    @property
    def is_open(self) -> bool:
        """Whether the target was opened."""
        return "hf" in self.__dict__

    def make_sure(self, question: str, *, yes: bool) -> None:
        """Confirm *question* on the terminal, unless *yes*.

        Raise BadParameter if there is no terminal, Abort if the user declines.
        """
        if yes:
            return
        if not sys.stdin.isatty():
            raise typer.BadParameter(
                "there is no terminal for the question; pass --yes to confirm", param_hint="--yes"
            )
        typer.confirm(question, abort=True, err=True)

    def walk(self, what: str, things: Iterable[T]) -> list[T]:
        """Return all *things*, page by page, with a progress bar for *what*."""
        with bar(what):
            return list(things)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.is_open:
            self.hf.close()


def is_server(db: str | None) -> bool:
    """Return whether *db* is the URL of a server."""
    return db is not None and db.lower().startswith(("http://", "https://"))


def login() -> str:
    """Return the name of the user who is logged in, or the user id without a name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


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
    """Register a function as the command *name* of *app*.

    The function takes a CommandContext, then its arguments and options. A database that does not
    exist is an error; with *creates* it is created.
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
