"""`holdfast memories`: the memories of a store."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import PAGE, memory, put_bytes, store_id
from holdfast.ground.errors import InvalidInput, PathTaken, PreconditionFailed
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Precondition, record_to_wire

memories_app = typer.Typer(rich_markup_mode=None)

READ_AT_MOST = 1 << 20
"""Bytes: more than any memory may hold, so that an endless file is refused and not swallowed."""

MEMORY_COLUMNS = ("path", "content_size_bytes", "updated_at", "id")

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store's id or name.")]
Place = Annotated[str, typer.Argument(metavar="PATH|ID", help="The memory's path or id.")]
Path_ = Annotated[str, typer.Argument(metavar="PATH", help="The memory's path.")]


@command(memories_app, "list")
def list_memories(
    call: CommandContext,
    store: Store,
    prefix: Annotated[
        str | None, typer.Option("--prefix", metavar="P", help="Only below this, as /notes/.")
    ] = None,
    depth: Annotated[
        int | None,
        typer.Option("--depth", metavar="1", min=0, max=1, help="1: direct children alone."),
    ] = None,
) -> None:
    """List the memories of a store, by path."""
    page = call.hf.memory_stores.memories.list(
        store_id(call.hf, store), path_prefix=prefix, depth=depth, limit=PAGE
    )
    call.answer.many(call.walk("Listing memories", page.all()), MEMORY_COLUMNS)


@command(memories_app, "show")
def show_memory(
    call: CommandContext,
    store: Store,
    place: Place,
    raw: Annotated[bool, typer.Option("--raw", help="Write the content alone, exactly.")] = False,
) -> None:
    """Show a memory with its content."""
    found = memory(call.hf, store_id(call.hf, store), place)
    content = found.content or ""
    if raw:
        put_bytes(content.encode())
        return
    fields = record_to_wire(found)
    if not call.answer.as_json:
        del fields["content"]
    call.answer.one(fields)
    if not call.answer.as_json:
        call.answer.text("\n" + content, {})


@command(memories_app, "put")
def put(
    call: CommandContext,
    store: Store,
    path: Path_,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", help="Where the content is; - is standard input.")
    ] = "-",
    if_sha256: Annotated[
        str | None,
        typer.Option("--if-sha256", metavar="H", help="Only if the content there has this sha256."),
    ] = None,
) -> None:
    """Write a memory, new or not.

    What sits at the path gets a new version; what it held before stays a version.
    """
    if if_sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", if_sha256):
        raise typer.BadParameter("must be 64 lowercase hex digits", param_hint="--if-sha256")
    content = _text(file)
    call.answer.one(_written(call.hf, store_id(call.hf, store), path, content, if_sha256))


@command(memories_app, "rename")
def rename(
    call: CommandContext,
    store: Store,
    old: Annotated[str, typer.Argument(metavar="OLD", help="A path, or a directory's.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Where it goes.")],
) -> None:
    """Rename a memory, or everything below a directory, at once."""
    renamed = call.hf.memory_stores.memories.rename(store_id(call.hf, store), old, new)
    call.answer.many(renamed, MEMORY_COLUMNS, paged=False)


@command(memories_app, "delete")
def delete_memory(
    call: CommandContext,
    store: Store,
    place: Place,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a memory; its versions stay."""
    call.make_sure(f"Delete the memory {place} of the store {store}?", yes=yes)
    within = store_id(call.hf, store)
    gone = memory(call.hf, within, place, view="basic")
    call.answer.one(call.hf.memory_stores.memories.delete(gone.id, memory_store_id=within))


@command(memories_app, "search")
def search(
    call: CommandContext,
    store: Store,
    words: Annotated[str, typer.Argument(metavar="WORDS", help='Words, or a "phrase".')],
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, max=100, help="Most memories to find.")
    ] = 10,
) -> None:
    """Find the memories that hold these words, the best first."""
    found = call.hf.memory_stores.memories.search(store_id(call.hf, store), words, limit=limit)
    if call.answer.as_json:
        call.answer.many(found, (), paged=False)
        return
    rows = [
        {"path": each.memory.path, "snippet": each.snippet, "id": each.memory.id} for each in found
    ]
    call.answer.many(rows, ("path", "snippet", "id"))


def _text(file: str) -> str:
    if file == "-":
        content = sys.stdin.buffer.read(READ_AT_MOST + 1)
    else:
        with Path(file).open("rb") as source:
            content = source.read(READ_AT_MOST + 1)
    if len(content) > READ_AT_MOST:
        raise InvalidInput("content", f"has more than {READ_AT_MOST:,} bytes", limit=READ_AT_MOST)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        reason = f"is not UTF-8 at byte {error.start:,}"
        raise InvalidInput("content", reason, next="A memory is text: convert it first.") from None


def _written(hf: Holdfast, store: str, path: str, content: str, sha256: str | None) -> Memory:
    memories = hf.memory_stores.memories
    there = memories.at(store, path)
    if there is not None:
        return _updated(hf, there.id, store, content, sha256)
    if sha256 is not None:
        raise PreconditionFailed(path, expected=sha256, current=None)
    try:
        return memories.create(store, path=path, content=content)
    except PathTaken as taken:
        if taken.conflicting_path != path:
            raise
        # Somebody made it since we looked: without a precondition the last write stands.
        return _updated(hf, taken.conflicting_memory_id, store, content, None)


def _updated(hf: Holdfast, id: str, store: str, content: str, sha256: str | None) -> Memory:
    condition: Precondition | None = (
        None if sha256 is None else {"type": "content_sha256", "content_sha256": sha256}
    )
    return hf.memory_stores.memories.update(
        id, memory_store_id=store, content=content, precondition=condition
    )
