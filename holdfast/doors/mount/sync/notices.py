"""Notices about files that could not be synced, listed in a file beside them."""

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
"""Undone changes that are still listed."""

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
"""Problem and advice by errno."""

OTHERWISE = "could not be saved: it is tried again"
LINK = "is a link, a pipe or a device: put a plain file in its place"
VERSION_CONTROL = "is of version control: keep it outside"
KEPT_OUT = "is not of the store, which is read-only: remove it"
NOT_DONE = "cannot be changed on this disk: see its permissions and its space"
UNWRITTEN = "is a memory that could not be written here"


class Notice(Struct, frozen=True):
    """One problem: an errno, and what to do about it."""

    errno: int
    says: str

    @classmethod
    def of(cls, errno: int, says: str = "") -> "Notice":
        """Return the notice of *errno*, with the text *says* or the default advice."""
        return cls(errno, says or ADVICE.get(errno, OTHERWISE))


class SyncNotices:
    """Notices of one store, by path. One thread writes; any thread may read."""

    def __init__(self) -> None:
        self._notices: dict[str, Notice] = {}
        self._kept: dict[str, Notice] = {}

    def __len__(self) -> int:
        return len({**self._kept, **self._notices})

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._notices))

    def of(self, *errnos: int) -> list[str]:
        """Return the paths that have a notice with one of *errnos*."""
        return [path for path, notice in self._notices.items() if notice.errno in errnos]

    def put(self, path: str, notice: Notice) -> bool:
        """Set the notice of *path*; return whether it is new."""
        news = self._notices.get(path) != notice
        if news:
            self._notices = {**self._notices, path: notice}
        return news

    def keep(self, path: str, errno: int) -> bool:
        """Add a notice of a past event at *path*; return whether it is new.

        At most 100 are stored; the oldest are dropped.
        """
        news = path not in self._kept
        kept = {each: notice for each, notice in self._kept.items() if each != path}
        oldest = list(kept)[: max(0, len(kept) + 1 - KEPT)]
        self._kept = {
            **{each: notice for each, notice in kept.items() if each not in oldest},
            path: Notice.of(errno),
        }
        return news

    def clear(self, path: str) -> None:
        """Remove the notice of *path*."""
        if path in self._notices:
            self._notices = {each: n for each, n in self._notices.items() if each != path}

    def lines(self, most: int = SHOWN) -> list[str]:
        """Return a line for each notice, by path: errno, path, advice.

        At most *most*; the last line then has the number of the rest.
        """
        notices = {**self._kept, **self._notices}
        lines = [
            f"{errorcode.get(notice.errno, 'EIO')} {_shown(path)} {notice.says}"
            for path, notice in sorted(notices.items())[:most]
        ]
        left = len(notices) - len(lines)
        return [*lines, f"… and {left:,} more"] if left else lines

    def text(self) -> bytes:
        """Return the content of the errors file; empty without notices."""
        return "".join(f"{line}\n" for line in self.lines()).encode()


def _shown(path: str) -> str:
    """Return *path* on one line, with invisible and non-UTF-8 characters escaped."""
    if path.isprintable():
        return path
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode()
        for char in path
    )
