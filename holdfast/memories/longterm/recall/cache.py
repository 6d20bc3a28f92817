"""The postings of collections that were recalled from lately, kept up with the database.

What is kept is known by the collection's version, so a write anywhere is seen by the next recall.
"""

import threading

from holdfast.memories.longterm.cache_budget import POSTINGS, ByteBudget, Tenant
from holdfast.memories.longterm.gathered import Gathered
from holdfast.memories.longterm.recall.index import Postings
from holdfast.memories.longterm.rows import Collection

Place = tuple[str, str, str, str]
"""What names a collection: its workspace, user, namespace and workspace_id."""


class CachedPostings:
    """The postings of one collection, as of a version of its rows; used with `lock` held."""

    def __init__(self, collection: int, place: Place) -> None:
        self.collection, self.place = collection, place
        self.lock = threading.Lock()
        self.postings: Postings | None = None
        self.version = -1
        self.marks = -1
        self.last = 0
        """The number of the last row that is in the postings."""
        self._before: dict[int, int] | None = None
        self._gathered: Gathered | None = None

    def grown(self) -> None:
        """Drop what followed from the rows there were."""
        self._before = self._gathered = None

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return sum(each.size_bytes for each in (self.postings, self._gathered) if each is not None)

    def gathered(self, collection: Collection) -> Gathered:
        """Return what is known of *collection*, which is too large for postings of all of it."""
        self.postings = self._before = None
        found = self._gathered
        if found is None or found.version < collection.redone:
            found = Gathered(collection.version)
        elif found.version > collection.version:
            return Gathered(collection.version)
        self._gathered = found.grown_to(collection.version)
        return self._gathered

    def beside(self, number: int) -> tuple[int, int]:
        """Return the turns before and after the row *number* of the postings, in its sitting.

        Returned are the numbers of their recording, 0 for none.
        """
        postings = self.postings
        if postings is None:
            return 0, 0
        following = postings.next[0]
        if self._before is None:
            self._before = {after: at for at, after in enumerate(following) if after >= 0}
        earlier, later = self._before.get(number, -1), following[number]
        rows = postings.rows
        return (
            rows[earlier].seq if earlier >= 0 else 0,
            rows[later].seq if later >= 0 else 0,
        )


class PostingsCache:
    """Entries by collection, in the room that they share with other caches."""

    def __init__(self, room: ByteBudget) -> None:
        self._room = room
        self._lock = threading.Lock()
        self._entries: dict[int, CachedPostings] = {}
        self._places: dict[Place, int] = {}

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        return self._room.sizes()[POSTINGS]

    def entry(self, collection: int, place: Place) -> CachedPostings:
        """Return the entry of *collection*, which *place* names; a new one if there is none."""
        with self._lock:
            entry = self._entries.get(collection)
            if entry is None:
                entry = self._entries[collection] = CachedPostings(collection, place)
                self._places[place] = collection
        self._room.used(Tenant(POSTINGS, collection))
        return entry

    def at(self, place: Place) -> CachedPostings | None:
        """Return the entry of the collection that *place* names, as far as is known here."""
        with self._lock:
            collection = self._places.get(place)
            if collection is None:
                return None
            entry = self._entries[collection]
        self._room.used(Tenant(POSTINGS, collection))
        return entry

    def weigh(self, collection: int, entry: CachedPostings) -> None:
        """Note that *entry* grew, and have what is too much go; this one stays."""
        if self._entries.get(collection) is entry:
            self._room.take(
                Tenant(POSTINGS, collection), entry.size_bytes, lambda: self.drop(collection)
            )

    def drop(self, collection: int) -> None:
        """Let go of what is kept of *collection*."""
        with self._lock:
            entry = self._entries.pop(collection, None)
            if entry is not None and self._places.get(entry.place) == collection:
                del self._places[entry.place]
        self._room.left(Tenant(POSTINGS, collection))

    def clear(self) -> None:
        """Let go of everything."""
        for collection in list(self._entries):
            self.drop(collection)
