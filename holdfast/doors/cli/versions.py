"""`holdfast versions`: what memories were before."""

from typing import Annotated

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import PAGE, memory_id_ever, store_id
from holdfast.memories.stores.records import Version, record_to_wire

versions_app = typer.Typer(rich_markup_mode=None)

VERSION_COLUMNS = ("id", "operation", "path", "created_at", "created_by", "redacted_at")

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store's id or name.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="The version's id.")]


@command(versions_app, "list")
def list_versions(
    call: CommandContext,
    store: Store,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="PATH|ID", help="Only of this memory, deleted or not."),
    ] = None,
) -> None:
    """List versions, the newest first."""
    within = store_id(call.hf, store)
    of = None if memory is None else memory_id_ever(call.hf, within, memory)
    page = call.hf.memory_stores.memory_versions.list(within, memory_id=of, limit=PAGE)
    call.answer.many(call.walk("Listing versions", page.all()), VERSION_COLUMNS)


@command(versions_app, "show")
def show_version(call: CommandContext, store: Store, id: Id) -> None:
    """Show a version with its content."""
    version = call.hf.memory_stores.memory_versions.retrieve(
        id, memory_store_id=store_id(call.hf, store), view="full"
    )
    fields = record_to_wire(version)
    if not call.answer.as_json:
        del fields["content"]
    call.answer.one(fields)
    if not call.answer.as_json and version.content is not None:
        call.answer.text("\n" + version.content, {})


@command(versions_app, "diff")
def diff(
    call: CommandContext,
    store: Store,
    a: Annotated[str, typer.Argument(metavar="A", help="The version before.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The version after.")],
) -> None:
    """Show what differs between two versions, as a unified diff."""
    text = call.hf.memory_stores.memory_versions.diff(
        a, b, memory_store_id=store_id(call.hf, store)
    )
    instead = {"type": "memory_diff", "from": a, "to": b, "diff": text}
    call.answer.text(text or "They are equal.", instead)


@command(versions_app, "restore")
def restore(call: CommandContext, store: Store, id: Id) -> None:
    """Make an old version's content current again.

    A deleted memory comes back with its id.
    """
    memory = call.hf.memory_stores.memory_versions.restore(
        id, memory_store_id=store_id(call.hf, store)
    )
    call.answer.one(memory)


@command(versions_app, "redact")
def redact(
    call: CommandContext,
    store: Store,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID...", help="The versions' ids.", show_default=False)
    ],
) -> None:
    """Take content, path and hash out of versions.

    Nothing brings them back; that the versions were stays known.
    """
    within = store_id(call.hf, store)
    redacted: list[Version] = []
    try:
        for id in ids:
            done = call.hf.memory_stores.memory_versions.redact(id, memory_store_id=within)
            redacted.append(done)
    finally:
        # What was redacted before an error is gone as well, and so is told as well.
        if len(ids) == 1 and redacted:
            call.answer.one(redacted[0])
        elif redacted:
            call.answer.many(redacted, VERSION_COLUMNS, paged=False)
