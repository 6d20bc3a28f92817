"""What a person calls a thing on the command line, turned into its id."""

from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library.holdfast import Holdfast
from holdfast.memories.stores.missing import missing
from holdfast.memories.stores.records import Memory, View

PAGE = 100
"""Things to ask for at a time: as many as a page may hold."""

ID_LENGTH = len("memstore_") + 24


def store_id(hf: Holdfast, store: str) -> str:
    """Return the id of *store*, an id or a name.

    NotFound when no store is called that; InvalidInput, with their ids, when several are.
    """
    if store.startswith("memstore_") and len(store) == ID_LENGTH:
        return store
    every = hf.memory_stores.list(limit=PAGE, include_archived=True).all()
    ids = [each.id for each in every if each.name == store]
    if not ids:
        raise missing("memstore", store)
    if len(ids) > 1:
        reason = f"{len(ids)} stores have this name: {' '.join(ids)}"
        raise InvalidInput("STORE", reason, given=store, next="Say which by its id.")
    return ids[0]


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
