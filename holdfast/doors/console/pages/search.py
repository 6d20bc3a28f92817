"""Search over everything in a workspace: words, names, keys, and ids."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from msgspec import Struct

from holdfast.doors.console.views import (
    Answer,
    ConsoleRoute,
    PageView,
    Redirect,
    Visit,
    address,
    page,
)
from holdfast.ground.errors import InvalidInput, NotFound
from holdfast.library import directory
from holdfast.library.directory import EntrySummary, ObjectKind, Place
from holdfast.library.holdfast import Holdfast
from holdfast.memories.durable.records import AgentSummary
from holdfast.memories.longterm.records import Person
from holdfast.memories.stores.records import Match, Store

SECTION: Final = ""
"""It is no entry of the menu."""
STORES_MOST: Final = 50
"""Stores, the newest, of which the words are searched."""
MATCHES: Final = 40
"""Memories that are shown."""
OF_EACH: Final = 5
"""Fewest matches that each store may give: their contents are read, for the snippet."""
ROWS: Final = 20
"""Rows of each other kind."""

DONE: Final[dict[str, str]] = {}


def search(visit: Visit) -> Answer:
    """Show what matches the words, or go to the page of the id that was given."""
    # NUL is in no text that is stored.
    query = visit.query.get("q", "").replace("\0", "").strip()
    there = found_id(visit, query) if query else None
    if there is not None:
        return Redirect(there)
    matches = _matches(visit.hf, query)
    agents, people, entries = _named(visit, query)
    values = {
        "query": query,
        "matches": matches.rows,
        "stores_searched": STORES_MOST,
        "more_stores": matches.more_stores,
        "entries": entries[:ROWS],
        "agents": agents[:ROWS],
        "people": people[:ROWS],
        "more": {
            "matches": matches.more_matches,
            "entries": len(entries) > ROWS,
            "agents": len(agents) > ROWS,
            "people": len(people) > ROWS,
        },
        "rows": ROWS,
        "is_id": directory.is_id(query),
    }
    return PageView(template="search.html", title="Search", section=SECTION, values=values)


class _Matches(Struct, frozen=True):
    rows: list[tuple[Store, Match]]
    more_matches: bool = False
    more_stores: bool = False


def _matches(hf: Holdfast, query: str) -> _Matches:
    """Return the best matches of each store, and what was left out."""
    if not query:
        return _Matches([])
    stores = hf.memory_stores.list(limit=STORES_MOST, include_archived=True)
    each_most = max(OF_EACH, MATCHES // max(1, len(stores)))
    found: list[tuple[Store, Match]] = []
    more_matches = False
    for store in stores.data:
        try:
            hits = hf.memory_stores.memories.search(store.id, query, limit=each_most + 1)
        except NotFound:
            continue  # deleted meanwhile
        more_matches = more_matches or len(hits) > each_most
        found += [(store, each) for each in hits[:each_most]]
    found.sort(key=lambda each: -each[1].score)
    return _Matches(
        found[:MATCHES],
        more_matches=more_matches or len(found) > MATCHES,
        more_stores=stores.next_page is not None,
    )


def _named(visit: Visit, query: str) -> tuple[list[AgentSummary], list[Person], list[EntrySummary]]:
    """Return agents, people and entries with a name that begins with *query*."""
    if not query:
        return [], [], []
    agents = directory.agents_from(visit.hf, query, ROWS + 1)
    entries = directory.keys_from(visit.hf, query, visit.now, ROWS + 1)
    try:
        people = visit.hf.longterm_people(prefix=query, limit=ROWS + 1).data
    except InvalidInput:
        people = []  # longer than a name may be
    return agents, people, entries


# Ids


def found_id(visit: Visit, id: str) -> str | None:
    """Return the address of the object *id* if it is there, else None."""
    place = directory.place_of(visit.hf, id)
    if place is not None:
        with suppress(NotFound, InvalidInput):
            if (found := _ADDRESSES[place.kind](visit, place)) is not None:
                return found
    # Callers may have given it to a thread or a run.
    for kind, find in (("threads", visit.hf.threads.retrieve), ("runs", visit.hf.runs.retrieve)):
        with suppress(NotFound, InvalidInput):
            return address(kind, find(id).id)
    return None


def _agent_address(visit: Visit, place: Place) -> str | None:
    found = directory.agents_from(visit.hf, place.id, 1)
    return address("agents", place.id) if found and found[0].agent == place.id else None


def _entry_address(visit: Visit, place: Place) -> str | None:
    """Return the page of an entry, its agent's for one of a run."""
    del visit
    if not place.holder or place.more:
        return address("agents", place.holder) if place.holder else None
    return address("agents", place.holder, "entries", place.part)


def _person_address(visit: Visit, place: Place) -> str:
    del visit
    below = () if place.kind == "collection" else (f"{place.kind}s", place.id)
    return address("people", place.holder, *below, namespace=place.part, workspace_id=place.more)


def _key_address(visit: Visit, place: Place) -> str | None:
    keys = [each.id for each in visit.hf.keys.list()] if visit.visitor.may("admin") else []
    if place.id not in keys:
        return None
    at = keys.index(place.id)
    return f"{address('keys', page=keys[at - 1] if at else None)}#{place.id}"


_ADDRESSES: Final[Mapping[ObjectKind, Callable[[Visit, Place], str | None]]] = {
    "store": lambda visit, place: address("stores", visit.hf.memory_stores.retrieve(place.id).id),
    "memory": lambda _, place: address("stores", place.holder, "memories", place.part),
    "version": lambda _, place: address("stores", place.holder, "versions", place.id),
    "session": lambda visit, place: address("sessions", visit.hf.sessions.retrieve(place.id).id),
    "token": lambda _, place: address("sessions", place.holder),
    "key": _key_address,
    "run": lambda visit, place: address("runs", visit.hf.runs.retrieve(place.id).id),
    "thread": lambda visit, place: address("threads", visit.hf.threads.retrieve(place.holder).id),
    "agent": _agent_address,
    "entry": _entry_address,
    "collection": _person_address,
    "item": _person_address,
    "turn": _person_address,
}
"""The address of the page of an object; NotFound where it is not there."""


ROUTES: Final[tuple[ConsoleRoute, ...]] = (page("/search", search),)
