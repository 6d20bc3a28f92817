"""What is wrong with files that stay as they are: for a person or a model, beside the files."""

from collections.abc import Iterator
from errno import (
    EACCES,
    EEXIST,
    EFBIG,
    EILSEQ,
    EINVAL,
    ENAMETOOLONG,
    ENOSPC,
    EPERM,
    EROFS,
    errorcode,
)

from msgspec import Struct

SHOWN = 1_000
"""Lines of the file; the status counts all."""

KEPT = 100
"""Changes that were undone and are still told of."""

ADVICE = {
    EFBIG: "is larger than 102,400 bytes: split it into several files",
    EILSEQ: "is not UTF-8 text, or holds a zero byte: save it as text",
    EINVAL: "has a name that no memory can have (it must be Unicode NFC, all visible): rename it",
    ENAMETOOLONG: "has too long a name, or is too deep: rename or move it",
    ENOSPC: "finds the store full: delete or merge other files",
    EEXIST: "has the place of another file, or of a directory of others: rename it",
    EACCES: "cannot be read or written here: see its permissions, or sign in again",
    EPERM: "is ignored, and not saved",
    EROFS: "was changed, but the store is read-only: the change was undone",
}
"""What to do about each errno."""

OTHERWISE = "could not be saved: it is tried again"
LINK = "is a link, a pipe or a device: put a plain file in its place"
VERSION_CONTROL = "is of version control: keep it outside"
KEPT_OUT = "is not of the store, which is read-only: remove it"
NOT_DONE = "cannot be changed on this disk: see its permissions and its space"
UNWRITTEN = "is a memory that could not be written here"


class Notice(Struct, frozen=True):
    """One thing that is wrong: an errno, and what is to be done about it."""

    errno: int
    says: str

    @classmethod
    def of(cls, errno: int, says: str = "") -> "Notice":
        """Return the notice of *errno*, in its own words unless *says* has others."""
        return cls(errno, says or ADVICE.get(errno, OTHERWISE))


class SyncNotices:
    """What is wrong in one store, by path. One thread writes; others may read."""

    def __init__(self) -> None:
        self._notices: dict[str, Notice] = {}
        self._kept: dict[str, Notice] = {}

    def __len__(self) -> int:
        return len({**self._kept, **self._notices})

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._notices))

    def of(self, *errnos: int) -> list[str]:
        """Return the paths with which something of *errnos* is wrong."""
        return [path for path, notice in self._notices.items() if notice.errno in errnos]

    def put(self, path: str, notice: Notice) -> bool:
        """Note *notice*; tell whether it is news."""
        news = self._notices.get(path) != notice
        if news:
            self._notices = {**self._notices, path: notice}
        return news

    def keep(self, path: str, errno: int) -> bool:
        """Note what happened to *path* and is over, until others have; tell whether it is news."""
        news = path not in self._kept
        kept = {each: notice for each, notice in self._kept.items() if each != path}
        oldest = list(kept)[: max(0, len(kept) + 1 - KEPT)]
        self._kept = {
            **{each: notice for each, notice in kept.items() if each not in oldest},
            path: Notice.of(errno),
        }
        return news

    def clear(self, path: str) -> None:
        """Note that nothing is wrong with *path* any more."""
        if path in self._notices:
            self._notices = {each: n for each, n in self._notices.items() if each != path}

    def lines(self, most: int = SHOWN) -> list[str]:
        """Return a line for each, by path: errno, path, what to do; then how many were left out."""
        notices = {**self._kept, **self._notices}
        lines = [
            f"{errorcode.get(notice.errno, 'EIO')} {_shown(path)} {notice.says}"
            for path, notice in sorted(notices.items())[:most]
        ]
        left = len(notices) - len(lines)
        return [*lines, f"… and {left:,} more"] if left else lines

    def text(self) -> bytes:
        """Return what is to be on disk; nothing when nothing is wrong."""
        return "".join(f"{line}\n" for line in self.lines()).encode()


def _shown(path: str) -> str:
    """Return *path* on one line, with whatever cannot be seen or is no UTF-8 spelled out."""
    if path.isprintable():
        return path
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in path
    )
