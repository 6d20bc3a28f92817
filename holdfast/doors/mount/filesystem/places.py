"""From a path of the mount to the store it is in, and what may be made there."""

from collections.abc import Mapping
from errno import ENOENT, ENOSPC, ENOTDIR, EPERM, EROFS

from holdfast.doors.mount.errors import failure
from holdfast.doors.mount.filesystem.nodes import Directory, File, Nodes
from holdfast.doors.mount.filesystem.parts import Parts
from holdfast.doors.mount.filesystem.store_dir import Branch
from holdfast.doors.mount.names import Kind, checked, kind_of


class Places:
    """The stores of a mount by slug, and all their names together."""

    def __init__(self, parts: Mapping[str, Parts], nodes: Nodes) -> None:
        self.parts, self.nodes = parts, nodes

    def of(self, path: str, *, change: bool = False) -> Parts:
        """Return the store that *path* is in, or OSError.

        Where *change*, what lies directly in the mount's directory is EROFS.
        """
        end = path.find("/", 1)
        parts = self.parts.get(path[1:] if end < 0 else path[1:end])
        if change and end < 0:
            raise failure(EROFS)
        if parts is None:
            raise failure(ENOENT)
        return parts

    def parent(self, path: str) -> Directory:
        """Return the directory that *path* is in; ENOENT or ENOTDIR."""
        above = self.nodes.get(path[: path.rindex("/")])
        if above is None:
            raise failure(ENOENT)
        if isinstance(above, File):
            raise failure(ENOTDIR)
        return above

    def checked(self, parts: Parts, path: str, *, new: bool) -> Kind:
        """Return what a file at *path* is, if there can be one; else OSError, counted.

        *new*: a memory more than there are, if it becomes one.
        """
        self.parent(path)
        branch = parts.branch
        try:
            checked(branch.in_store(path))
            kind = kind_of(path[path.rindex("/") + 1 :])
            if kind is Kind.REFUSED:
                raise failure(EPERM)
            if new and kind is Kind.PLAIN and path not in branch.heads.aside and self._full(branch):
                raise failure(ENOSPC)
        except OSError as error:
            branch.counts.refuse(error.errno or 0)
            raise
        return kind

    def _full(self, branch: Branch) -> bool:
        """Tell whether no memory more fits, with the new files that wait to be saved."""
        left = branch.cap - len(branch.heads)
        if left <= 0:
            return True
        # Directories and the other stores' files count too: a bound that is near at once.
        if len(self.nodes) - len(branch.heads.by_id) < left:
            return False
        new = sum(f.memory is None and f.kind is Kind.PLAIN for f in branch.tree.root.files())
        return new >= left
