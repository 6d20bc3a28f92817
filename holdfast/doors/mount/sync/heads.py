"""Heads of the store, from its feed and from the results of this mount's edits."""

from holdfast.doors.mount.names import is_shown
from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.merge import Agreed
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, Snapshot


def agreed(memory: Memory | None) -> Agreed | None:
    """Return the id and content hash of *memory*."""
    return None if memory is None else Agreed(memory.id, memory.content_sha256)


class LocalHeads:
    """The heads of one store, by path and by id, as of a sequence number.

    Results of this mount's edits arrive before their changes in the feed: a change of a memory that
    is older than such a result is ignored.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.cap = 0
        self._by_path: dict[str, Memory] = {}
        self._by_id: dict[str, Memory] = {}
        self._answered: dict[str, int] = {}
        """Sequence numbers of results that the feed has not reached yet, by memory id."""

    def __len__(self) -> int:
        return len(self._by_id)

    def at(self, path: str) -> Memory | None:
        """Return the head at *path* if it can be on disk, else None."""
        memory = self._by_path.get(path)
        return memory if memory is not None and fits(path) else None

    def of(self, memory_id: str) -> Memory | None:
        """Return the head of *memory_id*, or None."""
        return self._by_id.get(memory_id)

    def paths(self) -> list[str]:
        """Return the paths of heads that can be on disk."""
        return [path for path in self._by_path if fits(path)]

    @property
    def unfit(self) -> list[str]:
        """The ids of the memories that cannot be on disk."""
        return [memory.id for path, memory in list(self._by_path.items()) if not fits(path)]

    def absorb(self, changes: ChangesPage) -> set[str]:
        """Apply changes of the feed; return the paths that changed."""
        self.cap = changes.cap
        touched: set[str] = set()
        for change in changes.changes:
            after = max(self.seq, self._answered.get(change.memory_id, 0))
            if change.seq > after:
                touched |= self._put(change.memory_id, change.memory)
        self._reached(changes.seq)
        return touched

    def reset(self, snapshot: Snapshot) -> set[str]:
        """Replace the heads by *snapshot*; return the paths that changed."""
        self.cap = snapshot.cap
        newer = {id for id, seq in self._answered.items() if seq > snapshot.seq}
        found = {memory.id: memory for memory in snapshot.memories}
        touched: set[str] = set()
        if snapshot.seq < self.seq:
            return touched
        for id in (self._by_id.keys() | found.keys()) - newer:
            if self._by_id.get(id) != found.get(id):
                touched |= self._put(id, found.get(id))
        self._reached(snapshot.seq)
        return touched

    def answered(self, applied: Applied) -> None:
        """Apply the result of an edit of this mount."""
        changed = {memory.id: memory for memory in applied.memories}
        for id in (*changed, *applied.deleted):
            # Several edits of one transaction have one sequence number.
            if applied.seq >= self._answered.get(id, self.seq + 1):
                self._put(id, changed.get(id))
                self._answered[id] = applied.seq

    def lose(self, memory_id: str) -> set[str]:
        """Record that a memory was deleted, at any seq; return the paths that changed."""
        return self._put(memory_id, None)

    def clear(self) -> set[str]:
        """Remove all heads of a deleted store; return their paths."""
        paths = set(self._by_path)
        self._by_path.clear()
        self._by_id.clear()
        return paths

    def _put(self, id: str, memory: Memory | None) -> set[str]:
        """Set *memory* as the head of *id*; return the paths that changed."""
        touched: set[str] = set()
        before = self._by_id.pop(id, None)
        if before is not None:
            touched.add(before.path)
            if self._by_path.get(before.path) is before:
                del self._by_path[before.path]
        if memory is not None:
            touched.add(memory.path)
            self._by_id[id] = self._by_path[memory.path] = memory
        return touched

    def _reached(self, seq: int) -> None:
        self.seq = max(self.seq, seq)
        self._answered = {id: at for id, at in self._answered.items() if at > seq}


def fits(path: str) -> bool:
    """Check whether *path* can be on disk: short names, none of them reserved."""
    return is_shown(path) and not own.is_own(path)
