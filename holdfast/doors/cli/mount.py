"""Commands `holdfast mount` and `holdfast unmount`."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Annotated, Literal

import typer

from holdfast.doors.cli.command import CommandContext, command, is_server
from holdfast.doors.cli.main import report_error
from holdfast.doors.cli.output import put_bytes, put_json
from holdfast.doors.mount.names import MIB, MountOptions
from holdfast.doors.mount.process.lifecycle import MountPlan, live
from holdfast.doors.mount.process.registry import STALE, Register, note_of, ready_line, status_of
from holdfast.doors.mount.process.setup import absolute, mount_request
from holdfast.doors.mount.process.unmount import unmount as unmount_directory
from holdfast.doors.mount.storage.spool import default_root
from holdfast.ground.text import one_line, printable
from holdfast.memories.stores.records import JSONObject

mount_app = typer.Typer(rich_markup_mode=None)

MEMORY = ":memory:"
TOKEN = "hfs_"  # noqa: S105 - how session tokens begin
MOST = 8
CLOSING_SECONDS = 2.0
"""Seconds to wait for the target to close; one that cannot be reached is abandoned."""


@command(mount_app, "mount", creates=True)
def mount(
    call: CommandContext,
    directory: Annotated[str, typer.Argument(metavar="DIR", help="Where to: an empty directory.")],
    *,
    stores: Annotated[
        list[str] | None,
        typer.Option("--store", metavar="STORE", help="A store, by id or name; may be repeated."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", metavar="ID", help="Mount what it attaches, and write as it."),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Mount read-only.")] = False,
    mode: Annotated[
        Literal["auto", "fuse", "sync"],
        typer.Option("--mode", help="Through FUSE, or as plain files kept in step."),
    ] = "auto",
    deadline: Annotated[
        float,
        typer.Option("--deadline", metavar="S", min=0.1, help="Seconds that storage may take."),
    ] = 5.0,
    grace: Annotated[
        float,
        typer.Option(
            "--grace", metavar="S", min=0, help="Seconds until a temporary file becomes a memory."
        ),
    ] = 3.0,
    spool: Annotated[
        str | None,
        typer.Option("--spool", metavar="DIR", help="Where to keep what could not be saved."),
    ] = None,
    cache: Annotated[
        int, typer.Option("--cache", metavar="MIB", min=0, help="Contents to keep in memory.")
    ] = 64,
    allow_other: Annotated[
        bool, typer.Option("--allow-other", help="Let other users in, as permissions say.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show what is mounted there, and exit.")
    ] = False,
    note: Annotated[
        bool, typer.Option("--note", help="Print text for a system prompt about it, and end.")
    ] = False,
) -> None:
    """Show memory stores as directories of ordinary files.

    Runs until it is unmounted or interrupted.
    """
    place, stores = absolute(directory), stores or []
    if status:
        _show_status(place)
    elif note:
        _show_note(place)
    else:
        _check(call, session, stores)
        plan = MountPlan(
            directory=place,
            mode=mode,
            options=MountOptions(
                spool=default_root() if spool is None else absolute(spool),
                deadline=deadline,
                grace=grace,
                cache_bytes=cache * MIB,
                read_only=read_only,
            ),
            allow_other=allow_other,
        )
        _live(call, plan, session, stores)


def _check(call: CommandContext, session: str | None, stores: list[str]) -> None:
    """Raise BadParameter for invalid options, before the target is opened."""
    if (call.db or "").removeprefix("sqlite:") == MEMORY:
        raise typer.BadParameter(f"no other process can read {MEMORY}", param_hint="--db")
    token = is_server(call.db) and (call.api_key or "").startswith(TOKEN)
    if not stores and session is None and not token:
        raise typer.BadParameter("name a store or a session", param_hint="--store")
    if len(stores) > MOST:
        raise typer.BadParameter(f"name at most {MOST} stores", param_hint="--store")
    if len(set(stores)) < len(stores):
        raise typer.BadParameter("name each store once", param_hint="--store")


def _live(call: CommandContext, plan: MountPlan, session: str | None, stores: list[str]) -> None:
    """Mount, then exit with the mount's code, even if the target does not close."""
    try:
        code = _run_mount(call, plan, session, stores)
    except Exception as error:
        if _closed(call):
            raise
        code = report_error(error)
    else:
        if _closed(call):
            raise typer.Exit(code)
    # Only the target hangs: everything is saved or in the spool.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run_mount(
    call: CommandContext, plan: MountPlan, session: str | None, stores: list[str]
) -> int:
    """Mount until it ends; return the exit code.

    1 if content could not be saved, or the end was forced.
    """
    found = mount_request(call.hf, session=session, stores=stores, read_only=plan.options.read_only)
    again = found.repeated()
    if again is not None:
        message = f"{again.store.name!r} is named twice: name each store once"
        raise typer.BadParameter(message, param_hint="--store")
    end = live(found, plan, on_ready=lambda ready: _ready(call, ready), warn=_warn)
    if end.spooled:
        spool = plan.options.spool
        _warn(f"{end.spooled} could not be saved, and are kept in {spool} for the next mount.")
    return 1 if end.spooled or end.hurried else 0


def _closed(call: CommandContext) -> bool:
    """Close the target; return False if that takes over `CLOSING_SECONDS`.

    Closing revokes what was made for the mount.
    """
    if not call.is_open:
        return True
    closing = Thread(target=call.hf.close, name="holdfast-closing", daemon=True)
    closing.start()
    closing.join(CLOSING_SECONDS)
    return not closing.is_alive()


def _ready(call: CommandContext, ready: JSONObject) -> None:
    # The parent process may have closed the pipe.
    with suppress(BrokenPipeError):
        if call.answer.as_json:
            put_json(ready)
        else:
            put_bytes(f"{one_line(ready_line(ready))}\n".encode())


def _warn(line: str) -> None:
    sys.stderr.write(f"holdfast: {one_line(line)}\n")
    sys.stderr.flush()


def _show_status(place: Path) -> None:
    status = status_of(place, Register())
    put_json(status)
    if status["state"] == STALE:
        raise typer.Exit(1)


def _show_note(place: Path) -> None:
    put_bytes(f"{printable(note_of(place, Register()))}\n".encode())


unmount_app = typer.Typer(rich_markup_mode=None)


@unmount_app.command("unmount")
def unmount(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="What is mounted on.")],
    lazy: Annotated[
        bool, typer.Option("--lazy", help="Unmount now, even while files are open.")
    ] = False,
    timeout: Annotated[
        float,
        typer.Option("--timeout", metavar="S", min=0, help="Seconds to wait for unsaved files."),
    ] = 30.0,
) -> None:
    """Unmount a directory, and wait until its process has exited."""
    message = unmount_directory(absolute(directory), Register(), lazy=lazy, timeout=timeout)
    put_bytes(f"{one_line(message)}\n".encode())
