"""Commands of `holdfast stores`, `memories` and `versions`."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import PAGE, memory, memory_id_ever, put_bytes, store_id
from holdfast.ground.errors import InvalidInput, PathTaken, PreconditionFailed
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.records import Memory, Precondition, Version, record_to_wire

stores_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "name", "description", "updated_at", "archived_at")
EDIT_COLUMNS = ("operation", "path_before", "path", "memory_id")

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store's id or name.")]
Description = Annotated[
    str | None, typer.Option("--description", metavar="T", help="What it is for.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="K=V", help="A pair to keep with it; may be repeated."),
]

At = Annotated[
    str | None,
    typer.Option("--at", metavar="T", help="As it was at this time (RFC 3339)."),
]


@command(stores_app, "create", creates=True)
def create(
    call: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Its name.")],
    description: Description = None,
    metadata: Metadata = None,
) -> None:
    """Make a store."""
    pairs = _pairs(metadata)
    store = call.hf.memory_stores.create(name=name, description=description, metadata=pairs)
    call.answer.one(store)


@command(stores_app, "list")
def list_all(
    call: CommandContext,
    every: Annotated[bool, typer.Option("--all", help="Archived ones too.")] = False,
) -> None:
    """List the stores, the newest first."""
    stores = call.hf.memory_stores.list(limit=PAGE, include_archived=every)
    call.answer.many(call.walk("Listing stores", stores.all()), COLUMNS)


@command(stores_app, "show")
def show(call: CommandContext, store: Store) -> None:
    """Show a store."""
    call.answer.one(call.hf.memory_stores.retrieve(store_id(call.hf, store)))


@command(stores_app, "update")
def update(
    call: CommandContext,
    store: Store,
    name: Annotated[str | None, typer.Option("--name", metavar="N", help="Its new name.")] = None,
    description: Description = None,
    metadata: Metadata = None,
) -> None:
    """Change name, description or metadata.

    What is not given stays.
    """
    pairs = _pairs(metadata)
    changed = call.hf.memory_stores.update(
        store_id(call.hf, store),
        name=name,
        description=description,
        metadata=None if pairs is None else {**pairs},
    )
    call.answer.one(changed)


@command(stores_app, "archive")
def archive(call: CommandContext, store: Store) -> None:
    """Archive a store: it can only be read.

    There is no way back.
    """
    call.answer.one(call.hf.memory_stores.archive(store_id(call.hf, store)))


@command(stores_app, "delete")
def delete(
    call: CommandContext,
    store: Store,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Delete a store with all that is in it.

    Nothing brings it back.
    """
    call.make_sure(f"Delete the store {store} and all that is in it?", yes=yes)
    call.answer.one(call.hf.memory_stores.delete(store_id(call.hf, store)))


@command(stores_app, "restore")
def restore_store(
    call: CommandContext,
    store: Store,
    at: Annotated[
        str, typer.Option("--at", metavar="T", help="The time to go back to (RFC 3339).")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")] = False,
) -> None:
    """Bring the memories of a store back to an earlier time.

    Each change is a new version, so that a restore can be taken back the same way.
    """
    if not dry_run:
        call.make_sure(f"Bring the store {store} back to {at}?", yes=yes)
    stores = call.hf.memory_stores
    restored = stores.restore(store_id(call.hf, store), at=at, dry_run=dry_run)
    if call.answer.as_json:
        call.answer.one(restored)
        return
    call.answer.many(restored.edits, EDIT_COLUMNS)
    if restored.erased:
        call.answer.text(f"Erased since, and left as they are: {restored.erased:,}.", {})


@command(stores_app, "configure")
def configure(
    call: CommandContext,
    memories_cap: Annotated[
        int | None,
        typer.Option("--memories-cap", metavar="N", min=1, help="Most memories in a store."),
    ] = None,
) -> None:
    """Show or change the settings for stores."""
    call.creates = memories_cap is not None
    stores = call.hf.memory_stores
    if memories_cap is None:
        call.answer.one(stores.settings())
    else:
        call.answer.one(stores.configure(memories_cap=memories_cap))


def _pairs(given: list[str] | None) -> dict[str, str] | None:
    if given is None:
        return None
    pairs: dict[str, str] = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key or key in pairs:
            raise typer.BadParameter("write each pair once, as K=V", param_hint="--metadata")
        pairs[key] = value
    return pairs


memories_app = typer.Typer(rich_markup_mode=None)

READ_AT_MOST = 1 << 20
"""Bytes read at most: more than a memory may hold, so that an endless file is refused."""

MEMORY_COLUMNS = ("path", "content_size_bytes", "updated_at", "id", "tier", "held")


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
    at: At = None,
) -> None:
    """List the memories of a store, by path."""
    page = call.hf.memory_stores.memories.list(
        store_id(call.hf, store), path_prefix=prefix, depth=depth, limit=PAGE, at=at
    )
    call.answer.many(call.walk("Listing memories", page.all()), MEMORY_COLUMNS, erased=page.erased)


@command(memories_app, "show")
def show_memory(
    call: CommandContext,
    store: Store,
    place: Place,
    raw: Annotated[bool, typer.Option("--raw", help="Write the content alone, exactly.")] = False,
    at: At = None,
) -> None:
    """Show a memory with its content."""
    found = memory(call.hf, store_id(call.hf, store), place, at=at)
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


@command(memories_app, "accept")
def accept(call: CommandContext, store: Store, place: Place) -> None:
    """Release a held memory; its text counts as confirmed."""
    within = store_id(call.hf, store)
    found = memory(call.hf, within, place, view="basic")
    call.answer.one(call.hf.memory_stores.memories.accept(found.id, memory_store_id=within))


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
    found = memory(call.hf, within, place, view="basic")
    call.answer.one(call.hf.memory_stores.memories.delete(found.id, memory_store_id=within))


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
    current = memories.at(store, path)
    if current is not None:
        return _updated(hf, current.id, store, content, sha256)
    if sha256 is not None:
        raise PreconditionFailed(path, expected=sha256, current=None)
    try:
        return memories.create(store, path=path, content=content)
    except PathTaken as taken:
        if taken.conflicting_path != path:
            raise
        # Another client created it meanwhile: without a precondition the last write wins.
        return _updated(hf, taken.conflicting_memory_id, store, content, None)


def _updated(hf: Holdfast, id: str, store: str, content: str, sha256: str | None) -> Memory:
    condition: Precondition | None = (
        None if sha256 is None else {"type": "content_sha256", "content_sha256": sha256}
    )
    return hf.memory_stores.memories.update(
        id, memory_store_id=store, content=content, precondition=condition
    )


versions_app = typer.Typer(rich_markup_mode=None)

VERSION_COLUMNS = ("id", "operation", "path", "created_at", "created_by", "redacted_at")


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
        # Versions redacted before an error stay redacted, so they are reported too.
        if len(ids) == 1 and redacted:
            call.answer.one(redacted[0])
        elif redacted:
            call.answer.many(redacted, VERSION_COLUMNS, paged=False)
