"""A mount as one would draw it on paper: files, what is unsaved of them, and the store behind.

It says what a save must come to; what the store then says it did is taken over from the store,
which must be one of the outcomes that were drawn.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from doors.mount.core.driven import Handle

from holdfast.doors.mount.names import Kind, kind_of

How = Literal["append", "replace", "edit"]
Trouble = Literal["gone", "unsure", "lost"]


class Did(NamedTuple):
    """One version: what was done, to which path, with which content."""

    operation: str
    path: str
    content: bytes | None


Outcome = list[Did]


class Sent(NamedTuple):
    """A save that was sent and not answered."""

    how: How
    base: bytes
    content: bytes
    trouble: Trouble


@dataclass(eq=False)
class File:
    """A file of the mount; `content` is what is unsaved, None when it is as its memory."""

    path: str | None
    memory: str | None = None
    content: bytes | None = None
    base: bytes = b""
    how: How = "replace"
    touched: bool = False
    closed_at: float | None = None
    spooled: bytes | None = None
    sent: list[Sent] = field(default_factory=list["Sent"])
    aside_of: str | None = None
    """The path at which the memory still is, while a backup is deferred."""
    in_doubt: bool = False
    """Whether a refused removal or rename may have been done; the next save finds out first."""
    backup: bool = False
    """Whether it is to become a memory of its own, now that the old path was written again."""

    @property
    def kind(self) -> Kind:
        """What the file is, where its memory was not made elsewhere or saved already."""
        if self.memory is not None or self.path is None:
            return Kind.PLAIN
        return kind_of(self.path.rpartition("/")[2])

    @property
    def waits(self) -> bool:
        return bool(self.sent)

    @property
    def unsure(self) -> bool:
        """Whether nobody can know if what was sent was done."""
        return any(each.trouble != "gone" for each in self.sent)

    @property
    def tail(self) -> bytes:
        """What was appended to the base."""
        return (self.content or b"")[len(self.base) :]


@dataclass(eq=False)
class Opened:
    """A handle of the mount, and of the drawing."""

    file: File
    handle: Handle
    appends: bool
    writes: bool
    wrote: bool = False


def begin(file: File, head: bytes) -> None:
    """Let *file* have bytes of its own, which are still those of its memory."""
    if file.content is None:
        file.content = file.base = head
        file.how = "append"


def write(file: File, data: bytes, at: int) -> None:
    """Write *data* into what is unsaved of *file*."""
    content = file.content or b""
    if file.how == "append" and at < len(file.base):
        file.how = "edit"
    content = content.ljust(at, b"\0")
    file.content = content[:at] + data + content[at + len(data) :]


def truncate(file: File, length: int) -> None:
    """Cut or grow what is unsaved of *file*."""
    content = file.content or b""
    if length == 0:
        file.how = "replace"
    elif file.how == "append" and length < len(file.base):
        file.how = "edit"
    file.content = content[:length].ljust(length, b"\0")


def is_text(content: bytes) -> bool:
    """Tell whether *content* can be saved."""
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in content


def landed(how: How, base: bytes, content: bytes, head: bytes | None) -> bytes | None:
    """Return what a save makes of *head*, None of one that is gone; None if it conflicts."""
    if how == "append":
        tail = content[len(base) :]
        return content if head == base else (head or b"") + tail
    if how == "replace" or head in (base, content):
        return content
    return None


def step(path: str, head: bytes | None, content: bytes) -> Outcome:
    """Return the version that makes *content* of *head*, None if there is none."""
    if head is None:
        return [Did("created", path, content)]
    return [] if head == content else [Did("modified", path, content)]


def same(one: Outcome, other: Outcome) -> bool:
    """Tell whether two outcomes are of the same versions; the order in a transaction is free."""
    return Counter(one) == Counter(other)


def above(path: str) -> list[str]:
    """Return the directories above *path*, the nearest first, without the root."""
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts) - 1, 1, -1)]


def parent(path: str) -> str:
    return path.rpartition("/")[0]
