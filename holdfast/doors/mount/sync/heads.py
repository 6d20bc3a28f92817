"""What the store has, as far as is known here: from its feed, and from what it answered to us."""

from holdfast.doors.mount.names import is_shown
from holdfast.doors.mount.sync import own
from holdfast.doors.mount.sync.merge import Agreed
from holdfast.memories.stores.records import Applied, ChangesPage, Memory, Snapshot


def agreed(memory: Memory | None) -> Agreed | None:
    """Return which memory and content *memory* is."""
    return None if memory is None else Agreed(memory.id, memory.content_sha256)


class LocalHeads:
    """The heads of one store, by path and by id, and the store's number that they are of.

    Answers to our own edits come before the feed tells of them: what it tells of a memory that is
    older than such an answer is passed over.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.cap = 0
        self._by_path: dict[str, Memory] = {}
        self._by_id: dict[str, Memory] = {}
        self._answered: dict[str, int] = {}
        """The numbers of answers to us which the feed has not reached, by memory."""

    def __len__(self) -> int:
        return len(self._by_id)

    def at(self, path: str) -> Memory | None:
        """Return the head at *path* that has a place on disk, or None."""
        memory = self._by_path.get(path)
        return memory if memory is not None and fits(path) else None

    def of(self, memory_id: str) -> Memory | None:
        """Return the head of *memory_id*, or None."""
        return self._by_id.get(memory_id)

    def paths(self) -> list[str]:
        """Return the paths that have a place on disk."""
        return [path for path in self._by_path if fits(path)]

    @property
    def unfit(self) -> list[str]:
        """The ids of the memories that have no place on disk."""
        return [memory.id for path, memory in list(self._by_path.items()) if not fits(path)]

    def absorb(self, changes: ChangesPage) -> set[str]:
        """Take in what the feed told; return the paths at which something else is now."""
        self.cap = changes.cap
        touched: set[str] = set()
        for change in changes.changes:
            after = max(self.seq, self._answered.get(change.memory_id, 0))
            if change.seq > after:
                touched |= self._put(change.memory_id, change.memory)
        self._reached(changes.seq)
        return touched

    def reset(self, snapshot: Snapshot) -> set[str]:
        """Take *snapshot* for what there is; return the paths at which something else is now."""
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
        """Take in what an edit of ours came to."""
        changed = {memory.id: memory for memory in applied.memories}
        for id in (*changed, *applied.deleted):
            # Several edits of one answer have one number.
            if applied.seq >= self._answered.get(id, self.seq + 1):
                self._put(id, changed.get(id))
                self._answered[id] = applied.seq

    def lose(self, memory_id: str) -> set[str]:
        """Take in that a memory is gone, whatever was told; return the paths that this touches."""
        return self._put(memory_id, None)

    def clear(self) -> set[str]:
        """Know of no head: the store is no more. Return the paths that had one."""
        paths = set(self._by_path)
        self._by_path.clear()
        self._by_id.clear()
        return paths

    def _put(self, id: str, memory: Memory | None) -> set[str]:
        """Let *memory* be the head of *id*; return the paths that this touches."""
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
    """Tell whether a memory at *path* has a place on disk: its names are short, and not ours."""
    return is_shown(path) and not own.is_own(path)
