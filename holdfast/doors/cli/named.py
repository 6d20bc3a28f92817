"""What a person calls a thing on the command line, turned into its id."""

from holdfast.ground.errors import NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.library.settings import location
from holdfast.memories.stores.records import Memory, View
from holdfast.memories.stores.rows import id_of_name, is_id

PAGE = 100
"""Things to ask for at a time: as many as a page may hold."""


def store_id(hf: Holdfast, store: str) -> str:
    """Return the id of *store*, an id or a name.

    NotFound, which names the database and the nearest name, when no store is called that;
    InvalidInput, with their ids, when several are.
    """
    if is_id("memstore", store):
        return store
    every = hf.memory_stores.list(limit=PAGE, include_archived=True).all()
    names = [(each.name, each.id) for each in every]
    return id_of_name(store, names, field="STORE", place=location(hf.opened, hf.workspace))


def memory(hf: Holdfast, store: str, place: str, *, view: View = "full") -> Memory:
    """Return the memory at *place*, a path or an id, of the store with the id *store*."""
    if not place.startswith("/"):
        return hf.memory_stores.memories.retrieve(place, memory_store_id=store, view=view)
    found = hf.memory_stores.memories.at(store, place)
    if found is None:
        raise NotFound("memory", place, next="Check the path; holdfast memories list shows them.")
    return found


def memory_id_ever(hf: Holdfast, store: str, place: str) -> str:
    """Return the id of the memory that is at *place*, or was the last to be there."""
    if not place.startswith("/"):
        return place
    live = hf.memory_stores.memories.at(store, place)
    if live is not None:
        return live.id
    for version in hf.memory_stores.memory_versions.list(store, limit=PAGE).all():
        if version.path == place:
            return version.memory_id
    raise NotFound("memory", place, next="No version has this path.")
