"""The names of one store, as files in directories. It knows of no storage and waits for nothing.

All stores of a mount share one dictionary from path to file or directory, so that a look-up is a
look-up. Who changes a tree holds its store's lock; who looks up a path need not.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import count

from holdfast.doors.mount.filesystem.nodes import Directory, File, Node, Nodes
from holdfast.doors.mount.fuse.kernel import DirectoryEntry, Kernel
from holdfast.doors.mount.names import Kind

FILE, DIRECTORY = 0o100000, 0o040000
WRITE_BITS = 0o222


class Tree:
    """The files and directories below *prefix*, `/<slug>`, in *nodes*, which trees share."""

    def __init__(
        self,
        prefix: str,
        nodes: Nodes,
        *,
        inodes: "count[int]",
        kernel: Callable[[], Kernel],
        now: Callable[[], datetime],
    ) -> None:
        self.prefix = prefix
        self._nodes, self._inodes, self._kernel, self._now = nodes, inodes, kernel, now
        self.writable = True
        self.root = Directory(next(inodes), prefix, local=True, at=now())
        nodes[prefix] = self.root

    def at(self, path: str) -> Node | None:
        """Return what is at *path*, or None."""
        return self._nodes.get(path)

    def show(self, node: Node) -> DirectoryEntry:
        """Return what is shown of *node*, from now on without asking again."""
        mode = FILE | 0o644 if isinstance(node, File) else DIRECTORY | 0o755
        return node.show(mode if self.writable else mode & ~WRITE_BITS)

    def new_file(self, path: str, kind: Kind = Kind.PLAIN) -> File:
        """Return a file that is not yet in any directory."""
        return File(next(self._inodes), path, kind=kind)

    def attach(self, file: File, path: str) -> None:
        """Put *file*, which is nowhere, at *path*, with the directories above it.

        A file in its way is taken out; below a directory that is not empty it stays nowhere.
        """
        parent, present = self._above(path), self._nodes.get(path)
        if isinstance(present, File):
            self._take(present)
        elif present is not None:
            if present.children:
                return
            self.remove(present)
        if file.path != path:
            file.path, file.name = path, path[path.rindex("/") + 1 :]
        file.entry, file.parent = None, parent
        parent.children[file.name] = file
        self._nodes[path] = file
        self._changed(parent)

    def detach(self, file: File, *, here: bool) -> None:
        """Take *file* out of its directory; *here*: by this mount, so that directories stay."""
        parent, name = file.parent, file.name
        if parent is not None:
            self._take(file)
            self._left(parent, name, here=here)

    def move(self, file: File, path: str, *, here: bool) -> None:
        """Put *file* at *path*, which is free."""
        parent, name = file.parent, file.name
        if parent is not None:
            self._take(file)
        self.attach(file, path)
        if parent is not None:
            self._left(parent, name, here=here)

    def _prune(self, directory: Directory) -> None:
        """Remove *directory* and those above it that are empty and not made here."""
        while not directory.children and not directory.local and directory.parent is not None:
            parent = directory.parent
            self.remove(directory)
            self._kernel().forget_name(parent.path, directory.name)
            directory = parent

    def make(self, path: str, *, local: bool) -> Directory:
        """Make a directory at *path*, and those above it."""
        parent = self._above(path)
        made = Directory(next(self._inodes), path, local=local, at=self._now())
        made.parent = parent
        parent.children[made.name] = made
        self._nodes[path] = made
        self._changed(parent)
        return made

    def remove(self, directory: Directory) -> None:
        """Remove *directory*, which is empty; the one above it stays."""
        parent = directory.parent
        if parent is not None:
            parent.children.pop(directory.name, None)
            self._nodes.pop(directory.path, None)
            self._changed(parent)
            directory.parent = None

    def carry(self, directory: Directory, path: str) -> None:
        """Move *directory* and all below it to *path*, in place of what is there.

        A directory that is there by now takes in what is below this one.
        """
        former = directory.parent
        self.remove(directory)
        if former is not None and not former.children:
            former.local = True
        for node in directory.below():
            self._nodes.pop(node.path, None)
        self._graft(directory, self._above(path), path[path.rindex("/") + 1 :])

    def _graft(self, node: Node, parent: Directory, name: str) -> None:
        """Put *node*, which is nowhere, and all below it, into *parent* as *name*."""
        present = parent.children.get(name)
        if isinstance(present, File):
            self.detach(present, here=False)
        if isinstance(present, Directory):
            if isinstance(node, File):
                # What the store has below the name will show where its memory is.
                node.parent = None
                return
            present.local = present.local or node.local
            for child in list(node.children.values()):
                self._graft(child, present, child.name)
            return
        node.parent, node.name, node.entry = parent, name, None
        node.path = f"{parent.path}/{name}"
        parent.children[name] = node
        self._nodes[node.path] = node
        self._changed(parent)
        if isinstance(node, Directory):
            children, node.children = node.children, {}
            for child in children.values():
                self._graft(child, node, child.name)

    def set_writable(self, *, writable: bool) -> None:
        """Show everything as writable, or as read-only."""
        if writable != self.writable:
            self.writable = writable
            for node in [self.root, *self.root.below()]:
                node.entry = None
                self._kernel().forget_content(node.path)

    def file_above(self, path: str) -> File | None:
        """Return the file that sits where *path* needs a directory, or None."""
        end = path.rfind("/")
        while end > 0:
            node = self._nodes.get(path[:end])
            if node is not None:
                return node if isinstance(node, File) else None
            end = path.rfind("/", 0, end)
        return None

    def _take(self, file: File) -> None:
        parent, file.parent = file.parent, None
        if parent is not None:
            parent.children.pop(file.name, None)
            self._nodes.pop(file.path, None)
            self._changed(parent)

    def _left(self, parent: Directory, name: str, *, here: bool) -> None:
        """See whether *parent* stays, from which *name* was taken."""
        if here:
            parent.local = parent.local or not parent.children
            return
        self._kernel().forget_name(parent.path, name)
        self._kernel().forget_content(parent.path)
        self._prune(parent)

    def _above(self, path: str) -> Directory:
        """Return the directory of *path*, made if it is not there; a file in its place goes."""
        above = path[: path.rindex("/")]
        node = self._nodes.get(above)
        if isinstance(node, File):
            self._take(node)
        return node if isinstance(node, Directory) else self.make(above, local=False)

    def _changed(self, directory: Directory) -> None:
        directory.changed_at = self._now()
        directory.entry = None
