"""`holdfast stores`: the stores themselves."""

from typing import Annotated

import typer

from holdfast.doors.cli.command import CommandContext, command
from holdfast.doors.cli.output import PAGE, store_id

stores_app = typer.Typer(rich_markup_mode=None)

COLUMNS = ("id", "name", "description", "updated_at", "archived_at")

Store = Annotated[str, typer.Argument(metavar="STORE", help="The store's id or name.")]
Description = Annotated[
    str | None, typer.Option("--description", metavar="T", help="What it is for.")
]
Metadata = Annotated[
    list[str] | None,
    typer.Option("--metadata", metavar="K=V", help="A pair to keep with it; may be repeated."),
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
