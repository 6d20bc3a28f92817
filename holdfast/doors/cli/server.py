"""Command `holdfast serve`."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import typer

from holdfast.doors import http
from holdfast.doors.cli.command import is_server
from holdfast.ground.errors import MissingExtra
from holdfast.library.longterm import use_extractor

serve_app = typer.Typer(rich_markup_mode=None)


@serve_app.command("serve")
def serve(
    *,
    db: Annotated[
        str | None,
        typer.Option(
            "--db",
            metavar="TARGET",
            envvar="HOLDFAST_DB",
            show_envvar=True,
            help="A file, sqlite:FILE or postgresql://… Yours, unless given.",
        ),
    ] = None,
    host: Annotated[
        str, typer.Option("--host", metavar="H", help="Where to listen.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65_535, help="The port to listen on.")
    ] = 8420,
    workers: Annotated[
        int, typer.Option("--workers", metavar="N", min=1, help="Processes that answer.")
    ] = 1,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            envvar="HOLDFAST_STRICT",
            show_envvar=True,
            help="Refuse what the hosted service refuses, where we are lenient.",
        ),
    ] = False,
    networks: Annotated[
        list[str] | None,
        typer.Option(
            "--networks", metavar="MODULE:NAME", help="Networks of agents to run, as --runs."
        ),
    ] = None,
    runs: Annotated[
        list[str] | None,
        typer.Option(
            "--runs",
            metavar="MODULE:NAME",
            help="A Network, an Agent, a definition, or several: runs of it are taken up.",
        ),
    ] = None,
    allow_model: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-model",
            metavar="NAME",
            help="A model, provider:model, that requests may name to embed, mine or consolidate.",
        ),
    ] = None,
    extractor: Annotated[
        str | None,
        typer.Option(
            "--extractor",
            metavar="NAME",
            envvar="HOLDFAST_LTM_EXTRACTOR",
            show_envvar=True,
            help="A model, provider:model, that mines conversations for items; or none.",
        ),
    ] = None,
    dream_model: Annotated[
        str | None,
        typer.Option(
            "--dream-model",
            metavar="NAME",
            envvar="HOLDFAST_DREAM_MODEL",
            show_envvar=True,
            help="A model, provider:model, that does dreams; without it there are none.",
        ),
    ] = None,
    no_access_log: Annotated[
        bool, typer.Option("--no-access-log", help="Write no line for each request.")
    ] = False,
    public_url: Annotated[
        str | None,
        typer.Option(
            "--public-url",
            metavar="URL",
            envvar="HOLDFAST_PUBLIC_URL",
            show_envvar=True,
            help="The address at which clients elsewhere reach the server.",
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            "--allow-origin", metavar="ORIGIN", help="A site whose pages may send requests."
        ),
    ] = None,
    no_mcp: Annotated[
        bool, typer.Option("--no-mcp", help="Serve no hosts of the Model Context Protocol.")
    ] = False,
    no_console: Annotated[
        bool, typer.Option("--no-console", help="Serve no pages for people.")
    ] = False,
    chat_model: Annotated[
        list[str] | None,
        typer.Option(
            "--chat-model",
            metavar="NAME",
            envvar="HOLDFAST_CHAT_MODEL",
            show_envvar=True,
            help="A model, provider:model, for the chat of the console; the first is the default.",
        ),
    ] = None,
    no_migrate: Annotated[
        bool, typer.Option("--no-migrate", help="Do not bring an older database up to date.")
    ] = False,
) -> None:
    """Serve a database over HTTP, until interrupted."""
    if is_server(db):
        raise typer.BadParameter("serve a database, not a server's URL", param_hint="--db")
    if extractor:
        use_extractor(extractor)
    code = http.serve(
        db,
        host=host,
        port=port,
        workers=workers,
        strict=strict,
        migrate=not no_migrate,
        runs=[*(networks or ()), *(runs or ())],
        models=allow_model or (),
        dream_model=dream_model,
        access_log=not no_access_log,
        public_url=public_url,
        allow_origins=allow_origin or (),
        subapp=None if no_mcp else _mcp(workers),
        site=None if no_console else _console(chat_model or ()),
    )
    raise typer.Exit(code)


def _mcp(workers: int) -> "http.MakeSubApp | None":
    """Return what serves `/mcp`; None without the extra."""
    try:
        from holdfast.doors.mcp.http import HttpHosts
    except MissingExtra:
        return None
    return partial(HttpHosts, workers=workers)


def _console(chat_models: Sequence[str]) -> "http.MakeSite | None":
    """Return what serves the console; without the extra, what says how to have it."""
    try:
        from holdfast.doors.console.app import Console
    except MissingExtra as error:
        sentence = str(error)
        return lambda _state: _MissingConsole(sentence)
    return partial(Console, chat_models=chat_models)


class _MissingConsole:
    """Answers 404 below `/console`, with the sentence that names the extra."""

    prefix = b"/console"
    limit = 0

    def __init__(self, sentence: str) -> None:
        self.notice = f"There is no console: {sentence}"
        self._body = f"{sentence}\n".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> int:
        del scope, receive
        headers = [
            (b"content-type", b"text/plain; charset=utf-8"),
            (b"content-length", b"%d" % len(self._body)),
        ]
        await send({"type": "http.response.start", "status": 404, "headers": headers})
        await send({"type": "http.response.body", "body": self._body})
        return 404
