"""A directory that is read piece by piece, while others create and delete in it."""

from collections.abc import Sequence

from holdfast.doors.mount.fuse.invalidation import Touched
from holdfast.doors.mount.fuse.kernel import DirectoryEntry, Operations


class Listing:
    """An open directory: the names it had when reading began, with what they are now."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._names: list[str] = []
        self._entries: Sequence[DirectoryEntry | None] = ()
        self._as_of = -1

    def entries(
        self, core: Operations, touched: Touched, *, anew: bool
    ) -> Sequence[DirectoryEntry | None]:
        """Return the entries, at the places they have since reading began; None: gone."""
        if not anew and self._as_of == touched.last:
            return self._entries
        self._as_of = touched.last
        present = core.readdir(self.path)
        if anew:
            self._names = [entry.name for entry in present]
            self._entries = present
        else:
            known = {entry.name: entry for entry in present}
            self._entries = [known.get(name) for name in self._names]
        return self._entries
