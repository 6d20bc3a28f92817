"""A directory as it ought to behave, with what ought to be kept of it, in plain dictionaries.

Contents are text of whole characters, so that nothing but names and order can be refused.
"""

import errno
from dataclasses import dataclass, field

Path = tuple[str, ...]


@dataclass(eq=False)
class File:
    """What is in a file, what of it is kept, and the history it ought to have."""

    content: bytes = b""
    kept: bytes | None = None
    history: list[str] = field(default_factory=list[str])
    unsaved: bool = False
    temporary: bool = False
    holders: int = 0

    def save(self) -> None:
        """Make a version, if there is anything new."""
        self.unsaved = False
        if self.temporary or self.kept == self.content:
            return
        self.history.append("created" if self.kept is None else "modified")
        self.kept = self.content


class Refused(Exception):
    """What a call ought to be refused with."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.errno = getattr(errno, name)


class Plain:
    """The model: files and directories by path, and the histories of memories that went."""

    def __init__(self) -> None:
        self.files: dict[Path, File] = {}
        self.directories: set[Path] = {()}
        self.gone: list[File] = []

    def parent(self, path: Path) -> None:
        """Refuse a path that is below nothing, or below a file."""
        for end in range(1, len(path)):
            if path[:end] in self.files:
                raise Refused("ENOTDIR")
            if path[:end] not in self.directories:
                raise Refused("ENOENT")

    def names(self, path: Path) -> list[str]:
        every = [*self.files, *self.directories]
        return sorted(each[-1] for each in every if each and each[:-1] == path)

    def opened(self, path: Path, *, make: bool, temporary: bool = False) -> File:
        """Return the file at *path*."""
        self.parent(path)
        if path in self.directories:
            raise Refused("EISDIR")
        if path not in self.files:
            if not make:
                raise Refused("ENOENT")
            self.files[path] = File(temporary=temporary)
        return self.files[path]

    def unlink(self, path: Path) -> None:
        self.parent(path)
        if path in self.directories:
            raise Refused("EISDIR")
        if path not in self.files:
            raise Refused("ENOENT")
        self.drop(path)

    def drop(self, path: Path) -> None:
        """Take a file away; its memory, if it has one, is deleted."""
        file = self.files.pop(path)
        if file.kept is not None:
            file.history.append("deleted")
            self.gone.append(file)

    def mkdir(self, path: Path) -> None:
        self.parent(path)
        if path in self.files or path in self.directories:
            raise Refused("EEXIST")
        self.directories.add(path)

    def rmdir(self, path: Path) -> None:
        self.parent(path)
        if path in self.files:
            raise Refused("ENOTDIR")
        if path not in self.directories:
            raise Refused("ENOENT")
        if self.names(path):
            raise Refused("ENOTEMPTY")
        self.directories.remove(path)

    def rename(self, old: Path, new: Path) -> None:
        self.parent(old)
        self.parent(new)
        if old not in self.files and old not in self.directories:
            raise Refused("ENOENT")
        if old == new:
            return
        if old in self.directories:
            self._rename_directory(old, new)
        else:
            self._rename_file(old, new)

    def _rename_file(self, old: Path, new: Path) -> None:
        if new in self.directories:
            raise Refused("ENOTEMPTY" if old[: len(new)] == new else "EISDIR")
        file, target = self.files[old], self.files.get(new)
        if target is None:
            self.files[new] = self.files.pop(old)
            self._moved(file)
            return
        self.files.pop(old)
        if file.kept is not None:
            file.history.append("deleted")
            self.gone.append(file)
        target.content = file.content
        target.save()

    def _rename_directory(self, old: Path, new: Path) -> None:
        if new[: len(old)] == old:
            raise Refused("EINVAL")
        if new in self.files:
            raise Refused("ENOTDIR")
        if old[: len(new)] == new:
            raise Refused("ENOTEMPTY")
        if self.names(new):
            raise Refused("ENOTEMPTY")
        self.directories = {
            new + each[len(old) :] if each[: len(old)] == old else each for each in self.directories
        }
        for path in [each for each in self.files if each[: len(old)] == old]:
            file = self.files.pop(path)
            self.files[new + path[len(old) :]] = file
            self._moved(file)

    def _moved(self, file: File) -> None:
        """Tell what a rename to a free name makes: a version at the new path."""
        file.temporary = False
        if file.kept is not None:
            file.history.append("modified")
        elif not file.holders:
            file.save()
