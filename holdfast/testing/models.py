"""Reference model of a memory store for property tests: plain dicts and lists.

It is slow and only in memory. A tested store must return the same results.
"""

import unicodedata
from collections.abc import Collection
from itertools import count
from typing import NamedTuple

from holdfast.ground.clock import EPOCH
from holdfast.ground.errors import (
    ContentGone,
    HeadVersion,
    HoldfastError,
    InvalidInput,
    NotFound,
    PathTaken,
    PreconditionFailed,
    StoreFull,
)
from holdfast.memories.stores.records import Operation

RESERVED = "/.anthropic-memory-store"


def is_path(text: str) -> bool:
    """Check whether *text* is a valid path of a memory."""
    segments = text.split("/")[1:]
    return (
        text.startswith("/")
        and 2 <= len(text.encode("utf-8", "surrogatepass")) <= 1024
        and len(segments) <= 20
        and not {"", ".", ".."} & set(segments)
        and not any(unicodedata.category(char) in {"Cc", "Cf", "Cs"} for char in text)
        and not {"\u2028", "\u2029"} & set(text)
        and unicodedata.normalize("NFC", text) == text
        and text != RESERVED
    )


def is_content(text: str) -> bool:
    """Check whether *text* is valid content of a memory."""
    surrogate = any("\ud800" <= char <= "\udfff" for char in text)
    return not surrogate and len(text.encode()) <= 102_400


def excludes(path: str, other: str) -> bool:
    """Check whether memories at *path* and *other* would conflict."""
    return f"{path}/".startswith(f"{other}/") or f"{other}/".startswith(f"{path}/")


class ModelMemory(NamedTuple):
    """A live memory; `head` is the index of its newest version in `versions`."""

    path: str
    content: str
    head: int


class ModelVersion(NamedTuple):
    """One version; path and content are None if deleted or redacted."""

    memory: int
    operation: Operation
    path: str | None
    content: str | None
    redacted: bool = False


class ModelStore:
    """Model of a store. Memories and versions are identified by number."""

    def __init__(self, cap: int = 10_000) -> None:
        self.cap = cap
        self.memories: dict[int, ModelMemory] = {}
        self.versions: list[ModelVersion] = []
        self._numbers = count()

    def create(self, path: str, content: str) -> int:
        """Create a memory and return its number; raise the errors of a store."""
        _check(path, content)
        self._check_free(path)
        self._check_room()
        number = next(self._numbers)
        self._write(number, "created", path, content)
        return number

    def update(
        self, number: int, *, path: str | None, content: str | None, expected: str | None
    ) -> None:
        """Change path, content or both, if the content is *expected* (None: any)."""
        memory = self._live(number)
        _check(path, content)
        if path is None and content is None:
            raise InvalidInput("content", "nothing to change")
        path = memory.path if path is None else path
        content = memory.content if content is None else content
        if (path, content) == memory[:2]:
            return
        _check_expected(memory, expected)
        self._check_free(path, moving=[number])
        self._write(number, "modified", path, content)

    def delete(self, number: int, *, expected: str | None) -> None:
        """Delete a memory, if its content is *expected* (None: any)."""
        _check_expected(self._live(number), expected)
        self._end(number)

    def rename(self, old: str, new: str) -> None:
        """Move the memory at *old*, or all below it, to the free path *new*."""
        if not is_path(new):
            raise InvalidInput("new_path", "is no path")
        moved = self._under(old)
        if not moved:
            raise NotFound("path", old)
        if old == new:
            return
        if new.startswith(f"{old}/"):
            raise InvalidInput("new_path", "is within the old")
        targets = {number: new + self.memories[number].path[len(old) :] for number in moved}
        if not all(map(is_path, targets.values())):
            raise InvalidInput("new_path", "makes what is no path")
        self._check_free(new, moving=targets)
        for number, path in targets.items():
            self._write(number, "modified", path, self.memories[number].content)

    def delete_under(self, path: str) -> int:
        """Delete the memory at *path*, or all below it; return how many."""
        doomed = self._under(path)
        for number in doomed:
            self._end(number)
        return len(doomed)

    def redact(self, version: int) -> None:
        """Redact path and content of a version that is no head."""
        old = self.versions[version]
        live = self.memories.get(old.memory)
        if live and live.head == version:
            raise HeadVersion(str(version), str(old.memory))
        self.versions[version] = old._replace(path=None, content=None, redacted=True)

    def restore(self, version: int) -> None:
        """Write the content of an older version again, under the memory's old number."""
        old = self.versions[version]
        if old.redacted:
            raise ContentGone(str(version), EPOCH)
        if old.path is None or old.content is None:
            raise InvalidInput("version", "tells of a deletion")
        live = self.memories.get(old.memory)
        if live is None:
            self._check_free(old.path)
            self._check_room()
            self._write(old.memory, "created", old.path, old.content)
        elif live.content != old.content:
            self._write(old.memory, "modified", live.path, old.content)

    def listed(self, prefix: str = "/", depth: int = 0) -> list[str]:
        """Return the paths of a list of the store, in byte order."""
        below = [each.path for each in self.memories.values() if each.path.startswith(prefix)]
        if depth:
            below = [prefix + _first(path[len(prefix) :]) for path in below]
        return sorted(set(below), key=str.encode)

    def _live(self, number: int) -> ModelMemory:
        if number not in self.memories:
            raise NotFound("memory", str(number))
        return self.memories[number]

    def _under(self, path: str) -> list[int]:
        return [
            number
            for number, each in self.memories.items()
            if (each.path + "/").startswith(path + "/")
        ]

    def _check_free(self, path: str, *, moving: Collection[int] = ()) -> None:
        blockers = [
            each.path
            for number, each in self.memories.items()
            if number not in moving and excludes(each.path, path)
        ]
        if blockers:
            raise PathTaken("", min(blockers, key=str.encode))

    def _check_room(self) -> None:
        if len(self.memories) >= self.cap:
            raise StoreFull("", self.cap)

    def _write(self, number: int, operation: Operation, path: str, content: str) -> None:
        self.memories[number] = ModelMemory(path, content, len(self.versions))
        self.versions.append(ModelVersion(number, operation, path, content))

    def _end(self, number: int) -> None:
        gone = self.memories.pop(number)
        self.versions.append(ModelVersion(number, "deleted", gone.path, None))


def _check(path: str | None, content: str | None) -> None:
    if path is not None and not is_path(path):
        raise InvalidInput("path", "is no path")
    if content is not None and not is_content(content):
        raise InvalidInput("content", "is no content")


def _check_expected(memory: ModelMemory, expected: str | None) -> None:
    if expected is not None and expected != memory.content:
        raise PreconditionFailed("", expected=expected, current=memory.content)


def _first(path: str) -> str:
    head, slash, _ = path.partition("/")
    return head + slash


def same_refusal(ours: HoldfastError | None, theirs: HoldfastError | None) -> bool:
    """Check whether two errors, or None, have the same class and conflicting path."""
    path = getattr(ours, "conflicting_path", None)
    return type(ours) is type(theirs) and path == getattr(theirs, "conflicting_path", None)
