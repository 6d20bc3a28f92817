"""`holdfast unmount`: ends a mount, once everything in it is saved."""

from typing import Annotated

import typer

from holdfast.doors.cli.output import one_line, put_bytes

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
    from holdfast.doors.mount.process.place import absolute
    from holdfast.doors.mount.process.registry import Register
    from holdfast.doors.mount.process.unmount import unmount as end

    said = end(absolute(directory), Register(), lazy=lazy, timeout=timeout)
    put_bytes(f"{one_line(said)}\n".encode())
