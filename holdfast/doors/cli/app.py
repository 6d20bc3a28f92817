"""Table of commands; the command line is built and run from it."""

import os
from collections.abc import Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
import typer.main

# Typer converts values with pydantic, and its import takes longer than most commands. Text and
# defaults need no conversion.

_SLOT = "_runtime_param"  # where Typer keeps a parameter's converter once it is built


class _Plain:
    """Converter that passes on text and defaults, and leaves the rest to Typer."""

    def __init__(self, kind: Any) -> None:
        self._texts = kind in (str, list[str])

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        several = param.multiple or param.nargs == -1
        if value is None:
            return () if several else None
        if self._texts or not isinstance(value, str):
            return tuple(value) if several else value
        setattr(param, _SLOT, None)
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def take_plainly(command: Any) -> None:
    """Replace the converters of *command* and its subcommands by `_Plain`."""
    for below in getattr(command, "commands", {}).values():
        take_plainly(below)
    for param in command.get_params(typer.Context(command)):
        if getattr(param, _SLOT, param) is None:
            setattr(param, _SLOT, _Plain(param.type_descriptor.annotation))


COMMANDS = {
    "serve": "Serve a database over HTTP.",
    "mcp": "Serve memory to one host of the Model Context Protocol.",
    "stores": "Make, list, change, archive and delete memory stores.",
    "memories": "Read, write, search, rename and delete the memories of a store.",
    "versions": "List, compare, restore and redact versions of memories.",
    "sessions": "Attach stores to an agent at work, and make tokens for it.",
    "keys": "Make, list and revoke API keys.",
    "mount": "Show memory stores as directories of ordinary files.",
    "unmount": "End a mount, once everything in it is saved.",
    "durable": "Read, write and maintain the durable memory of agents.",
    "ltm": "Recall, store and maintain the long-term memory of users.",
    "consolidate": "Propose changes to a memory, and decide on them.",
    "runs": "Watch, steer and inspect the runs of agents.",
    "work": "Take queued runs of definitions.",
    "import": "Import what another memory or chat program exported.",
    "forget": "Forget everything of a user's or an agent's.",
    "erasures": "List the erasures of people and agents.",
    "backup": "Copy everything, at one moment, into a file.",
    "restore": "Bring a backup into a database.",
    "verify": "Check all stored data, and list what is damaged.",
    "scrub": "Make deleted bytes unreadable in the database's files.",
    "doctor": "Report what needs an operator.",
    "eval": "Measure the quality of recall.",
}
"""Each command's line in the help. Its Typer app is `<name>_app` in the module that has it."""

_FILES = {
    "memories": "stores",
    "versions": "stores",
    "keys": "sessions",
    "unmount": "mount",
    "ltm": "longterm",
    "import": "longterm",
    "consolidate": "consolidations",
    "serve": "server",
    "work": "runs",
    **dict.fromkeys(("backup", "restore", "verify", "scrub", "doctor", "eval"), "upkeep"),
    **dict.fromkeys(("forget", "erasures"), "upkeep"),
}
"""The modules of commands that are in no module of their own name."""

_HELP = "Memory for AI agents: kept, private, found, fast."


def build(names: Sequence[str]) -> typer.Typer:
    """Return the Typer app with the commands *names* loaded and the others listed.

    Its own options, such as `--version`, are added unless the first of *names* is a command.
    """
    app = _empty(_HELP, options=not names or names[0] not in COMMANDS)
    for name, says in COMMANDS.items():
        if name in names:
            _add(app, name)
        else:
            app.add_typer(_empty(says), name=name)
    return app


def run(argv: Sequence[str]) -> int:
    """Run the command of *argv*; return its exit code.

    Raise what the command raises, and TyperException for an invalid command line.
    """
    command = typer.main.get_command(build(_completed() or argv[:1]))
    take_plainly(command)
    code = command.main(args=argv or ["--help"], prog_name="holdfast", standalone_mode=False)
    return code if isinstance(code, int) else 0


def _add(app: typer.Typer, name: str) -> None:
    module = import_module(f"holdfast.doors.cli.{_FILES.get(name, name)}")
    loaded: typer.Typer = getattr(module, f"{name}_app")
    single = [each.name for each in loaded.registered_commands] == [name]
    app.add_typer(loaded, name=None if single else name, help=COMMANDS[name])


def _completed() -> list[str]:
    """Return the words of the command line that a shell completes, or none."""
    if "_HOLDFAST_COMPLETE" not in os.environ:
        return []
    words = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS", "")
    return ["--help", *words.split()]


def _empty(says: str, *, options: bool = False) -> typer.Typer:
    # Plain help: Typer's rich rendering takes longer than everything else together.
    app = typer.Typer(help=says, rich_markup_mode=None, add_completion=options)
    if options:
        app.callback(help=says)(_options)
    return app


def _show_version(value: bool) -> None:
    if value:
        # Loading it takes longer than most commands do.
        from importlib.metadata import version

        typer.echo(f"holdfast {version('holdfast')}")
        raise typer.Exit


def _options(
    *,
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Take the options of the command line itself."""
